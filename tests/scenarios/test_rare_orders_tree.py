"""Rare orders of messages on a tree that once lost, blocked or leaked something, each as short as possible."""

from __future__ import annotations

import pytest

from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.producers.brokers.broker_messages import (
    Advertise,
    AdvertiseAck,
    AdvertiseConfirmed,
    AdvertiseRequest,
    CancelRequest,
    ClientDropped,
    Dropped,
    LeaveRequest,
    SubscribeRequest,
    Unadvertise,
    UnadvertiseRequest,
)
from regraft.producers.brokers.epoch_change import CLIENT_WAIT_MS_MAX
from regraft.schemas.command import CommandPhase, Outcome
from regraft.schemas.plan import ClientMove
from tests.scenarios.step_by_step import ALL, StepByStep

PAIR = TreeConfiguration.of(0, ["b0", "b1"], [("b0", "b1")])
PREPARE, ACTIVATE, RETIRE = CommandPhase.PREPARE, CommandPhase.ACTIVATE, CommandPhase.RETIRE


def publisher_ends_while_one_of_two_is_prepared() -> tuple[StepByStep, TreeConfiguration]:
    """Return a plan that exchanges two publishers; b1 is prepared while p2 is connected, b0 after it has ended."""
    overlay = StepByStep(PAIR)
    overlay.feed("b0", None, AdvertiseRequest("p1", ALL))
    overlay.feed("b1", None, AdvertiseRequest("p2", ALL))
    overlay.run()
    overlay.feed("b1", None, SubscribeRequest("s", "s", ALL))
    overlay.run()
    moves = (ClientMove("p1", "b0", "b1"), ClientMove("p2", "b1", "b0"))
    target = PAIR.replaced(1, [], [])
    overlay.command("b1", PREPARE, target, moves)
    overlay.run()
    overlay.feed("b1", None, UnadvertiseRequest("p2"))
    overlay.run()
    overlay.command("b0", PREPARE, target, moves)
    overlay.run()
    overlay.command("b0", ACTIVATE, target)
    overlay.feed("b0", None, LeaveRequest("p1"))
    overlay.run()
    overlay.command("b1", ACTIVATE, target)
    overlay.run()
    for broker in overlay.brokers:
        overlay.command(broker, RETIRE, target)
        overlay.run()
    return overlay, target


def test_a_later_publisher_reaches_subscriptions_whatever_ended_during_the_prepare() -> None:
    """What a neighbour holds follows from the two trees, not from who still knew a publisher when it prepared."""
    overlay, _ = publisher_ends_while_one_of_two_is_prepared()
    overlay.feed("b0", None, AdvertiseRequest("p3", ALL))
    overlay.run()
    for _ in range(3):
        overlay.publish("b0", "p3", symbol="A")
        overlay.run()
    assert overlay.got == [("s", "p3", sequence) for sequence in range(3)]


def test_a_publisher_that_moves_back_reaches_subscriptions_whatever_ended_during_the_prepare() -> None:
    """The order is the same, with the next plan instead of a new publisher."""
    overlay, target = publisher_ends_while_one_of_two_is_prepared()
    back = target.replaced(2, [], [])
    overlay.execute(back, (ClientMove("p1", "b1", "b0"),), phases=(PREPARE,))
    overlay.command("b1", ACTIVATE, back)
    overlay.feed("b1", None, LeaveRequest("p1"))
    overlay.command("b0", ACTIVATE, back)
    overlay.run()
    overlay.execute(back, phases=(RETIRE,))
    overlay.publish("b0", "p1", symbol="A")
    overlay.run()
    assert overlay.got == [("s", "p1", 0)]


@pytest.mark.parametrize("prepared_first", ["b0", "b1"])
def test_a_subscription_leaves_nothing_behind_whichever_broker_still_knew_its_publisher(prepared_first: str) -> None:
    """A publisher ends between the prepares of two neighbours; then the subscription ends: both have forgotten it."""
    overlay = StepByStep(PAIR)
    overlay.feed("b0", None, AdvertiseRequest("p", ALL))
    overlay.run()
    overlay.feed("b1", None, SubscribeRequest("s", "s", ALL))
    overlay.run()
    target = PAIR.replaced(1, [], [])
    overlay.command(prepared_first, PREPARE, target)
    overlay.run()
    overlay.feed("b0", None, UnadvertiseRequest("p"))
    overlay.run()
    overlay.execute(target)
    overlay.feed("b1", None, CancelRequest("s"))
    overlay.run()
    assert not any(core.state.tables[1].entries for core in overlay.cores.values())


