"""Plans that move publishers alone on a structured cyclic overlay: both epochs keep the same subscriptions.

What is sent concerns the publishers, however many subscriptions there are; and a subscription may come or end, a plan
may be aborted and a broker may die while brokers are in different phases. The square is that of
:mod:`tests.scenarios.test_rare_orders_scot_plans`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import pytest

from regraft.overlay.scot.scot_configuration import ScotConfiguration
from regraft.producers.brokers.broker_messages import (
    AdvertiseRequest,
    ArriveRequest,
    CancelRequest,
    Confirmed,
    LeaveRequest,
    Subscribe,
    SubscribeRequest,
    SubscriberMoves,
)
from regraft.producers.brokers.match_content import Operator, Predicate
from regraft.producers.brokers.scot_interests import LINGER_MS
from regraft.schemas.command import Command, CommandPhase, Outcome
from regraft.schemas.plan import ClientMove, HomeMove
from tests.overlay.small_overlays import brokers_named
from tests.scenarios.step_by_step import ALL, StepByStep

PREPARE, ACTIVATE, RETIRE, ABORT = (
    CommandPhase.PREPARE,
    CommandPhase.ACTIVATE,
    CommandPhase.RETIRE,
    CommandPhase.ABORT,
)
SQUARE = ScotConfiguration(0, (("b0", "b1"), ("b2", "b3")), ((0, 1),))
NEXT = SQUARE.at_epoch(1)
TO_B2 = (ClientMove("p", "b0", "b2"),)
NAMES = brokers_named(12)
TWELVE = ScotConfiguration(0, (NAMES[0:3], NAMES[3:6], NAMES[6:9], NAMES[9:12]), ((0, 1), (1, 2), (1, 3)))


def with_publisher() -> StepByStep:
    """Return the square with publisher p at home at b0."""
    overlay = StepByStep(SQUARE)
    overlay.feed("b0", None, AdvertiseRequest("p", ALL))
    overlay.run()
    return overlay


def obey(overlay: StepByStep, phase: CommandPhase, brokers: Sequence[str]) -> None:
    """Let brokers obey a command of the plan that moves p, and let p leave its old home once it is asked to."""
    for broker in brokers:
        overlay.command(broker, phase, NEXT, TO_B2)
        if phase is ACTIVATE and broker == "b0":
            overlay.feed("b0", None, LeaveRequest("p", 0))


def complete(overlay: StepByStep, phase: CommandPhase, done: Sequence[str]) -> None:
    """Complete a phase that some brokers have obeyed already, and those that follow."""
    obey(overlay, phase, [name for name in overlay.brokers if name not in done])
    overlay.run()
    phases = [PREPARE, ACTIVATE, RETIRE]
    for later in phases[phases.index(phase) + 1 :]:
        obey(overlay, later, overlay.brokers)
        overlay.run()
    assert overlay.answered(Outcome.RETIRED) == set(overlay.brokers)


def in_phases(phase: CommandPhase, done: Sequence[str]) -> StepByStep:
    """Return the square with a plan up to a phase that only some brokers have obeyed; all that was sent has arrived."""
    overlay = with_publisher()
    phases = [PREPARE, ACTIVATE, RETIRE]
    for earlier in phases[: phases.index(phase)]:
        obey(overlay, earlier, overlay.brokers)
        overlay.run()
    obey(overlay, phase, done)
    overlay.run()
    return overlay


MOMENTS = [
    (phase, done)
    for phase in (PREPARE, ACTIVATE, RETIRE)
    for chosen in product((False, True), repeat=4)
    for done in [[name for name, is_in in zip(SQUARE.brokers, chosen, strict=True) if is_in]]
]


# --- what is sent -----------------------------------------------------------------------------------------------------


def messages_to_move_one(subscription_count: int) -> int:
    """Return how many control messages a plan costs that moves one of two publishers."""
    overlay = StepByStep(TWELVE)
    for name, symbol in (("p", "A"), ("q", "B")):
        overlay.feed("b00", None, AdvertiseRequest(name, (Predicate("symbol", Operator.EQ, symbol),)))
    for number in range(subscription_count):
        home, symbol = NAMES[number % 12], "AB"[number // 12 % 2]
        filter_ = (Predicate("symbol", Operator.EQ, symbol),)
        overlay.feed(home, None, SubscribeRequest(f"s{number}", f"s{number}", filter_))
        overlay.run()
    before = overlay.control_count
    moves = (ClientMove("p", "b00", "b11"),)
    overlay.execute(TWELVE.at_epoch(1), moves, phases=(PREPARE, ACTIVATE))
    overlay.feed("b00", None, LeaveRequest("p", 0))
    overlay.run()
    overlay.execute(TWELVE.at_epoch(1), phases=(RETIRE,))
    assert overlay.answered(Outcome.RETIRED) == set(NAMES)
    return overlay.control_count - before


def test_moving_a_publisher_costs_the_same_however_many_subscriptions_there_are() -> None:
    assert messages_to_move_one(24) == messages_to_move_one(240)


def test_brokers_that_open_the_next_epoch_send_nothing_about_subscriptions() -> None:
    overlay = with_publisher()
    for broker in overlay.brokers:
        overlay.feed(broker, None, SubscribeRequest(f"s-{broker}", "s", ALL))
    overlay.run()
    for broker in overlay.brokers:
        overlay.command(broker, PREPARE, NEXT, TO_B2 if broker in ("b0", "b2") else ())
    assert not any(isinstance(one, Subscribe) for queue in overlay.links.values() for one in queue)


# --- subscriptions that come and end while brokers are in different phases --------------------------------------------


@pytest.mark.parametrize("home", SQUARE.brokers)
def test_a_subscription_that_comes_between_two_phases_gets_all_that_follows(home: str) -> None:
    """It is confirmed once, and all brokers that have served it forget it together."""
    for phase, done in MOMENTS:
        overlay = in_phases(phase, done)
        overlay.feed(home, None, SubscribeRequest("s", "s", ALL))
        overlay.run()
        complete(overlay, phase, done)
        assert overlay.effects_of(Confirmed) == [Confirmed("s")], (phase, done)
        overlay.publish("b2", "p", symbol="A")
        overlay.run()
        assert overlay.got == [("s", "p", 0)], (phase, done)


@pytest.mark.parametrize("home", SQUARE.brokers)
def test_a_subscription_whose_messages_cross_the_next_phase_gets_all_that_follows(home: str) -> None:
    """It is known in the old epoch alone when its messages are sent, and perhaps in the new one when they arrive."""
    for phase, done in MOMENTS:
        overlay = in_phases(phase, done)
        overlay.feed(home, None, SubscribeRequest("s", "s", ALL))
        complete(overlay, phase, done)
        assert overlay.effects_of(Confirmed) == [Confirmed("s")], (phase, done)
        overlay.publish("b2", "p", symbol="A")
        overlay.run()
        assert overlay.got == [("s", "p", 0)], (phase, done)


@pytest.mark.parametrize("home", SQUARE.brokers)
def test_a_confirmed_subscription_gets_what_is_published_in_either_epoch(home: str) -> None:
    """What is still published at the old home, and then what is published at the next one, in order."""
    for chosen in product((False, True), repeat=4):
        done = [name for name, is_in in zip(SQUARE.brokers, chosen, strict=True) if is_in]
        overlay = in_phases(PREPARE, done)
        overlay.feed(home, None, SubscribeRequest("s", "s", ALL))
        overlay.run()
        assert overlay.effects_of(Confirmed) == [Confirmed("s")], done
        overlay.publish("b0", "p", symbol="A")
        complete(overlay, PREPARE, done)
        overlay.publish("b2", "p", symbol="A")
        overlay.run()
        assert overlay.got == [("s", "p", 0), ("s", "p", 1)], done


@pytest.mark.parametrize("home", SQUARE.brokers)
def test_a_subscription_that_ends_between_two_phases_is_forgotten_everywhere(home: str) -> None:
    """No broker serves it in any epoch, and no host believes that its cluster still wants its publisher."""
    for phase, done in MOMENTS:
        overlay = with_publisher()
        overlay.feed(home, None, SubscribeRequest("s", "s", ALL))
        overlay.run()
        for earlier in (PREPARE, ACTIVATE, RETIRE):
            if earlier is phase:
                break
            obey(overlay, earlier, overlay.brokers)
            overlay.run()
        obey(overlay, phase, done)
        overlay.feed(home, None, CancelRequest("s"))
        overlay.now_ms += int(LINGER_MS) + 1
        overlay.feed(home, None, LeaveRequest("nobody"))  # Any message: the ended subscription is released now.
        complete(overlay, phase, done)
        for core in overlay.cores.values():
            assert not core.state.tables[1].entries, (phase, done)
            assert not core.routing.interests.locals, (phase, done)
            assert all(not one.vector for one in core.state.tables[1].hosted.values()), (phase, done)


@pytest.mark.parametrize("is_retired", [False, True])
def test_an_epoch_that_is_gone_at_a_host_is_not_awaited_any_more(is_retired: bool) -> None:
    """The host has aborted or retired an epoch when a report for it arrives, and does not answer; others follow."""
    overlay = in_phases(ACTIVATE if is_retired else PREPARE, SQUARE.brokers)
    host, reporter, other = ("b0", "b1", "b3") if is_retired else ("b2", "b3", "b1")
    phase = RETIRE if is_retired else ABORT
    overlay.feed(other, None, SubscribeRequest("s", "s", ALL))
    overlay.run([(reporter, host)])
    overlay.command(host, phase, NEXT)
    overlay.run()
    assert overlay.effects_of(Confirmed) == []
    overlay.command(reporter, phase, NEXT)
    overlay.run()
    assert overlay.effects_of(Confirmed) == [Confirmed("s")]


def test_a_host_answers_for_one_epoch_at_a_time() -> None:
    """Its publisher stays; the report for the old epoch was sent before the new one was prepared, and arrives first."""
    overlay, slow = with_publisher(), [("b1", "b0")]
    overlay.feed("b1", None, SubscribeRequest("s", "s", ALL))
    for broker in overlay.brokers:
        overlay.command(broker, PREPARE, NEXT)
    overlay.run(slow)
    overlay.feed("b1", None, SubscribeRequest("t", "t", ALL))
    overlay.run(slow)
    overlay.cross("b1", "b0")
    overlay.run(slow)
    assert overlay.effects_of(Confirmed) == [Confirmed("s")]
    overlay.run()
    assert overlay.effects_of(Confirmed) == [Confirmed("s"), Confirmed("t")]


def test_a_plan_that_is_aborted_leaves_the_subscriptions_that_came_during_it() -> None:
    """And those that it found; the next plan keeps them all again."""
    overlay = with_publisher()
    overlay.feed("b3", None, SubscribeRequest("s", "s", ALL))
    overlay.run()
    obey(overlay, PREPARE, ["b0", "b1"])
    overlay.feed("b1", None, SubscribeRequest("t", "t", ALL))
    overlay.run()
    for broker in overlay.brokers:
        overlay.command(broker, ABORT, NEXT)
    overlay.run()
    overlay.publish("b0", "p", symbol="A")
    overlay.run()
    assert overlay.got == [("t", "p", 0), ("s", "p", 0)]
    assert {name: sorted(core.state.tables[0].entries) for name, core in overlay.cores.items()} == {
        "b0": [], "b1": ["s", "t"], "b2": [], "b3": ["s", "t"],
    }  # fmt: skip


# --- the dead, rivals and subscribers that a plan names ---------------------------------------------------------------


def test_a_broker_that_is_dead_stays_dead_in_the_next_epoch() -> None:
    """The controller alone has said so: the link has not ended yet, and its last messages may still come."""
    overlay, living = in_phases(RETIRE, []), ("b0", "b1", "b2")
    for broker in living:
        overlay.command(broker, RETIRE, NEXT, lost_brokers=("b3",))
    for phase in (PREPARE, ACTIVATE, RETIRE):
        overlay.answers.clear()
        for broker in living:
            overlay.command(broker, phase, SQUARE.at_epoch(2))
        overlay.run()
    assert overlay.answered(Outcome.RETIRED) == set(living)
    overlay.feed("b1", "b3", Subscribe(0, "t", "b3", ALL, 0))
    assert "t" not in overlay.cores["b1"].state.tables[2].entries


@pytest.mark.parametrize("phase", [PREPARE, ACTIVATE])
def test_a_death_in_the_middle_of_a_plan_leaves_no_subscription_waiting(phase: CommandPhase) -> None:
    """The dead broker is the only one that has not answered, in either epoch."""
    overlay = in_phases(phase, ["b0", "b1"])
    overlay.feed("b1", None, SubscribeRequest("s", "s", ALL))
    overlay.run([("b1", "b3")])
    assert overlay.effects_of(Confirmed) == []
    for broker in ("b1", "b2"):
        overlay.lose_peer(broker, "b3")
    overlay.run([("b1", "b3")])
    assert overlay.effects_of(Confirmed) == [Confirmed("s")]


def test_a_subscription_of_a_rivals_plan_for_the_same_epoch_is_ignored() -> None:
    """That plan changes the overlay, so its subscriptions are issued again; both plans will be aborted."""
    overlay = in_phases(PREPARE, SQUARE.brokers)
    overlay.feed("b0", "b2", Subscribe(1, "t", "b2", ALL, 1))
    overlay.run()
    assert all("t" not in tables.entries for tables in overlay.cores["b0"].state.tables.values())


def test_a_subscription_that_has_the_name_of_a_publisher_stays_when_that_moves() -> None:
    """A client that chooses such a name does not stop the plan, nor bring a second subscription to the next home."""
    overlay = with_publisher()
    overlay.feed("b0", None, SubscribeRequest("p", "p", ALL))
    overlay.run()
    obey(overlay, PREPARE, overlay.brokers)
    overlay.run()
    overlay.feed("b2", None, ArriveRequest(1, "p", "p", ALL))
    overlay.run()
    assert overlay.effects_of(SubscriberMoves) == []
    assert overlay.answered(Outcome.PREPARED) == set(overlay.brokers)
    assert "p" not in overlay.cores["b2"].routing.interests.locals


def test_subscriptions_are_issued_again_when_some_of_them_move() -> None:
    """Those that stay, too, although the overlay is the same: both homes of one that moves are needed."""
    overlay = StepByStep(SQUARE)
    overlay.feed("b0", None, SubscribeRequest("m", "m", ALL))
    overlay.feed("b1", None, SubscribeRequest("s", "s", ALL))
    overlay.run()
    for broker in overlay.brokers:
        overlay.command(broker, PREPARE, NEXT, emptied=(HomeMove("b0", "b1"),))
    overlay.feed("b1", None, ArriveRequest(1, "m", "m", ALL))
    overlay.run()
    assert {name: sorted(core.state.tables[1].entries) for name, core in overlay.cores.items()} == {
        "b0": [], "b1": ["m", "s"], "b2": [], "b3": ["m", "s"],
    }  # fmt: skip
    assert "m" in overlay.cores["b0"].state.tables[0].entries


def test_subscriptions_are_issued_again_when_a_broker_rejoins_at_its_place() -> None:
    """The overlay is the same, but that broker has forgotten everything."""
    overlay = StepByStep(SQUARE)
    overlay.feed("b1", None, SubscribeRequest("s", "s", ALL))
    overlay.run()
    for broker in ("b1", "b2"):
        overlay.lose_peer(broker, "b3")
    overlay.install("b3", SQUARE)
    for broker in overlay.brokers:
        overlay.feed(broker, None, Command(
            "plan-1", PREPARE, broker, 0, 1, digest=NEXT.digest, lost_brokers=("b3",), brokers_joined=("b3",)
        ))  # fmt: skip
    overlay.run()
    assert overlay.answered(Outcome.PREPARED) == set(overlay.brokers)
    assert "s" in overlay.cores["b3"].state.tables[1].entries
