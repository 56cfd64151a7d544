"""One end of a link in isolation: repeated frames are taken once, and impossible ones are refused."""

from __future__ import annotations

import pytest

from regraft.producers.brokers.broker_messages import End
from regraft.producers.nodes.links.carried_messages import CarriedNotification, LinkError, body_of
from regraft.producers.nodes.links.link_session import LINK_VERSION, Hello, LinkSession


def session_with(count: int) -> LinkSession:
    session = LinkSession("b01", "1")
    session.handle_hello(Hello(LINK_VERSION, "b02", "1", "", 0))
    for epoch in range(count):
        session.put(body_of(End(epoch)))
    return session


def test_a_repeated_frame_is_taken_once() -> None:
    session = session_with(0)
    assert [session.accept(number) for number in (1, 2, 2, 1, 3)] == [True, True, False, False, True]
    assert session.received == 3


def test_a_frame_behind_a_gap_is_refused() -> None:
    session = session_with(0)
    with pytest.raises(LinkError, match="frame 2 arrived after 0"):
        session.accept(2)


def test_an_acknowledgement_of_an_unsent_frame_is_refused() -> None:
    session = session_with(3)
    session.acknowledge(2)
    for number in (1, 4):
        with pytest.raises(LinkError, match="can only acknowledge 2 to 3"):
            session.acknowledge(number)


def test_what_a_past_life_was_owed_is_counted() -> None:
    """Only notifications count: control messages for a past incarnation are no loss."""
    notification = CarriedNotification("p", 1, 0.0, "b01", 0, {}, 1, subject="a", payload=b"x")
    session = session_with(1)
    for _ in range(3):
        session.put(body_of(notification))
    session.acknowledge(2)
    assert session.handle_hello(Hello(LINK_VERSION, "b02", "2", "1", 0))
    assert session.lost_notifications == 2
    session.put(body_of(notification))
    assert session.successor("2").lost_notifications == 3


def test_the_next_connection_sends_what_was_not_acknowledged() -> None:
    session = session_with(5)
    assert [number for number, _ in session.take_unsent(1 << 20)] == [1, 2, 3, 4, 5]
    session.acknowledge(2)
    session.handle_hello(Hello(LINK_VERSION, "b02", "1", "1", 3))
    assert [number for number, _ in session.take_unsent(1 << 20)] == [4, 5]
    assert not session.has_unsent
