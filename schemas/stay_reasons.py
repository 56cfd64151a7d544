"""Why no plan can move a client, or some of what it subscribes: as its agent or its node sees it. Pure.

Notes and records carry a reason's label as text, so that those of a later version remain readable; :func:`reason_of` is
the only place that reads one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import StrEnum


class StayReason(StrEnum):
    """The value says why to a person; metrics, notes and records have the name in lower case."""

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
    REFUSED = "its agent could not take it to another broker, which is tried again after a while"

    @property
    def label(self) -> str:
        """The reason as metrics, notes and records have it."""
        return self.name.lower()


_BY_LABEL = {reason.label: reason for reason in StayReason}


def reason_of(label: str) -> StayReason | None:
    """Return the reason with a label; None for none, and for one that this version does not have."""
    return _BY_LABEL.get(label)


def reasons_text(staying: Mapping[str, int], count: int) -> str:
    """Return in parentheses why ``count`` subscribers stay, most first; "" if of none it is known."""
    if not staying:
        return ""
    counts = sorted(staying.items(), key=lambda one: (-one[1], one[0]))
    other = count - sum(staying.values())
    named = [f"{several} {label.replace('_', ' ')}" for label, several in counts]
    return f" ({', '.join(named + ([f'{other} other'] if other > 0 else []))})"


def total_staying(counts: Iterable[Mapping[str, int]]) -> Counter[str]:
    """Return how many subscribers of several brokers stay, by reason."""
    return sum(map(Counter, counts), Counter[str]())
