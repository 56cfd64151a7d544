"""Brokers that live and count as dead: which clients they may drop, and which notifications clients take from them.

A plan moves clients from b0 to b1, and the controller declares one of the two dead while that is under way. The broker
continues as before until INSTALL puts it outside the overlay.
"""

from __future__ import annotations

import pytest

from regraft.overlay.overlay_configuration import OverlayConfiguration
from regraft.overlay.ring.ring_configuration import RingConfiguration
from regraft.overlay.scot.scot_configuration import ScotConfiguration
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.producers.brokers.broker_messages import (
    AdvertiseRequest,
    ArriveRequest,
    ClientDropped,
    LeaveRequest,
    PublisherLeaves,
    PublisherTaken,
    ReadyRequest,
    SubscribeRequest,
)
from regraft.producers.brokers.ring_messages import AttachRequest, MoveAckRequest, MovedSubscription, UserTaken
from regraft.producers.emulator.user_clients import topic_filter
from regraft.schemas.command import CommandPhase, Outcome
from regraft.schemas.plan import ClientMove, HomeMove
from tests.scenarios.step_by_step import ALL, StepByStep

PREPARE, ACTIVATE, RETIRE = CommandPhase.PREPARE, CommandPhase.ACTIVATE, CommandPhase.RETIRE
TREE = TreeConfiguration.of(0, ("b0", "b1", "b2"), [("b0", "b1"), ("b1", "b2")])
RING = RingConfiguration.of(0, 6, {"b0": 3, "b1": 20, "b2": 40})
SCOT = ScotConfiguration(0, (("b0", "b1"), ("b2", "b3")), ((0, 1),))
BY_CONTENT = pytest.mark.parametrize("overlay", [TREE, SCOT], ids=["tree", "scot"])
ALL_KINDS = pytest.mark.parametrize("overlay", [TREE, RING, SCOT], ids=["tree", "ring", "scot"])


def drops_by(overlay: StepByStep, broker: str) -> list[ClientDropped]:
    """Return what a broker said of clients whose home it is not."""
    return [effect for name, effect in overlay.client_effects if name == broker and isinstance(effect, ClientDropped)]


def prepared_move(first: OverlayConfiguration, staying: str = "") -> StepByStep:
    """Return a prepared plan that moves publisher p (on a ring, none) and subscriber s from b0 to b1.

    ``staying``: a publisher at b1, if any.
    """
    overlay, is_ring = StepByStep(first), isinstance(first, RingConfiguration)
    target = first.at_epoch(1)
    filter_ = topic_filter("A") if is_ring else ALL
    overlay.feed("b0", None, SubscribeRequest("s", "s", filter_))
    if not is_ring:
        overlay.feed("b0", None, AdvertiseRequest("p", ALL))
    if staying:
        overlay.feed("b1", None, AdvertiseRequest(staying, filter_))
    overlay.run()
    moves = (ClientMove("s" if is_ring else "p", "b0", "b1"),)
    for broker in overlay.brokers:
        overlay.command(broker, PREPARE, target, moves, emptied=() if is_ring else (HomeMove("b0", "b1"),))
    overlay.run()
    if is_ring:
        overlay.feed("b0", None, MoveAckRequest("s", 0))
        overlay.feed("b1", None, AttachRequest(1, "s", 0, (MovedSubscription("s", "A"),)))
    else:
        overlay.feed("b1", None, ArriveRequest(1, "s", "s", ALL))
        overlay.run()
        overlay.feed("b0", None, ReadyRequest(1, "s"))
    overlay.run()
    assert overlay.answered(Outcome.PREPARED) == set(overlay.brokers)
    return overlay


def activate(overlay: StepByStep, *brokers: str) -> None:
    """Let brokers activate; publishers that they ask to leave do so."""
    for broker in brokers:
        before = len(overlay.client_effects)
        overlay.command(broker, ACTIVATE, overlay.cores[broker].state.tables[1].configuration)
        for name, effect in overlay.client_effects[before:]:
            if isinstance(effect, PublisherLeaves):
                overlay.feed(name, None, LeaveRequest(effect.publisher, effect.connection))
        overlay.run()
        assert overlay.cores[broker].epoch == 1


# --- INSTALL ---------------------------------------------------------------------------------------------------------


@ALL_KINDS
def test_a_former_home_that_is_installed_drops_no_client_that_has_moved(overlay: OverlayConfiguration) -> None:
    """It stamps the plan's epoch, in which its clients are at home elsewhere; RETIRE never came."""
    after = prepared_move(overlay)
    activate(after, *after.brokers)
    after.install("b0", overlay.at_epoch(2))
    assert drops_by(after, "b0") == []


@ALL_KINDS
def test_a_former_home_that_is_installed_before_it_was_active_drops_its_clients(overlay: OverlayConfiguration) -> None:
    """Until then they are at home there; whether one believes it is for the client to know."""
    after = prepared_move(overlay)
    after.install("b0", overlay.at_epoch(2))
    assert {one.client for one in drops_by(after, "b0")} == ({"s"} if overlay is RING else {"p", "s"})


