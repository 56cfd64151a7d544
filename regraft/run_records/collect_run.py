"""Put together the record of a run that is over, from Kafka: windows, plans and events as they are stored there.

In: a way to Kafka, the inventory, what the controller was told of completeness and cost. Out: the parts of a
RunRecord that do not rest on any stage's own word. Drawing and judging do not belong here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from controller.state.closed_window import ClosedWindow
from controller.state.find_homes import homes_after, homes_before
from controller.state.plan_target import ring_bits_of, target_of, with_homes_of
from controller.state.window_costs import can_be_costed, cost_per_s, rates_of
from controller.windows.assemble_state import AssemblyLimits, WindowAssembler
from infra.kafka_access import KafkaAccess
from overlay.chord_configuration import AnyConfiguration, ChordConfiguration
from overlay.configuration import Configuration
from overlay.cost import CostBreakdown, overlay_cost
from overlay.delivery_sets import DeliverySets
from overlay.inventory import Inventory
from overlay.ring_breakdown import ring_breakdown
from regraft.run_records.read_topics import count_records, read_whole
from regraft.run_records.replay_register import read_client_changes, with_register
from regraft.run_records.run_record import OverlayComparison, ShadowRun, WindowCost
from schemas.event import AdaptationEvent, EventKind
from schemas.plan import Plan, PlanPhase
from schemas.remote_registry import use_registry
from schemas.state import StateRow, WindowClosed
from schemas.topics import EVENTS, PLANS, STATE, TELEMETRY, WINDOWS

Key = TypeVar("Key")

COMPARED_WINDOWS = 5
WARM_UP_MS = 3_000  # Until the first subscriptions are known everywhere, hardly anything is delivered.
READ_S_MAX = 60.0
# Phases in which all brokers stamp the new epoch or are about to: from the point of no return on.
IN_FORCE_PHASES = frozenset(
    {PlanPhase.ACTIVATING, PlanPhase.DRAINING, PlanPhase.RETIRING, PlanPhase.VERIFYING, PlanPhase.COMPLETED}
)


@dataclass(frozen=True)
class StoredRun:
    """What Kafka holds of a run: windows in time order, the newest version of each plan by epoch, all events.

    ``ring_delay_weight`` is what a hop of delay weighs against a message in the cost of a ring.
    """

    windows: tuple[ClosedWindow, ...] = ()
    plans: tuple[Plan, ...] = ()
    events: tuple[AdaptationEvent, ...] = ()
    telemetry_records: int = 0
    configurations: dict[int, AnyConfiguration] = field(default_factory=dict)
    ring_delay_weight: float = 1.0


def read_stored_run(
    kafka: KafkaAccess, namespace: str, inventory: Inventory, limits: AssemblyLimits, ring_delay_weight: float = 1.0
) -> StoredRun:
    """Read the topics of a run whole; each reading is bounded to 60 s. Raises UnreadableTopicError, RegistryError."""
    use_registry(namespace=namespace)
    told = list(read_whole(kafka, namespace, {PLANS: Plan, EVENTS: AdaptationEvent}, READ_S_MAX))
    state = read_whole(kafka, namespace, {STATE: StateRow, WINDOWS: WindowClosed}, READ_S_MAX)
    windows = assemble_windows(state, inventory, limits)
    newest = {record.plan: record for record in told if isinstance(record, Plan)}
    plans = tuple(sorted(newest.values(), key=lambda plan: plan.epoch_to))
    configurations = configurations_of(plans, inventory)
    if isinstance(inventory.bootstrap, ChordConfiguration):
        changes = read_client_changes(kafka, namespace, READ_S_MAX)
        windows = with_register(windows, changes, configurations, 1 - limits.completeness_share_min)
    events = tuple(record for record in told if isinstance(record, AdaptationEvent))
    telemetry_records = count_records(kafka, namespace, TELEMETRY)
    return StoredRun(windows, plans, events, telemetry_records, configurations, ring_delay_weight)


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


def configurations_of(plans: Sequence[Plan], inventory: Inventory) -> dict[int, AnyConfiguration]:
    """Return the configuration of each epoch that was in force, the bootstrap's included.

    Its homes are those of the clients that were ever moved.
    """
    carried_out = [plan for plan in plans if plan.phase in IN_FORCE_PHASES]
    bootstrap = inventory.bootstrap
    homes = homes_before(carried_out)
    found = {bootstrap.epoch: with_homes_of(bootstrap, homes)}
    for plan in carried_out:
        homes = homes | homes_after([plan])
        target = target_of(plan, inventory.brokers, ring_bits_of(bootstrap))
        found[plan.epoch_to] = with_homes_of(target, homes)
    return found


def window_costs(
    stored: StoredRun, inventory: Inventory, shadows_per_s: Mapping[int, Mapping[str, float]] | None = None
) -> tuple[WindowCost, ...]:
    """Return what each window cost on the overlay of its newest epoch and on the bootstrap overlay.

    On the latter clients are where they were before any plan moved them. Windows of a ring of which it is not known
    what users wanted are left out.
    ``shadows_per_s`` are the costs on the overlays of shadow planners by the window's end, which only the controller
    knew.
    """
    first = configuration_at(stored, inventory.bootstrap.epoch, inventory)
    weight = stored.ring_delay_weight
    found = []
    for window in stored.windows:
        in_force = with_homes_of(configuration_at(stored, window.epoch_max, inventory), {})
        if can_be_costed(in_force, window):
            found.append(
                WindowCost(
                    window.end_ms,
                    window.epoch_max,
                    cost_per_s(in_force, inventory, window, weight),
                    cost_per_s(first, inventory, window, weight),
                    window.is_complete,
                    (shadows_per_s or {}).get(window.end_ms, {}),
                )
            )
    return tuple(found)


def first_full_window_cost(stored: StoredRun, inventory: Inventory, traffic_start_ms: int) -> float | None:
    """Return what the first complete window that had traffic from its start to its end cost; None without one."""
    starts_ms = {window.end_ms: window.start_ms for window in stored.windows}
    for cost in window_costs(stored, inventory):
        if cost.complete and starts_ms[cost.end_ms] >= traffic_start_ms + WARM_UP_MS:
            return cost.cost_per_s
    return None


def configuration_at(stored: StoredRun, epoch: int, inventory: Inventory) -> AnyConfiguration:
    """Return the newest configuration in force up to an epoch."""
    known = [number for number in stored.configurations if number <= epoch]
    return stored.configurations[max(known)] if known else inventory.bootstrap


def last_windows(stored: StoredRun, traffic_end_ms: int) -> Sequence[ClosedWindow]:
    """Return the last complete windows that lie wholly in the traffic's time and can be costed."""
    overlay = next(iter(stored.configurations.values()), None)
    usable = [
        window
        for window in stored.windows
        if window.is_complete
        and window.end_ms <= traffic_end_ms
        and (overlay is None or can_be_costed(overlay, window))
    ]
    return usable[-COMPARED_WINDOWS:]