def test_a_subscription_is_withdrawn_from_where_its_publisher_has_moved_away() -> None:
    """Entries derived from the trees alone do not pile up behind moved publishers."""
    overlay = StepByStep(PAIR)
    overlay.feed("b0", None, AdvertiseRequest("p", ALL))
    overlay.run()
    overlay.feed("b1", None, SubscribeRequest("s", "s", ALL))
    overlay.run()
    target = PAIR.replaced(1, [], [])
    overlay.execute(target, (ClientMove("p", "b0", "b1"),), phases=(PREPARE,))
    assert "s" in overlay.cores["b0"].state.tables[0].entries
    assert not overlay.cores["b0"].state.tables[1].entries
    assert not overlay.cores["b1"].state.tables[1].entries["s"].forwarded


def test_a_subscription_withdrawn_from_a_neighbour_is_sent_again_for_a_publisher_that_connects_meanwhile() -> None:
    """The new publisher's advertisement crosses the withdrawal; it may publish once the subscription is back."""
    overlay = StepByStep(PAIR)
    overlay.feed("b0", None, AdvertiseRequest("p", ALL))
    overlay.run()
    overlay.feed("b1", None, SubscribeRequest("s", "s", ALL))
    overlay.run()
    target, moves = PAIR.replaced(1, [], []), (ClientMove("p", "b0", "b1"),)
    overlay.command("b1", PREPARE, target, moves)  # Withdraws s from b0 in epoch 1.
    overlay.feed("b0", None, AdvertiseRequest("q", ALL))
    overlay.cross("b0", "b1")
    overlay.command("b0", PREPARE, target, moves)
    overlay.run()
    overlay.command("b0", ACTIVATE, target)
    overlay.feed("b0", None, LeaveRequest("p"))
    overlay.command("b1", ACTIVATE, target)
    overlay.run()
    overlay.publish("b0", "q", symbol="A")
    overlay.run()
    assert overlay.got == [("s", "q", 0)]


def test_a_publisher_that_ends_before_it_is_confirmed_blocks_no_plan() -> None:
    """Answers to a withdrawn advertisement are not waited for."""
    overlay = StepByStep(PAIR)
    overlay.feed("b0", None, AdvertiseRequest("p", ALL))
    overlay.feed("b0", None, UnadvertiseRequest("p"))
    overlay.run()
    overlay.execute(PAIR.replaced(1, [], []))
    assert overlay.answered(Outcome.RETIRED) == {"b0", "b1"}


@pytest.mark.parametrize("home", ["b0", "b1"])
def test_a_publisher_that_returns_under_its_name_may_publish_and_is_delivered(home: str) -> None:
    """It may be at the same home or another one, even while the end of its earlier stay is still on its way."""
    overlay = StepByStep(PAIR)
    overlay.feed("b0", None, AdvertiseRequest("p", ALL, 0))
    overlay.feed("b1", None, SubscribeRequest("s", "s", ALL))
    overlay.run()
    overlay.feed("b0", None, UnadvertiseRequest("p", 0))
    overlay.feed(home, None, AdvertiseRequest("p", ALL, 1))
    overlay.run()
    assert overlay.effects_of(AdvertiseConfirmed) == [AdvertiseConfirmed("p", 0), AdvertiseConfirmed("p", 1)]
    overlay.publish(home, "p", symbol="A")
    overlay.run()
    assert overlay.got == [("s", "p", 0)]


def test_the_end_of_another_stay_changes_nothing() -> None:
    """Numbers distinguish stays in any order of arrival."""
    overlay = StepByStep(PAIR)
    overlay.feed("b0", None, AdvertiseRequest("p", ALL, 1))
    overlay.run()
    overlay.feed("b0", None, UnadvertiseRequest("p", 0))
    overlay.run()
    assert all("p" in core.routing.interests.advertisements for core in overlay.cores.values())
    target = PAIR.replaced(1, [], [])
    overlay.execute(target, (ClientMove("p", "b0", "b1"),), phases=(PREPARE, ACTIVATE))
    overlay.feed("b0", None, LeaveRequest("p", 0))
    assert overlay.answered(Outcome.ACTIVATED) == {"b1"}
    overlay.feed("b0", None, LeaveRequest("p", 1))
    assert overlay.answered(Outcome.ACTIVATED) == {"b0", "b1"}


