"""What a structured cyclic overlay's brokers wait for, and what they must not believe, one message after the other.

The square has two regions, b0-b1 and b2-b3, and two clusters, b0-b2 and b1-b3; the line has one cluster of three.
"""

from __future__ import annotations

from collections.abc import Collection

import pytest

from regraft.overlay.scot.scot_configuration import ScotConfiguration
from regraft.producers.brokers.broker_messages import (
    AdvertiseConfirmed,
    AdvertiseRequest,
    ArriveRequest,
    CancelRequest,
    Confirmed,
    Dropped,
    LeaveRequest,
    Notification,
    PublisherLeaves,
    PublisherTaken,
    ReadyRequest,
    Subscribe,
    SubscribeRequest,
    SubscriberMoves,
    UnadvertiseRequest,
)
from regraft.producers.brokers.broker_reports import FROM_THE_DEAD
from regraft.producers.brokers.scot_interests import LINGER_MS
from regraft.schemas.command import CommandPhase, Outcome
from regraft.schemas.plan import ClientMove, HomeMove, IdMove
from tests.scenarios.step_by_step import ALL, StepByStep

PREPARE, ACTIVATE, RETIRE = CommandPhase.PREPARE, CommandPhase.ACTIVATE, CommandPhase.RETIRE
SQUARE = ScotConfiguration(0, (("b0", "b1"), ("b2", "b3")), ((0, 1),))
LINE = ScotConfiguration(0, (("b0",), ("b1",), ("b2",)), ((0, 1), (1, 2)))
NEXT = SQUARE.at_epoch(1)
TURNED = ScotConfiguration(1, (("b0", "b3"), ("b2", "b1")), ((0, 1),))
TURNS = (IdMove("b1", 1, 4097), IdMove("b3", 4097, 1))
TO_B2 = (ClientMove("p", "b0", "b2"),)
Held = Collection[tuple[str, str]]


def with_publisher(connection: int = 0, overlay: ScotConfiguration = SQUARE) -> StepByStep:
    """Return an overlay in which publisher p is at home at b0."""
    found = StepByStep(overlay)
    found.feed("b0", None, AdvertiseRequest("p", ALL, connection))
    found.run()
    return found


def command_all(
    overlay: StepByStep,
    phase: CommandPhase,
    moves: tuple[ClientMove, ...] = (),
    held: Held = (),
    emptied: tuple[HomeMove, ...] = (),
    target: ScotConfiguration | None = None,
) -> None:
    """Let all brokers obey a command of the next plan, then let everything arrive except on links that are held up.

    Without a target, the plan leaves the overlay as it is, so that all subscriptions stay where they are known.
    """
    if target is None:
        target = overlay.cores["b1"].state.tables[min(overlay.cores["b1"].state.tables)].configuration.at_epoch(1)
    for broker in overlay.brokers:
        overlay.command(broker, phase, target, moves, TURNS if target is TURNED else (), emptied=emptied)
    overlay.run(held)


def hosted(overlay: StepByStep, broker: str, epoch: int = 1) -> dict[str, int]:
    """Return the publishers at home at a broker in an epoch, with their stays."""
    return {name: one.connection for name, one in overlay.cores[broker].state.tables[epoch].hosted.items()}


# --- subscriptions and publishers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("held", [("b0", "b2"), ("b2", "b0")])
def test_a_subscription_is_confirmed_only_when_its_cluster_knows_it(held: tuple[str, str]) -> None:
    overlay = StepByStep(SQUARE)
    overlay.feed("b0", None, SubscribeRequest("s", "s", ALL))
    overlay.run([held])
    assert overlay.effects_of(Confirmed) == []
    overlay.run()
    assert overlay.effects_of(Confirmed) == [Confirmed("s")]


@pytest.mark.parametrize("held", [("b1", "b0"), ("b0", "b1")])
def test_a_subscription_is_confirmed_only_when_the_hosts_of_its_region_know_it(held: tuple[str, str]) -> None:
    """Also one that comes while the report that an earlier one has caused is still under way."""
    overlay = with_publisher()
    for name in ("s", "t"):
        overlay.feed("b1", None, SubscribeRequest(name, name, ALL))
        overlay.run([held])
    assert overlay.effects_of(Confirmed) == []
    overlay.run()
    assert overlay.effects_of(Confirmed) == [Confirmed("s"), Confirmed("t")]


