"""The plans so far and what follows from them: present configuration, next epoch, what is unfinished.

In: plans in the order in which they were persisted. Out: answers. Reading and writing the topic belongs to
:mod:`controller.kafka_links`.
"""

from __future__ import annotations

from collections.abc import Iterable

from controller.find_homes import homes_after, homes_before
from overlay.configuration import Configuration
from overlay.inventory import Inventory
from schemas.plan import Plan, PlanPhase

PASSED_PHASES = frozenset({PlanPhase.RETIRING, PlanPhase.VERIFYING, PlanPhase.COMPLETED})
MOVING_PHASES = frozenset(
    {PlanPhase.PREPARING, PlanPhase.ACTIVATING, PlanPhase.DRAINING, PlanPhase.RETIRING, PlanPhase.ABORTING}
)
PLANS_KEPT_MAX = 1000  # Older finished plans are forgotten in memory; the topic keeps them.
PRICED_PLANS_MAX = 5  # Plans whose control messages tell the price of the next: recent ones, as interests drift.


class PlanLog:
    """The newest version of each plan, by epoch.

    Epoch numbers are never used twice, not even that of an aborted plan: a broker may still hold traces of it.
    """

    def __init__(self, inventory: Inventory, plans: Iterable[Plan] = ()) -> None:
        self._inventory = inventory
        self._plans: dict[str, Plan] = {}
        self._epoch_max = inventory.bootstrap_tree.epoch
        self._configurations = {inventory.bootstrap_tree.epoch: inventory.bootstrap_tree}
        for plan in plans:
            self.record(plan)

    def record(self, plan: Plan) -> None:
        """Take a plan's newest version. Raises NotATreeError when its target is no tree over the inventory."""
        if plan.epoch_to not in self._configurations:
            before = self._configurations.get(plan.epoch_from)
            homes = {} if before is None else before.home_of
            self._configurations[plan.epoch_to] = Configuration.of(
                plan.epoch_to, self._inventory.brokers, plan.links_target, homes | homes_after([plan])
            )
        self._plans[plan.plan] = plan
        self._epoch_max = max(self._epoch_max, plan.epoch_to)
        if len(self._plans) > PLANS_KEPT_MAX:
            self._forget_oldest()

    @property
    def plans(self) -> tuple[Plan, ...]:
        """All plans kept, by epoch."""
        return tuple(sorted(self._plans.values(), key=lambda plan: plan.epoch_to))

    @property
    def epoch_next(self) -> int:
        """The epoch of the next plan: one more than any plan has ever had."""
        return self._epoch_max + 1

    @property
    def present(self) -> Configuration:
        """The configuration of the last plan that passed activation, else the bootstrap.

        Its homes are those that plans have set; where the other publishers are, telemetry tells.
        """
        passed = [plan.epoch_to for plan in self._plans.values() if plan.phase in PASSED_PHASES]
        return self._configurations[max(passed, default=self._inventory.bootstrap_tree.epoch)]

    @property
    def homes_origin(self) -> dict[str, str]:
        """The home that each publisher had before any kept plan moved it."""
        return homes_before(plan for plan in self.plans if plan.phase in PASSED_PHASES)

    @property
    def moving(self) -> Plan | None:
        """The oldest plan whose transition is not over, to be carried on."""
        return next((plan for plan in self.plans if plan.phase in MOVING_PHASES), None)

    @property
    def verifying(self) -> Plan | None:
        """The oldest plan that is carried out but not yet checked."""
        return next((plan for plan in self.plans if plan.phase is PlanPhase.VERIFYING), None)

    @property
    def transition_ended_ms(self) -> int:
        """When the last transition was over, carried out or aborted; 0 when there was none."""
        ended = (PlanPhase.VERIFYING, PlanPhase.ABORTED)
        times = [change.time_ms for plan in self._plans.values() for change in plan.history if change.phase in ended]
        return max(times, default=0)

    @property
    def control_messages_mean(self) -> float | None:
        """What the last plans that were carried out sent between brokers on average, None before the first."""
        sent = [plan.control_messages for plan in self.plans if plan.phase in PASSED_PHASES][-PRICED_PLANS_MAX:]
        return sum(sent) / len(sent) if sent else None

    def configuration_of(self, epoch: int) -> Configuration | None:
        """Return the configuration with this epoch, None when no kept plan leads to it."""
        return self._configurations.get(epoch)

    def undo_of(self, plan: str) -> Plan | None:
        """Return the plan that takes this one back, if there is one."""
        return next((other for other in self._plans.values() if other.undoes == plan), None)

    def muted_until_ms(self, mute_ms: int) -> dict[str, int]:
        """Return until when each planner is muted, for those of which a plan had to be undone."""
        muted: dict[str, int] = {}
        for undo in self._plans.values():
            undone = self._plans.get(undo.undoes)
            if undone is None or not undo.history:
                continue
            for proposal in undone.proposals:
                until_ms = undo.history[0].time_ms + mute_ms
                muted[proposal.planner] = max(muted.get(proposal.planner, 0), until_ms)
        return muted

    def _forget_oldest(self) -> None:
        final = (PlanPhase.COMPLETED, PlanPhase.ABORTED)
        in_use = {self.present.epoch, self._epoch_max}
        for plan in [plan for plan in self.plans if plan.phase in final and plan.epoch_to not in in_use][:1]:
            del self._plans[plan.plan]
            self._configurations.pop(plan.epoch_to, None)
