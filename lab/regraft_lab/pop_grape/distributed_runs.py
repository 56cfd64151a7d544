"""Run one variant of brokers that relocate publishers by themselves, on a testbed and a workload of Cheung09.

In: scene, variant, span. Out: a RelocationRun. All variants of a scene get the same brokers, clients and publications.
Tables and figures belong to :mod:`experiments.pop_grape.compare_relocation`.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace

from regraft.api.emulation import LedgerSnapshot, MoveCounts
from regraft.api.overlays import Inventory
from regraft.api.trees import bootstrap_tree
from regraft_lab.message_tally import MessageTally, notifications_on_links
from regraft_lab.pop_grape.count_window import WorkloadCounter
from regraft_lab.pop_grape.distributed_moves import Move
from regraft_lab.pop_grape.distributed_pop import PopSettings, Profile
from regraft_lab.pop_grape.distributed_relocation import Decision, RelocatingOverlay, Settings
from regraft_lab.pop_grape.distributed_selection import GrapeSettings
from regraft_lab.pop_grape.distributed_telemetry import TelemetryTally
from regraft_lab.pop_grape.distributed_traces import MessageKind
from regraft_lab.pop_grape.placement_measures import Measures, counted
from regraft_lab.pop_grape.quote_workload import (
    Distribution,
    QuoteSettings,
    QuoteTraffic,
    QuoteWorkload,
    draw_workload,
)
from regraft_lab.pop_grape.testbeds import TESTBEDS
from regraft_lab.psoop.distributed_messages import MessageKind as TransitionKind

SECOND_MS = 1_000.0
SET_UP_MS = 10_000.0  # By then all brokers know all clients.
DRAIN_MS_MAX = 120_000.0
# Not in the text. It determines POP's overhead: N (1 - exp(-n / N)) of n notifications a minute are tagged, and for
# n = 150 that is the 32 % that the paper reports for N = 50.
NOTIFICATIONS_PER_S = 2.5
TELEMETRY_FLUSH_MS = 250.0  # The emulator's default.

STATIC = "static"
VARIANTS: Mapping[str, Settings] = {
    STATIC: None,
    "pop": PopSettings(),
    "pop_shared": PopSettings(profile=Profile.SHARED_AVERAGE),
    "pop_sums": PopSettings(profile=Profile.ROUND_SUM),
    "load100": GrapeSettings(),
    "delay100": GrapeSettings(priority="delay"),
    "delay1": GrapeSettings(priority="delay", weight_percent=1),
}
# The trigger experiment of section 5.2: "half of P_threshold" may be traced in a window.
GRAPE_THRESHOLDS = (10, 25, 50, 100, 200)
DELAY_THRESHOLDS = (10, 100)  # With delay first, publishers never settle, so runs take long.
POP_THRESHOLDS = (10, 25, 50, 100, 200)
TRIGGERS: Mapping[str, Settings] = {
    **{f"load100 G={count}": GrapeSettings(threshold=count) for count in GRAPE_THRESHOLDS},
    **{f"delay100 G={count}": GrapeSettings(threshold=count, priority="delay") for count in DELAY_THRESHOLDS},
    **{f"pop P={count}": PopSettings(traced_max=count // 2, threshold=count) for count in POP_THRESHOLDS},
}


class UncleanRunError(RuntimeError):
    """Notifications were lost, repeated or reordered, so the figures of the run are meaningless."""


@dataclass(frozen=True)
class Scene:
    """Brokers and clients, the same for all variants."""

    testbed: str
    distribution: Distribution
    interested_brokers: int
    seed: int
    inventory: Inventory
    workload: QuoteWorkload

    @classmethod
    def of(
        cls,
        interested_brokers: int,
        seed: int,
        distribution: Distribution = "clustered",
        testbed: str = "planetlab",
        settings: QuoteSettings | None = None,
    ) -> Scene:
        """Draw brokers and clients; the same seed gives the same brokers for every distribution and X."""
        rng = random.Random(seed)
        inventory = TESTBEDS[testbed](rng)
        settings = replace(
            settings or QuoteSettings(notifications_per_s=NOTIFICATIONS_PER_S),
            distribution=distribution,
            interested_brokers=interested_brokers,
        )
        workload = draw_workload(inventory.brokers, settings, rng)
        return cls(testbed, distribution, interested_brokers, seed, inventory, workload)


@dataclass(frozen=True)
class RelocationRun:
    """The outcome of one variant.

    ``notification_*`` count every notification on every link over the whole run. ``before`` and ``after`` measure the
    first and the last homes on the same publications, those of the second half. ``decisions`` and ``moves`` are in
    order of time, moves with the end of their transition. ``began_ms``: when publishing began. ``publisher_waits``:
    pauses of moved publishers; ``paper_waits_ms``: their pauses with the paper's migration. ``memory_bytes_max``: peak
    size of each broker's traces. ``telemetry``: the size of windowed telemetry, None if it was not sent.
    """

    scene: Scene
    variant: str
    simulated_s: float
    account: LedgerSnapshot
    notification_messages: int
    notification_bytes: int
    tally: MessageTally[MessageKind]
    transition_tally: MessageTally[TransitionKind]
    transitions: int
    began_ms: float
    decisions: tuple[Decision, ...]
    moves: tuple[tuple[Move, float], ...]
    publisher_waits: MoveCounts
    paper_waits_ms: tuple[float, ...]
    memory_bytes_max: Mapping[str, int]
    before: Measures
    after: Measures
    telemetry: TelemetryTally | None

    @property
    def last_move_s(self) -> float:
        """When the last move ended, in s since publishing began; 0 without moves."""
        return max((over_ms - self.began_ms for _, over_ms in self.moves), default=0.0) / SECOND_MS

    @property
    def first_moves_s(self) -> float:
        """When every moved publisher had moved once, in s: the response to the workload; 0 without moves."""
        first: dict[str, float] = {}
        for move, over_ms in self.moves:
            first.setdefault(move.publisher, over_ms - self.began_ms)
        return max(first.values(), default=0.0) / SECOND_MS

    @property
    def first_decision_s(self) -> float:
        """The mean time of the first decision about a publisher, in s; 0 without decisions."""
        first: dict[str, float] = {}
        for decision in self.decisions:
            first.setdefault(decision.publisher, decision.decided_ms - self.began_ms)
        return sum(first.values()) / max(len(first), 1) / SECOND_MS


def run_variant(
    scene: Scene, variant: str, settings: Settings, simulated_s: float, *, with_telemetry: bool = False
) -> RelocationRun:
    """Run a variant for ``simulated_s`` of publishing, then until the last move has ended and the overlay is quiet.

    Raises UncleanRunError if the ledger is not clean, ValueError if the span is too short to measure a notification.
    """
    count = int(simulated_s * min(publisher.notifications_per_s for publisher in scene.workload.publishers))
    if count < 2:
        raise ValueError(f"simulated_s is {simulated_s:g}: at least two notifications of each publisher are measured")
    telemetry = TelemetryTally() if with_telemetry else None
    flush_ms = TELEMETRY_FLUSH_MS if with_telemetry else None
    overlay = RelocatingOverlay(scene.inventory, scene.seed, settings, telemetry_sink=telemetry, flush_ms=flush_ms)
    virtual = overlay.virtual
    began_ms = virtual.now_ms + SET_UP_MS
    traffic = QuoteTraffic(virtual.overlay, scene.workload, began_ms)
    traffic.start()
    virtual.run_until(began_ms + simulated_s * SECOND_MS)
    overlay.settle()
    traffic.stop()
    account = virtual.finish(DRAIN_MS_MAX)
    if not (account.final and account.is_clean):
        raise UncleanRunError(f"{variant} with seed {scene.seed}: {account}")
    notification_messages, notification_bytes = notifications_on_links(virtual.overlay)
    before, after = (_measures(scene, homes, count) for homes in (scene.workload.homes, overlay.homes))
    return RelocationRun(
        scene=scene,
        variant=variant,
        simulated_s=simulated_s,
        account=account,
        notification_messages=notification_messages,
        notification_bytes=notification_bytes,
        tally=overlay.tally,
        transition_tally=overlay.moves.transition_tally,
        transitions=overlay.moves.driver.executed,
        began_ms=began_ms,
        decisions=tuple(overlay.decisions),
        moves=tuple(overlay.moves.executed),
        publisher_waits=virtual.overlay.publishers.moves,
        paper_waits_ms=tuple(overlay.moves.paper_waits_ms),
        memory_bytes_max=overlay.memory_bytes_max,
        before=before,
        after=after,
        telemetry=telemetry,
    )


def _measures(scene: Scene, homes: Mapping[str, str], count: int) -> Measures:
    """Return the measures of the second half of the first ``count`` publications with publishers at these homes."""
    first = count // 2
    window = WorkloadCounter(scene.inventory, scene.workload, count).window(homes, first, count - first)
    return counted([window], bootstrap_tree(scene.inventory), scene.inventory)
