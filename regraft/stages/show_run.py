"""Show a run in progress: a live view on a terminal, plain lines anywhere else.

In: a Frame every second, and events when they arrive. Out: text on the terminal. Collecting the values and ordering
plain lines (``order_lines``) do not belong here.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from regraft.producers.emulator.ledger import LedgerSnapshot
from regraft.run_records.run_record import ServiceUse, WindowCost
from regraft.schemas.live_view import Horizon
from regraft.schemas.sampled_blocks import share_text
from regraft.schemas.texts import one_line

LINE_INTERVAL_S = 10.0
CHART_HEIGHT = 8
COLUMNS_PER_WINDOW_MAX = 4
CHART_WIDTH_MAX = 100
PLANS_SHOWN = 6
EVENTS_SHOWN = 5


HOLD_S = 2.0  # Status files are written and read every second.
LATE_S_MIN = 0.05  # Times have one decimal.


class LineOrder:
    """Holds lines and returns them in order."""

    def __init__(self) -> None:
        self._held: list[tuple[float, int, str]] = []
        self._count = 0
        self._given_s = 0.0

    def add(self, text: str, elapsed_s: float) -> None:
        """Hold a line about what happened ``elapsed_s`` after the start of the run."""
        self._count += 1  # Lines with the same time keep the order in which they were added.
        heapq.heappush(self._held, (elapsed_s, self._count, text))

    def due(self, now_s: float) -> list[str]:
        """Return the lines that have been held long enough."""
        lines = []
        while self._held and self._held[0][0] <= now_s - HOLD_S:
            lines.append(self._line(*heapq.heappop(self._held)))
        return lines

    def rest(self) -> list[str]:
        """Return all lines that are still held."""
        return self.due(float("inf"))

    def _line(self, elapsed_s: float, _count: int, text: str) -> str:
        late_s = self._given_s - elapsed_s
        self._given_s = max(self._given_s, elapsed_s)
        own = f" (at {elapsed_s:.1f} s)" if late_s >= LATE_S_MIN else ""
        return f"{self._given_s:6.1f} s  {text}{own}"


@dataclass(frozen=True)
class Frame:
    """Everything that the view shows at one moment; ``plans`` are (plan, epoch, phase, reason), newest last.

    ``running_s`` is the planned length of the run, None if it has none. ``shadow_plans`` holds how many plans each
    shadow planner would have made. ``ledger`` is None where nobody counts deliveries, as next to real brokers.
    """

    stage: str
    elapsed_s: float
    running_s: float | None
    epoch: int = 0
    windows: tuple[WindowCost, ...] = ()
    windows_incomplete: int = 0
    plans: tuple[tuple[str, int, str, str], ...] = ()
    plans_completed: int = 0
    plans_aborted: int = 0
    refusals: Mapping[str, int] | None = None
    shadow_plans: Mapping[str, int] = field(default_factory=dict)
    horizon: Horizon | None = None
    ledger: LedgerSnapshot | None = None
    services: tuple[ServiceUse, ...] = ()
    note: str = ""

    @property
    def cost_text(self) -> str:
        """The newest complete window's cost and that of the bootstrap overlay."""
        newest = self._newest_complete
        if newest is None:
            return "no window yet"
        saved = _saved_text(newest.cost_per_s, newest)
        if newest.sample_share < 1:
            saved += f", estimated from {share_text(newest.sample_share)}"
        return f"cost {newest.cost_per_s:,.0f}/s, bootstrap {newest.cost_bootstrap_per_s:,.0f}/s, {saved}"

    @property
    def shadow_text(self) -> str:
        """What the newest complete window would have cost on the shadow planners' overlays; empty if there are none."""
        newest = self._newest_complete
        if newest is None:
            return ""
        return "; ".join(
            f"{planner} would cost {cost_per_s:,.0f}/s, {_saved_text(cost_per_s, newest)}, "
            f"{plans_text(self.shadow_plans.get(planner, 0))}"
            for planner, cost_per_s in newest.shadows_per_s.items()
        )

    @property
    def _newest_complete(self) -> WindowCost | None:
        return next((window for window in reversed(self.windows) if window.complete), None)


