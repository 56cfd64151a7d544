"""A client of MQTT 5 that moves to another broker with one connection at a time: sessions are its buffers. Copy it."""

import time
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any
from uuid import uuid4

from copies import HEADER, Copies
from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

SESSION_S, WAIT_S = 600, 60


class Session:
    """A client's session at one broker, which outlives its connections; messages are acknowledged one by one."""

    def __init__(self, client: str, broker: str, address: tuple[str, int]) -> None:
        self.broker, self.address = broker, address
        self.messages, self.answers = SimpleQueue[Any](), SimpleQueue[str]()
        self.paho = paho.Client(CallbackAPIVersion.VERSION2, client, protocol=paho.MQTTv5, manual_ack=True)
        self.paho.on_connect = lambda *_: self.answers.put("CONNACK")
        self.paho.on_subscribe = lambda *_: self.answers.put("SUBACK")
        self.paho.on_unsubscribe = lambda *_: self.answers.put("UNSUBACK")
        self.paho.on_message = lambda _client, _data, message: self.messages.put(message)
        self.acknowledged: deque[Any] = deque(maxlen=1_000)

    def enter(self, *, is_new: bool = False) -> None:
        """Connect; a session that is not new resumes."""
        self.messages = SimpleQueue()  # What was not acknowledged comes again.
        properties = Properties(PacketTypes.CONNECT)
        properties.SessionExpiryInterval = SESSION_S
        self.paho.connect(*self.address, clean_start=is_new, properties=properties)
        self.paho.loop_start()
        self.answers.get(timeout=WAIT_S)

    def subscribe(self, topics: list[str]) -> None:
        """Subscribe, and wait for the broker's answer."""
        self.paho.subscribe([(topic, SubscribeOptions(qos=1)) for topic in topics])
        self.answers.get(timeout=WAIT_S)

    def unsubscribe(self, topics: list[str]) -> None:
        """Unsubscribe, and wait for the broker's answer."""
        self.paho.unsubscribe(topics)
        self.answers.get(timeout=WAIT_S)

    def leave(self, *, ends: bool = False) -> None:
        """Disconnect; the broker keeps what comes for the session, until that ends."""
        properties = Properties(PacketTypes.DISCONNECT)
        properties.SessionExpiryInterval = 0 if ends else SESSION_S
        self.paho.disconnect(properties=properties)
        self.paho.loop_stop()

    def take(self, handle: Callable[[Any], None], timeout_s: float) -> None:
        """Handle the next message, or raise Empty; one whose acknowledgement was lost is not handled twice."""
        message = self.messages.get(timeout=timeout_s)
        identity = (message.mid, message.topic, message.payload)
        if message.qos == 0 or not (message.dup and identity in self.acknowledged):
            handle(message)
            self.acknowledged.append(identity)
        self.paho.ack(message.mid, message.qos)

    def publish(self, topic: str, payload: str) -> None:
        """Publish, and wait until the broker has it."""
        self.paho.publish(topic, payload, 1).wait_for_publish(WAIT_S)


Handle = Callable[[Any], None]


def move(old: Session, following: Session, topics: list[str], handle: Handle, overlap_s: float = 3.0) -> None:
    """Move; then take messages from the following session, and publish there.

    ``overlap_s`` exceeds what the overlay needs to confirm a subscription.
    """
    marker, copies = f"moving/{uuid4().hex}", Copies(old.broker, following.broker)
    old.subscribe([marker])
    old.leave()
    following.enter(is_new=True)
    following.subscribe([marker, *topics])
    time.sleep(overlap_s)
    following.publish(marker, following.broker)
    following.leave()
    old.enter()
    _take_until(old, marker, copies, handle)
    old.unsubscribe([marker, *topics])
    old.leave(ends=True)
    following.enter()
    _take_until(following, marker, copies, handle)
    following.unsubscribe([marker])


def _take_until(session: Session, marker: str, copies: Copies, handle: Handle) -> None:
    """Handle what is new up to the old broker's marker, which is published once the following one's has come."""

    def handle_new(message: Any) -> None:
        if message.topic == marker:
            copies.passed.add((session.broker, message.payload.decode()))
            if (session.broker, message.payload.decode()) == (copies.old, copies.following):
                session.publish(marker, session.broker)
        elif copies.is_new(session.broker, dict(getattr(message.properties, "UserProperty", [])).get(HEADER)):
            handle(message)

    deadline_s = time.monotonic() + WAIT_S
    while (session.broker, copies.old) not in copies.passed:
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"a marker has not come within {WAIT_S} s")
        session.take(handle_new, WAIT_S)
