"""Assemble the record of a finished run from Kafka: windows, plans and events as stored there.

In: access to Kafka, the inventory, the controller's settings of completeness and link costs. Out: the parts of a
RunRecord that do not depend on what stages report about themselves. Drawing and judging do not belong here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from regraft.controller.kinds.cost_over import cost_by_time_per_s, cost_over_per_s
from regraft.controller.kinds.overlay_kind import AnyKind
from regraft.controller.settings.controller_settings import AssemblyLimits, LinkSettings
from regraft.controller.state.closed_window import ClosedWindow
from regraft.controller.state.find_homes import homes_after, homes_before
from regraft.controller.state.overlays_in_window import overlays_in
from regraft.controller.windows.assemble_state import WindowAssembler
from regraft.controller.windows.measure_links import LinkMeter
from regraft.infra.kafka.kafka_access import KafkaAccess
from regraft.infra.kafka.read_messages import count_records
from regraft.overlay.cost_breakdown import CostBreakdown
from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.inventory.members import FleetView
from regraft.overlay.overlay_configuration import OverlayConfiguration
from regraft.run_records.read_topics import read_whole
from regraft.run_records.replay_register import read_client_changes, with_register
from regraft.run_records.run_record import OverlayComparison, ShadowRun, WindowCost
from regraft.schemas.event import AdaptationEvent, EventKind
from regraft.schemas.live_view import ShownBill
from regraft.schemas.plan import Plan
from regraft.schemas.plan_life import LIFE
from regraft.schemas.remote_registry import use_registry
from regraft.schemas.state import StateRow, WindowClosed
from regraft.schemas.topics import EVENTS, PLANS, STATE, TELEMETRY, WINDOWS

COMPARED_WINDOWS = 5
WARM_UP_MS = 3_000  # Few deliveries happen until the first subscriptions are known everywhere.
READ_S_MAX = 60.0


@dataclass(frozen=True)
class StoredRun:
    """What Kafka holds of a run: windows in time order, the newest version of each plan by epoch, all events.

    ``fleets``: by the end of each window, the brokers with the costs of links when it was costed, which are the
    inventory's unless there were round trips.
    """

    windows: tuple[ClosedWindow, ...] = ()
    plans: tuple[Plan, ...] = ()
    events: tuple[AdaptationEvent, ...] = ()
    telemetry_records: int = 0
    configurations: dict[int, OverlayConfiguration] = field(default_factory=dict)
    fleets: dict[int, FleetView] = field(default_factory=dict)

    def fleet_at(self, window: ClosedWindow, kind: AnyKind) -> FleetView:
        """Return the brokers and costs of links as of when a window was costed."""
        return self.fleets.get(window.end_ms) or FleetView(kind.inventory)

    def links_corrected(self) -> int:
        """Return how many links have a final cost from round trips instead of the inventory."""
        return len(self.fleets[max(self.fleets)].measured) if self.fleets else 0


def read_stored_run(
    kafka: KafkaAccess, namespace: str, kind: AnyKind, limits: AssemblyLimits, links: LinkSettings
) -> StoredRun:
    """Read all topics of a run, each for at most READ_S_MAX. Raises UnreadableTopicError, RegistryError."""
    inventory = kind.inventory
    use_registry(namespace=namespace)
    records = list(read_whole(kafka, namespace, {PLANS: Plan, EVENTS: AdaptationEvent}, READ_S_MAX))
    state = read_whole(kafka, namespace, {STATE: StateRow, WINDOWS: WindowClosed}, READ_S_MAX)
    windows = assemble_windows(state, inventory, limits)
    newest = {record.plan: record for record in records if isinstance(record, Plan)}
    plans = tuple(sorted(newest.values(), key=lambda plan: plan.epoch_to))
    configurations = configurations_of(plans, inventory)
    if kind.NEEDS_REGISTER:
        changes = read_client_changes(kafka, namespace, READ_S_MAX)
        windows = with_register(windows, kind, changes, configurations, 1 - limits.completeness_share_min)
    events = tuple(record for record in records if isinstance(record, AdaptationEvent))
    telemetry_records = count_records(kafka, inventory.broker_topics(namespace).names(TELEMETRY))
    return StoredRun(windows, plans, events, telemetry_records, configurations, fleets_of(windows, inventory, links))


def fleets_of(windows: Iterable[ClosedWindow], inventory: Inventory, links: LinkSettings) -> dict[int, FleetView]:
    """Return, by each window's end, the costs of links from earlier round trips, as the controller computes them."""
    fleet, meter, fleets = FleetView(inventory), LinkMeter(links), {}
    for window in windows:
        fleets[window.end_ms] = fleet
        if meter.add(window, fleet.inventory_announced) or meter.estimated is not fleet.estimated:
            fleet = fleet.with_measured(meter.costs, meter.estimated)
    return fleets