class RunScreen:
    """The live view; use as a context manager, call ``show`` about once a second and ``report`` for each event.

    If standard output is not a terminal, it prints a line about every 10 s and one for each event, in order of time.
    """

    def __init__(self, console: Console, *, quiet: bool = False) -> None:
        self._console = console
        self._quiet = quiet
        self._live: Live | None = None
        self._newest: list[tuple[float, str]] = []
        self._order = LineOrder()
        self._line_printed_s = float("-inf")

    def __enter__(self) -> Self:
        if self._console.is_terminal and not self._quiet:
            self._live = Live(console=self._console, refresh_per_second=2, transient=False)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None
        self._print(self._order.rest())

    def show(self, frame: Frame) -> None:
        """Show the frame."""
        if self._quiet:
            return
        if self._live is not None:
            events = [f"{elapsed_s:6.1f} s  {text}" for elapsed_s, text in sorted(self._newest)]
            self._live.update(draw_frame(frame, events, self._console))
            return
        now_s = time.monotonic()
        if now_s - self._line_printed_s >= LINE_INTERVAL_S:
            self._line_printed_s = now_s
            self._order.add(one_line(frame_text(frame)), frame.elapsed_s)
        self._print(self._order.due(frame.elapsed_s))

    def report(self, text: str, elapsed_s: float) -> None:
        """Show an event that happened ``elapsed_s`` after the start of the run."""
        if self._quiet:
            return
        text = one_line(text)
        if self._live is None:
            self._order.add(text, elapsed_s)
        else:
            self._newest = [*self._newest, (elapsed_s, text)][-EVENTS_SHOWN:]

    def _print(self, lines: Sequence[str]) -> None:
        for line in lines:
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)


def frame_text(frame: Frame) -> str:
    """Return the frame as one plain line, without its time."""
    ledger = frame.ledger
    parts = [
        frame.stage,
        f"{len(frame.windows)} windows ({frame.windows_incomplete} incomplete)",
        f"epoch {frame.epoch}",
        f"plans {frame.plans_completed} completed, {frame.plans_aborted} aborted",
        frame.cost_text,
        *([frame.shadow_text] if frame.shadow_text else []),
        *([] if ledger is None else [_ledger_text(ledger)]),
    ]
    return "; ".join([*parts, frame.note] if frame.note else parts)


def _ledger_text(ledger: LedgerSnapshot) -> str:
    return f"lost {ledger.lost}, repeated {ledger.repeated}, out of order {ledger.out_of_order}"


def draw_frame(frame: Frame, events: Sequence[str], console: Console) -> RenderableType:
    """Return the frame as drawn on a terminal."""
    is_wide_charset = (console.encoding or "").lower().startswith("utf")
    width = min(max(console.width - 16, 20), CHART_WIDTH_MAX)
    chart = text_chart(frame.windows, width, CHART_HEIGHT, plain=not is_wide_charset)
    lower = Table.grid(expand=True, padding=(0, 2))
    lower.add_column(ratio=3)
    lower.add_column(ratio=2)
    lower.add_row(_plan_table(frame), Group(_count_table(frame), _service_table(frame)))
    parts: list[RenderableType] = [
        _head(frame),
        Panel(Text("\n".join(chart)), title="overlay cost per second of each window", title_align="left"),
        *([Text(frame.shadow_text)] if frame.shadow_text else []),
        lower,
        Text("\n".join(events), style="dim"),
    ]
    return Group(*parts)


