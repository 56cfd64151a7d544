"""All that one step sends over one link goes as one message, and no message overtakes another on its link."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from regraft.producers.brokers.broker_messages import (
    Bundle,
    Effect,
    End,
    Notification,
    Published,
    Send,
    control_messages_in,
)
from regraft.producers.brokers.bundle_messages import bundled


def notification(sequence: int) -> Notification:
    return Notification("p", sequence, 1.0, "a", 0, {"symbol": "A"}, 10)


def unpacked(effects: list[Effect], peer: str) -> list[object]:
    """Return what a neighbour receives, message by message."""
    found: list[object] = []
    for effect in effects:
        if isinstance(effect, Send) and effect.peer == peer:
            found += effect.message.messages if isinstance(effect.message, Bundle) else [effect.message]
    return found


steps = st.lists(
    st.one_of(
        st.builds(lambda peer, epoch: Send(peer, End(epoch)), st.sampled_from("abc"), st.integers(0, 99)),
        st.builds(lambda peer, number: Send(peer, notification(number)), st.sampled_from("abc"), st.integers(0, 99)),
        st.builds(lambda number: Published(notification(number)), st.integers(0, 99)),
    )
)


@given(steps)
def test_every_neighbour_gets_the_same_messages_in_the_same_order(effects: list[Effect]) -> None:
    once = bundled(effects)
    for peer in "abc":
        assert unpacked(once, peer) == unpacked(effects, peer)
    rest = [effect for effect in effects if not isinstance(effect, Send)]
    assert [effect for effect in once if not isinstance(effect, Send)] == rest


@given(steps)
def test_control_messages_to_one_neighbour_are_bundled_between_notifications(
    effects: list[Effect],
) -> None:
    for peer in "abc":
        sent = [effect.message for effect in bundled(effects) if isinstance(effect, Send) and effect.peer == peer]
        is_control = [not isinstance(message, Notification) for message in sent]
        assert not any(first and second for first, second in itertools.pairwise(is_control))


def test_a_bundle_counts_as_its_contents() -> None:
    (sent,) = bundled([Send("a", End(0)), Send("a", End(1))])
    assert isinstance(sent, Send)
    assert control_messages_in(sent.message) == 2
    assert control_messages_in(End(0)) == 1