def assemble_windows(
    records: Iterable[StateRow | WindowClosed], inventory: Inventory, limits: AssemblyLimits
) -> tuple[ClosedWindow, ...]:
    """Return the closed windows of stored records, assembled by the controller's code without waiting for rows."""
    assembler = WindowAssembler(inventory.brokers, replace(limits, rows_wait_ms=0))
    kept = sorted(records, key=lambda record: (record.window_start_ms, isinstance(record, WindowClosed)))
    windows: list[ClosedWindow] = []
    for record in kept:
        assembler.add(record, record.window_end_ms)
        if isinstance(record, WindowClosed):
            windows += assembler.closed(record.window_end_ms)
    return tuple(windows)


def configurations_of(plans: Sequence[Plan], inventory: Inventory) -> dict[int, OverlayConfiguration]:
    """Return the configuration of each epoch that brokers may have stamped, the bootstrap's included.

    Brokers stamp the epochs of committed plans, even before their overlay is in force. The homes are those of all
    clients that were ever moved.
    """
    committed = [plan for plan in plans if LIFE[plan.phase].is_committed]
    bootstrap = inventory.bootstrap
    homes = homes_before(committed)
    configurations = {bootstrap.epoch: bootstrap.with_homes(homes)}
    for plan in committed:
        homes = homes | homes_after([plan])
        target = bootstrap.target_of(plan)
        configurations[plan.epoch_to] = target.with_homes(_within(target.brokers, homes))
    return configurations


def _within(brokers: Sequence[str], homes: Mapping[str, str]) -> dict[str, str]:
    """Return the homes that are among the brokers; clients of dead or departed brokers have none."""
    return {client: home for client, home in homes.items() if home in brokers}


def window_costs(
    stored: StoredRun, kind: AnyKind, shadows_per_s: Mapping[int, Mapping[str, float]] | None = None
) -> tuple[WindowCost, ...]:
    """Return the cost of each window that can be costed, on its own overlays and on the bootstrap overlay.

    If the overlay changed in a window, each one counts by its share of the window. On the bootstrap overlay clients
    have the homes from before any plan. ``shadows_per_s``: costs on the overlays of shadow planners by the window's
    end, which only the controller knows.
    """
    inventory = kind.inventory
    first = configuration_at(stored, inventory.bootstrap.epoch, inventory)
    costs = []
    for window in stored.windows:
        if kind.can_be_costed(window):
            fleet = stored.fleet_at(window, kind)
            overlays = overlays_in(window, stored.plans, lambda epoch: configuration_at(stored, epoch, inventory))
            costs.append(
                WindowCost(
                    window.end_ms,
                    window.epoch_max,
                    cost_by_time_per_s(kind, fleet, overlays, window),
                    cost_over_per_s(kind, fleet, first, window),
                    window.is_complete,
                    (shadows_per_s or {}).get(window.end_ms, {}),
                    window.sets.share,
                )
            )
    return tuple(costs)


def first_full_window_cost(stored: StoredRun, kind: AnyKind, traffic_start_ms: int) -> float | None:
    """Return the cost of the first complete window that had traffic throughout; None if there is none."""
    starts_ms = {window.end_ms: window.start_ms for window in stored.windows}
    for cost in window_costs(stored, kind):
        if cost.complete and starts_ms[cost.end_ms] >= traffic_start_ms + WARM_UP_MS:
            return cost.cost_per_s
    return None


def configuration_at(stored: StoredRun, epoch: int, inventory: Inventory) -> OverlayConfiguration:
    """Return the newest configuration whose epoch is at most the given one."""
    epochs = [number for number in stored.configurations if number <= epoch]
    return stored.configurations[max(epochs)] if epochs else inventory.bootstrap


def last_windows(stored: StoredRun, kind: AnyKind, traffic_end_ms: int) -> Sequence[ClosedWindow]:
    """Return the last COMPARED_WINDOWS complete windows that ended before traffic did and can be costed."""
    usable = [
        window
        for window in stored.windows
        if window.is_complete and window.end_ms <= traffic_end_ms and kind.can_be_costed(window)
    ]
    return usable[-COMPARED_WINDOWS:]