def text_chart(windows: Sequence[WindowCost], width: int, height: int, *, plain: bool = False) -> list[str]:
    """Return the two cost curves as text: filled marks for the actual overlay, small ones for the bootstrap."""
    complete = [window for window in windows if window.complete][-width:]
    if not complete:
        return ["waiting for the first complete window"]
    present_mark, bootstrap_mark = ("*", ".") if plain else ("●", "·")
    top = max(max(window.cost_per_s, window.cost_bootstrap_per_s) for window in complete) or 1.0
    columns_each = max(min(width // len(complete), COLUMNS_PER_WINDOW_MAX), 1)
    rows = [[" " * columns_each] * len(complete) for _ in range(height)]
    for column, window in enumerate(complete):
        for cost_per_s, mark in ((window.cost_bootstrap_per_s, bootstrap_mark), (window.cost_per_s, present_mark)):
            row = height - 1 - min(int(cost_per_s / top * height), height - 1)
            rows[row][column] = mark * columns_each
    lines = [f"{top * (height - row) / height:10,.0f} " + "".join(cells) for row, cells in enumerate(rows)]
    return [*lines, f"{'':10} {present_mark} overlay in force   {bootstrap_mark} bootstrap overlay, same traffic"]


def plans_text(count: int) -> str:
    """Return a number of plans as text."""
    return f"{count} plan{'s' * (count != 1)}"


def _saved_text(cost_per_s: float, window: WindowCost) -> str:
    share = 1 - cost_per_s / window.cost_bootstrap_per_s if window.cost_bootstrap_per_s else 0.0
    return f"saved {share:.0%}"


def _head(frame: Frame) -> RenderableType:
    elapsed = f"{frame.elapsed_s:.0f} s"
    bar: RenderableType = ""
    if frame.running_s is not None:
        elapsed += f", about {max(frame.running_s - frame.elapsed_s, 0):.0f} s left"
        bar = ProgressBar(total=frame.running_s, completed=min(frame.elapsed_s, frame.running_s))
    grid = Table.grid(expand=True, padding=(0, 1))
    grid.add_column(ratio=2)
    grid.add_column(ratio=3)
    grid.add_column(justify="right", ratio=2)
    grid.add_row(
        Text(f"Regraft  {frame.stage}", style="bold"),
        bar,
        Text(elapsed),
    )
    if frame.note:
        grid.add_row(Text(frame.note, style="yellow"), "", "")
    return grid


def _plan_table(frame: Frame) -> Table:
    table = _bare_table(f"epoch {frame.epoch}; {frame.plans_completed} plans completed, {frame.plans_aborted} aborted")
    for name in ("plan", "epoch", "phase", "why"):
        table.add_column(name, overflow="ellipsis", no_wrap=name != "why")
    for plan, epoch, phase, reason in frame.plans[-PLANS_SHOWN:]:
        table.add_row(plan, str(epoch), phase, Text(reason))
    return table


def _count_table(frame: Frame) -> Table:
    ledger = frame.ledger
    table = _bare_table("")
    table.show_header = False
    table.add_column()
    table.add_column(justify="right")
    table.add_row("windows closed (incomplete)", f"{len(frame.windows)} ({frame.windows_incomplete})")
    if ledger is not None:
        table.add_row("published / delivered", f"{ledger.published:,} / {ledger.delivered:,}")
        verdict = f"{ledger.lost} / {ledger.repeated} / {ledger.out_of_order}"
        table.add_row("lost / repeated / out of order", Text(verdict, style="green" if ledger.is_clean else "bold red"))
    if frame.horizon is not None:
        lifetime_s = frame.horizon.lifetime_s
        lives = "too few have ended" if lifetime_s is None else f"{lifetime_s:.1f} s"
        table.add_row("decision horizon (subscription lifetime)", f"{frame.horizon.windows} windows ({lives})")
    for name, count in sorted((frame.refusals or {}).items(), key=lambda item: (-item[1], item[0]))[:4]:
        table.add_row(f"refused: {name.replace('_', ' ')}", str(count))
    return table


def _service_table(frame: Frame) -> Table:
    table = _bare_table("")
    table.add_column("service")
    table.add_column("MB", justify="right")
    table.add_column("restarts", justify="right")
    for service in frame.services:
        restarts = Text(str(service.restarts), style="yellow" if service.restarts else "")
        table.add_row(service.name, f"{service.memory_bytes_max / 1e6:.0f}", restarts)
    return table


def _bare_table(title: str) -> Table:
    options: dict[str, Any] = {"title": title, "title_justify": "left"} if title else {}
    return Table(box=None, pad_edge=False, header_style="dim", **options)
