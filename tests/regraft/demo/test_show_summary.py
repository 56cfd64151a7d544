"""What a demo prints at its end: figures in words, for every kind of overlay."""

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from regraft.demo.show_summary import CHANGES, show_summary, summary_lines
from regraft.run_records.run_record import MOBILE_FIGURES, RunRecord
from regraft.run_records.summary import summarise
from tests.regraft.canned_run import empty_run, ring_run, scot_run, small_run


@pytest.mark.parametrize("run", [small_run(), ring_run(), scot_run(), empty_run()])
def test_each_kind_of_run_is_reported_in_words(run: RunRecord) -> None:
    """No field names are shown, and nothing that was not measured is shown as 0."""
    summary = summarise(run)
    lines = dict(summary_lines({**summary, "planner": "cost"}))
    assert all("_" not in name for name in lines if not name.startswith("shadow planner "))
    shown = " ".join(text for name, text in lines.items() if name != "run")
    assert "_" not in shown
    assert "None" not in shown
    assert lines["deliveries"] == f"{summary['deliveries']:,} of {summary['deliveries_expected']:,}"
    assert (lines["cost per second"] == "not measured") is (summary["cost_initial"] is None)


def test_counts_of_changes_are_those_of_the_kinds() -> None:
    """A figure that is renamed in the summary cannot silently disappear here."""
    known = set().union(*(summarise(run) for run in (small_run(), ring_run(), scot_run())), {"brokers_emptied"})
    assert set(CHANGES) <= known


def test_the_output_ends_with_where_the_rest_is() -> None:
    """It names the report and the file of all figures."""
    output = io.StringIO()
    show_summary(summarise(small_run()), Path("out/here"), Console(file=output, width=120))
    assert output.getvalue().splitlines()[-2:] == [
        "Report: out/here/report.html",
        "All figures: out/here/summary.json",
    ]


def test_publications_withheld_on_a_busy_machine_are_reported() -> None:
    """Clients of real brokers that had to wait published less; the number withheld is next to those published."""
    summary = summarise(small_run())
    assert "withheld" not in dict(summary_lines(summary))["notifications published"]
    published = dict(summary_lines({**summary, "notifications_withheld": 1_200}))["notifications published"]
    assert published.endswith(", 1,200 not sent because the machine was too busy")


def test_plans_are_shown_by_what_they_were_for() -> None:
    """A repair is no plan that saved, and a shadow that started again is compared with where it did."""
    summary = summarise(small_run())
    assert dict(summary_lines(summary))["plans"] == "1 to save (1 known to have saved)"
    summary |= {"plans_of_members": 2, "plans_aborted": 1}
    shadow = summary["shadows"]["swap_links_ci"] | {"epoch_start": 4, "starts": 2}
    lines = dict(summary_lines({**summary, "shadows": {"x": shadow}}))
    assert lines["plans"].endswith("saved), 2 repairs and changes of members, 1 aborted")
    assert lines["shadow planner x"].endswith(
        "of the cost of epoch 4, from which it last started, by 2 plans in 2 starts"
    )


def test_mobile_clients_are_shown_with_what_plans_did_for_them() -> None:
    """Where nobody is mobile nothing is shown, and where no plan brought a client nearer there is no mean of these."""
    assert "mobile clients brought nearer" not in dict(summary_lines(summarise(small_run())))
    mobile = dict(zip(MOBILE_FIGURES, (40, 9, 5, 180.0, 42.0, 61.0, 88.0), strict=True))
    lines = dict(summary_lines(summarise(replace(small_run(), mobile=mobile))))
    assert lines["check-ins that moved clients"] == "40"
    brought = "9, of which 5 to the nearest broker: mean round trip 180 ms before, 42 ms after"
    assert lines["mobile clients brought nearer"] == brought
    assert lines["round trip of mobile clients"] == "mean 61 ms, 88 ms if they had not been moved"
    none = dict(zip(MOBILE_FIGURES, (0, 0, 0, None, None, None, None), strict=True))
    lines = dict(summary_lines(summarise(replace(small_run(), mobile=none))))
    assert lines["mobile clients brought nearer"] == "0, of which 0 to the nearest broker"
    assert lines["round trip of mobile clients"] == "not measured"


def test_a_piped_summary_has_one_line_for_each_result() -> None:
    """However narrow: grep finds each result whole, after its name."""
    output = io.StringIO()
    show_summary(summarise(small_run()), Path("out/here"), Console(file=output, width=40))
    lines = output.getvalue().splitlines()
    assert [line for line in lines if line.startswith(" ")] == []
    assert len(lines) == len(list(summary_lines(summarise(small_run())))) + 2
