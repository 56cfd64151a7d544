"""Read the alerts expected of a recording from TOML, compare them with those found, and write such files.

Running the rules belongs to :mod:`regraft.recordings.rehearse_rules`.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regraft.infra.process.stack_error import CallError
from regraft.recordings.rehearse_rules import RehearsedChange
from regraft.schemas.alert import AlertStatus

TOLERANCE_S = 0.5
KEYS = ("rule", "subject", "status", "at_s", "within_s")


class ExpectationError(CallError):
    """A file of expected alerts cannot be used; the message lists every error."""


@dataclass(frozen=True)
class ExpectedAlert:
    """One expected change: this many seconds after the start, give or take ``within_s``."""

    rule: str
    subject: str
    status: AlertStatus
    at_s: float
    within_s: float = TOLERANCE_S

    def fits(self, change: RehearsedChange) -> bool:
        """Return True if a change meets this expectation."""
        alert = change.alert
        is_same = (alert.rule, alert.subject, alert.status) == (self.rule, self.subject, self.status)
        return is_same and abs(change.at_s - self.at_s) <= self.within_s

    @property
    def text(self) -> str:
        """The expectation as text."""
        return f"{self.rule} {self.subject} {self.status} at {self.at_s:g} s"


def read_expected(path: Path) -> list[ExpectedAlert]:
    """Return the expectations of a file. Raises ExpectationError with all its errors."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ExpectationError(f"{path} cannot be read ({error.strerror}): check its name and permissions") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ExpectationError(f"{path} is not TOML ({error}): --write writes a file in the right form") from error
    tables = document.get("alert", [])
    other = [name for name in document if name != "alert"]
    errors = [f"{name!r} is not known: a file of expected alerts holds [[alert]] tables only" for name in other]
    alerts = []
    for number, table in enumerate(tables if isinstance(tables, list) else []):
        reason = _error(table)
        if reason:
            errors.append(f"alert {number + 1}: {reason}")
        else:
            alerts.append(ExpectedAlert(**{**table, "status": AlertStatus(table["status"])}))
    if errors:
        raise ExpectationError(f"{path} cannot be used:\n- " + "\n- ".join(errors))
    return alerts


def differences(expected: Sequence[ExpectedAlert], changes: Sequence[RehearsedChange]) -> list[str]:
    """Return what is missing and what was not expected, one sentence each; a change meets at most one expectation."""
    left = list(changes)
    texts = []
    for each in expected:
        fitting = next((change for change in left if each.fits(change)), None)
        if fitting is None:
            texts.append(f"missing: {each.text}")
        else:
            left.remove(fitting)
    texts += [
        f"not expected: {change.alert.rule} {change.alert.subject} {change.alert.status} at {change.at_s:g} s"
        for change in left
    ]
    return texts


def expected_text(changes: Sequence[RehearsedChange]) -> str:
    """Return the text of a file that expects exactly these changes."""
    parts = ["# Expected alerts, for `regraft alerts rules RULES FILE --expect THIS`.\n"]
    for change in changes:
        alert = change.alert
        names = (("rule", alert.rule), ("subject", alert.subject), ("status", str(alert.status)))
        lines = [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in names]
        parts.append("\n".join(["[[alert]]", *lines, f"at_s = {change.at_s!r}"]) + "\n")
    return "\n".join(parts)


def _error(table: Any) -> str:
    if not isinstance(table, dict):
        return "it is not a table: begin it with [[alert]]"
    unknown = [key for key in table if key not in KEYS]
    if unknown:
        return f"{unknown[0]} is unknown: use one of {', '.join(KEYS)}"
    missing = [key for key in KEYS[:-1] if key not in table]
    if missing:
        return f"{missing[0]} is missing"
    if table["status"] not in tuple(AlertStatus):
        return f"status is {table['status']!r}: must be raised or cleared"
    numbers = [key for key in ("at_s", "within_s") if key in table and not _is_number(table[key])]
    if numbers:
        return f"{numbers[0]} is {table[numbers[0]]!r}: write a number of seconds"
    texts = [key for key in ("rule", "subject") if not isinstance(table[key], str)]
    return f"{texts[0]} is {table[texts[0]]!r}: write text" if texts else ""


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
