"""Drive one plan through a virtual overlay as the controller does, and count what that costs.

In: a virtual overlay and a plan. Out: messages between brokers, commands, answers, times of phases, deliveries held
back and pauses of clients. Everything is observed at the boundary of a broker's core (its inputs and effects), so
counts do not depend on how cores work inside. Overlays, clients and plans: ``transition_runs``.

Bytes: a message between brokers is the msgpack array of its class name and field values, nested records likewise;
commands and answers are Avro with the framing used on Kafka.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, fields, is_dataclass
from functools import lru_cache
from typing import Any

import msgspec

from regraft.api.brokers import Bundle, Deliver, Notification, Send
from regraft.api.emulation import OverlayListener, VirtualOverlay
from regraft.api.planning import TransitionLimits
from regraft.api.records import EventKind, Plan, encode
from regraft.api.transitions import LIFE, Command, CommandResult, EmitEvent, PersistPlan, SendCommand, Transition

TICK_MS = 100.0
STEP_MS = 10.0
WAIT_MS_MAX = 300_000.0
# Names the time at which a plan enters a phase by the answer that all brokers have then given.
REACHED = {facts.next[0]: f"{facts.answer}_ms" for facts in LIFE.values() if facts.is_moving}


@lru_cache(maxsize=100)
def _field_names(record: Any) -> tuple[str, ...]:
    return tuple(one.name for one in fields(record))


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return [_plain(getattr(value, name)) for name in _field_names(value.__class__)]
    if isinstance(value, tuple | list | set | frozenset):
        return [_plain(one) for one in value]
    return {key: _plain(one) for key, one in value.items()} if hasattr(value, "items") else value


def message_bytes(message: object) -> int:
    """Return the size of a message between brokers in bytes, as defined above."""
    return len(msgspec.msgpack.encode([type(message).__name__, *_plain(message)]))


@dataclass(slots=True)
class Observed:
    """Observations since counting began. ``held_ms``: waiting time of each delivery not made on arrival."""

    messages: list[object] = field(default_factory=list)
    deliveries: int = 0
    held_ms: list[float] = field(default_factory=list)


class CoreObserver:
    """Observes inputs and effects of all cores without changing them."""

    def __init__(self, virtual: VirtualOverlay) -> None:
        self.seen = Observed()
        self.deliveries_ever = 0
        self._arrived_ms: dict[str, dict[tuple[str, int], float]] = defaultdict(dict)
        for name, broker in virtual.overlay.brokers.items():
            broker.core.handle = self._watched(name, broker.core.handle)  # type: ignore[method-assign]

    def begin(self) -> None:
        """Restart counting."""
        self.seen = Observed()

    def forget_arrivals(self) -> None:
        """Forget when notifications arrived; call it only while no delivery is held."""
        self._arrived_ms.clear()

    def _watched(self, broker: str, handle: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
        arrived_ms = self._arrived_ms

        def watched(source: str | None, message: Any, now_ms: float) -> list[Any]:
            arriving = None
            if message.__class__ is Notification:
                arriving = message.publisher, message.sequence
                arrived_ms[broker][arriving] = now_ms
            effects = handle(source, message, now_ms)
            seen = self.seen
            for effect in effects:
                if isinstance(effect, Send):
                    if effect.message.__class__ is not Notification:
                        seen.messages.append(effect.message)
                elif isinstance(effect, Deliver):
                    count, key = (
                        len(effect.subscriptions),
                        (effect.notification.publisher, effect.notification.sequence),
                    )
                    seen.deliveries += count
                    self.deliveries_ever += count
                    if key != arriving:
                        seen.held_ms += [now_ms - arrived_ms[broker][key]] * count
            return effects

        return watched


@dataclass(slots=True)
class TransitionCost:
    """The cost of one transition. ``reached_ms``: times since its start.

    Counts and bytes are by kind, and messages in bundles count singly. ``sent``: messages over links, a bundle as one.
    """

    reached_ms: dict[str, float] = field(default_factory=dict)
    messages: Counter[str] = field(default_factory=Counter)
    message_bytes: Counter[str] = field(default_factory=Counter)
    sent: int = 0
    messages_of_plan: int = 0
    commands: Counter[str] = field(default_factory=Counter)
    command_bytes: Counter[str] = field(default_factory=Counter)
    answers: Counter[str] = field(default_factory=Counter)
    answer_bytes: Counter[str] = field(default_factory=Counter)
    deliveries: int = 0
    held_ms: list[float] = field(default_factory=list)
    publisher_wait_ms: tuple[int, float, float] = (0, 0.0, 0.0)  # Publishers moved, mean and longest pause.
    user_wait_ms: tuple[int, float, float] = (0, 0.0, 0.0)  # Requests of moving users; mean, longest wait.
    wall_s: float = 0.0
    cpu_s: float = 0.0


class PlanDriver(OverlayListener):
    """Executes one plan on a virtual overlay by the controller's own state machine.

    ``delay_ms``: the delay of a command to each broker, and of an answer back.
    """

    def __init__(self, virtual: VirtualOverlay, plan: Plan, delay_ms: dict[str, float]) -> None:
        self.virtual = virtual
        self.cost = TransitionCost()
        target = virtual.overlay.inventory.bootstrap.target_of(plan)
        self._transition = Transition(plan, target, TransitionLimits())
        self._delay_ms = delay_ms
        self._began_ms = virtual.now_ms
        self._answers: list[CommandResult] = []
        self._commands: list[Command] = []

    def run(self, observer: CoreObserver) -> TransitionCost:
        """Execute the plan from the first command to the last answer.

        Raises AssertionError if the plan stalls, is aborted or takes longer than WAIT_MS_MAX.
        """
        overlay, cost = self.virtual.overlay, self.cost
        overlay.publishers.moves = type(overlay.publishers.moves)()  # Reset: its maximum covers all moves so far.
        overlay.users.counts = type(overlay.users.counts)()
        observer.begin()
        wall_s, cpu_s = time.perf_counter(), time.process_time()
        self._began_ms = self.virtual.now_ms
        overlay.listeners.append(self)
        self._execute(self._transition.start(self._now_ms))
        self._tick()
        while not self._transition.is_done:
            assert self.virtual.now_ms - self._began_ms < WAIT_MS_MAX, (
                f"the plan is {self._transition.plan.phase} after {WAIT_MS_MAX} ms: {self._transition.waiting_for[:5]}"
            )
            self.virtual.run_for(STEP_MS)
        cost.wall_s, cost.cpu_s = time.perf_counter() - wall_s, time.process_time() - cpu_s
        overlay.listeners.remove(self)
        self._count(observer.seen)
        observer.begin()
        return cost

    def _count(self, seen: Observed) -> None:
        cost, overlay = self.cost, self.virtual.overlay
        cost.sent = len(seen.messages)
        for message in seen.messages:
            for part in message.messages if isinstance(message, Bundle) else (message,):
                cost.messages[type(part).__name__] += 1
                cost.message_bytes[type(part).__name__] += message_bytes(part)
        for command in self._commands:
            cost.commands[str(command.phase)] += 1
            cost.command_bytes[str(command.phase)] += len(encode(command))
        for answer in self._answers:
            cost.answers[str(answer.outcome)] += 1
            cost.answer_bytes[str(answer.outcome)] += len(encode(answer))
        sent = {answer.broker: answer.control_messages for answer in self._answers}  # A broker's counts are cumulative.
        cost.messages_of_plan = sum(sent.values())
        cost.deliveries, cost.held_ms = seen.deliveries, sorted(seen.held_ms)
        moves, users = overlay.publishers.moves, overlay.users.counts
        cost.publisher_wait_ms = _waits(moves.moved, moves.wait_ms_sum, moves.wait_ms_max)
        cost.user_wait_ms = _waits(users.asked, users.wait_ms_sum, users.wait_ms_max)

    # --- between the state machine and the brokers -------------------------------------------------------------------

    @property
    def _now_ms(self) -> int:
        return int(self.virtual.now_ms)

    def _after(self, delay_ms: float, act: Callable[[], None]) -> None:
        self.virtual.env.timeout(delay_ms).callbacks.append(lambda _: act())

    def _tick(self) -> None:
        if not self._transition.is_done:
            self._execute(self._transition.on_tick(self._now_ms))
            self._after(TICK_MS, self._tick)

    def _execute(self, effects: list[Any]) -> None:
        for effect in effects:
            if isinstance(effect, SendCommand):
                command = effect.command
                self._commands.append(command)
                self._after(self._delay_ms[command.broker], lambda sent=command: self.virtual.overlay.obey(sent))  # type: ignore[misc]
            elif isinstance(effect, PersistPlan):
                name = REACHED.get(effect.plan.phase)
                if name is not None:
                    self.cost.reached_ms[name] = self.virtual.now_ms - self._began_ms
            else:
                assert isinstance(effect, EmitEvent), f"the transition returned a {type(effect).__name__}"
                bad = (EventKind.PLAN_STALLED, EventKind.PLAN_ABORTED)
                assert effect.event.kind not in bad, str(effect.event)

    def on_result(self, result: CommandResult) -> None:
        """Deliver a broker's answer to the state machine after its delay."""
        self._answers.append(result)
        self._after(
            self._delay_ms[result.broker],
            lambda: self._execute(self._transition.on_result(result, self._now_ms)),
        )


def _waits(count: int, wait_ms_sum: float, wait_ms_max: float) -> tuple[int, float, float]:
    return count, wait_ms_sum / max(count, 1), wait_ms_max
