"""Plans of a ring: what they lead to, what the log derives from them, what each broker gets, and what people read."""

import msgspec
import pytest

import regraft.controller.state.plan_log
from regraft.controller.execute.transition import EmitEvent, PersistPlan, SendCommand, Transition
from regraft.controller.settings.controller_settings import TransitionLimits
from regraft.controller.state.describe_changes import changes_text
from regraft.controller.state.find_homes import configuration_after, homes_before
from regraft.controller.state.plan_log import PlanLog
from regraft.overlay.overlay_configuration import plan_digest
from regraft.overlay.ring.chord_ring import RingError
from regraft.overlay.ring.ring_configuration import RingConfiguration, id_moves_between
from regraft.schemas.command import CommandPhase
from regraft.schemas.plan import ClientMove, IdMove, PhaseChange, Plan, PlanPhase, Proposal, RingId
from tests.controller.scripted_ring import BITS, BROKERS, RING, placing, reassigning, ring_inventory, ring_window
from tests.controller.small_kinds import ring_kind
from tests.overlay.small_overlays import inventory_of, line_of

INVENTORY = ring_inventory()


def ring_plan(
    epoch: int,
    ring: RingConfiguration = RING,
    moves: tuple[ClientMove, ...] = (),
    phase: PlanPhase = PlanPhase.COMPLETED,
    epoch_from: int | None = None,
) -> Plan:
    """Return a plan from the bootstrap's IDs to those of ``ring``."""
    return Plan(
        plan=f"plan-{epoch}",
        epoch_from=epoch - 1 if epoch_from is None else epoch_from,
        epoch_to=epoch,
        window_end_ms=0,
        proposals=(),
        links_removed=(),
        links_added=(),
        links_target=(),
        cost_before_per_s=2.0,
        cost_predicted_per_s=1.0,
        phase=phase,
        history=(PhaseChange(PlanPhase.PREPARING, 0, ""), PhaseChange(phase, 100, "")),
        moves=moves,
        id_moves=id_moves_between(RING, ring),
        ring_target=tuple(RingId(*pair) for pair in ring.id_of.items()),
    )


def new_plan(*moves: ClientMove) -> Plan:
    """Return a plan that has not begun."""
    return msgspec.structs.replace(ring_plan(1, TURNED, moves, PlanPhase.PREPARING), history=())


TURNED = RING.replaced(1, (IdMove("b00", 0, 7), IdMove("b07", 7, 0)))
U_AWAY, U_ON = ClientMove("u", "b00", "b03"), ClientMove("u", "b03", "b05")
V_AWAY = ClientMove("v", "b01", "b02")


def test_a_plan_leads_to_its_ring_with_the_homes_of_all_users_moved_so_far() -> None:
    """The bits are those of the configuration before."""
    first = configuration_after(ring_plan(1, TURNED, (U_AWAY,)), RING)
    assert first == RingConfiguration.of(1, BITS, TURNED.id_of, {"u": "b03"})
    second = configuration_after(ring_plan(2, RING, (U_ON, V_AWAY)), first)
    assert second == RingConfiguration.of(2, BITS, RING.id_of, {"u": "b05", "v": "b02"})
    assert RING.target_of(ring_plan(1, TURNED)).digest == TURNED.digest


def test_the_log_knows_the_ring_in_force_and_the_users_homes() -> None:
    """Only plans past activation count; the others only use up their epoch."""
    plans = [
        ring_plan(1, TURNED, (U_AWAY,)),
        ring_plan(2, RING, (U_ON, V_AWAY)),
        ring_plan(3, TURNED, (ClientMove("w", "b00", "b01"),), PlanPhase.ABORTED),
    ]
    log = PlanLog(INVENTORY, plans)
    assert log.present == RingConfiguration.of(2, BITS, RING.id_of, {"u": "b05", "v": "b02"})
    assert log.configuration_of(1) == RingConfiguration.of(1, BITS, TURNED.id_of, {"u": "b03"})
    assert log.configuration_of(0) == RING
    assert (log.epoch_next, log.target_of(plans[2]).bits) == (4, BITS)
    assert log.homes_origin == {"u": "b00", "v": "b01"}
    assert log.homes_before_plans_since(1) == {"u": "b03", "v": "b01"}