def test_the_acknowledgement_of_one_report_does_not_count_for_another() -> None:
    """A cluster wanted a publisher, no longer does, and wants it again: the host knows of the first report alone."""
    overlay = with_publisher()
    overlay.feed("b1", None, SubscribeRequest("s", "s", ALL))
    overlay.run([("b1", "b0")])
    overlay.feed("b1", None, CancelRequest("s"))
    overlay.now_ms += int(LINGER_MS) + 1
    overlay.feed("b1", None, LeaveRequest("nobody"))  # Any message: the ended subscription is released now.
    overlay.feed("b1", None, SubscribeRequest("t", "t", ALL))
    overlay.run([("b1", "b0")])
    assert [one.is_on for one in overlay.links["b1", "b0"]] == [True, False, True]
    overlay.cross("b1", "b0")
    overlay.run([("b1", "b0")])
    assert Confirmed("t") not in overlay.effects_of(Confirmed)
    overlay.run()
    assert Confirmed("t") in overlay.effects_of(Confirmed)
    overlay.publish("b0", "p", symbol="A")
    overlay.run()
    assert ("t", "p", 0) in overlay.got


def test_nothing_is_handed_over_before_a_subscription_is_confirmed() -> None:
    """Until then it would get what some publishers send and miss what others do."""
    overlay = with_publisher()
    overlay.feed("b0", None, SubscribeRequest("s", "s", ALL))
    overlay.publish("b0", "p", symbol="A")
    assert overlay.got == []


def test_a_publisher_is_allowed_only_when_its_region_knows_it_and_has_reported_what_it_wants() -> None:
    overlay = StepByStep(SQUARE)
    overlay.feed("b3", None, SubscribeRequest("s", "s", ALL))
    overlay.run()
    overlay.feed("b0", None, AdvertiseRequest("p", ALL))
    overlay.run([("b1", "b0")])
    assert overlay.effects_of(AdvertiseConfirmed) == []
    overlay.run()
    overlay.publish("b0", "p", symbol="A")
    overlay.run()
    assert overlay.got == [("s", "p", 0)]


def test_messages_of_an_earlier_stay_change_nothing_of_a_later_one() -> None:
    """Its announcement, its end, its acknowledgement and reports about it may all come late."""
    overlay = StepByStep(SQUARE)
    overlay.feed("b3", None, SubscribeRequest("s", "s", ALL))
    overlay.run()
    overlay.feed("b0", None, AdvertiseRequest("p", ALL, 1))
    overlay.run([("b1", "b0")])
    overlay.feed("b0", None, AdvertiseRequest("p", ALL, 2))
    assert hosted(overlay, "b0", 0) == {"p": 2}
    overlay.run([("b0", "b1")])
    assert overlay.effects_of(AdvertiseConfirmed) == []
    assert overlay.cores["b0"].state.tables[0].hosted["p"].vector == 0
    overlay.feed("b0", None, AdvertiseRequest("p", ALL, 1))
    overlay.feed("b0", None, UnadvertiseRequest("p", 1))
    assert hosted(overlay, "b0", 0) == {"p": 2}
    overlay.run()
    assert overlay.effects_of(AdvertiseConfirmed) == [AdvertiseConfirmed("p", 2)]


# --- the dead --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_noticed_first", [False, True])
def test_no_answer_of_a_dead_broker_is_awaited(is_noticed_first: bool) -> None:
    """Neither for a subscription of its cluster nor for a publisher of its region."""
    overlay = StepByStep(SQUARE)

    def notice() -> None:
        for peer in ("b1", "b2"):
            overlay.lose_peer("b0", peer)

    if is_noticed_first:
        notice()
    overlay.feed("b0", None, SubscribeRequest("s", "s", ALL))
    overlay.feed("b0", None, AdvertiseRequest("p", ALL))
    if not is_noticed_first:
        notice()
    assert overlay.effects_of(Confirmed) == [Confirmed("s")]
    assert overlay.effects_of(AdvertiseConfirmed) == [AdvertiseConfirmed("p")]


def test_no_answer_of_a_dead_host_is_awaited() -> None:
    overlay = with_publisher()
    overlay.feed("b1", None, SubscribeRequest("s", "s", ALL))
    overlay.run([("b1", "b0")])
    assert overlay.effects_of(Confirmed) == []
    overlay.lose_peer("b1", "b0")
    assert overlay.effects_of(Confirmed) == [Confirmed("s")]


