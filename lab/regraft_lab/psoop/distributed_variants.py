"""Run one variant of deciding, on the network and traffic of Jaeger07 in the emulator.

In: brokers, seed, span, variant. Out: a DistributedRun. All variants of a seed get the same network, first tree and
requests of clients. Tables and figures belong to :mod:`experiments.psoop.compare_distributed`.

The paper's times are in ticks; a tick is 10 ms here: publishers send 20 notifications a second, subscriptions last
25 s, brokers broadcast every 2.5 s. There is one publisher for two brokers, as in the paper.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from regraft.api.brokers import Notification
from regraft.api.emulation import SYMBOLS_SHIPPED, LedgerSnapshot, OverlayTiming, Served, WorkloadSettings
from regraft.api.overlays import Inventory
from regraft.api.planning import Planner, TreeContext, planner_of
from regraft.api.trees import bootstrap_tree, overlay_cost, random_tree
from regraft_lab.message_tally import MessageTally, notifications_on_links
from regraft_lab.psoop.distributed_agreement import Agreement, AgreementMeter
from regraft_lab.psoop.distributed_cache import SECOND_MS
from regraft_lab.psoop.distributed_central import CentralOverlay
from regraft_lab.psoop.distributed_messages import MessageKind
from regraft_lab.psoop.distributed_overlay import CachedOverlay, DistributedOverlay
from regraft_lab.psoop.distributed_settings import CommonInterest, DistributedSettings, FilterContent
from regraft_lab.psoop.topologies import transit_stub_costs

PROCESSING_COST_MAX = 10.0  # p_max of the paper, section 5.
LINK_MS_PER_COST = 5.0  # So the most expensive link takes 50 ms.
SERVICE_MS = 0.3  # Short enough that a broker on every path is not overloaded.
CONTROL_SERVICE_MS = 0.05
INTERESTED_BROKERS = 5  # Between the paper's 9 and the same share of 30 brokers as 9 of its 100.
MEASURED_S = 20.0  # The last part of the traffic, on which the first and the last tree are compared.
FITTED_SHARE = 0.0043  # False positives of the paper's filters with full caches.
CENTRAL_DEGREE_MAX = 8  # About the maximum degree that the brokers' own rule reaches.
CENTRAL_PROPOSALS_MAX = 16
SEARCH_WORDS_MAX = 400_000_000  # A tenth of the default keeps a call below a second.

PAPER = DistributedSettings()
DISTRIBUTED: Mapping[str, DistributedSettings] = {
    "distributed": PAPER,
    "distributed_fitted": replace(PAPER, false_positive_share=FITTED_SHARE),
    "distributed_conjunction": replace(PAPER, common_interest=CommonInterest.CONJUNCTION),
    "distributed_fitted_conjunction": replace(
        PAPER, false_positive_share=FITTED_SHARE, common_interest=CommonInterest.CONJUNCTION
    ),
    "distributed_interval": replace(PAPER, filter_content=FilterContent.INTERVAL),
}
CENTRAL: Mapping[str, tuple[Planner, TreeContext]] = {
    "central_ci": (
        planner_of("swap_links_ci", horizon_hops=PAPER.horizon_hops, order="arrival"),
        TreeContext(proposals_max=CENTRAL_PROPOSALS_MAX),
    ),
    "central_cost": (
        planner_of("swap_links_cost", search_words_max=SEARCH_WORDS_MAX),
        TreeContext(proposals_max=CENTRAL_PROPOSALS_MAX, degree_max=CENTRAL_DEGREE_MAX),
    ),
}
STATIC = "static"
VARIANTS = (STATIC, *DISTRIBUTED, *CENTRAL)


@dataclass(frozen=True)
class DistributedRun:
    """The outcome of one variant.

    ``cost_share``: the last tree's cost over the first one's, on the last part of the traffic. ``cost_share_mean``: the
    actual cost of that traffic, on the trees in use, over its cost on the first tree. ``notification_*`` count
    every notification on every link over the whole run, ``notification_cost`` is their cost. ``exchanged``: links
    exchanged. ``outcomes``: how often cycles were freed without an exchange, by reason.
    """

    variant: str
    simulated_s: float
    broker_count: int
    cost_share: float
    cost_share_mean: float
    degree_max: int
    account: LedgerSnapshot
    notification_messages: int
    notification_bytes: int
    notification_cost: float
    tally: MessageTally[MessageKind]
    exchanged: int = 0
    transitions: int = 0
    agreed: int = 0
    outcomes: Mapping[str, int] = field(default_factory=dict)
    agreement: Agreement | None = None


@dataclass(frozen=True)
class Scene:
    """Network, first tree, timing and workload, the same for all variants of a seed."""

    inventory: Inventory
    timing: OverlayTiming
    workload: WorkloadSettings
    seed: int

    @classmethod
    def of(cls, broker_count: int, seed: int) -> Scene:
        """Place brokers on a transit-stub network, draw processing costs and a random tree."""
        rng = np.random.default_rng(seed)
        width = len(str(broker_count - 1))
        names = tuple(f"b{number:0{width}d}" for number in range(broker_count))
        inventory = Inventory(
            brokers=names,
            link_cost=transit_stub_costs(broker_count, rng),
            processing_cost=rng.uniform(0.0, PROCESSING_COST_MAX, broker_count),
            degree_max=broker_count,  # The paper has no degree bound.
            bootstrap=random_tree(names, broker_count, random.Random(seed)),
        )
        workload = WorkloadSettings(
            publisher_count=min(max(broker_count // 2, 1), SYMBOLS_SHIPPED),
            notifications_per_s=20.0,
            interested_broker_count=INTERESTED_BROKERS,
            lifetime_s_mean=25.0,
            broker_load_exponent=1.0,
            popularity_sigma=0.0,
        )
        return cls(inventory, _timing(inventory), workload, seed)

    def overlay(self, variant: str) -> CachedOverlay:
        """Return the variant's overlay, not yet started; raise ValueError for an unknown variant."""
        inventory, workload, seed, timing = self.inventory, self.workload, self.seed, self.timing
        if variant == STATIC:
            return CachedOverlay(inventory, workload, seed, PAPER.cache_count_max, timing)
        if variant in DISTRIBUTED:
            return DistributedOverlay(inventory, workload, seed, DISTRIBUTED[variant], timing)
        if variant in CENTRAL:
            planner, context = CENTRAL[variant]
            return CentralOverlay(
                inventory, workload, seed, planner, context, PAPER.broadcast_ms, PAPER.cache_count_max, timing
            )
        raise ValueError(f"variant {variant!r} is unknown: expected one of {', '.join(VARIANTS)}")


