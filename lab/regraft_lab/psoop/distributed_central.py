"""The same emulated overlay and caches with a central planner, for comparison with the distributed protocol.

The planner knows all caches exactly and immediately; its proposals of one call become one transition.
"""

from __future__ import annotations

import random

from regraft.api.emulation import LedgerSnapshot, OverlayTiming, WorkloadSettings
from regraft.api.overlays import Inventory
from regraft.api.planning import ClosedWindow, Planner, TreeContext, TreeState
from regraft.api.records import BLOCK_SIZE, Proposal
from regraft.api.trees import TreeConfiguration
from regraft_lab.psoop.distributed_exchanges import TransitionDriver, message_cost
from regraft_lab.psoop.distributed_messages import HEADER_BYTES, MessageKind
from regraft_lab.psoop.distributed_overlay import FINISH_MS_MAX, FINISH_STEP_MS, CachedOverlay

SECOND_MS = 1_000.0
CELL_BYTES = 20  # Publisher, block and mask of 64 notifications.


def cached_state(cached: CachedOverlay) -> TreeState:
    """Return the state whose horizon is a single window made of all brokers' caches."""
    brokers, virtual = cached.inventory.brokers, cached.virtual
    start_ms = virtual.settings.start_ms
    span_s = max(virtual.now_ms - start_ms, SECOND_MS) / SECOND_MS
    sets = cached.ids.sets_of(brokers, [cached.caches[broker].ids for broker in brokers], span_s)
    epoch = cached.present.epoch
    window = ClosedWindow(int(start_ms), int(virtual.now_ms), sets, epoch_min=epoch, epoch_max=epoch)
    return TreeState(cached.present, cached.inventory, (window,))


def with_proposals(present: TreeConfiguration, proposals: list[Proposal]) -> TreeConfiguration:
    """Return the tree after all proposals of one call, applied in order."""
    for proposal in proposals:
        present = present.replaced(present.epoch + 1, proposal.links_removed, proposal.links_added)
    return present


class CentralOverlay(CachedOverlay):
    """An overlay whose links a planner chooses every ``period_ms``, except during a transition.

    The reports that brokers would send for this are counted: one message per broker and period, with the new cells.
    """

    def __init__(
        self,
        inventory: Inventory,
        workload: WorkloadSettings | None,
        seed: int,
        planner: Planner,
        context: TreeContext,
        period_ms: float,
        cache_count_max: int,
        timing: OverlayTiming | None = None,
    ) -> None:
        super().__init__(inventory, workload, seed, cache_count_max, timing)
        self.driver = TransitionDriver(self.virtual, self.executor, inventory, self.tally, lambda *_: None)
        self.exchanged_count = 0
        self._planner = planner
        self._context = context
        self._period_ms = period_ms
        self._rng = random.Random(seed)
        self._reported = dict.fromkeys(inventory.brokers, 0)
        self._is_running = True

    def start(self) -> None:
        """Begin to plan after one period."""
        self.call_every(self._period_ms, self._period_ms, self._on_period)

    def finish(self) -> LedgerSnapshot:
        """Stop planning, finish the current transition while traffic still flows, and return the account.

        Raises RuntimeError if that takes longer than ``FINISH_MS_MAX``.
        """
        self._is_running = False
        end_ms = self.virtual.now_ms + FINISH_MS_MAX
        while self.driver.is_busy:
            if self.virtual.now_ms > end_ms:
                raise RuntimeError(f"a transition is still in progress after {FINISH_MS_MAX:g} ms: a broker is stuck")
            self.virtual.run_for(FINISH_STEP_MS)
        return self.virtual.finish()

    def _on_period(self) -> bool:
        if not self._is_running:
            return False
        self._count_reports()
        if not self.driver.is_busy and any(len(cache.ids) for cache in self.caches.values()):
            proposals = self._planner(cached_state(self), self._context, self._rng)
            target = with_proposals(self.present, proposals)
            if target.links != self.present.links:
                self.exchanged_count += len(set(target.links) - set(self.present.links))
                self.driver.begin(target.links)
        return True

    def _count_reports(self) -> None:
        for broker, cache in self.caches.items():
            new = cache.newest(cache.noted_count - self._reported[broker])
            self._reported[broker] = cache.noted_count
            cells = len({notification_id // BLOCK_SIZE for notification_id in new.tolist()})
            if broker != self.executor:
                cost = message_cost(self.inventory, broker, self.executor)
                self.tally.note(MessageKind.REPORT, HEADER_BYTES + CELL_BYTES * cells, cost)
