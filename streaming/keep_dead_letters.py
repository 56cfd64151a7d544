"""Refused records -> the dead-letter topic, each at least once; only ranges with such records are read again.

The query itself counts refused records in each micro-batch (an observed metric is free) and reports the offsets it
covered. Only a range that holds some is read a second time, as a batch, by the same expressions. A second streaming
query would decode all telemetry twice; rows of refused records in the state would need a broker, and a record that
cannot be decoded has none. A small file next to the checkpoint holds how far letters are kept, so that a crash between
a batch and its letters loses none.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

import structlog
from pyspark.sql import Row, SparkSession

from regraft.infra.kafka.dead_letters import LetterShare, dead_letter
from regraft.schemas.dead_letter import DeadLetter
from regraft.schemas.parse_text import parse_json
from regraft.schemas.status_file import replace_file
from regraft.streaming.read_telemetry import dead_letters
from regraft.streaming.source_topics import Offsets, topics_of
from regraft.streaming.streaming_settings import StreamingSettings

log = structlog.get_logger(__name__)

EARLIEST = -2
LETTERS_AT_ONCE_MAX = 100  # In memory at once; each may have VALUE_BYTES_MAX bytes.


class Position(NamedTuple):
    """Offsets up to which letters are kept, None before the first micro-batch, and when the last one began."""

    next_offsets: Offsets | None
    read_ms: int


class DeadLetterKeeper:
    """Follows the query's offsets and keeps the refused records of each range."""

    def __init__(
        self, spark: SparkSession, settings: StreamingSettings, write: Callable[[Sequence[DeadLetter]], None]
    ) -> None:
        self._spark, self._settings, self._write = spark, settings, write
        self._file = settings.position_file
        self._share = LetterShare()
        self._position, self._read_ms = read_position(settings)

    @property
    def next_offsets(self) -> Offsets:
        """The first offsets that no finished micro-batch has covered; empty before the first one."""
        return dict(self._position or {})

    @property
    def only_counted(self) -> int:
        """How many refused records have no letter, because their sender had used up its share."""
        return self._share.only_counted.total()

    @property
    def read_ms(self) -> int:
        """When the last finished micro-batch began, which read up to ``next_offsets``; 0 before the first one."""
        return self._read_ms

    def keep(self, start: Offsets | None, end: Offsets, refused: int, read_ms: int) -> int:
        """Keep the letters up to ``end``; return how many records were refused.

        ``start`` is None for the first batch of a checkpoint.
        ``refused`` is the query's count between start and end; if it is 0 and no report was missed, nothing is read.
        ``read_ms`` is when the micro-batch began.
        """
        begin = self._position or {}
        is_same = begin == (start or {})
        if end == begin:
            self._read_ms = read_ms
            return 0
        kept = self._keep_range(begin, end) if refused or not is_same else 0
        self._position, self._read_ms = dict(end), read_ms
        replace_file(self._file, json.dumps({"next_offsets": _by_topic(end), "read_ms": read_ms}) + "\n")
        return kept

    def _keep_range(self, begin: Offsets, end: Offsets) -> int:
        starting = {place: begin.get(place, EARLIEST) for place in end}
        records = (
            self._spark.read.format("kafka")
            .options(**self._settings.kafka.spark_options())
            .option("subscribe", ",".join(topics_of(end)))
            .option("startingOffsets", json.dumps(_by_topic(starting)))
            .option("endingOffsets", json.dumps(_by_topic(end)))
            .option("failOnDataLoss", "false")
            .option("maxRecordsPerPartition", LETTERS_AT_ONCE_MAX)
            .load()
        )
        rows = dead_letters(records, self._settings).toLocalIterator()
        refused = 0
        while taken := list(islice(rows, LETTERS_AT_ONCE_MAX)):
            letters = [letter for row in taken if self._share.admits(letter := letter_of(row), row["key"])]
            self._write(letters)
            refused += len(taken)
        return refused


def offsets_of(reported: str) -> Offsets | None:
    """Return the offsets in a progress report, None before a query's first batch.

    PySpark gives them as Spark's JSON, and a missing one as a text that is not an object.
    """
    return _places(json.loads(reported)) or None if reported.startswith("{") else None


def letter_of(row: Row) -> DeadLetter:
    """Return the letter of a row of ``read_telemetry.dead_letters``."""
    return dead_letter(
        row["topic"],
        row["partition"],
        row["offset"],
        row["reason"],
        bytes(row["value"]),
        row["time_ms"],
        row["size"],
    )


def read_position(settings: StreamingSettings) -> Position:
    """Return how far the letters of this checkpoint are kept; nowhere if the file is damaged, so that none is lost."""
    file = settings.position_file
    if not file.exists():
        return Position(None, 0)
    try:
        stored = parse_json(file.read_text(encoding="utf-8"))
        return Position(_places(stored["next_offsets"]), int(stored.get("read_ms", 0)))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        log.warning("dead_letters_kept_again", file=str(file), reason=repr(error))
        return Position(None, 0)


def _places(by_topic: Mapping[str, Mapping[str, int]]) -> Offsets:
    return {
        (topic, int(partition)): int(offset) for topic, parts in by_topic.items() for partition, offset in parts.items()
    }


def _by_topic(offsets: Offsets) -> dict[str, dict[str, int]]:
    """Return the offsets as Spark writes them."""
    by_topic: dict[str, dict[str, int]] = {topic: {} for topic in topics_of(offsets)}
    for (topic, partition), offset in offsets.items():
        by_topic[topic][str(partition)] = offset
    return by_topic
