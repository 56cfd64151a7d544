"""What the chaos benchmark reports about a run that did not finish."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from benchmarks.bench_chaos import ERRORS, account_so_far, figures_of, outcome
from tests.wait_until import PATIENCE_S


def test_a_run_without_a_summary_is_reported_from_the_emulators_account(tmp_path: Path) -> None:
    """The run failed; what the emulator had counted as lost without excuse until then is shown."""
    ledger = {"delivered": 90, "lost": 9, "excused": 4, "unexpected": 2, "lost_by_reason": {"queue_overflow": 5}}
    (tmp_path / "emulator.json").write_text(json.dumps({"ledger": ledger, "outages": {"death": 3}}))
    found = account_so_far(tmp_path)
    assert {name: found[name] for name in ERRORS if found[name]} == {
        "lost_unexcused": 5,
        "unexpected": 2,
        "unfinished": 1,
    }
    values = {figure.name: figure.value for figure in figures_of(found, {})}
    assert (values["deliveries"], values["outages_death"], values["lost_by_reason_queue_overflow"]) == (90, 3, 5)
    assert "alerts_left" not in values


def test_a_run_without_any_record_has_failed(tmp_path: Path) -> None:
    """The run's directory may be empty."""
    found = account_so_far(tmp_path)
    assert {name for name in ERRORS if found[name]} == {"unfinished"}


def test_a_command_that_times_out_or_fails_reports_why_it_wrote_nothing() -> None:
    """Neither ends the benchmark."""
    text, complaint = outcome([sys.executable, "-c", "import time; time.sleep(600)"], 0.1)
    assert (text, complaint) == ("", "it had not finished after 0.1 s")
    text, complaint = outcome([sys.executable, "-c", "raise SystemExit('no disk')"], PATIENCE_S)
    assert text == ""
    assert "no disk" in complaint