def cost_shadows(
    shadows: Iterable[ShadowRun], stored: StoredRun, inventory: Inventory, traffic_end_ms: int
) -> tuple[ShadowRun, ...]:
    """Return the shadow planners with what the last overlay of each costs, on the windows of :func:`compare_overlays`.

    On a ring a user that a shadow moved is taken to be there unless it has left where the acting plans put it.
    """
    last = last_windows(stored, traffic_end_ms)
    if not last:
        return tuple(shadows)
    first = configuration_at(stored, inventory.bootstrap.epoch, inventory)
    costed = []
    for shadow in shadows:
        homes = first.home_of | dict(shadow.homes)
        overlay: AnyConfiguration
        if isinstance(first, ChordConfiguration):
            overlay = ChordConfiguration.of(0, first.bits, dict(shadow.ring) or first.id_of, homes)
        else:
            overlay = Configuration.of(0, inventory.brokers, shadow.links, homes)
        final = _cost_on(overlay, last, inventory, stored.ring_delay_weight)
        costed.append(replace(shadow, final_cost_per_s=final.total_per_s))
    return tuple(costed)


def compare_overlays(stored: StoredRun, inventory: Inventory, traffic_end_ms: int) -> OverlayComparison | None:
    """Return the bootstrap and the final overlay on the last complete windows that lie wholly in the traffic's time.

    None when there is no such window. The same traffic for both, as a shift of the interests changes what any
    overlay costs.
    """
    last = last_windows(stored, traffic_end_ms)
    if not last:
        return None
    first = configuration_at(stored, inventory.bootstrap.epoch, inventory)
    final = stored.configurations[max(stored.configurations)]
    before, after = (_cost_on(overlay, last, inventory, stored.ring_delay_weight) for overlay in (first, final))
    return OverlayComparison(final, before, after, len(last))


def _cost_on(
    overlay: AnyConfiguration, windows: Sequence[ClosedWindow], inventory: Inventory, ring_delay_weight: float
) -> CostBreakdown:
    """Return what the traffic of all windows costs on an overlay, with clients at its homes."""
    if isinstance(overlay, ChordConfiguration):
        return _mean([_ring_cost_on(overlay, window, ring_delay_weight) for window in windows], windows)
    sets = DeliverySets.joined(window.sets_at(overlay.home_of) for window in windows)
    return overlay_cost(overlay, inventory, sets)


def _ring_cost_on(ring: ChordConfiguration, window: ClosedWindow, delay_weight: float) -> CostBreakdown:
    interests = window.interests_at(ring.home_of)
    return ring_breakdown(ring, interests, rates_of(window, interests), delay_weight)


def _mean(parts: Sequence[CostBreakdown], windows: Sequence[ClosedWindow]) -> CostBreakdown:
    """Return the mean over the windows, each by its length."""
    spans_s = [window.sets.span_s for window in windows]
    total_s = sum(spans_s)

    def mean(told: Callable[[CostBreakdown], Mapping[Key, float]]) -> dict[Key, float]:
        sums: dict[Key, float] = {}
        for part, span_s in zip(parts, spans_s, strict=True):
            for key, value in told(part).items():
                sums[key] = sums.get(key, 0.0) + value * span_s / total_s
        return sums

    return CostBreakdown(
        mean(lambda part: part.links_per_s),
        mean(lambda part: part.brokers_per_s),
        mean(lambda part: part.link_notifications_per_s),
    )


def plan_outcomes(events: Sequence[AdaptationEvent]) -> dict[str, str]:
    """Return the last word on each plan's gain."""
    telling = (EventKind.PLAN_COMPLETED, EventKind.GAIN_MISSED, EventKind.PLAN_ABORTED)
    return {event.plan: event.text for event in events if event.kind in telling and event.plan}