def test_nothing_is_taken_from_a_broker_that_counts_as_dead() -> None:
    """Neither notifications nor what it says of clients: others may have continued without it."""
    overlay = with_publisher()
    overlay.feed("b2", None, SubscribeRequest("s", "s", ALL))
    overlay.run()
    overlay.lose_peer("b2", "b0")
    overlay.feed("b2", "b0", Notification("p", 0, 1.0, "b0", 0, {"symbol": "A"}, 1))
    overlay.feed("b2", "b0", Subscribe(0, "t", "b0", ALL, 0))
    assert overlay.got == []
    assert [one.reason for one in overlay.effects_of(Dropped)] == [FROM_THE_DEAD]
    assert "t" not in overlay.cores["b2"].state.tables[0].entries


# --- what a prepared broker has waited for ----------------------------------------------------------------------------


def test_a_broker_is_prepared_when_its_region_knows_its_publishers_in_the_new_epoch() -> None:
    overlay = with_publisher()
    command_all(overlay, PREPARE, held=[("b1", "b0")])
    assert overlay.answered(Outcome.PREPARED) == {"b1", "b2", "b3"}
    overlay.run()
    assert overlay.answered(Outcome.PREPARED) == {"b0", "b1", "b2", "b3"}


def test_a_broker_is_prepared_when_its_cluster_knows_its_subscriptions_in_the_new_epoch() -> None:
    overlay = StepByStep(SQUARE)
    overlay.feed("b0", None, SubscribeRequest("s", "s", ALL))
    overlay.run()
    command_all(overlay, PREPARE, held=[("b2", "b0")], target=TURNED)
    assert overlay.answered(Outcome.PREPARED) == {"b1", "b2", "b3"}
    overlay.run()
    assert overlay.answered(Outcome.PREPARED) == {"b0", "b1", "b2", "b3"}


def test_a_next_home_is_prepared_when_its_region_knows_the_publisher_that_comes() -> None:
    overlay = with_publisher()
    command_all(overlay, PREPARE, TO_B2, held=[("b0", "b2")])
    assert overlay.answered(Outcome.PREPARED) == {"b0", "b1", "b3"}
    overlay.run([("b3", "b2")])
    assert overlay.answered(Outcome.PREPARED) == {"b0", "b1", "b3"}
    overlay.run()
    assert overlay.answered(Outcome.PREPARED) == {"b0", "b1", "b2", "b3"}
    assert (hosted(overlay, "b0"), hosted(overlay, "b2")) == ({}, {"p": 0})


def test_an_old_home_is_prepared_when_its_subscribers_are_at_their_next_home() -> None:
    overlay = StepByStep(SQUARE)
    overlay.feed("b0", None, SubscribeRequest("m", "m", ALL))
    overlay.run()
    command_all(overlay, PREPARE, emptied=(HomeMove("b0", "b1"),))
    assert overlay.answered(Outcome.PREPARED) == {"b1", "b2", "b3"}
    overlay.feed("b1", None, ArriveRequest(1, "m", "m", ALL))
    overlay.run()
    overlay.feed("b0", None, ReadyRequest(1, "m"))
    assert overlay.answered(Outcome.PREPARED) == {"b0", "b1", "b2", "b3"}


def test_a_broker_expects_no_publisher_from_a_dead_home() -> None:
    overlay = with_publisher()
    command_all(overlay, PREPARE, TO_B2, held=[("b0", "b2")])
    overlay.lose_peer("b2", "b0")
    assert "b2" in overlay.answered(Outcome.PREPARED)


def test_a_named_subscriber_moves_only_from_the_home_that_the_plan_names() -> None:
    """The controller is mistaken: the subscriber is elsewhere, and stays there."""
    overlay = StepByStep(SQUARE)
    overlay.feed("b0", None, SubscribeRequest("m", "m", ALL))
    overlay.run()
    command_all(overlay, PREPARE, (ClientMove("m", "b1", "b2"),))
    assert overlay.effects_of(SubscriberMoves) == []
    assert overlay.answered(Outcome.PREPARED) == {"b0", "b1", "b2", "b3"}


# --- clients that come and go during a plan ---------------------------------------------------------------------------


@pytest.mark.parametrize("is_active", [False, True])
def test_a_moving_publisher_that_ends_is_at_home_nowhere(is_active: bool) -> None:
    """Its old home announces the end to the next one, which may have taken it already."""
    overlay = with_publisher()
    command_all(overlay, PREPARE, TO_B2)
    if is_active:
        overlay.command("b2", ACTIVATE, NEXT)
    overlay.feed("b0", None, UnadvertiseRequest("p", 0))
    overlay.run()
    assert [hosted(overlay, broker) for broker in overlay.brokers] == [{}, {}, {}, {}]