def test_a_plan_under_way_is_known_but_not_in_force() -> None:
    """Windows of its epoch may come before its activation is complete."""
    log = PlanLog(INVENTORY, [ring_plan(1, TURNED, (U_AWAY,), PlanPhase.DRAINING)])
    assert log.present == RING
    under_way = log.configuration_of(1)
    assert under_way is not None
    assert (under_way.home_of, log.homes_origin) == ({"u": "b03"}, {})
    log.record(ring_plan(1, TURNED, (U_AWAY,), PlanPhase.VERIFYING))
    assert log.present == under_way


def test_a_user_that_moved_by_itself_counts_at_its_new_home() -> None:
    """u moved to b06 by itself between two plans: the cost before the plans is computed with u there."""
    again = ring_plan(2, moves=(ClientMove("u", "b06", "b01"),))
    assert homes_before([ring_plan(1, moves=(U_AWAY,)), again]) == {"u": "b06"}
    assert homes_before([ring_plan(1, moves=(U_AWAY,)), ring_plan(2, moves=(U_ON,))]) == {"u": "b00"}


def test_a_decision_uses_the_registers_homes() -> None:
    """u, moved by a plan, is elsewhere by now; v has left; w was never moved and is not listed."""
    present = RingConfiguration.of(2, BITS, RING.id_of, {"u": "b05", "v": "b02"})
    window = ring_window({"u": ("b06", ["a"]), "w": ("b01", ["a"])}, {"a": 1}, in_force=RING)
    assert ring_kind(INVENTORY).with_homes(present, [window]).home_of == {"u": "b06"}
    assert ring_kind(INVENTORY).with_homes(present, [window.without_interests()]).home_of == {}


def test_plans_of_another_inventory_are_refused() -> None:
    """Other brokers, a duplicate ID, a tree on a ring and a ring on a tree: each has its message."""
    with pytest.raises(ValueError, match="plan-1 leads to a ring of 2 brokers, which are not the 8 of the inventory"):
        PlanLog(INVENTORY, [msgspec.structs.replace(ring_plan(1), ring_target=(RingId("x", 1), RingId("y", 2)))])
    twice = msgspec.structs.replace(ring_plan(1), ring_target=tuple(RingId(broker, 1) for broker in BROKERS))
    with pytest.raises(RingError, match="ring ID 1 is that of more than one broker"):
        PlanLog(INVENTORY, [twice])
    tree = line_of(8)
    of_a_tree = msgspec.structs.replace(ring_plan(1), ring_target=(), links_target=tree.links)
    with pytest.raises(ValueError, match="plan-1 leads to a tree, but the inventory's overlay is a ring"):
        PlanLog(INVENTORY, [of_a_tree])
    with pytest.raises(ValueError, match="plan-1 leads to a ring, but the inventory's overlay is a tree"):
        PlanLog(inventory_of(tree, {}), [ring_plan(1)])
    with pytest.raises(ValueError, match="plan-1 leads to a tree"):
        PlanLog(INVENTORY, [msgspec.structs.replace(ring_plan(1), ring_target=())])


