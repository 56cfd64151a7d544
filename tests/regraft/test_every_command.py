"""Every command of the command line where it cannot write and Kafka is closed: one sentence, never a traceback."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
READ_ONLY = Path("/sys")  # For root as well, where permissions do not count.
CALLS_MIN = 45
PRINT_ANYWAY = {
    "settings",
    "topics",
    "list",
    "recording",
    "alerts rules",
    "backtest",
    "inventory check --schema",
}


@pytest.mark.parametrize("is_read_only", [True, False], ids=["read-only directory", "outputs below a file"])
def test_what_cannot_be_written_or_reached_is_a_sentence(tmp_path: Path, is_read_only: bool) -> None:
    """The exit code is 1 or 2 and the last line is a sentence, in a read-only directory and for every output option."""
    directory, output = READ_ONLY, []
    if not is_read_only:
        directory, output = tmp_path / "work", ["out/written"]
        directory.mkdir()
        (directory / "out").write_text("")
    calls = _run_all(directory, tmp_path / "log", output)
    assert len(calls) >= CALLS_MIN
    for call in calls:
        text, words = call["text"], " ".join(call["words"])
        assert "Traceback" not in text, f"{words}: {text}"
        assert call["code"] in (0, 1, 2), f"{words} ended with {call['code']}: {text}"
        if call["code"] == 0:
            assert any(words.startswith(name) for name in PRINT_ANYWAY), words
        elif call["words"][0] not in ("doctor", "status"):  # They print what they found as a list.
            assert text.rstrip().endswith("."), f"{words}: {text}"


def _run_all(directory: Path, log: Path, output: list[str]) -> list[dict[str, Any]]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("REGRAFT_", "REDIS_"))}
    environment = {**inherited, "REGRAFT_KAFKA_BOOTSTRAP": "127.0.0.1:1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.regraft.run_every_command", str(directory), str(log), *output]
    answer = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return list(json.loads(answer.stdout))
