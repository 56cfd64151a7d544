"""Put together the record of a run that is over, from Kafka: windows, plans and events as they are stored there.

In: a bootstrap address, the inventory, the completeness that the controller asked for. Out: the parts of a RunRecord
that do not rest on any stage's own word. Drawing and judging do not belong here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from controller.assemble_state import AssemblyLimits, WindowAssembler
from controller.closed_window import ClosedWindow
from controller.find_homes import homes_after, homes_before
from overlay.configuration import Configuration
from overlay.cost import CostBreakdown, overlay_cost
from overlay.delivery_sets import DeliverySets
from overlay.inventory import Inventory
from regraft.read_topics import count_records, read_whole
from regraft.run_record import OverlayComparison, ShadowRun, WindowCost
from schemas.event import AdaptationEvent, EventKind
from schemas.plan import Plan, PlanPhase
from schemas.remote_registry import use_registry
from schemas.state import StateRow, WindowClosed
from schemas.topics import EVENTS, PLANS, STATE, TELEMETRY, WINDOWS

COMPARED_WINDOWS = 5
WARM_UP_MS = 3_000  # Until the first subscriptions are known everywhere, hardly anything is delivered.
READ_S_MAX = 60.0
# Phases in which all brokers stamp the new epoch or are about to: from the point of no return on.
IN_FORCE_PHASES = frozenset(
    {PlanPhase.ACTIVATING, PlanPhase.DRAINING, PlanPhase.RETIRING, PlanPhase.VERIFYING, PlanPhase.COMPLETED}
)


@dataclass(frozen=True)
class StoredRun:
    """What Kafka holds of a run: windows in time order, the newest version of each plan by epoch, all events."""

    windows: tuple[ClosedWindow, ...] = ()
    plans: tuple[Plan, ...] = ()
    events: tuple[AdaptationEvent, ...] = ()
    telemetry_records: int = 0
    configurations: dict[int, Configuration] = field(default_factory=dict)


def read_stored_run(bootstrap: str, namespace: str, inventory: Inventory, limits: AssemblyLimits) -> StoredRun:
    """Read the topics of a run whole; each reading is bounded to 60 s. Raises UnreadableTopicError, RegistryError."""
    use_registry(namespace=namespace)
    told = list(read_whole(bootstrap, namespace, {PLANS: Plan, EVENTS: AdaptationEvent}, READ_S_MAX))
    state = read_whole(bootstrap, namespace, {STATE: StateRow, WINDOWS: WindowClosed}, READ_S_MAX)
    windows = assemble_windows(state, inventory, limits)
    newest = {record.plan: record for record in told if isinstance(record, Plan)}
    plans = tuple(sorted(newest.values(), key=lambda plan: plan.epoch_to))
    events = tuple(record for record in told if isinstance(record, AdaptationEvent))
    telemetry_records = count_records(bootstrap, namespace, TELEMETRY)
    return StoredRun(windows, plans, events, telemetry_records, configurations_of(plans, inventory))


def assemble_windows(
    records: Iterable[StateRow | WindowClosed], inventory: Inventory, limits: AssemblyLimits
) -> tuple[ClosedWindow, ...]:
    """Return the closed windows of stored records by the controller's own rules; what is stored waits for nothing."""
    assembler = WindowAssembler(inventory.brokers, replace(limits, rows_wait_ms=0))
    kept = sorted(records, key=lambda record: (record.window_start_ms, isinstance(record, WindowClosed)))
    found: list[ClosedWindow] = []
    for record in kept:
        assembler.add(record, record.window_end_ms)
        if isinstance(record, WindowClosed):
            found += assembler.closed(record.window_end_ms)
    return tuple(found)


def configurations_of(plans: Sequence[Plan], inventory: Inventory) -> dict[int, Configuration]:
    """Return the configuration of each epoch that was in force, the bootstrap's included.

    Its homes are those of the publishers that were ever moved.
    """
    carried_out = [plan for plan in plans if plan.phase in IN_FORCE_PHASES]
    bootstrap = inventory.bootstrap_tree
    homes = homes_before(carried_out)
    found = {bootstrap.epoch: Configuration.of(bootstrap.epoch, bootstrap.brokers, bootstrap.links, homes)}
    for plan in carried_out:
        homes = homes | homes_after([plan])
        found[plan.epoch_to] = Configuration.of(plan.epoch_to, inventory.brokers, plan.links_target, homes)
    return found


