"""Tests with servers are found by `make test`, or the run that collects them fails."""

import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = "from tests.conftest import pytest_collection_modifyitems\n"


@pytest.mark.parametrize(
    ("mark", "exit_code"),
    [("pytest.mark.stack", 0), ("getattr(pytest.mark, 'stack')", pytest.ExitCode.USAGE_ERROR)],
)
def test_a_mark_is_spelt_in_its_file(tmp_path: Path, mark: str, exit_code: int) -> None:
    """One that no search of the file finds would leave its test out of every run."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_trial.py").write_text(f"import pytest\n\n@{mark}\ndef test_one():\n    pass\n")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "--rootdir", str(tmp_path), "."]
    answer = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert answer.returncode == exit_code, answer.stdout + answer.stderr
    assert ("test_trial.py: write pytest.mark.stack" in answer.stderr + answer.stdout) == bool(exit_code)