def test_a_publisher_that_returns_during_a_transition_is_advertised_once_after_it() -> None:
    """Its end and its return wait in their order; a stay that began and ended meanwhile leaves no trace."""
    overlay = StepByStep(PAIR)
    overlay.feed("b0", None, AdvertiseRequest("p", ALL, 0))
    overlay.run()
    target = PAIR.replaced(1, [], [])
    overlay.execute(target, phases=(PREPARE,))
    for request in (
        UnadvertiseRequest("p", 0),
        AdvertiseRequest("p", ALL, 1),
        UnadvertiseRequest("p", 1),
        AdvertiseRequest("p", ALL, 2),
    ):
        overlay.feed("b0", None, request)
    overlay.execute(target, phases=(ACTIVATE, RETIRE))
    assert overlay.effects_of(AdvertiseConfirmed) == [AdvertiseConfirmed("p", 0), AdvertiseConfirmed("p", 2)]
    assert {core.routing.interests.advertisements["p"].connection for core in overlay.cores.values()} == {2}


def test_a_publisher_that_does_not_leave_its_old_home_ends_and_blocks_no_plan() -> None:
    """After some time its home ends its stay; what it hands over then is not taken until it reconnects."""
    overlay = StepByStep(PAIR)
    overlay.feed("b0", None, AdvertiseRequest("p", ALL, 0))
    overlay.run()
    target, moves = PAIR.replaced(1, [], []), (ClientMove("p", "b0", "b1"),)
    overlay.execute(target, moves, phases=(PREPARE, ACTIVATE))
    overlay.execute(target, phases=(ACTIVATE,))
    assert overlay.answered(Outcome.ACTIVATED) == {"b1"}
    overlay.now_ms += int(CLIENT_WAIT_MS_MAX) + 1
    overlay.execute(target, phases=(ACTIVATE, RETIRE))
    assert overlay.effects_of(ClientDropped) == [ClientDropped("p", 0, is_over=True)]
    assert overlay.answered(Outcome.RETIRED) == {"b0", "b1"}
    assert not any(core.routing.interests.advertisements for core in overlay.cores.values())
    overlay.publish("b0", "p", symbol="A")
    assert [effect.reason for effect in overlay.effects_of(Dropped)] == ["publisher_not_advertised"]
    overlay.feed("b0", None, AdvertiseRequest("p", ALL, 1))
    overlay.run()
    assert overlay.effects_of(AdvertiseConfirmed)[-1] == AdvertiseConfirmed("p", 1)


def test_a_broker_takes_notifications_only_of_its_own_publishers() -> None:
    """A client that publishes away from its home would reach only some of its subscribers, and out of order."""
    overlay = StepByStep(PAIR)
    overlay.feed("b1", None, AdvertiseRequest("p", ALL))
    overlay.feed("b0", None, SubscribeRequest("s", "u", ALL))
    overlay.run()
    overlay.publish("b0", "p", symbol="A")
    overlay.publish("b1", "p", symbol="A")
    overlay.run()
    assert overlay.got == [("s", "p", 1)]
    assert [effect.reason for effect in overlay.effects_of(Dropped)] == ["publisher_not_advertised"]


def test_a_late_command_of_an_earlier_plan_retires_nothing() -> None:
    """A repeated retire arrives when the next plan is drained: other brokers may still need the epoch before that."""
    overlay = StepByStep(PAIR)
    first = PAIR.replaced(1, [], [])
    second = first.replaced(2, [], [])
    overlay.execute(first)
    overlay.execute(second, phases=(PREPARE, ACTIVATE))
    overlay.command("b0", RETIRE, first)
    assert set(overlay.cores["b0"].state.tables) == {1, 2}


def test_a_preparing_broker_is_not_activated() -> None:
    """Its publisher is not known everywhere yet; it answers so, and continues preparing."""
    overlay = StepByStep(PAIR)
    target = PAIR.replaced(1, [], [])
    overlay.feed("b0", None, AdvertiseRequest("p", ALL))
    overlay.command("b0", PREPARE, target)
    overlay.command("b0", ACTIVATE, target)
    assert overlay.answers == [("b0", Outcome.REFUSED)]
    overlay.run()
    assert overlay.answered(Outcome.PREPARED) == {"b0"}


