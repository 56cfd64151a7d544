"""A broker outside the overlay holds its epoch without neighbours and clients, and is put there from any state."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from regraft.overlay.overlay_configuration import BrokerChange, OverlayConfiguration
from regraft.overlay.ring.ring_configuration import RingConfiguration
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.producers.brokers.broker_messages import (
    Advertise,
    AdvertiseRequest,
    Answer,
    ClientDropped,
    Dropped,
    End,
    Notification,
    Subscribe,
    SubscribeRequest,
)
from regraft.producers.brokers.broker_reports import BrokerPhase
from regraft.producers.brokers.match_content import Operator, Predicate
from regraft.producers.brokers.ring_messages import Join
from regraft.producers.brokers.ring_tables import RingTables
from regraft.producers.brokers.tree_tables import RoutingTables
from regraft.producers.emulator.starting_point import core_of
from regraft.schemas.command import Command, CommandPhase, Outcome, Refusal
from regraft.schemas.plan import OFF_RING, IdMove

TREE = TreeConfiguration.of(3, "abc", [("a", "b"), ("b", "c")])
RING = RingConfiguration.of(3, 8, {"a": 10, "b": 70, "c": 130})


@pytest.mark.parametrize("overlay", [TREE, RING], ids=["tree", "ring"])
def test_a_broker_that_the_overlay_lacks_has_no_neighbours(overlay: OverlayConfiguration) -> None:
    """It holds the epoch nevertheless."""
    core = core_of("new", overlay, 0)
    assert (core.epoch, core.live_neighbours) == (3, ())


@pytest.mark.parametrize("overlay", [TREE, RING], ids=["tree", "ring"])
def test_a_broker_may_begin_outside_an_overlay_that_has_it(overlay: OverlayConfiguration) -> None:
    """The overlay contains its earlier incarnation."""
    assert core_of("b", overlay, 0).live_neighbours == ("a", "c")
    assert core_of("b", overlay, 0, is_outside=True).live_neighbours == ()


def test_no_path_over_a_lost_broker_is_kept_on_a_tree() -> None:
    """Its links are new, even those between the same two brokers."""
    later = TREE.at_epoch(4)
    kept, cut = (RoutingTables("a", later, TREE, lost=lost) for lost in (frozenset(), frozenset("b")))
    assert (kept.same_path_to, kept.shared) == ({"a", "b", "c"}, {"b"})
    assert (cut.same_path_to, cut.shared) == ({"a"}, frozenset())


def test_no_path_over_a_lost_broker_is_kept_on_a_ring() -> None:
    """Nor is a path to a broker that one of the rings lacks."""
    older, later = RingTables("a", RING), RING.at_epoch(4)
    kept, cut = (RingTables("a", later, lost=lost) for lost in (frozenset(), frozenset("b")))
    assert [kept.same_route(older, "a", broker) for broker in "abcd"] == [True, True, True, False]
    assert [cut.same_route(older, "a", broker) for broker in "abc"] == [True, False, "b" not in RING.route("a", "c")]


# --- install ---------------------------------------------------------------------------------------------------------

DIGEST = "-of-a-plan"
FILTER = (Predicate("topic", Operator.EQ, "A"),)
OVERLAYS = pytest.mark.parametrize("overlay", [TREE, RING], ids=["tree", "ring"])


def install(overlay: OverlayConfiguration, broker: str, *, term: int = 1, epoch: int = 7) -> Command:
    """Return the command that installs a broker outside the overlay in force."""
    held = overlay.at_epoch(epoch)
    ids = tuple(IdMove(name, OFF_RING, number) for name, number in getattr(held, "id_of", {}).items())
    links = held.links if isinstance(held, TreeConfiguration) else ()
    return Command(
        "plan-7", CommandPhase.INSTALL, broker, epoch, epoch, links_added=links, id_moves=ids,
        brokers_joined=held.brokers, digest=held.digest + DIGEST, term=term,
    )  # fmt: skip


def without_c(overlay: OverlayConfiguration) -> OverlayConfiguration:
    """Return the overlay of epoch 4, which c leaves."""
    change = BrokerChange(left=frozenset("c"))
    if isinstance(overlay, RingConfiguration):
        return overlay.replaced(4, [IdMove("c", 130, OFF_RING)], change=change)
    return TREE.replaced(4, [("b", "c")], [], change=change)


def leave(overlay: OverlayConfiguration) -> Command:
    """Return the prepare of a plan by which c leaves, at c."""
    links = () if overlay is RING else (("b", "c"),)
    ids = (IdMove("c", 130, OFF_RING),) if overlay is RING else ()
    return Command(
        "next", CommandPhase.PREPARE, "c", 3, 4, links_removed=links, id_moves=ids, digest=without_c(overlay).digest,
        term=1, brokers_left=("c",),
    )  # fmt: skip


def outcome_of(core: Any, command: Command) -> tuple[Outcome, Refusal]:
    """Let a broker obey, and return its only answer."""
    answers = [effect.result for effect in core.handle(None, command, 5) if isinstance(effect, Answer)]
    assert len(answers) == 1
    return answers[0].outcome, answers[0].refusal


def prepare_same(overlay: OverlayConfiguration, broker: str, *joined: str) -> Command:
    """Return the prepare of a plan that changes nothing, or admits brokers known from an earlier incarnation."""
    target = overlay.at_epoch(overlay.epoch + 1)
    return Command(
        "next", CommandPhase.PREPARE, broker, overlay.epoch, target.epoch, digest=target.digest + DIGEST, term=1,
        lost_brokers=joined, brokers_joined=joined,
        links_added=tuple(pair for pair in overlay.links if set(pair) & set(joined)),
    )  # fmt: skip


@OVERLAYS
@pytest.mark.parametrize("phase", list(BrokerPhase))
def test_an_install_puts_a_broker_outside_from_every_phase(overlay: OverlayConfiguration, phase: BrokerPhase) -> None:
    """Its clients must connect again; its term and its commitment to the plan of the epoch stay."""
    core: Any = core_of("a", overlay, 0)
    core.handle(None, SubscribeRequest("s", "user", FILTER, 4), 1)
    core.handle(None, AdvertiseRequest("p", FILTER, 2), 1)
    if phase is not BrokerPhase.STEADY:
        command = prepare_same(overlay, "a")
        core.handle(None, command, 2)
        core.state.under_way.is_prepared = phase is not BrokerPhase.PREPARING
        if phase in (BrokerPhase.DRAINING, BrokerPhase.DRAINED):
            core.handle(None, msgspec.structs.replace(command, phase=CommandPhase.ACTIVATE), 3)
            core.state.under_way.is_drained_reported = phase is BrokerPhase.DRAINED
    assert core.phase is phase
    effects = core.handle(None, install(overlay, "a"), 5)
    assert effects[:-1] == [ClientDropped("p", 2), ClientDropped("user", 4)]
    assert (effects[-1].result.outcome, core.phase, core.epoch) == (Outcome.INSTALLED, BrokerPhase.STEADY, 7)
    assert (core.live_neighbours, sorted(core.state.tables)) == ((), [7])
    assert (core.state.fence.plan_of(7), core.state.fence.term) == ("plan-7", 1)
    assert core.routing.clients_here() == {}


@OVERLAYS
@pytest.mark.parametrize("is_prepared", [False, True])
def test_a_plan_overtaken_by_an_install_can_only_be_aborted(overlay: OverlayConfiguration, is_prepared: bool) -> None:
    """Its controller, which does not know the overlay in force, gets no other phase answered as done."""
    core: Any = core_of("a", overlay, 0)
    command = prepare_same(overlay, "a")
    core.handle(None, command, 2)
    core.state.under_way.is_prepared = is_prepared
    core.handle(None, install(overlay, "a"), 5)
    for phase in (CommandPhase.PREPARE, CommandPhase.ACTIVATE, CommandPhase.RETIRE):
        assert outcome_of(core, msgspec.structs.replace(command, phase=phase)) == (Outcome.REFUSED, Refusal.PHASE)
    assert outcome_of(core, msgspec.structs.replace(command, phase=CommandPhase.ABORT))[0] is Outcome.ABORTED


@OVERLAYS
def test_an_install_clears_lost_peers(overlay: OverlayConfiguration) -> None:
    """A neighbour that died before the broker left may have returned meanwhile."""
    core: Any = core_of("a", overlay, 0)
    core.lose_peer("b", 1)
    (answer,) = core.handle(None, install(overlay, "a"), 5)
    assert (answer.result.outcome, answer.result.lost_peers) == (Outcome.INSTALLED, ())


@OVERLAYS
def test_a_repeated_install_changes_nothing(overlay: OverlayConfiguration) -> None:
    """This holds even if the broker has begun to join since, or is inside by a later epoch."""
    core: Any = core_of("b", overlay, 0)
    assert outcome_of(core, install(overlay, "b")) == (Outcome.INSTALLED, Refusal.NONE)
    held = core.state.tables[7]
    assert outcome_of(core, install(overlay, "b")) == (Outcome.INSTALLED, Refusal.NONE)
    assert core.state.tables[7] is held
    command = prepare_same(overlay.at_epoch(7), "b", "b")
    core.handle(None, command, 6)
    assert outcome_of(core, install(overlay, "b")) == (Outcome.INSTALLED, Refusal.NONE)
    assert sorted(core.state.tables) == [7, 8]
    core.state.under_way.is_prepared = True
    for phase in (CommandPhase.ACTIVATE, CommandPhase.RETIRE):
        core.handle(None, msgspec.structs.replace(command, phase=phase), 7)
    assert outcome_of(core, install(overlay, "b")) == (Outcome.REFUSED, Refusal.EPOCH)
    assert (core.epoch, core.live_neighbours) == (8, ("a", "c"))


@OVERLAYS
def test_an_install_with_a_lower_term_or_a_wrong_digest_is_refused(
    overlay: OverlayConfiguration,
) -> None:
    """It changes nothing then."""
    core: Any = core_of("a", overlay, 0)
    core.begin_at("plan-3", "", 2)
    assert outcome_of(core, install(overlay, "a", term=1)) == (Outcome.REFUSED, Refusal.TERM)
    other = msgspec.structs.replace(install(overlay, "a", term=2), digest="0" * 16 + DIGEST)
    assert outcome_of(core, other) == (Outcome.REFUSED, Refusal.PHASE)
    assert (core.epoch, core.live_neighbours != ()) == (3, True)


@OVERLAYS
def test_a_broker_outside_accepts_no_clients_and_no_earlier_messages(overlay: OverlayConfiguration) -> None:
    """Clients are refused; messages on the way to its earlier incarnation are dropped."""
    core: Any = core_of("b", overlay, 0)
    core.handle(None, install(overlay, "b", epoch=3), 1)
    assert core.handle(None, SubscribeRequest("s", "user", FILTER, 4), 1) == [ClientDropped("user", 4)]
    assert core.handle(None, AdvertiseRequest("p", FILTER, 2), 1) == [ClientDropped("p", 2)]
    for source, epoch in (("a", 3), (None, -1), ("a", 2)):
        notification = Notification("p", 0, 1.0, "a", epoch, {"topic": "A"}, 1)
        effects = core.handle(source, notification, 2)
        assert all(isinstance(effect, Dropped) for effect in effects)
    for message in (Subscribe(3, "s", "a", FILTER, 3), End(3)) if overlay is TREE else (Join(3, "A", 3),):
        assert core.handle("a", message, 3) == []
    assert core.routing.clients_here() == {}


def test_early_messages_for_the_next_epoch_are_kept_for_a_joining_broker() -> None:
    """Neighbours that prepare first may send to a broker before it is installed; nothing of older epochs is kept."""
    core: Any = core_of("b", TREE, 0)
    for epoch in (5, 8):
        core.handle("a", Advertise(epoch, f"p{epoch}", 0, "a", FILTER), 1)
    core.handle(None, install(TREE, "b"), 2)
    assert [epoch for epoch, _, _ in core.state.early] == [8]
    core.handle(None, prepare_same(TREE.at_epoch(7), "b", "b"), 3)
    assert list(core.routing.interests.advertisements) == ["p8"]


@OVERLAYS
def test_a_broker_outside_prepares_only_plans_that_admit_it(overlay: OverlayConfiguration) -> None:
    """A controller that believes it is inside does not know that it has restarted."""
    core: Any = core_of("b", overlay, 0)
    core.handle(None, install(overlay, "b"), 1)
    assert outcome_of(core, prepare_same(overlay.at_epoch(7), "b")) == (Outcome.REFUSED, Refusal.OUTSIDE)
    assert outcome_of(core, prepare_same(overlay.at_epoch(11), "b")) == (Outcome.REFUSED, Refusal.OUTSIDE)
    assert outcome_of(core, prepare_same(overlay.at_epoch(7), "b", "b")) == (Outcome.PREPARED, Refusal.NONE)


@OVERLAYS
def test_a_broker_outside_holds_a_plan_until_it_is_aborted(overlay: OverlayConfiguration) -> None:
    """A later plan may be from a controller that does not know the first, which another controller executes."""
    core: Any = core_of("b", overlay, 0)
    core.handle(None, install(overlay, "b"), 1)
    first = prepare_same(overlay.at_epoch(7), "b", "b")
    assert outcome_of(core, first) == (Outcome.PREPARED, Refusal.NONE)
    assert outcome_of(core, install(overlay, "b")) == (Outcome.INSTALLED, Refusal.NONE)
    digest = overlay.at_epoch(9).digest + DIGEST
    later = msgspec.structs.replace(first, plan="later", epoch_to=9, digest=digest)
    assert outcome_of(core, later) == (Outcome.REFUSED, Refusal.PLAN)
    assert sorted(core.state.tables) == [7, 8]
    assert outcome_of(core, msgspec.structs.replace(first, phase=CommandPhase.ABORT))[0] is Outcome.ABORTED
    assert outcome_of(core, later) == (Outcome.PREPARED, Refusal.NONE)
    assert sorted(core.state.tables) == [7, 9]
    assert outcome_of(core, first)[0] is Outcome.REFUSED


def test_a_lost_neighbour_that_joins_a_tree_by_an_ordinary_plan_is_no_longer_lost() -> None:
    """The repair around it is over; the tables of the new epoch do not consider its new incarnation dead."""
    older = TreeConfiguration.of(3, "ab", [("a", "b")])
    core: Any = core_of("a", older, 0)
    core.state.lost_peers.add("c")
    target = older.replaced(4, [], [("a", "c")], change=BrokerChange(joined=frozenset("c")))
    command = Command(
        "next", CommandPhase.PREPARE, "a", 3, 4, links_added=(("a", "c"),), digest=target.digest + DIGEST, term=1,
        brokers_joined=("c",),
    )  # fmt: skip
    core.handle(None, command, 2)
    assert (core.state.lost_peers, core.state.tables[4].dead) == (set(), frozenset())


@OVERLAYS
@pytest.mark.parametrize("phases", [(), (CommandPhase.ACTIVATE,)], ids=["prepared", "active"])
def test_a_leaving_broker_that_counts_as_dead_is_put_outside(
    overlay: OverlayConfiguration, phases: tuple[CommandPhase, ...]
) -> None:
    """It holds the epoch in force already, without being part of it, but still serves clients in the previous one."""
    core: Any = core_of("c", overlay, 0)
    command = leave(overlay)
    core.handle(None, command, 1)
    for phase in phases:
        core.handle(None, msgspec.structs.replace(command, phase=phase), 2)
    assert sorted(core.state.tables) == [3, 4]
    without = msgspec.structs.replace(install(without_c(overlay), "c", epoch=4), digest=command.digest)
    assert outcome_of(core, without) == (Outcome.INSTALLED, Refusal.NONE)
    assert (sorted(core.state.tables), core.phase, core.routing.clients_here()) == ([4], BrokerPhase.STEADY, {})


@OVERLAYS
def test_a_leaving_broker_names_the_clients_that_it_would_leave_behind(overlay: OverlayConfiguration) -> None:
    """Clients that the plan moves are not among them."""
    core: Any = core_of("c", overlay, 0)
    core.handle(None, AdvertiseRequest("p", FILTER, 2), 1)
    answers = [effect.result for effect in core.handle(None, leave(overlay), 5) if isinstance(effect, Answer)]
    assert [(one.outcome, one.reason) for one in answers] == [
        (Outcome.REFUSED, "cannot leave: the plan does not move these clients of this broker: p")
    ]
