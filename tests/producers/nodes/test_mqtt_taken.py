"""What an MQTT broker redelivers is taken once, and no acknowledgement is given for another message."""

from __future__ import annotations

import mqtt5

from regraft.producers.nodes.mqtt.mqtt_taken import TAKEN_MAX, TakenAtOnce, TakenUntilSafe


def message(payload: bytes = b"1", *, duplicate: bool = False) -> mqtt5.PublishPacket:
    return mqtt5.PublishPacket("t", payload, qos=mqtt5.QoS.AT_LEAST_ONCE, packet_id=1, duplicate=duplicate)


def test_a_redelivery_is_recognised_by_number_content_and_mark() -> None:
    """Any two of the three may also be those of another message."""
    taken = TakenAtOnce()
    assert taken.take(message(), 7) == 0
    assert taken.take(message(duplicate=True), 7) is None
    assert taken.take(message(), 7) == 0
    assert taken.take(message(b"2", duplicate=True), 7) == 0
    assert taken.take(message(b"2", duplicate=True), 8) == 0
    taken.begin()
    assert taken.take(message(b"2", duplicate=True), 7) == 0


def test_the_memory_for_redeliveries_is_bounded() -> None:
    """The oldest number is dropped first."""
    taken = TakenAtOnce()
    for number in range(1, TAKEN_MAX + 2):
        taken.take(message(), number)
    assert taken.take(message(duplicate=True), TAKEN_MAX + 1) is None
    assert taken.take(message(duplicate=True), 1) == 0


def test_a_message_of_a_durable_session_is_under_way_until_it_is_safe() -> None:
    """Then its number is free again; if the broker is away, it is acknowledged on redelivery."""
    taken = TakenUntilSafe()
    first, second = taken.take(message(), 7), taken.take(message(), 8)
    assert first
    assert second
    assert taken.take(message(), 7) is None
    assert not taken.may_forget(7)
    assert taken.release(first, True) == 7
    assert taken.release(first, True) == 0
    assert taken.release(second, False) == 0
    assert taken.take(message(duplicate=True), 8) is None
    assert taken.may_forget(8)
    assert taken.take(message(b"2"), 8) not in (None, 0, first, second)


def test_a_receipt_of_a_former_session_is_void() -> None:
    """A broker that has lost the session reuses its numbers for other messages, which are not safe yet."""
    taken = TakenUntilSafe()
    before = taken.take(message(), 7)
    taken.begin()
    after = taken.take(message(b"2"), 7)
    assert before
    assert after
    assert taken.release(before, True) == 0
    assert taken.release(after, True) == 7
