"""Decide on state rows again: run the real control loop on the virtual clock, with each input when it became known.

In: rows and markers, and the controller's other inputs, each with its time. Out: the plans. The same input gives the
same plans, byte for byte. Where the rows come from (Spark, the reference aggregator) and reading recordings do not
belong here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from regraft.controller.loop.compose_loop import compose_loop
from regraft.controller.ports.memory_ports import MemoryPorts
from regraft.controller.settings.controller_settings import ControllerSettings
from regraft.overlay.inventory.inventory import Inventory
from regraft.replays.simulate_brokers import SimulatedBrokers
from regraft.schemas.client import Client
from regraft.schemas.command import Command, CommandPhase, CommandResult
from regraft.schemas.member import Member
from regraft.schemas.order import Order
from regraft.schemas.plan import Plan
from regraft.schemas.state import BODIES, StateRow, WindowClosed
from regraft.schemas.unpack_state import unpack_window

CLOSING_MS = 1_000  # From the end of a window's grace until its marker is read, if that was not recorded.
END_MS_MAX = 60_000  # How long a transition may continue after the last input.
COST_DECIMALS = 6
QUIET_STATUS_MS = 1 << 40  # Never: nothing reads the status.

StateRecord = StateRow | WindowClosed
Advance = Callable[[int, int], None]  # Event time and plans so far.
Question = tuple[str, str, str]  # Plan, phase and broker of a command.


@dataclass(frozen=True)
class DecisionInputs:
    """The controller's inputs in addition to the state rows, each with the time at which it was known (ms since 1970).

    ``clients``: name and record, None for a client that left. ``results``: answers of brokers; None if they were not
    recorded, in which case brokers are simulated. ``recorded``: the newest version of each recorded plan, by name.
    ``plans_known``, ``members_known``: plans and members from before the span; members added later come by orders.
    ``markers_ms``: when each window's marker was stored, by the window's end.
    """

    clients: Sequence[tuple[int, str, Client | None]] = ()
    results: Sequence[tuple[int, CommandResult]] | None = None
    orders: Sequence[tuple[int, Order]] = ()
    recorded: Mapping[str, Plan] = field(default_factory=dict)
    plans_known: Sequence[Plan] = ()
    members_known: Sequence[Member] = ()
    markers_ms: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Decided:
    """The plans that were made, by epoch, and from when on brokers were simulated (0: always, None: never).

    ``windows`` counts those decided on; ``windows_cut`` those left out because the recording began in them.
    """

    plans: tuple[Plan, ...]
    simulated_from_ms: int | None
    windows: int
    windows_cut: int


def decide_again(
    records: Iterable[StateRecord],
    inputs: DecisionInputs,
    inventory: Inventory,
    settings: ControllerSettings,
    grace_ms: int,
    advance: Advance | None = None,
) -> Decided:
    """Run the control loop over rows and markers, which may come in any order and repeatedly.

    A window is known when its marker was stored or, if that is unknown, ``grace_ms`` and CLOSING_MS after its end. The
    window in which the recording began is left out. Recorded answers of brokers are used as long as the plans are the
    recorded ones; from the first different plan on, or if no answers were recorded, brokers are simulated.
    """
    windows = list(_windows(records))
    whole = _without_partial(windows)
    if whole and inputs.results is not None:
        inputs = _with_known(inputs, whole[0].marker.window_start_ms)
    run = _DecisionRun(inputs, inventory, settings)
    timed = sorted(_timed(whole, inputs, grace_ms), key=lambda item: item[0])
    run.run(timed, advance)
    return Decided(run.plans, run.simulated_from_ms, len(whole), len(windows) - len(whole))


def plans_json(plans: Iterable[Plan]) -> bytes:
    """Return plans as canonical JSON: keys sorted, indented by two spaces, one newline at the end.

    Numbers are rounded to COST_DECIMALS decimals because the last bits of a sum depend on the processor.
    """
    plain = _rounded(msgspec.to_builtins(list(plans)))
    return msgspec.json.format(msgspec.json.encode(plain, order="sorted"), indent=2) + b"\n"


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, COST_DECIMALS) + 0.0  # Turns -0.0 into 0.0.
    if isinstance(value, dict):
        return {name: _rounded(each) for name, each in value.items()}
    return [_rounded(each) for each in value] if isinstance(value, list | tuple) else value


def plan_difference(plan: Plan, other: Plan) -> str:
    """Describe the first difference between two plans; empty if they make the same changes."""
    links, clients = ("links_removed", "links_added"), ("moves", "subscribers_moved", "id_moves")
    for name in ("window_end_ms", "epoch_from", "epoch_to", *links, *clients):
        mine, theirs = getattr(plan, name), getattr(other, name)
        if mine != theirs:
            return f"{name.replace('_', ' ')} {_short(mine)} instead of {_short(theirs)}"
    return ""


def _short(value: Any) -> str:
    if not isinstance(value, tuple):
        return str(value)
    shown = ", ".join("-".join(one) if isinstance(one, tuple) else one.text for one in value[:3])
    return f"{shown or 'none'}{f' and {len(value) - 3} more' if len(value) > 3 else ''}"


@dataclass(frozen=True, slots=True)
class _Window:
    marker: WindowClosed
    rows: tuple[StateRow, ...]


def _windows(records: Iterable[StateRecord]) -> Iterator[_Window]:
    """Yield the closed windows in order, with each row once and rows in a fixed order."""
    rows: dict[int, dict[tuple[str, str], StateRow]] = {}
    markers: dict[int, WindowClosed] = {}
    for record in records:
        if isinstance(record, StateRow):
            rows.setdefault(record.window_start_ms, {})[record.kind, record.entity] = record
        else:
            markers[record.window_start_ms] = record
    for start_ms in sorted(markers):
        rows_read, marker = unpack_window(rows.get(start_ms, {}).values(), markers[start_ms])
        yield _Window(marker, tuple(sorted(rows_read, key=lambda row: (BODIES.index(row.kind), row.entity))))


def _without_partial(windows: list[_Window]) -> list[_Window]:
    """Leave out windows without batches at the start, and the first with batches if the recording misses some of them.

    A window without a batch holds only what batches of the next one reported about it.
    """
    for place, window in enumerate(windows):
        if window.marker.brokers:
            is_begun = any(broker.sequence_min > 0 for broker in window.marker.brokers)
            return windows[place + is_begun :]
    return []


def _with_known(inputs: DecisionInputs, first_ms: int) -> DecisionInputs:
    """Return the inputs with all plans made before the first whole window counted as known."""
    plans = {plan.plan: plan for plan in inputs.plans_known}
    plans |= {
        name: plan for name, plan in inputs.recorded.items() if plan.window_end_ms <= first_ms and name not in plans
    }
    return replace(inputs, plans_known=sorted(plans.values(), key=lambda plan: plan.epoch_to))


def _timed(windows: Iterable[_Window], inputs: DecisionInputs, grace_ms: int) -> Iterator[tuple[int, Any]]:
    for window in windows:
        end_ms = window.marker.window_end_ms
        yield inputs.markers_ms.get(end_ms, end_ms + grace_ms + CLOSING_MS), window
    yield from ((time_ms, (name, client)) for time_ms, name, client in inputs.clients)
    yield from inputs.results or ()
    yield from inputs.orders


class _DecisionRun:
    """One control loop on a virtual clock."""

    def __init__(self, inputs: DecisionInputs, inventory: Inventory, settings: ControllerSettings) -> None:
        self._inputs = inputs
        # Approvals are recorded if answers are; without them no plan would be executed.
        dry_run = settings.dry_run and inputs.results is not None
        self._settings = replace(settings, dry_run=dry_run, shadow_planners=(), status_ms=QUIET_STATUS_MS)
        self._ports = MemoryPorts()
        self._ports.clients.is_known = bool(inputs.clients)
        for plan in inputs.plans_known:
            self._ports.plans.commit(plan, ())
        self._ports.plans.commit(None, (), inputs.members_known)
        self._plans: dict[str, Plan] = {}
        self._known = {plan.plan for plan in inputs.plans_known}
        self._asked: dict[Question, Command] = {}
        self._early: dict[Question, list[CommandResult]] = {}
        self._loop = compose_loop(self._settings, inventory, self._ports.ports, stopwatch_s=lambda: 0.0)
        self._brokers: SimulatedBrokers | None = None
        self._ports.plans.versions.clear()
        self.simulated_from_ms: int | None = None
        self._epoch = max((plan.epoch_to for plan in inputs.plans_known), default=inventory.bootstrap.epoch)
        self._expected = sorted(
            (plan.history[0].time_ms, name)
            for name, plan in inputs.recorded.items()
            if plan.history and name not in self._known
        )
        if inputs.results is None:
            self._simulate_brokers(0)

    @property
    def plans(self) -> tuple[Plan, ...]:
        """The plans made, by epoch."""
        return tuple(sorted(self._plans.values(), key=lambda plan: plan.epoch_to))

    def run(self, timed: Sequence[tuple[int, Any]], advance: Advance | None) -> None:
        """Feed each input at its time, tick by tick; then let a transition in progress end, within END_MS_MAX."""
        if not any(isinstance(item, _Window) for _, item in timed):
            return
        tick_ms = self._settings.tick_ms
        # Registers hold records from before the first window: they are fed at the first tick.
        first_ms = next(time_ms for time_ms, item in timed if isinstance(item, _Window))
        now_ms = first_ms // tick_ms * tick_ms
        end_ms = timed[-1][0]
        at = 0
        while at < len(timed) or (self._loop.is_transition_running and now_ms < end_ms + END_MS_MAX):
            while at < len(timed) and timed[at][0] <= now_ms:
                self._feed(timed[at][1])
                at += 1
            self._watch_recorded(now_ms)
            self._step(now_ms)
            if advance is not None:
                advance(now_ms, len(self._plans))
            now_ms += tick_ms

    def _feed(self, item: Any) -> None:
        ports, brokers = self._ports, self._brokers
        if isinstance(item, _Window):
            rows, marker = item.rows, item.marker
            if brokers is not None:
                rows, marker = brokers.seen(rows, marker)
            ports.state.records.extend([*rows, marker])
        elif isinstance(item, CommandResult):
            if brokers is None:
                self._take_result(item)
        elif isinstance(item, Order):
            ports.orders.records.append(item)
        else:
            name, client = item
            if client is None:
                ports.clients.remove(name)
            else:
                ports.clients.put(client if brokers is None else brokers.placed(client))

    def _take_result(self, result: CommandResult) -> None:
        """Pass on a recorded answer once this loop has sent the command, which may be some milliseconds later."""
        question = (result.plan, result.phase, result.broker)
        asked = self._asked.get(question)
        if asked is not None:
            self._ports.results.records.append(_answer_to(asked, result))
        else:
            self._early.setdefault(question, []).append(result)

    def _step(self, now_ms: int) -> None:
        while self._loop.step(now_ms):
            pass
        for plan in self._ports.plans.versions:
            if plan.plan not in self._known:
                self._plans[plan.plan] = plan
        self._ports.plans.versions.clear()
        self._ports.events.emitted.clear()
        while self._ports.commands.sent:
            self._obey(self._ports.commands.sent.popleft(), now_ms)

    def _obey(self, command: Command, now_ms: int) -> None:
        """Let simulated brokers answer a command; otherwise wait for the recorded answers.

        Brokers are simulated from the first plan on that differs from the recorded one.
        """
        if self._brokers is None and command.phase is CommandPhase.PREPARE:
            recorded, own = self._inputs.recorded.get(command.plan), self._plans.get(command.plan)
            if own is not None and (recorded is None or plan_difference(own, recorded)):
                self._simulate_brokers(now_ms)
        if self._brokers is not None:
            self._ports.results.records.extend(self._brokers.obey(command, now_ms))
            return
        question = (command.plan, command.phase, command.broker)
        self._asked[question] = command
        self._ports.results.records.extend(_answer_to(command, early) for early in self._early.pop(question, ()))
        if command.phase is CommandPhase.ACTIVATE:
            self._epoch = command.epoch_to

    def _watch_recorded(self, now_ms: int) -> None:
        """Switch to simulated brokers if a recorded plan was not made here: this loop does not have its epoch."""
        while self._brokers is None and self._expected and self._expected[0][0] + self._patience_ms <= now_ms:
            _, name = self._expected.pop(0)
            if name not in self._plans:
                self._simulate_brokers(now_ms)

    @property
    def _patience_ms(self) -> int:
        return self._settings.transition.resend_ms + 2 * self._settings.tick_ms

    def _simulate_brokers(self, now_ms: int) -> None:
        self._brokers = SimulatedBrokers(self._epoch)
        self.simulated_from_ms = now_ms
        self._early.clear()


def _answer_to(command: Command, recorded: CommandResult) -> CommandResult:
    """Return a recorded answer with the term and digest of this loop's command."""
    return msgspec.structs.replace(recorded, term=command.term, digest=command.digest)


def first_difference(plans: Sequence[Plan], recorded: Sequence[Plan]) -> tuple[int, str]:
    """Return how many plans equal the recorded ones, and the first difference, empty if there is none."""
    same, text = 0, ""
    theirs = {plan.plan: plan for plan in recorded}
    for plan in plans:
        other = theirs.pop(plan.plan, None)
        difference = "was not proposed then" if other is None else plan_difference(plan, other)
        same += not difference
        text = text or (f"{plan.plan}: {difference}" if difference else "")
    if theirs and not text:
        text = f"{next(iter(theirs))}: was proposed then, but not now"
    return same, text