def test_what_a_moved_publisher_publishes_waits_until_its_old_home_has_switched() -> None:
    """It reaches the next home sooner than its departure reaches the old one."""
    overlay = StepByStep(PAIR)
    overlay.feed("b0", None, AdvertiseRequest("p", ALL))
    overlay.feed("b0", None, SubscribeRequest("s", "s", ALL))
    overlay.run()
    target = PAIR.replaced(1, [], [])
    overlay.execute(target, (ClientMove("p", "b0", "b1"),), phases=(PREPARE,))
    for broker in ("b1", "b0"):
        overlay.command(broker, ACTIVATE, target)
    overlay.run()
    overlay.publish("b1", "p", symbol="A")
    overlay.run()
    assert overlay.got == []
    overlay.feed("b0", None, LeaveRequest("p"))
    assert overlay.got == [("s", "p", 0)]


def test_a_home_switches_once_the_last_of_its_moving_publishers_has_left() -> None:
    """What the last one hands over until then is of the old epoch: END must follow it."""
    overlay = StepByStep(PAIR)
    overlay.feed("b0", None, AdvertiseRequest("p", ALL))
    overlay.feed("b0", None, AdvertiseRequest("q", ALL))
    overlay.feed("b1", None, SubscribeRequest("s", "s", ALL))
    overlay.run()
    target, moves = PAIR.replaced(1, [], []), (ClientMove("p", "b0", "b1"), ClientMove("q", "b0", "b1"))
    overlay.execute(target, moves, phases=(PREPARE, ACTIVATE))
    overlay.feed("b0", None, LeaveRequest("p"))
    assert overlay.answered(Outcome.ACTIVATED) == {"b1"}
    overlay.publish("b0", "q", symbol="A")
    overlay.feed("b0", None, LeaveRequest("q"))
    assert overlay.answered(Outcome.ACTIVATED) == {"b0", "b1"}
    overlay.publish("b1", "q", symbol="A")
    overlay.run()
    assert overlay.got == [("s", "q", 0), ("s", "q", 1)]


def test_a_publisher_that_ends_at_its_next_home_is_known_until_its_old_one_has_switched() -> None:
    """Its end there arrives sooner than its departure at the old home."""
    overlay = StepByStep(PAIR)
    overlay.feed("b0", None, AdvertiseRequest("p", ALL))
    overlay.run()
    target = PAIR.replaced(1, [], [])
    overlay.execute(target, (ClientMove("p", "b0", "b1"),), phases=(PREPARE, ACTIVATE))
    overlay.feed("b1", None, UnadvertiseRequest("p"))
    overlay.run()
    overlay.feed("b0", None, LeaveRequest("p"))
    overlay.run()
    overlay.execute(target, phases=(RETIRE,))
    assert overlay.answered(Outcome.RETIRED) == {"b0", "b1"}
    assert not any(core.routing.interests.advertisements for core in overlay.cores.values())


def test_a_stay_that_begins_and_ends_while_the_earlier_one_is_ending_removes_only_itself() -> None:
    """All three wait until the transition is over: the end of the first stay is still to be reported."""
    overlay = StepByStep(PAIR)
    overlay.feed("b0", None, AdvertiseRequest("p", ALL, 0))
    overlay.run()
    target = PAIR.replaced(1, [], [])
    overlay.execute(target, phases=(PREPARE, ACTIVATE))
    for request in (UnadvertiseRequest("p", 0), AdvertiseRequest("p", ALL, 1), UnadvertiseRequest("p", 1)):
        overlay.feed("b0", None, request)
    overlay.execute(target, phases=(RETIRE,))
    assert not any(core.routing.interests.advertisements for core in overlay.cores.values())


