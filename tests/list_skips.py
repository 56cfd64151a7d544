"""List skipped tests, and what it takes to run them, at the end of a test run; fail the run on an unexpected skip.

In: pytest's reports, and ``known_skips.toml`` with the permitted reasons and the most tests that each may skip. Out: a
list at the end, appended to those of earlier runs in the file that ``SKIPS_FILE`` names. The tests themselves decide
what to skip.
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
    """A permitted reason for skipping tests: a substring that identifies it, and what it takes to run these tests."""

    reason: str
    tests_max: int
    needs: str


def read_known(file: Path = KNOWN_FILE) -> tuple[KnownSkip, ...]:
    """Return the known reasons."""
    return tuple(KnownSkip(**entry) for entry in tomllib.loads(file.read_text(encoding="utf-8"))["skip"])


def judge_skips(reasons: Mapping[str, str], known: tuple[KnownSkip, ...]) -> tuple[list[str], list[str]]:
    """Return one line for each known reason that skipped tests, and an error for each skip that is not permitted.

    ``reasons`` maps a test's ID to its reason.
    """
    counts: Counter[KnownSkip] = Counter()
    errors = []
    for test, reason in reasons.items():
        found = next((each for each in known if each.reason in reason), None)
        if found is None:
            errors.append(f"{test} was skipped for a reason that is not in {KNOWN_FILE.name}: {reason}")
        else:
            counts[found] += 1
    for each, count in counts.items():
        if count > each.tests_max:
            errors.append(f'{count} tests were skipped for "{each.reason}", at most {each.tests_max} may be')
    lines = [f"{count} of at most {each.tests_max}: {each.reason}. {each.needs}" for each, count in counts.items()]
    return lines, errors


@dataclass(eq=False)  # pytest requires plugins to be hashable
class SkipList:
    """The plugin: collects skips, prints the list, and fails the run if a test was skipped without permission."""

    known: tuple[KnownSkip, ...]
    file: Path | None = None
    reasons: dict[str, str] = field(default_factory=dict)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record why a test was skipped; an expected failure is not a skip."""
        if report.skipped and not hasattr(report, "wasxfail"):
            self._keep(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Record why a whole file was skipped."""
        if report.skipped:
            self._keep(report)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail a run that passed but skipped something without permission."""
        _, errors = judge_skips(self.reasons, self.known)
        if errors and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print the list, after those of earlier runs in the same file."""
        lines, errors = judge_skips(self.reasons, self.known)
        if self.file is not None:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            with self.file.open("a", encoding="utf-8") as file:  # Two runs may end at the same time.
                file.write("".join(f"{line}\n" for line in lines))
            lines = self.file.read_text(encoding="utf-8").splitlines()
        if lines or self.file is not None:
            terminalreporter.section("skipped, as something is missing here")
            terminalreporter.write_line("\n".join(lines) or "nothing")
        for error in errors:
            terminalreporter.write_line(f"Not to be skipped: {error}", red=True)

    def _keep(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        reason = report.longrepr
        self.reasons[report.nodeid] = reason[2] if isinstance(reason, tuple) else str(reason)


def list_skips(config: pytest.Config) -> None:
    """Make a run list its skips; the workers of a parallel run leave it to the main process."""
    if not hasattr(config, "workerinput"):
        named = os.environ.pop(FILE_VARIABLE, None)  # Runs that tests start keep their own lists.
        config.pluginmanager.register(SkipList(read_known(), Path(named) if named else None), "list-skips")
