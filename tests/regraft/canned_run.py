"""A small invented run: four brokers, one plan, a shift of interests; the same in every test."""

from dataclasses import replace

import msgspec
import numpy as np

from regraft.controller.kinds.ring.ring_state import ring_breakdown
from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.ring.ring_configuration import RingConfiguration, id_moves_between
from regraft.overlay.ring.user_interests import UserInterests
from regraft.overlay.scot.scot_configuration import ScotConfiguration
from regraft.overlay.sets.delivery_sets import DeliverySets
from regraft.overlay.tree.overlay_cost import overlay_cost
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.producers.emulator.ledger import LedgerSnapshot
from regraft.run_records.run_record import (
    BurstFigures,
    OverlayComparison,
    RunRecord,
    ServiceUse,
    ShadowRun,
    UserFigures,
    WindowCost,
)
from regraft.schemas.live_view import Horizon
from regraft.schemas.plan import ClientMove, PhaseChange, Plan, PlanPhase, Proposal
from regraft.schemas.shown_state import DecisionTimes

START_MS = 1_700_000_000_000
BROKERS = ("b00", "b01", "b02", "b03")
BAD_LINKS = (("b00", "b03"), ("b01", "b03"), ("b01", "b02"))
GOOD_LINKS = (("b00", "b01"), ("b01", "b03"), ("b01", "b02"))


def small_inventory() -> Inventory:
    """Return four brokers on a line, 10 ms apart, with a bootstrap overlay that goes back and forth."""
    place = np.arange(4, dtype=np.float64)
    link_cost = np.abs(place[:, None] - place[None]) * 10
    return Inventory(BROKERS, np.full(4, 0.5), link_cost, 3, TreeConfiguration.of(0, BROKERS, BAD_LINKS))


def small_plan(phase: PlanPhase = PlanPhase.COMPLETED, time_ms: int = START_MS + 40_000) -> Plan:
    """Return one swap of b00-b03 for b00-b01."""
    links_removed, links_added = (("b00", "b03"),), (("b00", "b01"),)
    reason = "near & of like interest"
    proposal = Proposal("swap_links_cost", links_removed, links_added, 90.0, 40.0, 1.0, reason)
    final = phase if phase is not PlanPhase.ABORTED else PlanPhase.ABORTING
    history = [PhaseChange(PlanPhase.PREPARING, time_ms, "chosen")]
    history += [PhaseChange(final, time_ms + 900, "b02 refused to prepare: <no room>")] if phase is not final else [
        PhaseChange(PlanPhase.ACTIVATING, time_ms + 500, "all brokers answered"),
        PhaseChange(PlanPhase.COMPLETED, time_ms + 9_000, "verified"),
    ]  # fmt: skip
    return Plan(
        plan="plan-1",
        epoch_from=0,
        epoch_to=1,
        window_end_ms=time_ms - 300,
        proposals=(proposal,),
        links_removed=links_removed,
        links_added=links_added,
        links_target=GOOD_LINKS,
        cost_before_per_s=90.0,
        cost_predicted_per_s=40.0,
        phase=phase,
        history=tuple(history),
        cost_observed_per_s=42.0 if phase is PlanPhase.COMPLETED else None,
    )


def small_sets() -> DeliverySets:
    """Return a span in which b00 and b01 share all notifications and b03 wants a few."""
    masks = {("b00", "ibm", 0): 0xFFFF, ("b01", "ibm", 0): 0xFFFF, ("b03", "ibm", 0): 0x3}
    return DeliverySets.of(BROKERS, masks, 5.0)


def small_shadow(final_cost_per_s: float | None = 60.0) -> ShadowRun:
    """Return what a shadow planner would have made of the run."""
    return ShadowRun(
        "swap_links_ci",
        plans=2,
        links_exchanged=3,
        refusals={"gain_within_noise": 4},
        overlay={"links": (("b00", "b01"), ("b00", "b03"), ("b01", "b02"))},
        final_cost_per_s=final_cost_per_s,
        start_cost_per_s=None if final_cost_per_s is None else 164.8,
    )


def scot_run() -> RunRecord:
    """Return the record of a run of bursts on a structured cyclic overlay."""
    record = small_run()
    overlay = ScotConfiguration(0, (tuple(BROKERS[:2]), tuple(BROKERS[2:])), ((0, 1),))
    bursts = BurstFigures(900.0, 800.0, 3.5, None, 12, 40, (START_MS + 5_000, START_MS + 60_000))
    return replace(
        record,
        inventory=replace(record.inventory, bootstrap=overlay),
        expects_regime_change=False,
        ledger=replace(record.ledger, out_of_order=5, out_of_order_on_detours=5),
        bursts=bursts,
    )