def cost_shadows(
    shadows: Iterable[ShadowRun], stored: StoredRun, kind: AnyKind, traffic_end_ms: int
) -> tuple[ShadowRun, ...]:
    """Return the shadow planners with the cost of each one's last overlay, and of that from which it last started.

    Both are costed on the windows of :func:`compare_overlays`. On a ring, a user that a shadow moved counts as there
    unless it has left the home that the acting plans gave it.
    """
    last = last_windows(stored, kind, traffic_end_ms)
    if not last:
        return tuple(shadows)
    bootstrap_epoch = kind.inventory.bootstrap.epoch
    costed = []
    for shadow in shadows:
        start = configuration_at(stored, max(shadow.epoch_start, bootstrap_epoch), kind.inventory)
        last_overlay = start.reshaped(shadow.overlay) if shadow.overlay else start
        overlay = last_overlay.with_homes(_within(last_overlay.brokers, start.home_of | dict(shadow.homes)))
        final, before = (_breakdown(stored, kind, each, last) for each in (overlay, start))
        costed.append(replace(shadow, final_cost_per_s=final.total_per_s, start_cost_per_s=before.total_per_s))
    return tuple(costed)


def _breakdown(
    stored: StoredRun, kind: AnyKind, overlay: OverlayConfiguration, windows: Sequence[ClosedWindow]
) -> CostBreakdown:
    """Return an overlay's cost for what its brokers delivered and published, at the last window's costs of links."""
    own = kind.over(stored.fleet_at(windows[-1], kind).inventory_over(overlay.brokers))
    return own.breakdown(overlay, [window.over(overlay.brokers) for window in windows])


def compare_overlays(stored: StoredRun, kind: AnyKind, traffic_end_ms: int) -> OverlayComparison | None:
    """Compare the bootstrap and the final overlay on the :func:`last_windows`; return None if there are none.

    Both are costed on the same traffic because a shift of interests changes what any overlay costs.
    """
    last = last_windows(stored, kind, traffic_end_ms)
    if not last:
        return None
    first = configuration_at(stored, kind.inventory.bootstrap.epoch, kind.inventory)
    final = stored.configurations[max(stored.configurations)]
    before, after = (_breakdown(stored, kind, overlay, last) for overlay in (first, final))
    own = kind.over(stored.fleet_at(last[-1], kind).inventory_over(final.brokers))
    least_per_s = own.least_cost_per_s([window.over(final.brokers) for window in last])
    return OverlayComparison(final, before, after, len(last), least_per_s)


def bills_of(
    stored: StoredRun, kind: AnyKind, traffic_start_ms: int, traffic_end_ms: int
) -> tuple[ShownBill, ShownBill] | None:
    """Return the bill for traffic before any plan and at the end; None if traffic is not charged.

    "Before" is the last complete windows on the bootstrap overlay after the warm-up. Returns None as well if there is
    no such window, for example because a plan began with the first one.
    """
    first_epoch, warm_ms = kind.inventory.bootstrap.epoch, traffic_start_ms + WARM_UP_MS
    early = [one for one in stored.windows if one.is_complete and one.epoch == first_epoch and one.start_ms >= warm_ms]
    bills = []
    for windows in (early[-COMPARED_WINDOWS:], last_windows(stored, kind, traffic_end_ms)):
        if not windows:
            return None
        overlay = configuration_at(stored, windows[-1].epoch_max, kind.inventory)
        own = kind.over(stored.fleet_at(windows[-1], kind).inventory_over(overlay.brokers))
        bill = own.bill(overlay, [window.over(overlay.brokers) for window in windows])
        if bill is None:
            return None
        bills.append(bill)
    return bills[0], bills[1]


def changes_found_ms(events: Sequence[AdaptationEvent]) -> tuple[int, ...]:
    """Return the start of each change of traffic that the controller reported, ms since 1970."""
    return tuple(int(event.details["since_ms"]) for event in events if event.kind is EventKind.CHANGE_DETECTED)


def plan_outcomes(events: Sequence[AdaptationEvent]) -> dict[str, str]:
    """Return the text of each plan's final event, by plan."""
    final = (EventKind.PLAN_COMPLETED, EventKind.GAIN_MISSED, EventKind.PLAN_ABORTED)
    return {event.plan: event.text for event in events if event.kind in final and event.plan}
