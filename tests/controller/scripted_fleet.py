"""A scripted fleet: brokers that die, restart, return and are added, around one control loop."""

from dataclasses import dataclass, field

from regraft.controller.execute.find_lost import lost_brokers
from regraft.schemas.command import Command, CommandPhase, CommandResult, Outcome, Refusal
from regraft.schemas.member import Member, MemberState
from regraft.schemas.order import Order, OrderKind
from regraft.schemas.plan import Plan
from regraft.schemas.plan_life import answers_to
from regraft.schemas.state import StateRow
from tests.controller.scripted_overlay import TICK_MS, ScriptedOverlay
from tests.controller.scripted_ring import published_rows
from tests.controller.scripted_windows import WINDOW_MS, marker_of, rows_of


@dataclass
class ScriptedFleet(ScriptedOverlay):
    """``dead`` brokers send and answer nothing. ``held`` is the epoch that each broker stamps."""

    dead: set[str] = field(default_factory=set)
    held: dict[str, int] = field(default_factory=dict)
    boots: dict[str, int] = field(default_factory=dict)
    added: tuple[str, ...] = ()
    received: list[Command] = field(default_factory=list)
    refusing: set[str] = field(default_factory=set)  # brokers that refuse to prepare
    outside: set[str] = field(default_factory=set)  # those of them that report a restart

    @property
    def living(self) -> list[str]:
        """All brokers that run."""
        return [one for one in sorted({*self.inventory.brokers, *self.added}) if one not in self.dead]

    def restart(self, broker: str) -> None:
        """Restart a broker, which loses everything."""
        self.dead.discard(broker)
        self.held[broker] = 0
        self.boots[broker] = self.now_ms + 1

    def write_window(self, start_ms: int) -> None:
        """Write what the living brokers have seen."""
        rows = self._rows(start_ms)
        first_ms = {one: boot // WINDOW_MS * WINDOW_MS for one, boot in self.boots.items()}
        marker = marker_of(self.living, start_ms, rows, 0, epochs=self.held | {}, boots=self.boots)
        entries = tuple(
            type(entry)(
                entry.broker, entry.boot, *((n - first_ms.get(entry.broker, 0) // WINDOW_MS * 4) for n in
                (entry.sequence_min, entry.sequence_max)), entry.received, entry.expected, entry.epoch_min,
                entry.epoch_max,
            )
            for entry in marker.brokers
        )  # fmt: skip
        closed = type(marker)(marker.window_start_ms, marker.window_end_ms, 1, marker.row_counts, entries, 0)
        self.ports.state.records.extend([*rows, closed])

    def _rows(self, start_ms: int) -> list[StateRow]:
        return rows_of(self.living, start_ms, self.wanted(start_ms))

    def answer_commands(self) -> None:
        """Make every living broker answer."""
        while self.ports.commands.sent:
            command = self.ports.commands.sent.popleft()
            self.received.append(command)
            if command.broker not in self.dead:
                self.ports.results.records.extend(self._answers(command))

    def _answers(self, command: Command) -> list[CommandResult]:
        if command.phase is CommandPhase.PREPARE and command.broker in self.refusing:
            outcomes: tuple[Outcome, ...] = (Outcome.REFUSED,)
        elif command.phase is CommandPhase.INSTALL:
            outcomes = (Outcome.INSTALLED,)
        else:
            outcomes = answers_to(command.phase)
        if command.phase in (CommandPhase.ACTIVATE, CommandPhase.INSTALL):
            self.held[command.broker] = command.epoch_to
        is_new = outcomes == (Outcome.REFUSED,) and command.broker in self.outside
        refusal = Refusal.OUTSIDE if is_new else Refusal.NONE
        return [
            CommandResult(
                command.plan, command.phase, command.broker, command.epoch_to, outcome, "", 3, self.now_ms,
                term=command.term, digest=command.digest,
                refusal=refusal,
            )
            for outcome in outcomes
        ]  # fmt: skip

    def order(self, kind: OrderKind, broker: str, **more: object) -> None:
        """Order something about a member, as an operator."""
        self.ports.orders.records.append(
            Order(broker, kind, "ann", "as ordered", self.now_ms, **more)  # type: ignore[arg-type]
        )

    def report_lost(self, by: str, broker: str, time_ms: int | None = None) -> None:
        """Make a broker report, unasked, that a neighbour is dead, whether it is or not."""
        time_ms = self.now_ms if time_ms is None else time_ms
        report = CommandResult(
            "peer_lost", CommandPhase.REPORT, by, self.held.get(by, 0), Outcome.REPORTED, "", 0, time_ms, (broker,)
        )
        self.ports.results.records.append(report)

    def run_until(self, state: MemberState, broker: str, windows_max: int = 40) -> None:
        """Run until a broker is in this state. Raises AssertionError if that takes too long."""
        for _ in range(windows_max * WINDOW_MS // TICK_MS):
            if self.member(broker).state is state:
                return
            self.tick()
        raise AssertionError(f"{broker} is {self.member(broker)}, not {state}, after {windows_max} windows")

    def member(self, broker: str) -> Member:
        """Return the broker's member record."""
        return self.loop.state.fleet.members[broker]

    @property
    def present_brokers(self) -> tuple[str, ...]:
        """The brokers of the overlay in force."""
        return self.loop.state.plan_log.present.brokers

    @property
    def lost(self) -> frozenset[str]:
        """Those of them that are lost."""
        return lost_brokers(self.loop.state.plan_log, self.loop.state.fleet)

    @property
    def last_plan(self) -> Plan:
        """The newest plan."""
        return self.plans[-1]


@dataclass
class ScriptedRingFleet(ScriptedFleet):
    """The same around a ring. Windows hold what one publisher published; users are in the register."""

    def _rows(self, start_ms: int) -> list[StateRow]:
        return published_rows(start_ms, {"p": 20}, home="b01")
