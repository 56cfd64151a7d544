"""Keep the plans so far and answer what follows from them: present configuration, next epoch, what is unfinished.

In: plans in the order in which they were persisted. Out: answers. Reading and writing the topic belongs to
:mod:`controller.ports.topic_readers`.
"""

from __future__ import annotations

from collections.abc import Iterable

from regraft.controller.state.find_homes import homes_after, homes_before
from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.overlay_configuration import BrokerChange, OverlayConfiguration
from regraft.schemas.plan import Plan, PlanPhase
from regraft.schemas.plan_life import LIFE

# The phases that end a transition: no broker is working on it any more.
TRANSITION_ENDS = frozenset(
    after for facts in LIFE.values() if facts.is_moving for after in facts.next if not LIFE[after].is_moving
)
PLANS_KEPT_MAX = 1000  # Older finished plans are forgotten, also by the topic, which would grow forever.
MOVES_KEPT_MAX = 100_000  # Of all plans kept, some tens of MB; older plans are forgotten.
HOMES_KEPT_MAX = 100_000  # Homes set by forgotten plans; kept plans override them.
CONFIGURATIONS_KEPT_MAX = 8  # Computed on demand, because each names all clients that were ever moved.
PRICED_PLANS_MAX = 5  # Plans whose control messages estimate the next one's price: recent ones, as interests drift.


