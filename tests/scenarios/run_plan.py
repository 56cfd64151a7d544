"""Execute a plan on the emulator with the controller's own state machine, on the virtual clock."""

from __future__ import annotations

from collections.abc import Iterable

from regraft.controller.controller_settings import TransitionLimits
from regraft.controller.execute.transition import EmitEvent, SendCommand, Transition, TransitionEffect
from regraft.overlay.overlay_configuration import OverlayConfiguration
from regraft.overlay.ring.ring_configuration import RingConfiguration
from regraft.overlay.scot.scot_configuration import ScotConfiguration
from regraft.producers.brokers.scot_routing import ScotBroker
from regraft.producers.virtual_overlay import VirtualOverlay
from regraft.schemas.event import AdaptationEvent
from regraft.schemas.plan import ClientMove, HomeMove, IdMove, Plan, PlanPhase, RingId

STEP_MS = 5.0
QUICK = TransitionLimits(prepare_ms=3_000, activate_ms=3_000, drain_ms=3_000, retire_ms=3_000, resend_ms=500)


class PlanOnTheClock:
    """One plan and the controller's side of it."""

    def __init__(
        self,
        virtual: VirtualOverlay,
        moves: tuple[ClientMove, ...] = (),
        target: RingConfiguration | ScotConfiguration | None = None,
        id_moves: tuple[IdMove, ...] = (),
        epoch: int = 1,
        lost: tuple[str, ...] = (),
        emptied: tuple[HomeMove, ...] = (),
    ) -> None:
        """Begin a plan from the epoch before; the links of a tree stay as they are."""
        self.virtual = virtual
        bootstrap = virtual.overlay.inventory.bootstrap
        if isinstance(target, ScotConfiguration):
            self._begin(_scot_plan(virtual, target, moves, lost, emptied), target)
            return
        links = () if isinstance(bootstrap, RingConfiguration) else bootstrap.links
        ring = () if target is None else tuple(RingId(broker, number) for broker, number in target.id_of.items())
        plan = Plan(
            f"plan-{epoch}", epoch - 1, epoch, 0, (), (), (), links, 0.0, 0.0, PlanPhase.PREPARING, (),
            moves=moves, id_moves=id_moves, ring_target=ring,
        )  # fmt: skip
        self._begin(plan, bootstrap.target_of(plan))

    def _begin(self, plan: Plan, target: OverlayConfiguration) -> None:
        self.transition = Transition(plan, target, QUICK)
        self.events: list[AdaptationEvent] = []
        self._taken = len(self.virtual.results.results)
        self._follow(self.transition.start(self._now_ms))

    @property
    def phase(self) -> PlanPhase:
        """The phase of the plan."""
        return self.transition.plan.phase

    def run_until(self, *phases: PlanPhase, within_ms: float = 30_000.0) -> None:
        """Let the clock run until the plan has reached one of these phases; raise AssertionError if it does not."""
        deadline_ms = self.virtual.now_ms + within_ms
        while self.phase not in phases:
            assert self.virtual.now_ms < deadline_ms, f"still {self.phase}, waiting for {self.transition.waiting_for}"
            self.virtual.run_for(STEP_MS)
            self.look()

    def look(self) -> None:
        """Process the brokers' answers and the time."""
        results = list(self.virtual.results.results)[self._taken :]
        self._taken += len(results)
        for result in results:
            self._follow(self.transition.on_result(result, self._now_ms))
        self._follow(self.transition.on_tick(self._now_ms))

    @property
    def _now_ms(self) -> int:
        return int(self.virtual.now_ms)

    def _follow(self, effects: Iterable[TransitionEffect]) -> None:
        for effect in effects:
            if isinstance(effect, SendCommand):
                self.virtual.send_command(effect.command)
            elif isinstance(effect, EmitEvent):
                self.events.append(effect.event)


def _scot_plan(
    virtual: VirtualOverlay,
    target: ScotConfiguration,
    moves: tuple[ClientMove, ...],
    lost: tuple[str, ...],
    emptied: tuple[HomeMove, ...],
) -> Plan:
    """Return the plan that leads to a structured cyclic overlay from the newest one that any broker holds."""
    cores = [broker.core for broker in virtual.overlay.brokers.values() if not broker.is_dead]
    overlays = [core.state.tables[core.epoch].configuration for core in cores if isinstance(core, ScotBroker)]
    present = max(overlays, key=lambda one: one.epoch)
    bare = Plan(
        f"plan-{target.epoch}", present.epoch, target.epoch, 0, (), (), (), (), 0.0, 0.0, PlanPhase.PREPARING, (),
        moves=moves, brokers_lost=lost, subscribers_moved=emptied,
    )  # fmt: skip
    return target.as_target(bare, present)
