"""Keep next to the checkpoint by which rule windows are closed: a micro-batch that runs again has to keep its own.

In: the rule by which a query is to start. Out: the one by which it starts, and whether for one micro-batch only. What a
rule means belongs to :mod:`streaming.decide_closing`, when which one is due to :mod:`streaming.run_job`.

A job that dies after a marker and before Spark's commit runs that micro-batch again. Had it then another grace, as
after a long absence, it would close other windows: what it had announced would come again later, with other rows.
"""

from __future__ import annotations

import msgspec

from regraft.schemas.status_file import replace_file
from regraft.streaming.streaming_settings import StreamingSettings


class ClosingRule(msgspec.Struct, frozen=True):
    """How long silent brokers are waited for, and whether a window that all have gone past is closed before."""

    grace_ms: int
    waits_for_all: bool


def starting_rule(settings: StreamingSettings, due: ClosingRule) -> tuple[ClosingRule, bool]:
    """Return the rule of the next query, and True if it is to run one micro-batch only, which was not committed.

    The rule that is due is kept from then on. Raises OSError where it cannot be written.
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
    """Return the rule of the last query; None where an earlier version kept none, or what is there is none."""
    try:
        return msgspec.json.decode(settings.rule_file.read_bytes(), type=ClosingRule)
    except (FileNotFoundError, msgspec.DecodeError):
        return None