def test_a_publisher_that_comes_during_a_plan_is_known_in_both_epochs_before_it_may_publish() -> None:
    """A broker of its region has prepared later than its home: its answer for the new epoch is still under way."""
    overlay = StepByStep(SQUARE)
    overlay.feed("b3", None, SubscribeRequest("s", "s", ALL))
    overlay.run()
    overlay.command("b0", PREPARE, NEXT)
    overlay.feed("b0", None, AdvertiseRequest("p", ALL))
    overlay.run()
    assert overlay.effects_of(AdvertiseConfirmed) == []
    command_all(overlay, PREPARE)
    assert overlay.effects_of(AdvertiseConfirmed) == [AdvertiseConfirmed("p")]
    overlay.execute(NEXT, phases=(ACTIVATE, RETIRE))
    overlay.publish("b0", "p", symbol="A")
    overlay.run()
    assert overlay.got == [("s", "p", 0)]


def test_a_publisher_that_ends_during_a_plan_ends_in_both_epochs() -> None:
    overlay = with_publisher()
    command_all(overlay, PREPARE)
    overlay.feed("b0", None, UnadvertiseRequest("p", 0))
    overlay.execute(NEXT, phases=(ACTIVATE, RETIRE))
    assert hosted(overlay, "b0") == {}
    assert not any(core.state.tables[1].remotes for core in overlay.cores.values())


@pytest.mark.parametrize("target", [NEXT, TURNED])
def test_clients_do_not_wait_for_an_epoch_that_is_gone(target: ScotConfiguration) -> None:
    """They came just before it was retired, and its messages are on links that others have retired meanwhile."""
    overlay = StepByStep(SQUARE)
    for phase in (PREPARE, ACTIVATE):
        command_all(overlay, phase, target=target)
    overlay.feed("b0", None, SubscribeRequest("s", "s", ALL))
    overlay.feed("b0", None, AdvertiseRequest("p", ALL))
    for broker in ("b1", "b2", "b3", "b0"):
        overlay.command(broker, RETIRE, target)
    overlay.run()
    assert overlay.effects_of(Confirmed) == [Confirmed("s")]
    assert overlay.effects_of(AdvertiseConfirmed) == [AdvertiseConfirmed("p")]


def test_the_old_epoch_is_the_last_that_a_client_waited_for() -> None:
    """All that it asked for in the new one has been answered; nothing else will come."""
    overlay = StepByStep(SQUARE)
    for phase in (PREPARE, ACTIVATE):
        command_all(overlay, phase)
    overlay.feed("b0", None, AdvertiseRequest("p", ALL))
    overlay.cores["b0"].state.tables[1].hosted["p"].awaited.clear()
    overlay.links.clear()
    overlay.command("b0", RETIRE, NEXT)
    assert overlay.effects_of(AdvertiseConfirmed) == [AdvertiseConfirmed("p")]


def test_a_publisher_that_has_come_again_at_its_old_home_is_not_asked_to_leave() -> None:
    """The plan moves the stay that was announced; this one is at home there in both epochs."""
    overlay = with_publisher()
    command_all(overlay, PREPARE, TO_B2)
    overlay.feed("b0", None, UnadvertiseRequest("p", 0))
    overlay.feed("b0", None, AdvertiseRequest("p", ALL, 1))
    overlay.run()
    command_all(overlay, ACTIVATE)
    assert overlay.effects_of(PublisherLeaves) == []
    assert overlay.answered(Outcome.ACTIVATED) == set(overlay.brokers)
    assert (hosted(overlay, "b0"), hosted(overlay, "b2")) == ({"p": 1}, {})


# --- publishers that move from a broker that dies ---------------------------------------------------------------------


@pytest.mark.parametrize("is_active", [False, True])
def test_a_publisher_that_its_dead_home_had_not_allowed_is_allowed_by_its_next_one(is_active: bool) -> None:
    """Its region had not answered yet; the next home's region has, or the plan would not be active."""
    overlay = StepByStep(SQUARE)
    overlay.feed("b0", None, AdvertiseRequest("p", ALL))
    command_all(overlay, PREPARE, TO_B2, held=[("b1", "b0")])
    assert overlay.effects_of(AdvertiseConfirmed) == []
    if is_active:
        overlay.command("b2", ACTIVATE, NEXT)
    overlay.lose_peer("b2", "b0")
    if not is_active:
        overlay.command("b2", ACTIVATE, NEXT)
    assert overlay.effects_of(PublisherTaken) == [PublisherTaken("p")]
    assert overlay.effects_of(AdvertiseConfirmed) == [AdvertiseConfirmed("p")]