class PlanLog:
    """The newest version of each plan, by epoch.

    An epoch number is never used twice, not even that of an aborted plan, because a broker may still hold traces of it.
    """

    def __init__(self, inventory: Inventory, plans: Iterable[Plan] = ()) -> None:
        self._bootstrap = inventory.bootstrap
        self._plans: dict[str, Plan] = {}
        self._by_epoch: tuple[Plan, ...] | None = None  # Computed on demand, after each change.
        self._epoch_in_force: int | None = None  # The same.
        self._epoch_max = self._bootstrap.epoch
        self._targets: dict[int, OverlayConfiguration] = {self._bootstrap.epoch: self._bootstrap}  # Without homes.
        self._homes_forgotten: dict[str, str] = {}
        self._configurations: dict[int, OverlayConfiguration] = {}
        self._moves_kept = 0
        self._forgotten: list[str] = []
        for plan in plans:
            self.record(plan)

    def record(self, plan: Plan) -> None:
        """Record a plan's newest version.

        Raises LinkError, RingError or ValueError if its target is not an overlay over the inventory.
        """
        if plan.epoch_to not in self._targets:
            self._targets[plan.epoch_to] = self._bootstrap.target_of(plan)
        earlier = self._plans.get(plan.plan)
        self._moves_kept += len(plan.moves) - (0 if earlier is None else len(earlier.moves))
        self._plans[plan.plan] = plan
        self._by_epoch = self._epoch_in_force = None
        self._epoch_max = max(self._epoch_max, plan.epoch_to)
        self._configurations.clear()
        while len(self._plans) > PLANS_KEPT_MAX or self._moves_kept > MOVES_KEPT_MAX:
            if not self._forget_oldest():
                break

    def take_forgotten(self) -> list[str]:
        """Return the plans forgotten since the last call, which can be deleted from their topic."""
        forgotten, self._forgotten = self._forgotten, []
        return forgotten

    @property
    def plans(self) -> tuple[Plan, ...]:
        """All plans kept, by epoch."""
        if self._by_epoch is None:
            self._by_epoch = tuple(sorted(self._plans.values(), key=lambda plan: plan.epoch_to))
        return self._by_epoch

    @property
    def in_force(self) -> tuple[Plan, ...]:
        """The kept plans that are or were in force, by epoch."""
        return tuple(plan for plan in self.plans if LIFE[plan.phase].is_in_force)

    @property
    def epoch_next(self) -> int:
        """The epoch of the next plan: one more than any plan has ever had."""
        return self._epoch_max + 1

    @property
    def present(self) -> OverlayConfiguration:
        """The configuration in force: that of the last plan in force, else the bootstrap.

        Its homes are those that plans have set; telemetry and the register show where the other clients are.
        """
        return self._configuration_at(self._epoch_present)

    @property
    def homes_origin(self) -> dict[str, str]:
        """The home that each client had before any kept plan moved it."""
        return self.homes_before_plans_since(self._bootstrap.epoch)

    @property
    def moving(self) -> Plan | None:
        """The oldest plan whose transition is not over, and has to be continued; None if there is none."""
        return next((plan for plan in self.plans if LIFE[plan.phase].is_moving), None)

    @property
    def proposed(self) -> Plan | None:
        """The plan that waits for approval, of several the change of brokers, else the rollback, else the oldest."""
        waiting = (plan for plan in self.plans if plan.phase is PlanPhase.PROPOSED)
        return min(waiting, key=lambda plan: (not plan.is_membership, not plan.undoes, plan.epoch_to), default=None)

    @property
    def verifying(self) -> tuple[Plan, ...]:
        """The plans that are executed but not yet verified, by epoch: the next may begin while one is verified."""
        return tuple(plan for plan in self.plans if plan.phase is PlanPhase.VERIFYING)

    @property
    def transition_ended_ms(self) -> int:
        """When the last transition ended, executed or aborted; 0 if there was none."""
        changes = (change for plan in self._plans.values() for change in plan.history)
        return max((change.time_ms for change in changes if change.phase in TRANSITION_ENDS), default=0)

    def control_messages_mean(self, most: int) -> float | None:
        """Return the mean number of messages that the last executed plans sent between brokers; None before the first.

        A plan with more than ``most`` does not count: no overlay sends that many, so a broker has reported nonsense.
        """
        counts = (plan.control_messages for plan in self.in_force[-PRICED_PLANS_MAX:])
        sent = [count for count in counts if count <= most]
        return sum(sent) / len(sent) if sent else None

    def homes_before_plans_since(self, epoch: int) -> dict[str, str]:
        """Return the home that each client had before the kept plans to later epochs moved it."""
        return homes_before(plan for plan in self.in_force if plan.epoch_to > epoch)

    def target_of(self, plan: Plan) -> OverlayConfiguration:
        """Return the overlay that a plan leads to, without homes. Raises as :meth:`record` does."""
        return self._targets.get(plan.epoch_to) or self._bootstrap.target_of(plan)

    def change_of(self, plan: Plan) -> BrokerChange:
        """Return which brokers a plan adds and removes, relative to the overlay that it begins from.

        If that overlay is forgotten, only the lost brokers are known.
        """
        target = self.target_of(plan).brokers
        before = self._targets.get(plan.epoch_from)
        present = {*target, *plan.brokers_lost} if before is None else before.brokers
        return BrokerChange.between(present, target, plan.brokers_lost)

    def configuration_of(self, epoch: int) -> OverlayConfiguration | None:
        """Return the configuration with this epoch, or None if no kept plan leads to it."""
        return self._configuration_at(epoch) if epoch in self._targets else None

    def undo_of(self, plan: str) -> Plan | None:
        """Return the plan that undoes this one, or None."""
        return next((other for other in self._plans.values() if other.undoes == plan), None)

    def muted_until_ms(self, mute_ms: int, changed_ms: int = 0) -> dict[str, int]:
        """Return until when each planner is muted, for those whose plan had to be undone.

        Plans undone before traffic changed, at ``changed_ms``, do not count: they say nothing about the present
        traffic.
        """
        muted: dict[str, int] = {}
        for undo in self._plans.values():
            undone = self._plans.get(undo.undoes)
            if undone is None or not undo.history or undo.history[0].time_ms < changed_ms:
                continue
            for proposal in undone.proposals:
                until_ms = undo.history[0].time_ms + mute_ms
                muted[proposal.planner] = max(muted.get(proposal.planner, 0), until_ms)
        return muted

    @property
    def _epoch_present(self) -> int:
        if self._epoch_in_force is None:
            in_force = (plan.epoch_to for plan in self._plans.values() if LIFE[plan.phase].is_in_force)
            self._epoch_in_force = max(in_force, default=self._bootstrap.epoch)
        return self._epoch_in_force

    def _configuration_at(self, epoch: int) -> OverlayConfiguration:
        configuration = self._configurations.get(epoch)
        if configuration is None:
            on_the_way = [
                plan
                for plan in self.plans
                if plan.epoch_to == epoch or (plan.epoch_to < epoch and LIFE[plan.phase].is_in_force)
            ]
            before = self._homes_forgotten if epoch > self._bootstrap.epoch else {}
            target, homes = self._targets[epoch], before | homes_after(on_the_way)
            present = set(target.brokers)  # Clients of brokers that are gone have no home.
            configuration = target.with_homes({client: home for client, home in homes.items() if home in present})
            while len(self._configurations) >= CONFIGURATIONS_KEPT_MAX:
                del self._configurations[next(iter(self._configurations))]
            self._configurations[epoch] = configuration
        return configuration

    def _forget_oldest(self) -> bool:
        """Forget the oldest plan that is over and whose epoch is not in use; return False if there is none."""
        in_use = {self._epoch_present, self._epoch_max}
        over = (plan for plan in self.plans if LIFE[plan.phase].is_final)
        plan = next((plan for plan in over if plan.epoch_to not in in_use), None)
        if plan is None:
            return False
        del self._plans[plan.plan]
        self._by_epoch = self._epoch_in_force = None
        self._forgotten.append(plan.plan)
        del self._targets[plan.epoch_to]
        self._moves_kept -= len(plan.moves)
        if LIFE[plan.phase].is_in_force:
            for client, home in homes_after([plan]).items():
                self._homes_forgotten.pop(client, None)  # Newest last, so that the oldest are dropped first.
                self._homes_forgotten[client] = home
            for client in list(self._homes_forgotten)[: max(len(self._homes_forgotten) - HOMES_KEPT_MAX, 0)]:
                del self._homes_forgotten[client]
        return True