@ALL_KINDS
@pytest.mark.parametrize("is_active", [False, True])
def test_a_next_home_that_is_installed_drops_the_clients_that_it_has_taken(
    overlay: OverlayConfiguration, is_active: bool
) -> None:
    """Before it is active a subscriber is still at home at the old one; a publisher may be on its way and be stuck."""
    after = prepared_move(overlay)
    activate(after, *(("b0", "b1") if is_active else ("b0",)))
    after.install("b1", overlay.at_epoch(2))
    publishers = set() if overlay is RING else {"p"}
    assert {one.client for one in drops_by(after, "b1")} == (publishers | {"s"} if is_active else publishers)


# --- clients that a plan sends to a broker that counts as dead --------------------------------------------------------


@BY_CONTENT
def test_a_publisher_sent_to_a_broker_that_counts_as_dead_is_dropped_once_it_has_left(
    overlay: OverlayConfiguration,
) -> None:
    """Not before: what it had handed to its home until then is delivered, though it arrives behind the command."""
    after = prepared_move(overlay)
    after.feed("b0", None, SubscribeRequest("t", "t", ALL))
    after.run()
    after.command("b0", ACTIVATE, overlay.at_epoch(1), lost_brokers=("b1",))
    assert after.effects_of(PublisherLeaves) == [PublisherLeaves("p", "b1", 0)]
    after.publish("b0", "p", symbol="A")
    assert drops_by(after, "b0") == []
    after.feed("b0", None, LeaveRequest("p", 0))
    assert ("t", "p", 0) in after.got
    assert drops_by(after, "b0") == [ClientDropped("p", 0, is_over=True)]
    assert after.cores["b0"].epoch == 1


@BY_CONTENT
@pytest.mark.parametrize("has_left", [False, True])
def test_a_publisher_on_its_way_learns_that_its_next_home_counts_as_dead(
    overlay: OverlayConfiguration, has_left: bool
) -> None:
    """The next home lives and is never commanded to become active; no other broker notifies the publisher."""
    after = prepared_move(overlay)
    after.command("b0", ACTIVATE, overlay.at_epoch(1))
    assert after.effects_of(PublisherLeaves) == [PublisherLeaves("p", "b1", 0)]
    if has_left:
        after.feed("b0", None, LeaveRequest("p", 0))
    after.command("b0", ACTIVATE, overlay.at_epoch(1), lost_brokers=("b1",))
    if not has_left:
        assert drops_by(after, "b0") == []
        after.feed("b0", None, LeaveRequest("p", 0))
    assert drops_by(after, "b0") == [ClientDropped("p", 0, is_over=True)]
    assert after.cores["b0"].epoch == 1
    assert after.effects_of(PublisherTaken) == []


@ALL_KINDS
def test_a_subscriber_learns_at_the_end_of_a_plan_that_its_next_home_counts_as_dead(
    overlay: OverlayConfiguration,
) -> None:
    """Its old home has released it, and the next one, not active, has never taken it."""
    after = prepared_move(overlay)
    after.command("b0", ACTIVATE, overlay.at_epoch(1))
    if overlay is not RING:
        after.feed("b0", None, LeaveRequest("p", 0))
    after.command("b0", RETIRE, overlay.at_epoch(1), lost_brokers=("b1",))
    assert ClientDropped("s", 0, is_over=True) in drops_by(after, "b0")
    assert Outcome.RETIRED in {outcome for name, outcome in after.answers if name == "b0"}


def test_a_user_taken_from_a_home_that_counts_as_dead_is_notified_when_the_old_epoch_is_retired() -> None:
    """That home will confirm nothing more of what the user asked both for."""
    after = prepared_move(RING)
    for broker in ("b1", "b2"):
        after.command(broker, ACTIVATE, RING.at_epoch(1), lost_brokers=("b0",))
    assert after.effects_of(UserTaken) == [UserTaken("s")]
    after.command("b1", RETIRE, RING.at_epoch(1), lost_brokers=("b0",))
    assert after.effects_of(UserTaken) == [UserTaken("s"), UserTaken("s")]


# --- what a former home that counts as dead hands over ----------------------------------------------------------------


@ALL_KINDS
@pytest.mark.parametrize("is_late", [False, True])
def test_what_a_former_home_that_counts_as_dead_hands_over_late_is_ignored(
    overlay: OverlayConfiguration, is_late: bool
) -> None:
    """Nobody waits for it; once the next home has handed over something newer, the older one counts as lost."""
    after = prepared_move(overlay, staying="q")
    after.turns.move("s", "b0", "b1")
    after.publish("b1", "q", symbol="A", topic="A")  # On its way to b0.
    others = [broker for broker in after.brokers if broker != "b0"]
    late = {(broker, "b0") for broker in others} if is_late else set()
    after.run(held=late)
    for phase in (ACTIVATE, RETIRE):
        for broker in others:
            after.command(broker, phase, overlay.at_epoch(1), lost_brokers=("b0",))
            if overlay is RING and (phase, broker) == (ACTIVATE, "b1"):
                after.feed("b1", None, MoveAckRequest("s", 0))
            after.run(held=late)
        if phase is ACTIVATE:
            after.publish("b1", "q", symbol="A", topic="A")
    assert after.got == ([("s", "q", 1)] if is_late else [("s", "q", 0), ("s", "q", 1)])
    after.run()
    assert after.turns.ignored_count == int(is_late)
    assert after.got[-1] == ("s", "q", 1)