def small_run() -> RunRecord:
    """Return the record of a successful run."""
    inventory, sets = small_inventory(), small_sets()
    final = TreeConfiguration.of(1, BROKERS, GOOD_LINKS)
    return RunRecord(
        seed=7,
        inventory=inventory,
        started_ms=START_MS,
        ended_ms=START_MS + 75_000,
        traffic_end_ms=START_MS + 70_000,
        expects_regime_change=True,
        ledger=LedgerSnapshot(published=16, expected=34, delivered=34, final=True),
        windows=tuple(
            WindowCost(START_MS + 5_000 * turn, int(turn > 8), 90.0 if turn <= 8 else 40.0, 90.0, turn != 3, shadows)
            for turn, shadows in ((turn, {"swap_links_ci": 60.0} if turn > 1 else {}) for turn in range(1, 15))
        ),
        windows_incomplete=1,
        plans=(small_plan(),),
        plan_outcomes={"plan-1": "plan-1 saves 48 per second, 50 were predicted"},
        planner="swap_links_cost",
        shadows=(small_shadow(),),
        decision_times={
            "acting:swap_links_cost": DecisionTimes(13, 0.0, 4.0, 9.0),
            "shadow:swap_links_ci": DecisionTimes(13, 0.0, 30.0, 55.0),
        },
        horizon=Horizon(6, 6, 20.25, is_measured=True),
        comparison=OverlayComparison(
            final, overlay_cost(inventory.bootstrap, inventory, sets), overlay_cost(final, inventory, sets), 5
        ),
        regime_change_ms=START_MS + 37_500,
        changes_found_ms=(START_MS + 35_000,),
        refusals={"gain_within_noise": 12, "degree": 3},
        latencies_ms=(2_300.0,),
        telemetry_records=12_000,
        services=(ServiceUse("kafka", 0, 400_000_000), ServiceUse("streaming", 1, 900_000_000)),
        memory_total_bytes_max=1_500_000_000,
    )


def empty_run() -> RunRecord:
    """Return the record of a run in which nothing happened."""
    return replace(
        RunRecord(1, small_inventory(), START_MS, START_MS + 20_000, expects_regime_change=True),
        ledger=LedgerSnapshot(),
        windows_incomplete=0,
    )


def ring_run() -> RunRecord:
    """Return the record of a run on a ring: one plan that moved two users and exchanged two IDs."""
    before = RingConfiguration.of(0, 3, dict(zip(BROKERS, (0, 2, 4, 6), strict=True)))
    after = RingConfiguration.of(1, 3, dict(zip(BROKERS, (2, 0, 4, 6), strict=True)))
    inventory = replace(small_inventory(), bootstrap=before)
    interests = UserInterests.of(BROKERS, {"u1": ("b00", "xy"), "u2": ("b01", "x"), "u3": ("b02", "y")})
    rates = np.array([2.0, 1.0])
    moves = (ClientMove("u1", "b02", "b00"), ClientMove("u2", "b03", "b01"))
    ids = id_moves_between(before, after)
    placing = Proposal("place_users_dynatops", (), (), 20.0, 15.0, 1.0, "2 users <find> others", moves=moves)
    assigning = Proposal("reassign_ids_assignment", (), (), 15.0, 12.0, 1.0, "fewer relays", id_moves=ids)
    plan = replace_plan(small_plan(), (placing, assigning))
    return replace(
        small_run(),
        inventory=inventory,
        expects_regime_change=False,
        regime_change_ms=None,
        changes_found_ms=(),
        plans=(plan,),
        shadows=(ShadowRun("reassign_ids_ssbr", plans=1, id_moves=2, final_cost_per_s=11.0),),
        comparison=OverlayComparison(
            after, ring_breakdown(before, interests, rates), ring_breakdown(after, interests, rates), 5
        ),
        users=UserFigures(3, 4, 2, 812.5, 30, 40),
    )


def replace_plan(plan: Plan, proposals: tuple[Proposal, ...]) -> Plan:
    """Return a plan of these proposals instead of a swap."""
    moves = tuple(move for one in proposals for move in one.moves)
    ids = tuple(move for one in proposals for move in one.id_moves)
    return msgspec.structs.replace(
        plan, proposals=proposals, links_removed=(), links_added=(), links_target=(), moves=moves, id_moves=ids
    )