def run_variant(scene: Scene, variant: str, simulated_s: float) -> DistributedRun:
    """Run a variant for ``simulated_s`` of virtual time, then until the overlay is quiet.

    Raises ValueError if that is not longer than the measured last part.
    """
    if simulated_s <= MEASURED_S:
        raise ValueError(
            f"simulated_s is {simulated_s:g}: must be above {MEASURED_S:g}, the seconds measured at the end"
        )
    overlay = scene.overlay(variant)
    virtual = overlay.virtual
    meter = AgreementMeter(overlay) if isinstance(overlay, DistributedOverlay) else None
    overlay.start()
    overlay.traffic.until_ms = virtual.now_ms + simulated_s * SECOND_MS
    overlay.traffic.since_ms = overlay.traffic.until_ms - MEASURED_S * SECOND_MS
    virtual.run_until(overlay.traffic.since_ms)
    cost_before = overlay.notification_cost
    virtual.run_until(overlay.traffic.until_ms)
    measured_per_s = (overlay.notification_cost - cost_before) / MEASURED_S
    if meter is not None:
        meter.stop()
    account = overlay.finish()
    sets = overlay.traffic.sets(overlay.ids)
    bootstrap_per_s = overlay_cost(bootstrap_tree(scene.inventory), scene.inventory, sets).total_per_s
    notification_messages, notification_bytes = notifications_on_links(overlay.virtual.overlay)
    run = DistributedRun(
        variant=variant,
        simulated_s=simulated_s,
        broker_count=len(scene.inventory.brokers),
        cost_share=overlay_cost(overlay.present, scene.inventory, sets).total_per_s / bootstrap_per_s,
        cost_share_mean=measured_per_s / bootstrap_per_s,
        degree_max=overlay.present.degree_max,
        account=account,
        notification_messages=notification_messages,
        notification_bytes=notification_bytes,
        notification_cost=overlay.notification_cost,
        tally=overlay.tally,
    )
    if isinstance(overlay, DistributedOverlay):
        return replace(
            run,
            exchanged=len(overlay.queue.executed),
            transitions=overlay.queue.driver.executed,
            agreed=overlay.agreed_count,
            outcomes=overlay.outcomes,
            agreement=meter.found if meter else None,
        )
    if isinstance(overlay, CentralOverlay):
        return replace(run, exchanged=overlay.exchanged_count, transitions=overlay.driver.executed)
    return run


def _timing(inventory: Inventory) -> OverlayTiming:
    def service_ms(_: str, message: Served) -> float:
        return SERVICE_MS if message.__class__ is Notification else CONTROL_SERVICE_MS

    def link_delay_ms(broker: str, peer: str) -> float:
        return LINK_MS_PER_COST * inventory.cost_of_link(broker, peer)

    return OverlayTiming(service_ms, link_delay_ms)