def test_memory_is_bounded_by_users_moved_and_homes_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans that moved many users are forgotten sooner; where they put them is remembered, up to a bound."""
    monkeypatch.setattr(regraft.controller.state.plan_log, "MOVES_KEPT_MAX", 3)
    monkeypatch.setattr(regraft.controller.state.plan_log, "HOMES_KEPT_MAX", 2)
    log = PlanLog(INVENTORY, [ring_plan(1, moves=(U_AWAY, V_AWAY))])
    for epoch in range(2, 6):
        log.record(ring_plan(epoch, moves=(ClientMove(f"w{epoch}", "b00", "b04"),)))
    assert [plan.plan for plan in log.plans] == ["plan-3", "plan-4", "plan-5"]
    assert log.present.home_of == {"v": "b02", "w2": "b04", "w3": "b04", "w4": "b04", "w5": "b04"}
    assert log.configuration_of(1) is None
    crowded = PlanLog(
        INVENTORY, [ring_plan(1, moves=(U_AWAY, V_AWAY, *(ClientMove(f"x{n}", "b00", "b01") for n in range(9))))]
    )
    assert [plan.plan for plan in crowded.plans] == ["plan-1"]


def test_a_prepare_names_the_users_of_its_broker_and_all_ids() -> None:
    """b00 loses u, b03 gets it, b05 has no moved users; later phases carry neither."""
    plan = new_plan(U_AWAY, V_AWAY)
    transition = Transition(plan, TURNED, TransitionLimits())
    effects = transition.start(0)
    commands = {effect.command.broker: effect.command for effect in effects if isinstance(effect, SendCommand)}
    assert {broker: command.moves for broker, command in commands.items()} == {
        "b00": (U_AWAY,), "b01": (V_AWAY,), "b02": (V_AWAY,), "b03": (U_AWAY,),
        **dict.fromkeys(("b04", "b05", "b06", "b07"), ()),
    }  # fmt: skip
    assert {command.id_moves for command in commands.values()} == {(IdMove("b00", 0, 7), IdMove("b07", 7, 0))}
    assert {command.digest for command in commands.values()} == {plan_digest(plan, TURNED)}
    assert isinstance(effects[0], PersistPlan)
    active = msgspec.structs.replace(plan, phase=PlanPhase.ACTIVATING)
    later = [one.command for one in Transition(active, TURNED, TransitionLimits()).resume(0)]
    assert {(one.phase, one.moves, one.id_moves) for one in later} == {(CommandPhase.ACTIVATE, (), ())}
    assert {one.digest for one in later} == {plan_digest(plan, TURNED)}


def test_hundreds_of_moves_are_counted_but_not_listed() -> None:
    """A few are named; a single one is in the singular."""
    moves = tuple(ClientMove(f"u{number:03d}", "b00", "b01") for number in range(214))
    transition = Transition(new_plan(*moves), TURNED, TransitionLimits())
    (text,) = [effect.event.text for effect in transition.start(0) if isinstance(effect, EmitEvent)]
    assert text == (
        "plan-1: epoch 0 -> 1, 2 ring IDs reassigned (b00 ID 0 -> 7, b07 ID 7 -> 0), "
        "214 clients move (u000 b00 -> b01, u001 b00 -> b01, u002 b00 -> b01 and 211 more)"
    )
    assert changes_text(placing(("u", "b00", "b01"))) == "1 client moves (u b00 -> b01)"
    assert changes_text(reassigning(("b00", 0, 9))) == "1 ring ID reassigned (b00 ID 0 -> 9)"
    placed = changes_text(reassigning(("b00", -1, 4097)), has_places=True)
    assert placed == "1 place changed (b00 no place -> cluster 1 in region 1)"


def test_of_many_links_a_few_are_named() -> None:
    """A line in a terminal has room for three; `regraft plans list` lists all."""
    links = tuple((f"b0{at}", f"b1{at}") for at in range(5))
    several = Proposal("p", links, links, 0.0, 0.0, 0.0, "")
    assert changes_text(several) == "5 links for 5 (b00-b10, b01-b11, b02-b12 and 2 more)"
    one = Proposal("p", links[:1], links[1:2], 0.0, 0.0, 0.0, "")
    assert changes_text(one) == "b01-b11 for b00-b10"
    joining, leaving = Proposal("p", (), links[1:2], 0.0, 0.0, 0.0, ""), Proposal("p", links, (), 0.0, 0.0, 0.0, "")
    assert changes_text(joining) == "b01-b11 added"
    assert changes_text(leaving) == "b00-b10, b01-b11, b02-b12 and 2 more removed"
