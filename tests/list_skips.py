"""Say at the end of a test run what was skipped and what it takes to run it; a skip that nobody expects fails the run.

In: pytest's reports, and ``known_skips.toml``: which reasons there may be, and for how many tests at most. Out: a list
at the end, after those that runs before it left in the file that ``SKIPS_FILE`` names. Skipping is the tests' own.
"""

from __future__ import annotations

import os
import tomllib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

KNOWN_FILE = Path(__file__).with_name("known_skips.toml")
FILE_VARIABLE = "SKIPS_FILE"


@dataclass(frozen=True)
class KnownSkip:
    """A reason for which tests may be skipped: a part that tells it from others, and what it takes to run them."""

    reason: str
    tests_max: int
    needs: str


def read_known(file: Path = KNOWN_FILE) -> tuple[KnownSkip, ...]:
    """Return the known reasons."""
    return tuple(KnownSkip(**entry) for entry in tomllib.loads(file.read_text(encoding="utf-8"))["skip"])


def judge_skips(reasons: Mapping[str, str], known: tuple[KnownSkip, ...]) -> tuple[list[str], list[str]]:
    """Return a line for each known reason that skipped tests, and a fault for each skip beyond what is known.

    ``reasons`` is by test.
    """
    counts: Counter[KnownSkip] = Counter()
    faults = []
    for test, reason in reasons.items():
        found = next((each for each in known if each.reason in reason), None)
        if found is None:
            faults.append(f"{test} was skipped for a reason that is not in {KNOWN_FILE.name}: {reason}")
        else:
            counts[found] += 1
    for each, count in counts.items():
        if count > each.tests_max:
            faults.append(f'{count} tests were skipped for "{each.reason}", at most {each.tests_max} may be')
    lines = [f"{count} of at most {each.tests_max}: {each.reason}. {each.needs}" for each, count in counts.items()]
    return lines, faults


@dataclass(eq=False)  # pytest wants to tell plugins apart
class SkipList:
    """The plugin: gathers, tells, and fails the run where something was skipped that may not be."""

    known: tuple[KnownSkip, ...]
    file: Path | None = None
    reasons: dict[str, str] = field(default_factory=dict)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep why a test was skipped; one that is expected to fail was not."""
        if report.skipped and not hasattr(report, "wasxfail"):
            self._keep(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Keep why a whole file was skipped."""
        if report.skipped:
            self._keep(report)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail a run that would have passed."""
        _, faults = judge_skips(self.reasons, self.known)
        if faults and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print the list, after those of the runs before it in the same file."""
        lines, faults = judge_skips(self.reasons, self.known)
        if self.file is not None:
            lines = [*(self.file.read_text(encoding="utf-8").splitlines() if self.file.exists() else []), *lines]
            self.file.parent.mkdir(parents=True, exist_ok=True)
            self.file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        if lines or self.file is not None:
            terminalreporter.section("skipped, as something is missing here")
            terminalreporter.write_line("\n".join(lines) or "nothing")
        for fault in faults:
            terminalreporter.write_line(f"Not to be skipped: {fault}", red=True)

    def _keep(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        told = report.longrepr
        self.reasons[report.nodeid] = told[2] if isinstance(told, tuple) else str(told)


def list_skips(config: pytest.Config) -> None:
    """Let a run list its skips; the workers of a run on several cores leave that to the run itself."""
    if not hasattr(config, "workerinput"):
        named = os.environ.pop(FILE_VARIABLE, None)  # Runs that tests start have lists of their own.
        config.pluginmanager.register(SkipList(read_known(), Path(named) if named else None), "list-skips")
