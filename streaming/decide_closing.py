"""Decide which windows are closed: those that every awaited broker has passed, or whose grace has expired.

In: the times in the rows of one micro-batch. Out: a new ``Closing``. Pure: the same rows applied to the same Closing
give the same result in any order, so all shards of the state close the same windows in the same micro-batch without
communicating.

Notifications published in a window are still delivered after its end, as long as they are under way. So a window is
complete when each awaited broker has sent something later than its end plus the longest such delay of the last windows.
A broker is awaited from its first report on, known brokers from the beginning, until it was behind ``MISSES_MAX`` times
in a row when a window was closed.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import Struct
from numpy.typing import NDArray

from regraft.schemas.arrays import Longs
from regraft.schemas.status_file import replace_file
from regraft.streaming.streaming_settings import StreamingSettings

NEVER_MS = -1  # In place of a time that counts for nothing.


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


SETTLED_WINDOWS = 4  # A window waits as long as the slowest of this many took.
SETTLED_WINDOWS_MIN = 2  # Until this many have ended a window ago, the wait is unknown: at least half the grace.
PASSED_WINDOWS_MAX = 1_000
# A broker that was late for this many windows in a row is no longer awaited, until it has passed one in time.
MISSES_MAX = 3
BROKERS_MAX = (
    20_000  # Awaited; without an inventory, senders may invent any number. Telemetry of others is used as well.
)
FORGOTTEN_WINDOWS = 1_000  # A broker silent for longer counts as a new one when it returns.


class Closing(Struct, frozen=True):
    """Progress of closing; all times in ms, a broker's time being its batch's own or Kafka's, whichever is earlier.

    ``closed_ms``: windows that end by then are closed. ``latest_ms``: the latest time of any broker. ``taken_ms``:
    Kafka's time of the latest record, 0 if Kafka's times are not used. ``reached_ms``: the latest time of each broker.
    ``misses``: how many times in a row each broker had not passed a window when it was closed. ``passed_ms``: by end of
    each open window, when Kafka received the first record from beyond it. ``settled_ms``: by end of each of the newest
    windows, how long after it a batch still reported deliveries in it.
    """

    closed_ms: int = 0
    latest_ms: int = 0
    taken_ms: int = 0
    reached_ms: dict[str, int] = {}
    misses: dict[str, int] = {}
    passed_ms: dict[int, int] = {}
    settled_ms: dict[int, int] = {}

    @classmethod
    def awaiting(cls, brokers: Iterable[str]) -> "Closing":
        """Return the initial value, with known brokers that have not reported yet."""
        return cls(reached_ms=dict.fromkeys(sorted(brokers), 0))

    def has_given_up(self, broker: str) -> bool:
        """Return True if a broker is no longer awaited."""
        return self.misses.get(broker, 0) >= MISSES_MAX

    @property
    def brokers_given_up(self) -> int:
        """How many brokers that reported recently are no longer awaited."""
        return sum(map(self.has_given_up, self.reached_ms))

    def settle_ms(self, window_ms: int, grace_ms: int) -> int:
        """Return how long after its end a window waits for late reports once all brokers have passed it."""
        return _settle_ms(self.settled_ms, self.latest_ms, window_ms, grace_ms)


@dataclass(frozen=True, eq=False, slots=True)
class RowTimes:
    """The times of rows (:mod:`streaming.shard_rows`): one for each batch and window; broker is dictionary-encoded."""

    broker: pa.DictionaryArray
    reached_ms: Longs
    kafka_ms: Longs
    window_start_ms: Longs
    has_cells: NDArray[np.bool_]

    def timed(self) -> "RowTimes":
        """Return the rows whose broker's clock is not too far off."""
        kept = self.reached_ms != NEVER_MS
        if kept.all():
            return self
        columns = (self.reached_ms, self.kafka_ms, self.window_start_ms, self.has_cells)
        return RowTimes(self.broker.filter(pa.array(kept)), *(column[kept] for column in columns))


