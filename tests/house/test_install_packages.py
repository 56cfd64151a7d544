"""The progress of an installation of packages is shown."""

import io
import queue
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.house.install_packages import WAIT_LINE_INTERVAL_S, count_packages, main, progress_lines, show_lines

LOCK = "numpy==2.3.0 \\\n    --hash=sha256:00\nwin==1 ; sys_platform == 'win32' \\\n    --hash=sha256:01\n"


def test_each_package_is_counted_once() -> None:
    """A package in two locks counts once, hashes and comments do not count."""
    assert count_packages([LOCK, LOCK + "# via numpy\nscipy==1.0 \\\n"]) == 3


def test_pips_output_becomes_a_count() -> None:
    """Packages count when pip processes them, even if already installed; sizes are reported, other output is not."""
    output = [
        "Collecting numpy==2.3.0 (from -r requirements.lock (line 1))\n",
        "  Downloading numpy-2.3.0-cp311.whl (16.9 MB)\n",
        "     ━━━ 16.9/16.9 MB 300.0 kB/s\n",
        "Requirement already satisfied: scipy==1.0 in .venv\n",
        "Installing collected packages: numpy\n",
        "Successfully installed numpy-2.3.0\n",
    ]
    assert list(progress_lines(output, 2)) == [
        "Packages: 1 of 2, numpy",
        "Packages: 1 of 2, numpy (16.9 MB)",
        "Packages: 2 of 2, scipy",
        "Packages: 2 of 2, unpacking",
    ]


def test_a_failure_shows_pips_output(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A package without a hash is refused; pip's exit code and reason are reported."""
    lock = tmp_path / "wrong.lock"
    lock.write_text("numpy==2.3.0\n")
    assert main([str(lock)]) != 0
    assert "hash" in capfd.readouterr().err


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_step_without_news_shows_that_it_still_runs(is_terminal: bool) -> None:
    """pip is silent for a minute while it unpacks; the elapsed time is shown, on a terminal and elsewhere."""
    shown, may_end = _Output(is_terminal), queue.Queue[None]()
    seconds = iter(range(0, 10_000, int(WAIT_LINE_INTERVAL_S)))

    def lines() -> Iterator[str]:
        yield "Packages: 2 of 2, unpacking"
        may_end.get()

    shown.when("unpacking, ", lambda: may_end.put(None))
    show_lines(lines(), shown, lambda: float(next(seconds)))
    assert "Packages: 2 of 2, unpacking, 10 s" in shown.getvalue()


class _Output(io.StringIO):
    """An output that calls back once a text is written to it."""

    def __init__(self, is_terminal: bool) -> None:
        super().__init__()
        self._is_terminal, self._calls = is_terminal, dict[str, Callable[[], None]]()

    def isatty(self) -> bool:
        return self._is_terminal

    def when(self, text: str, call: Callable[[], None]) -> None:
        self._calls[text] = call

    def write(self, text: str) -> int:
        for wanted in [each for each in self._calls if each in text]:
            self._calls.pop(wanted)()
        return super().write(text)
