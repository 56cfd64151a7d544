import io
from dataclasses import replace

from rich.console import Console

from regraft.run_records.run_record import ServiceUse
from regraft.schemas.live_view import Horizon
from regraft.stages.show_run import Frame, RunScreen, draw_frame, frame_text, text_chart
from tests.regraft.canned_run import small_run


def _frame() -> Frame:
    record = small_run()
    return Frame(
        stage="running",
        elapsed_s=42.0,
        running_s=75.0,
        epoch=1,
        windows=record.windows,
        windows_incomplete=1,
        plans=(("plan-1", 1, "draining", "near [b]and[/b] alike"),),
        plans_completed=1,
        refusals=record.refusals,
        ledger=record.ledger,
        services=(ServiceUse("kafka", 0, 400_000_000),),
    )


def test_without_a_terminal_the_view_is_plain_lines() -> None:
    """A log file gets one line per view and one per event, without escape sequences."""
    output = io.StringIO()
    with RunScreen(Console(file=output, width=80)) as screen:
        screen.show(_frame())
        screen.show(_frame())
        screen.report("plan-1 executed: [epoch 1] everywhere", 43.0)
    lines = output.getvalue().splitlines()
    assert len(lines) == 2
    assert "14 windows (1 incomplete)" in lines[0]
    assert "lost 0, repeated 0, out of order 0" in lines[0]
    assert lines[1].endswith("[epoch 1] everywhere")
    assert "\x1b" not in output.getvalue()


def test_plain_lines_are_in_order_of_time() -> None:
    """The controller's events are known a second after the demo's own, and a view may come in between."""
    output = io.StringIO()
    with RunScreen(Console(file=output, width=80)) as screen:
        screen.report("killed streaming", 41.5)
        screen.show(_frame())
        screen.report("plan-1 started", 41.0)
        screen.show(replace(_frame(), elapsed_s=43.7))
        printed = output.getvalue()
        screen.report("plan-1 executed", 43.0)
    assert [line[:8].strip() for line in printed.splitlines()] == ["41.0 s", "41.5 s"]
    assert [line[:8].strip() for line in output.getvalue().splitlines()] == ["41.0 s", "41.5 s", "42.0 s", "43.0 s"]


def test_a_quiet_view_prints_nothing() -> None:
    """With --json standard output belongs to the summary."""
    output = io.StringIO()
    with RunScreen(Console(file=output, force_terminal=True), quiet=True) as screen:
        screen.show(_frame())
        screen.report("anything", 1.0)
    assert output.getvalue() == ""


def test_on_a_terminal_the_view_has_costs_plans_ledger_and_services() -> None:
    """Everything that an operator watches is in one view."""
    console = Console(file=io.StringIO(), width=120, force_terminal=True, color_system=None)
    console.print(draw_frame(_frame(), ["  41.0 s  something"], console))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    for wanted in ("plan-1", "draining", "[b]and[/b]", "0 / 0 / 0", "gain within noise", "kafka", "something", "33 s"):
        assert wanted in text


def test_where_nobody_counts_nothing_is_said_to_be_lost_or_not() -> None:
    """Next to real brokers there is no ledger, and no zeros in its place."""
    frame = replace(_frame(), ledger=None)
    console = Console(file=io.StringIO(), width=120)
    console.print(draw_frame(frame, [], console))
    for text in (frame_text(frame), console.file.getvalue()):  # type: ignore[attr-defined]
        assert "lost" not in text
        assert "delivered" not in text


def test_a_run_without_a_planned_end_has_no_time_left() -> None:
    """`regraft run` continues until it is stopped."""
    console = Console(file=io.StringIO(), width=120)
    console.print(draw_frame(Frame("running", 5.0, None), [], console))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "left" not in text
    assert "waiting for the first complete window" in text


def test_the_chart_shows_the_newest_windows_that_fit() -> None:
    """A long run scrolls; both curves share one scale that starts at 0."""
    lines = text_chart(small_run().windows, width=5, height=4, plain=True)
    assert all(len(line) <= 11 + 5 for line in lines[:-1])
    assert lines[0].endswith(".....")
    assert lines[2].endswith("*****")


def test_a_line_before_the_first_window_has_no_cost() -> None:
    """Only measured values are shown."""
    assert "no window yet" in frame_text(Frame("starting", 0.0, 10.0))


def test_one_line_gives_a_shadow_planners_cost_of_the_newest_window() -> None:
    """The line is missing until the shadow has seen a window."""
    frame = replace(_frame(), shadow_plans={"swap_links_ci": 2}, horizon=Horizon(6, 6, 20.25, is_measured=True))
    assert frame.shadow_text == "swap_links_ci would cost 60/s, saved 33%, 2 plans"
    assert frame.shadow_text in frame_text(frame)
    console = Console(file=io.StringIO(), width=160)
    console.print(draw_frame(frame, [], console))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert frame.shadow_text in text
    assert "6 windows (20.2 s)" in text
    assert replace(frame, windows=frame.windows[:1]).shadow_text == ""