def advance(closing: Closing, rows: RowTimes, window_ms: int, grace_ms: int, *, waits_for_all: bool) -> Closing:
    """Return the progress of closing after these rows.

    Silent brokers are awaited for the grace, counted from when Kafka received the first record from beyond the window
    or, if Kafka's times are not used, by the latest time of any broker. With ``waits_for_all``, a window that all
    awaited brokers have passed is closed earlier.
    """
    timed = rows.timed()
    if not timed.reached_ms.size:
        return closing
    latest_ms = max(closing.latest_ms, int(timed.reached_ms.max()))
    taken_ms = max(closing.taken_ms, int(timed.kafka_ms.max()), 0)
    reached_ms = _reached(closing.reached_ms, timed, latest_ms - FORGOTTEN_WINDOWS * window_ms)
    settled_ms = _settled(closing.settled_ms, timed, window_ms, grace_ms)
    passed_ms = _passed(closing, timed, window_ms) if taken_ms else {}
    over_ms = latest_ms - grace_ms
    if taken_ms:
        over_ms = max((end_ms for end_ms, first_ms in passed_ms.items() if taken_ms >= first_ms + grace_ms), default=0)
    over_ms -= over_ms % window_ms
    closed_ms = max(closing.closed_ms, over_ms)
    awaited_ms = [time_ms for broker, time_ms in reached_ms.items() if not closing.has_given_up(broker)]
    if waits_for_all and awaited_ms:
        complete_ms = min(awaited_ms) - _settle_ms(settled_ms, latest_ms, window_ms, grace_ms)
        closed_ms = max(closed_ms, complete_ms - complete_ms % window_ms)
    misses = closing.misses if closed_ms == closing.closed_ms else _misses(closing.misses, reached_ms, closed_ms)
    still_open = {end_ms: first_ms for end_ms, first_ms in passed_ms.items() if end_ms > closed_ms}
    return Closing(closed_ms, latest_ms, taken_ms, reached_ms, misses, still_open, settled_ms)


def _misses(known: dict[str, int], reached_ms: dict[str, int], closed_ms: int) -> dict[str, int]:
    """Return, after windows were closed, how many times in a row each broker had not passed one."""
    behind = (broker for broker, time_ms in reached_ms.items() if time_ms < closed_ms)
    return {broker: min(known.get(broker, 0) + 1, MISSES_MAX) for broker in behind}


def _reached(known_ms: dict[str, int], timed: RowTimes, earliest_ms: int) -> dict[str, int]:
    """Return how far each broker is, including new ones, without those that are behind ``earliest_ms``."""
    names = timed.broker.dictionary.to_pylist()
    newest_ms = np.full(len(names), NEVER_MS, dtype=np.int64)
    np.maximum.at(newest_ms, timed.broker.indices.to_numpy(), timed.reached_ms)
    newest = {name: time_ms for name, time_ms in zip(names, newest_ms.tolist(), strict=True) if time_ms != NEVER_MS}
    reached_ms = {broker: max(time_ms, newest.pop(broker, 0)) for broker, time_ms in known_ms.items()}
    # In an order that does not depend on that of the rows: all shards must await the same.
    reached_ms |= dict(sorted(newest.items())[: max(BROKERS_MAX - len(reached_ms), 0)])
    return {broker: time_ms for broker, time_ms in reached_ms.items() if not 0 < time_ms < earliest_ms}


def _passed(closing: Closing, timed: RowTimes, window_ms: int) -> dict[int, int]:
    """Return when Kafka received the first record from beyond each window that was open before these rows."""
    passed_ms = dict(closing.passed_ms)
    order = np.argsort(timed.reached_ms, kind="stable")
    reached_ms = timed.reached_ms[order]
    first_ms = np.minimum.accumulate(timed.kafka_ms[order][::-1])[::-1]
    # Windows older than the last PASSED_WINDOWS_MAX are closed with those.
    begin_ms = closing.closed_ms or closing.latest_ms or int(reached_ms[0]) - window_ms
    earliest_ms = max(begin_ms, int(reached_ms[-1]) - PASSED_WINDOWS_MAX * window_ms)
    for end_ms in range(earliest_ms - earliest_ms % window_ms + window_ms, int(reached_ms[-1]) + 1, window_ms):
        at_ms = int(first_ms[np.searchsorted(reached_ms, end_ms)])
        passed_ms[end_ms] = min(passed_ms.get(end_ms, at_ms), at_ms)
    return passed_ms


def _settle_ms(settled_ms: dict[int, int], latest_ms: int, window_ms: int, grace_ms: int) -> int:
    """Return how long windows wait: as long as any of these took, at least half the grace while these are too few."""
    is_known = sum(end_ms + window_ms <= latest_ms for end_ms in settled_ms) >= SETTLED_WINDOWS_MIN
    return max(0 if is_known else grace_ms // 2, *settled_ms.values(), 0)


def _settled(known_ms: dict[int, int], timed: RowTimes, window_ms: int, grace_ms: int) -> dict[int, int]:
    """Return how long the newest windows with deliveries took to settle: at most the grace, by window end."""
    end_ms = timed.window_start_ms[timed.has_cells] + window_ms
    took_ms = np.clip(timed.reached_ms[timed.has_cells] - end_ms, 0, grace_ms)
    settled_ms = dict(known_ms)
    for window_end_ms in np.unique(end_ms).tolist():
        longest_ms = int(took_ms[end_ms == window_end_ms].max())
        settled_ms[window_end_ms] = max(settled_ms.get(window_end_ms, 0), longest_ms)
    return dict(sorted(settled_ms.items())[-SETTLED_WINDOWS:])