def window_costs(
    stored: StoredRun, inventory: Inventory, shadows_per_s: Mapping[int, Mapping[str, float]] | None = None
) -> tuple[WindowCost, ...]:
    """Return what each window cost on the overlay of its newest epoch and on the bootstrap overlay.

    On the latter publishers are where they were before any plan moved them.
    ``shadows_per_s`` are the costs on the trees of shadow planners by the window's end, which only the controller knew.
    """
    first = configuration_at(stored, inventory.bootstrap_tree.epoch, inventory)
    return tuple(
        WindowCost(
            window.end_ms,
            window.epoch_max,
            overlay_cost(configuration_at(stored, window.epoch_max, inventory), inventory, window.sets).total_per_s,
            overlay_cost(first, inventory, window.sets_at(first.home_of)).total_per_s,
            window.is_complete,
            (shadows_per_s or {}).get(window.end_ms, {}),
        )
        for window in stored.windows
    )


def first_full_window_cost(stored: StoredRun, inventory: Inventory, traffic_start_ms: int) -> float | None:
    """Return what the first complete window that had traffic from its start to its end cost; None without one."""
    for window, cost in zip(stored.windows, window_costs(stored, inventory), strict=True):
        if window.is_complete and window.start_ms >= traffic_start_ms + WARM_UP_MS:
            return cost.cost_per_s
    return None


def configuration_at(stored: StoredRun, epoch: int, inventory: Inventory) -> Configuration:
    """Return the newest configuration in force up to an epoch."""
    known = [number for number in stored.configurations if number <= epoch]
    return stored.configurations[max(known)] if known else inventory.bootstrap_tree


def last_windows(stored: StoredRun, traffic_end_ms: int) -> Sequence[ClosedWindow]:
    """Return the last complete windows that lie wholly in the traffic's time."""
    usable = [window for window in stored.windows if window.is_complete and window.end_ms <= traffic_end_ms]
    return usable[-COMPARED_WINDOWS:]


def cost_shadows(
    shadows: Iterable[ShadowRun], stored: StoredRun, inventory: Inventory, traffic_end_ms: int
) -> tuple[ShadowRun, ...]:
    """Return the shadow planners with what the last tree of each costs on the windows of :func:`compare_overlays`."""
    last = last_windows(stored, traffic_end_ms)
    if not last:
        return tuple(shadows)
    first = configuration_at(stored, inventory.bootstrap_tree.epoch, inventory)
    costed = []
    for shadow in shadows:
        tree = Configuration.of(0, inventory.brokers, shadow.links, first.home_of | dict(shadow.homes))
        costed.append(replace(shadow, final_cost_per_s=_cost_on(tree, last, inventory).total_per_s))
    return tuple(costed)


def compare_overlays(stored: StoredRun, inventory: Inventory, traffic_end_ms: int) -> OverlayComparison | None:
    """Return the bootstrap and the final overlay on the last complete windows that lie wholly in the traffic's time.

    None when there is no such window. The same traffic for both, as a shift of the interests changes what any
    overlay costs.
    """
    last = last_windows(stored, traffic_end_ms)
    if not last:
        return None
    first = configuration_at(stored, inventory.bootstrap_tree.epoch, inventory)
    final = stored.configurations[max(stored.configurations)]
    before, after = _cost_on(first, last, inventory), _cost_on(final, last, inventory)
    return OverlayComparison(final, before, after, len(last))


def _cost_on(overlay: Configuration, windows: Sequence[ClosedWindow], inventory: Inventory) -> CostBreakdown:
    """Return what the traffic of all windows costs on an overlay, with publishers at its homes."""
    sets = DeliverySets.joined(window.sets_at(overlay.home_of) for window in windows)
    return overlay_cost(overlay, inventory, sets)


def plan_outcomes(events: Sequence[AdaptationEvent]) -> dict[str, str]:
    """Return the last word on each plan's gain."""
    telling = (EventKind.PLAN_COMPLETED, EventKind.GAIN_MISSED, EventKind.PLAN_ABORTED)
    return {event.plan: event.text for event in events if event.kind in telling and event.plan}
