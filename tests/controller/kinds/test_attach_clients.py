"""What a ring's window has in addition to delivery sets: rates of topics, interests, and users away from their home."""

import pytest

from regraft.controller.kinds.ring.attach_clients import topic_traffic, with_clients
from regraft.controller.state.closed_window import ClosedWindow
from regraft.overlay.ring.ring_configuration import RingConfiguration
from regraft.overlay.ring.user_interests import UserInterests
from regraft.schemas.plan import ClientMove
from tests.controller.scripted_ring import BROKERS, RING, ring_window
from tests.overlay.small_overlays import publishers_of

SETS = publishers_of(
    BROKERS,
    {"p": ("b00", [{"b01", "b02"}] * 70), "q": ("b01", [set()] * 30), "r": ("b02", [{"b02"}] * 25)},
    span_s=5.0,
)
WINDOW = ClosedWindow(0, 5000, SETS, epoch_min=1, epoch_max=1)
USERS = UserInterests.of(BROKERS, {"u": ("b00", ["a"]), "v": ("b01", ["a", "b"]), "w": ("b02", ["b"])})


def test_a_notification_counts_once_wherever_it_was_delivered() -> None:
    """p's 70 notifications were delivered at two brokers, q's 30 nowhere; both publish on topic a."""
    found = topic_traffic(SETS, {"p": "a", "q": "a", "r": "b"})
    assert found.rates_per_s == pytest.approx({"a": 20.0, "b": 5.0})
    assert (found.unknown_publishers, found.unknown_share) == ((), 0.0)


def test_publishers_without_a_topic_are_named_and_counted() -> None:
    """Their notifications have no rate; beyond the allowed share the window is not decided on."""
    found = topic_traffic(SETS, {"p": "a", "q": "a"})
    assert found.rates_per_s == pytest.approx({"a": 20.0})
    assert found.unknown_publishers == ("r",)
    assert found.unknown_share == pytest.approx(0.2)
    assert with_clients(WINDOW, USERS, found, [RING], 0.25).is_complete
    error = with_clients(WINDOW, USERS, found, [RING], 0.05).error
    assert error.startswith("20% of the notifications come from publishers without a topic (r), but the limit is 5%")


def test_a_window_without_interests_is_incomplete_with_a_reason() -> None:
    """An earlier error of the window is still reported."""
    traffic = topic_traffic(SETS, {})
    empty = ClosedWindow(0, 5000, SETS, error="rows missing: 1 of kind queue")
    found = with_clients(empty, None, traffic, [RING], 1.0, "the register is not read")
    assert (
        found.error == "rows missing: 1 of kind queue; the users' subscriptions are unknown: the register is not read"
    )
    with pytest.raises(ValueError, match="the users are unknown in the window ending 1970-01-01 00:00:05 UTC"):
        found.interests_at({})


def moved(epoch: int, *moves: ClientMove) -> RingConfiguration:
    return RING.replaced(epoch, (), {move.client: move.home_to for move in moves})


def test_a_user_that_is_not_where_plans_put_it_has_moved_by_itself() -> None:
    """u is where a plan put it, v is not, w was never moved; in no configuration is v elsewhere."""
    traffic = topic_traffic(SETS, {})
    ring = moved(1, ClientMove("u", "b05", "b00"), ClientMove("v", "b05", "b07"), ClientMove("gone", "b05", "b06"))
    window = with_clients(WINDOW, USERS, traffic, [ring], 1.0)
    assert window.strayed == {"v"}
    placed = window.interests_at({"u": "b05", "v": "b05", "w": "b03", "gone": "b05"})
    assert [BROKERS[at] for at in placed.homes] == ["b05", "b01", "b03"]


def test_during_a_transition_a_user_may_be_at_its_old_home() -> None:
    """The second plan has yet to move v; w was moved by the first and is at neither broker."""
    traffic = topic_traffic(SETS, {})
    first = moved(1, ClientMove("v", "b05", "b01"), ClientMove("w", "b05", "b03"))
    second = first.replaced(2, (), {"v": "b06", "u": "b04"})
    assert with_clients(WINDOW, USERS, traffic, [first, second], 1.0).strayed == {"w"}
    assert with_clients(WINDOW, USERS, traffic, [second, second], 1.0).strayed == {"u", "v", "w"}


def test_users_at_other_homes_are_found_once() -> None:
    """Nothing is copied if all users are at their homes, and the last answer is cached."""
    window = ring_window({"u": ("b00", ["a"]), "v": ("b01", ["a"])}, {"a": 3})
    assert window.interests_at({"u": "b00", "nobody": "b03"}) is window.interests
    at_b03 = window.interests_at({"u": "b03"})
    assert window.interests_at({"u": "b03", "v": "b01"}) is at_b03
    assert at_b03.homes.tolist() == [3, 1]
    with pytest.raises(KeyError):
        window.interests_at({"u": "b99"})
    stripped = window.without_interests()
    assert (stripped.interests, stripped.topic_rates_per_s) == (None, window.topic_rates_per_s)
