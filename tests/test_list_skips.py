"""What a test run reports about skipped tests, and that it fails on one that may not be skipped."""

import os
import subprocess
import sys
from pathlib import Path

from tests.list_skips import KnownSkip, judge_skips, read_known

TOOL = KnownSkip("no such tool", 2, "Install it.")
CONFTEST = "from tests.conftest import pytest_configure\n"


def run_tests(directory: Path, body: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a file of tests under this repository's rules for skips."""
    (directory / "conftest.py").write_text(CONFTEST)
    (directory / "test_trial.py").write_text(f"import pytest\n\n{body}\n")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "--rootdir", str(directory), "."]
    return subprocess.run(
        command, cwd=directory, env=os.environ | environment, capture_output=True, text=True, check=False
    )


def test_known_reasons_are_counted_with_what_is_needed() -> None:
    """A reason gets one line, however many tests it skipped."""
    lines, errors = judge_skips({"a": "Skipped: no such tool on PATH", "b": "Skipped: no such tool"}, (TOOL,))
    assert lines == ["2 of at most 2: no such tool. Install it."]
    assert errors == []


def test_more_than_the_bound_and_unknown_reasons_are_errors() -> None:
    """A reason that skips more tests than permitted, or is not listed, is an error."""
    _, errors = judge_skips(dict.fromkeys("abc", "no such tool") | {"d": "tired"}, (TOOL,))
    assert len(errors) == 2
    assert "d was skipped for a reason that is not in known_skips.toml: tired" in errors
    assert '3 tests were skipped for "no such tool", at most 2 may be' in errors


def test_every_known_reason_says_what_it_takes() -> None:
    """People read the list: each entry has a bound and a sentence."""
    assert all(each.reason and each.tests_max > 0 and each.needs.endswith(".") for each in read_known())


def test_a_run_with_an_unexpected_skip_fails(tmp_path: Path) -> None:
    """All tests pass or are skipped, yet the exit code is not 0; an expected failure is not a skip."""
    answer = run_tests(tmp_path, "def test_one():\n    pytest.skip('not today')\n")
    assert answer.returncode == 1
    assert "Not to be skipped: test_trial.py::test_one" in answer.stdout
    xfail = "@pytest.mark.xfail\ndef test_one():\n    assert False\n"
    assert run_tests(tmp_path, xfail).returncode == 0


def test_a_whole_file_that_is_skipped_counts(tmp_path: Path) -> None:
    """``importorskip`` at the top of a file skips it before any test is collected."""
    answer = run_tests(tmp_path, "pytest.importorskip('no_such_module')\ndef test_one():\n    pass\n")
    assert answer.returncode != 0
    assert "Not to be skipped: test_trial.py" in answer.stdout


def test_the_last_run_lists_the_skips_of_earlier_runs(tmp_path: Path) -> None:
    """Parallel and sequential tests run separately: the list at the end covers both runs."""
    skips = tmp_path / "out" / "skips.txt"
    known = "def test_one():\n    pytest.skip('no browser is installed: looked everywhere')\n"
    assert run_tests(tmp_path, known, SKIPS_FILE=str(skips)).returncode == 0
    answer = run_tests(tmp_path, "def test_one():\n    pass\n", SKIPS_FILE=str(skips))
    assert answer.returncode == 0
    assert "1 of at most 11: no browser is installed" in answer.stdout
