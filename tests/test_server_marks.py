"""`make test` finds every test with servers, or the collection fails."""

import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = "from tests.conftest import pytest_collection_modifyitems\n"
FIXTURE = "@pytest.fixture\ndef kafka():\n    pass\n"


def collected(directory: Path, trial: str) -> tuple[int, str]:
    """Return the exit code of a run of one file of tests, and what it has printed."""
    (directory / "conftest.py").write_text(CONFTEST)
    (directory / "test_trial.py").write_text(f"import pytest\n\n{trial}")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "--rootdir", str(directory), "."]
    answer = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    return answer.returncode, answer.stdout + answer.stderr


@pytest.mark.parametrize(
    ("mark", "exit_code"),
    [("pytest.mark.stack", 0), ("getattr(pytest.mark, 'stack')", pytest.ExitCode.USAGE_ERROR)],
)
def test_a_mark_is_spelt_in_its_file(tmp_path: Path, mark: str, exit_code: int) -> None:
    """A mark that a search of the file does not find would exclude its test from every run."""
    code, printed = collected(tmp_path, f"@{mark}\ndef test_one():\n    pass\n")
    assert code == exit_code, printed
    assert ("test_trial.py: write pytest.mark.stack" in printed) == bool(exit_code)


@pytest.mark.parametrize(
    ("before", "exit_code"),
    [
        (f"{FIXTURE}\n@pytest.mark.stack\n", 0),
        ("@pytest.mark.parametrize('kafka', ['a name'])\n", 0),
        (f"{FIXTURE}\n", pytest.ExitCode.USAGE_ERROR),
    ],
    ids=["marked", "parameter", "unmarked"],
)
def test_a_test_that_starts_a_server_is_marked(tmp_path: Path, before: str, exit_code: int) -> None:
    """Among those that run at the lowest priority, next to servers of others, it would be late."""
    code, printed = collected(tmp_path, f"{before}def test_one(kafka):\n    pass\n")
    assert code == exit_code, printed
    assert ("test_one: mark it with pytest.mark.stack" in printed) == bool(exit_code)
