"""Keep the rule for closing windows next to the checkpoint: a micro-batch that runs again must use the same rule.

In: the rule with which a query should start. Out: the one with which it starts, and whether for one micro-batch only.
The meaning of a rule belongs to :mod:`streaming.decide_closing`, the choice to :mod:`streaming.run_job`.

A job that dies after a marker and before Spark's commit runs that micro-batch again. With another grace, for example
after a long absence, it would close other windows: those already announced would come again later, with other rows.
"""

from __future__ import annotations

import msgspec

from regraft.schemas.status_file import replace_file
from regraft.streaming.streaming_settings import StreamingSettings


class ClosingRule(msgspec.Struct, frozen=True):
    """How long to wait for silent brokers, and whether a window that all have passed is closed earlier."""

    grace_ms: int
    waits_for_all: bool


def starting_rule(settings: StreamingSettings, due: ClosingRule) -> tuple[ClosingRule, bool]:
    """Return the rule of the next query, and True if it must run only one micro-batch, which was not committed.

    Otherwise the rule that is due is stored. Raises OSError if it cannot be written.
    """
    kept = _kept(settings)
    if kept is not None and kept != due and has_uncommitted_batch(settings):
        return kept, True
    if kept != due:
        replace_file(settings.rule_file, msgspec.json.encode(due).decode() + "\n")
    return due, False


def has_uncommitted_batch(settings: StreamingSettings) -> bool:
    """Return True if Spark has begun a micro-batch that it will run again at the next start."""
    begun, committed = (_newest(settings, log) for log in ("offsets", "commits"))
    return begun > committed


def _newest(settings: StreamingSettings, log: str) -> int:
    directory = settings.query_directory / log
    if not directory.is_dir():
        return -1
    return max((int(each.name) for each in directory.iterdir() if each.name.isdecimal()), default=-1)


def _kept(settings: StreamingSettings) -> ClosingRule | None:
    """Return the rule of the last query; None if an earlier version stored none, or the file holds no rule."""
    try:
        return msgspec.json.decode(settings.rule_file.read_bytes(), type=ClosingRule)
    except (FileNotFoundError, msgspec.DecodeError):
        return None
