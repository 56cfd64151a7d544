"""A complete scripted overlay: brokers that answer commands at once, and windows that say who wants what."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from regraft.controller.loop.compose_loop import compose_loop
from regraft.controller.loop.control_loop import ControlLoop
from regraft.controller.ports.memory_ports import MemoryPorts
from regraft.controller.report.loop_metrics import LoopMetrics
from regraft.controller.settings.controller_settings import ControllerSettings, TransitionLimits
from regraft.controller.settings.decision_settings import DecisionSettings
from regraft.controller.state.planner_interface import Planner
from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.overlay_configuration import Link
from regraft.schemas.command import Command, CommandPhase, CommandResult
from regraft.schemas.event import EventKind
from regraft.schemas.plan import Plan, PlanPhase
from regraft.schemas.plan_life import answers_to
from regraft.streaming.build_rows import Window, rtt_row
from tests.controller.scripted_windows import WINDOW_MS, marker_of, rows_of

TICK_MS = 250


@dataclass
class ScriptedOverlay:
    """The world around one control loop. ``wanted`` maps a window's start to its interests, ``rtts_ms`` is by link.

    Messages wait ``wait_ms`` in every queue.
    """

    inventory: Inventory
    wanted: Callable[[int], list[set[str]]]
    settings: ControllerSettings
    planner: Planner | None = None
    ports: MemoryPorts = field(default_factory=MemoryPorts)
    epoch: int = 0
    now_ms: int = 0
    silent_brokers: set[str] = field(default_factory=set)
    lost_batches: dict[str, int] = field(default_factory=dict)
    term: int = 1
    restarted_brokers: set[str] = field(default_factory=set)  # at epoch 0, whatever is in force
    rtts_ms: dict[Link, float] = field(default_factory=dict)
    wait_ms: float = 0.0

    def __post_init__(self) -> None:
        self.loop = self.new_loop()

    def new_loop(self) -> ControlLoop:
        """Start the controller, for the first time or again."""
        self.metrics = LoopMetrics()
        self.loop = compose_loop(
            self.settings, self.inventory, self.ports.ports, self.planner, self.metrics, term=self.term
        )
        return self.loop

    def run_windows(self, count: int) -> None:
        """Let this many windows pass, while the loop steps and the brokers answer."""
        for _ in range(count * WINDOW_MS // TICK_MS):
            self.tick()

    def tick(self) -> None:
        """Let one tick pass: write the window that has ended, step the loop, answer its commands."""
        self.now_ms += TICK_MS
        if self.now_ms % WINDOW_MS == 0:
            self.write_window(self.now_ms - WINDOW_MS)
        while self.loop.step(self.now_ms):
            pass
        self.answer_commands()

    def write_window(self, start_ms: int) -> None:
        """Write the rows and the marker of one window."""
        rows = rows_of(self.inventory.brokers, start_ms, self.wanted(start_ms), self.wait_ms)
        window = Window(start_ms, start_ms + WINDOW_MS)
        rows += [rtt_row(window, *pair, rtt_ms, rtt_ms) for pair, rtt_ms in sorted(self.rtts_ms.items())]
        self.ports.state.records.extend(rows)
        epochs = dict.fromkeys(self.restarted_brokers, 0)
        marker = marker_of(self.inventory.brokers, start_ms, rows, self.epoch, self.lost_batches, epochs=epochs)
        self.ports.state.records.append(marker)

    def answer_commands(self) -> None:
        """Make every broker that is not silent answer its commands."""
        while self.ports.commands.sent:
            command = self.ports.commands.sent.popleft()
            if command.broker not in self.silent_brokers:
                self.ports.results.records.extend(self._answers(command))

    def _answers(self, command: Command) -> list[CommandResult]:
        if command.phase is CommandPhase.ACTIVATE:
            self.epoch = command.epoch_to
        return [
            CommandResult(
                command.plan,
                command.phase,
                command.broker,
                command.epoch_to,
                outcome,
                "",
                3,
                self.now_ms,
                term=command.term,
                digest=command.digest,
            )
            for outcome in answers_to(command.phase)
        ]

    @property
    def plans(self) -> list[Plan]:
        """The stored plans by epoch."""
        return sorted(self.ports.plans.stored.values(), key=lambda plan: plan.epoch_to)

    @property
    def phases(self) -> list[PlanPhase]:
        """The phases of the stored plans."""
        return [plan.phase for plan in self.plans]

    def events_of(self, kind: EventKind) -> list[str]:
        """Return the texts of all events of a kind."""
        return [event.text for event in self.ports.events.emitted if event.kind is kind]


def settings_of(inventory_degree_max: int = 4, **changes: object) -> ControllerSettings:
    """Return settings for short scripts; the bootstrap and the inventory path are not used in memory."""
    decision = DecisionSettings(cool_down_windows=2, pay_back_s=600.0, window_age_ms_max=5000)
    values: dict[str, object] = {
        "bootstrap": "nowhere:9092",
        "inventory_path": Path("unused.json"),
        "planner": "swap_links_ci",  # Fast: the search does not escape from local optima.
        "degree_max": inventory_degree_max,
        "horizon_windows_max": 3,
        "decision": decision,
        "transition": TransitionLimits(prepare_ms=3000, resend_ms=500),
        "dry_run": False,
    }
    return ControllerSettings(**(values | changes))  # type: ignore[arg-type]