def test_a_publisher_that_has_come_to_its_next_home_by_itself_waits_for_its_region() -> None:
    """The plan has brought an earlier stay; that home's death allows only that one."""
    overlay = with_publisher()
    command_all(overlay, PREPARE, TO_B2)
    overlay.client_effects.clear()
    overlay.command("b2", ACTIVATE, NEXT)
    overlay.feed("b2", None, AdvertiseRequest("p", ALL, 1))
    overlay.lose_peer("b2", "b0")
    assert overlay.effects_of(AdvertiseConfirmed) == []
    overlay.run([("b0", "b1"), ("b0", "b2")])
    assert overlay.effects_of(AdvertiseConfirmed) == [AdvertiseConfirmed("p", 1)]


# --- markers ---------------------------------------------------------------------------------------------------------


def draining(first: ScotConfiguration, held: Held) -> set[str]:
    """Return the brokers that are drained while nothing arrives over some links."""
    overlay = StepByStep(first)
    command_all(overlay, PREPARE)
    command_all(overlay, ACTIVATE, held=held)
    found = overlay.answered(Outcome.DRAINED)
    overlay.run()
    assert overlay.answered(Outcome.DRAINED) == set(overlay.brokers)
    return found


def test_no_marker_overtakes_what_comes_from_the_own_cluster() -> None:
    assert draining(LINE, [("b0", "b1")]) == {"b0"}


def test_no_marker_overtakes_what_comes_from_other_clusters() -> None:
    """A detour may bring something from b1 to b0 and on to b2: neither is drained while b1 may still send."""
    assert draining(SQUARE, [("b1", "b0")]) == {"b1", "b3"}


def test_no_marker_to_another_cluster_overtakes_what_may_still_cross_to_it() -> None:
    """What b2 sends may cross to b1 at b0."""
    assert draining(SQUARE, [("b2", "b0")]).isdisjoint({"b0", "b1"})


def test_what_comes_from_a_dead_broker_has_ended() -> None:
    overlay = StepByStep(SQUARE)
    command_all(overlay, PREPARE)
    for broker in ("b1", "b2"):
        overlay.lose_peer(broker, "b0")
    for broker in ("b1", "b2", "b3"):
        overlay.command(broker, ACTIVATE, NEXT, lost_brokers=("b0",))
    overlay.run([("b1", "b0"), ("b2", "b0")])
    assert overlay.answered(Outcome.DRAINED) == {"b1", "b2", "b3"}


def test_a_broker_holds_what_is_of_the_new_epoch_until_it_is_drained() -> None:
    """b2's publisher moves to b1, whose first notification arrives at b0 before the last one of the old epoch does."""
    overlay = StepByStep(LINE)
    overlay.feed("b2", None, AdvertiseRequest("p", ALL))
    overlay.feed("b0", None, SubscribeRequest("s", "s", ALL))
    overlay.run()
    command_all(overlay, PREPARE, (ClientMove("p", "b2", "b1"),))
    overlay.publish("b2", "p", symbol="A")
    command_all(overlay, ACTIVATE, held=[("b2", "b1")])
    overlay.feed("b2", None, LeaveRequest("p", 0))
    overlay.publish("b1", "p", symbol="A")
    overlay.run([("b2", "b1")])
    assert overlay.got == []
    overlay.run()
    assert overlay.got == [("s", "p", 0), ("s", "p", 1)]


def test_an_old_home_holds_what_its_publisher_sends_from_the_next_one_before_its_last_requests_arrive() -> None:
    """The old home is drained, but what the publisher handed to it is still on its way over a slow connection."""
    overlay = with_publisher(overlay=LINE)
    overlay.feed("b0", None, SubscribeRequest("s", "s", ALL))
    overlay.run()
    command_all(overlay, PREPARE, (ClientMove("p", "b0", "b1"),))
    command_all(overlay, ACTIVATE)
    overlay.publish("b1", "p", symbol="A")
    overlay.run()
    assert overlay.cores["b0"].state.tables[0].is_drained
    assert overlay.got == []
    overlay.feed("b0", None, LeaveRequest("p", 0))
    assert overlay.got == [("s", "p", 0)]