def test_a_broker_is_not_prepared_before_its_subscriptions_are_confirmed() -> None:
    """The path of s continues over a new link: when the old epoch is retired, it may not have crossed that yet."""
    before = TreeConfiguration.of(0, ["b0", "b1", "b2"], [("b0", "b1"), ("b0", "b2")])
    overlay = StepByStep(before)
    for number, home in enumerate(("b1", "b2")):
        overlay.feed(home, None, AdvertiseRequest(f"p{number}", ALL))
    overlay.run()
    target = before.replaced(1, [("b0", "b2")], [("b1", "b2")])
    slow = [("b1", "b2")]
    overlay.command("b1", PREPARE, target)
    overlay.feed("b0", None, SubscribeRequest("s", "u", ALL))
    for broker in ("b0", "b2"):
        overlay.command(broker, PREPARE, target)
    overlay.run(held=slow)
    assert overlay.answered(Outcome.PREPARED) == {"b1", "b2"}
    overlay.run()
    assert overlay.answered(Outcome.PREPARED) == {"b0", "b1", "b2"}


def test_the_acknowledgement_of_an_earlier_stay_does_not_confirm_the_next_one() -> None:
    """The next one would publish before brokers beyond know it, and be lost for their subscriptions."""
    overlay = StepByStep(PAIR)
    overlay.feed("b0", None, AdvertiseRequest("p", ALL))
    overlay.feed("b0", None, UnadvertiseRequest("p", 0))
    overlay.feed("b0", None, AdvertiseRequest("p", ALL, 1))
    overlay.feed("b0", "b1", AdvertiseAck(0, "p", 0))
    assert overlay.effects_of(AdvertiseConfirmed) == []
    overlay.run()
    assert overlay.effects_of(AdvertiseConfirmed) == [AdvertiseConfirmed("p", 1)]


def test_an_aborted_plan_leaves_what_the_older_epoch_says_about_a_publisher() -> None:
    """Two controllers without a common log prepare different trees of epoch 1, over a link that only one of them has.

    b2 learns of the publisher over that link first, then in epoch 0. The abort removes the former, not the latter.
    """
    line = TreeConfiguration.of(0, ["b0", "b1", "b2"], [("b0", "b1"), ("b1", "b2")])
    overlay = StepByStep(line)
    overlay.command("b2", PREPARE, line.replaced(1, [], []))
    overlay.feed("b2", "b0", Advertise(1, "p", 0, "b0", ALL))
    overlay.feed("b0", None, AdvertiseRequest("p", ALL))
    overlay.run()
    overlay.command("b2", CommandPhase.ABORT, line.replaced(1, [], []))
    overlay.run()
    assert overlay.publishers_at("b2") == {"p": 0}


def test_an_end_is_forwarded_by_brokers_that_no_longer_know_the_stay() -> None:
    """b1 learns by a new link, in a plan that is aborted, that a stay has ended; b2 learns it by the older tree."""
    line = TreeConfiguration.of(0, ["b0", "b1", "b2"], [("b0", "b1"), ("b1", "b2")])
    overlay = StepByStep(line)
    overlay.feed("b0", None, AdvertiseRequest("p", ALL))
    overlay.run()
    overlay.command("b1", PREPARE, line.replaced(1, [("b1", "b2")], [("b0", "b2")]))
    overlay.feed("b1", "b0", Unadvertise(1, "p", 0))
    overlay.feed("b1", "b0", Advertise(0, "p", 1, "b0", ALL))  # Its next stay replaces the one that ended.
    overlay.command("b1", CommandPhase.ABORT, line.replaced(1, [("b1", "b2")], [("b0", "b2")]))
    overlay.feed("b1", "b0", Unadvertise(0, "p", 0))
    overlay.run()
    assert overlay.publishers_at("b2") == {"p": 1}


def test_a_stay_announced_after_a_later_one_is_remembered_until_its_end_comes() -> None:
    """If a death cuts off its end, a repair must find it ended: the brokers that announced it know it."""
    line = TreeConfiguration.of(0, ["b0", "b1", "b2"], [("b0", "b1"), ("b1", "b2")])
    overlay = StepByStep(line)
    overlay.feed("b1", None, AdvertiseRequest("p", ALL, 1))
    overlay.run()
    overlay.feed("b1", "b0", Advertise(0, "p", 0, "b0", ALL))
    overlay.run()
    remembered = [set(overlay.cores[broker].routing.interests.repairs.announced_late) for broker in ("b1", "b2")]
    assert remembered == [{("p", 0)}] * 2
    overlay.feed("b1", "b0", Unadvertise(0, "p", 0))
    overlay.run()
    assert not any(overlay.cores[broker].routing.interests.repairs.announced_late for broker in ("b1", "b2"))
