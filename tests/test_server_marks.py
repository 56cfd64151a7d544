"""`make test` finds every test with servers, or the collection fails."""

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
    """A mark that a search of the file does not find would exclude its test from every run."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_trial.py").write_text(f"import pytest\n\n@{mark}\ndef test_one():\n    pass\n")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "--rootdir", str(tmp_path), "."]
    answer = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert answer.returncode == exit_code, answer.stdout + answer.stderr
    assert ("test_trial.py: write pytest.mark.stack" in answer.stderr + answer.stdout) == bool(exit_code)
