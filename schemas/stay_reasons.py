"""Why no plan can move a client, or some of what it subscribes: as its agent sees it. Pure."""

from __future__ import annotations

from enum import StrEnum


class StayReason(StrEnum):
    """The value says why to a person; metrics have the name in lower case."""

    SIGNED_LOGIN = "its login is a signature for one server"
    NO_ECHO = "it refuses its own messages, which a second broker does not recognise"
    NO_HEADERS = "it reads no headers"
    SERVER_SUBJECTS = "it uses subjects of the server, such as JetStream"
    QUEUE_GROUP = "all that it subscribes is for queue groups"
    RIGHTS = "its broker refuses what agents need"
    VERSION = "it speaks neither MQTT 3.1.1 nor MQTT 5"
    AUTHENTICATION = "it uses enhanced authentication, a dialogue with one broker"
    SESSION = "its session is persistent, and kept by one broker"
    SMALL_PACKETS = "it accepts only small packets"
    NO_IDENTIFIERS = "its broker has no subscription identifiers"
    LONG_NAME = "its identifier, or a filter, is too long"
    SERVER_TOPICS = "it has a shared subscription, or uses topics of the broker"
    QOS_2 = "it uses QoS 2, a dialogue with one broker"

    @property
    def label(self) -> str:
        """The reason as metrics show it."""
        return self.name.lower()
