"""A consumer of RabbitMQ that moves to another broker: its next queue fills while it drains the old one. Copy it."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from uuid import uuid4

from copies import HEADER, Copies
from pika.adapters.blocking_connection import BlockingChannel

WAIT_S = 60
Handle = Callable[[str, bytes], None]  # Routing key and body.


@dataclass(frozen=True)
class Place:
    """A broker by its name in the overlay, a channel there, the client's queue, and the exchange that takes part."""

    broker: str
    channel: BlockingChannel
    queue: str
    exchange: str = "amq.topic"

    def declare(self, keys: list[str]) -> None:
        """Bind the queue, which is declared if there is none."""
        self.channel.queue_declare(self.queue, durable=True)
        for key in keys:
            self.channel.queue_bind(self.queue, self.exchange, key)

    def publish(self, key: str, body: bytes) -> None:
        """Publish at the exchange."""
        self.channel.basic_publish(self.exchange, key, body)


def move(old: Place, following: Place, keys: list[str], handle: Handle, overlap_s: float = 3.0) -> None:
    """Move to a queue at the following broker, which nobody consumes yet; then consume it, and publish there.

    ``overlap_s`` exceeds what the overlay needs to confirm a binding.
    """
    marker, copies = f"moving.{uuid4().hex}", Copies(old.broker, following.broker)
    old.declare([marker])
    following.declare([marker, *keys])
    following.channel.connection.sleep(overlap_s)
    following.publish(marker, following.broker.encode())
    _take_until(old, marker, copies, handle)
    old.channel.queue_delete(old.queue)
    _take_until(following, marker, copies, handle)
    following.channel.queue_unbind(following.queue, following.exchange, marker)


def _take_until(place: Place, marker: str, copies: Copies, handle: Handle) -> None:
    """Handle what is new up to the old broker's marker, which is published once the following one's has come."""
    deadline_s = time.monotonic() + WAIT_S
    for deliver, properties, body in place.channel.consume(place.queue, inactivity_timeout=WAIT_S):
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"a marker has not come within {WAIT_S} s")
        if deliver.routing_key == marker:
            copies.passed.add((place.broker, body.decode()))
            if (place.broker, body.decode()) == (copies.old, copies.following):
                place.publish(marker, place.broker.encode())
        elif copies.is_new(place.broker, (properties.headers or {}).get(HEADER)):
            handle(deliver.routing_key, body)
        place.channel.basic_ack(deliver.delivery_tag)
        if (place.broker, copies.old) in copies.passed:
            break
    place.channel.cancel()  # What was fetched in advance returns to the queue.
