"""Judge Kafka records of telemetry by columns, in a Python worker of Spark: which are used, and which are refused why.

In: values, Kafka's times and topics of records. Out: the rows of the shards (:mod:`streaming.shard_rows`), or the
refused records with the reason in the words of every other reader (``schemas.codec``). A record that cannot be used
becomes a dead letter and never ends the query. Aggregation does not belong here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import structlog
from numpy.typing import NDArray

from regraft.schemas.arrays import Longs
from regraft.schemas.bounds import RECORD_BYTES_MAX
from regraft.schemas.broker_topics import NO_AGENT_TEXT, WRONG_AGENT_TEXT, BrokerTopics
from regraft.schemas.codec import (
    CONFLUENT_HEADER_BYTES,
    CONFLUENT_MAGIC,
    UndecodableRecordError,
    UnencodableRecordError,
    accepted_ids,
    decode,
    encode,
    header,
    is_newer,
)
from regraft.schemas.packed_cells import PackedSecond
from regraft.schemas.registry import latest_schema
from regraft.schemas.telemetry import Delivery, TelemetryBatch
from regraft.schemas.topics import TELEMETRY
from regraft.schemas.units import SECOND_MS
from regraft.streaming.decode_columns import decode_columns
from regraft.streaming.streaming_settings import EventBounds
from regraft.streaming.tabulate_batches import has_only_peers, is_near, is_of, is_plausible
from regraft.streaming.unpack_cells import cell_counts

PEERS = ("queues", "probes")
REPORTS = ("deliveries", "seconds")  # A batch's reports on times other than its own: single cells, or packed by second.
UNREADABLE = "the body cannot be read by columns"

log = structlog.get_logger(__name__)

Mask = NDArray[np.bool_]
BATCH_SCHEMA = msgspec.json.decode(latest_schema(TELEMETRY.record).text)


class Records(NamedTuple):
    """Records from Kafka: their values, cut if they are too long, sizes in bytes, times, and names of their topics."""

    values: pa.BinaryArray
    sizes: Longs
    kafka_ms: Longs
    topics: pa.StringArray


@dataclass(frozen=True, eq=False, slots=True)
class Judged:
    """The decoded records: ``batches`` as columns, the places of their records, and their bodies in the newest schema.

    ``is_sound``: nothing but its time may be wrong; ``is_used``: not its time either.
    """

    batches: pa.StructArray
    places: Longs
    data: bytes
    starts: Longs
    ends: Longs
    kafka_ms: Longs
    is_sound: Mask
    is_used: Mask

    def body(self, row: int) -> bytes:
        """Return the body of a decoded record."""
        return self.data[self.starts[row] : self.ends[row]]


class Counts(NamedTuple):
    """What was counted in some records; ``cells_off`` were left out for their time, ``newer`` are too new."""

    records: int
    dead: int
    clocks_off: int
    newer: int
    cells: int
    cells_off: int


@dataclass(frozen=True)
class RecordJudge:
    """Judges records; pickled to the workers. ``brokers`` are those accepted, none for any."""

    bounds: EventBounds
    brokers: frozenset[str] = frozenset()
    topics: BrokerTopics = field(default_factory=lambda: BrokerTopics(""))

    def judge(self, records: Records) -> Judged:
        """Decode all records and mark the good ones; one that cannot even be judged counts as undecodable.

        An exception would end the query, and the same micro-batch would run again at each start.
        """
        try:
            return self._judge(records)
        except Exception:
            log.exception("telemetry_not_judged", records=len(records.values))
        values = records.values.to_pylist()
        for place in range(len(values)):
            try:
                self._judge(Records(*(column[place : place + 1] for column in records)))
            except Exception as error:
                log.error("record_not_judged", place=place, reason=f"{type(error).__name__}: {error}")
                values[place] = None
        return self._judge(records._replace(values=pa.array(values, pa.binary())))

    def _judge(self, records: Records) -> Judged:
        framed = _bodies(records)
        decoded = decode_columns(framed.data, framed.starts, framed.ends, BATCH_SCHEMA)
        places = framed.places[decoded.places]
        batches, kafka_ms = decoded.rows, records.kafka_ms[places]
        is_sound = is_plausible(batches) & self._is_known(batches)
        if self.topics.agent_of:
            is_sound &= ~self._is_elsewhere(batches, records.topics.take(pa.array(places)))
        is_used = is_sound & is_near(longs_of(batches, "time_ms"), kafka_ms, self.bounds)
        return Judged(
            batches,
            places,
            framed.data,
            framed.starts[decoded.places],
            framed.ends[decoded.places],
            kafka_ms,
            is_sound,
            is_used,
        )

    def counts(self, records: Records, judged: Judged) -> Counts:
        """Count what happened to these records."""
        used, sound = int(judged.is_used.sum()), int(judged.is_sound.sum())
        refused = np.setdiff1d(np.arange(len(records.values)), judged.places[judged.is_used])
        newer = sum(is_newer(value or b"", TelemetryBatch) for value in records.values.take(refused).to_pylist())
        cells, cells_off = 0, 0
        for report in self.reports(judged):
            cells += int(report.cells.sum())
            cells_off += int(report.cells[~report.is_near & judged.is_sound[report.owner]].sum())
        return Counts(len(records.values), len(records.values) - used, sound - used, newer, cells, cells_off)

    def reports(self, judged: Judged) -> Iterator[Report]:
        """Return what the batches report about which seconds, single cells and packed ones."""
        for name in REPORTS:
            lists = judged.batches.field(name)
            owner = np.repeat(np.arange(len(lists)), lists.value_lengths().to_numpy(zero_copy_only=False))
            items = lists.flatten()
            second = longs_of(items, "second")
            cells = cell_counts(items) if name == "seconds" else np.ones(owner.size, dtype=np.int64)
            with np.errstate(over="ignore"):  # Times of implausible batches, which are not used.
                near = is_near(second * SECOND_MS, judged.kafka_ms[owner], self.bounds)
            yield Report(owner, second, cells, near)

    def reasons(self, records: Records) -> dict[int, str]:
        """Return why each refused record is refused, by its place."""
        judged = self.judge(records)
        refused = np.setdiff1d(np.arange(len(records.values)), judged.places[judged.is_used]).tolist()
        values = records.values.take(pa.array(refused, type=pa.int64())).to_pylist()
        return {
            place: _too_long(int(records.sizes[place]))
            or self._why(value, int(records.kafka_ms[place]), records.topics[place].as_py())
            for place, value in zip(refused, values, strict=True)
        }

    def _why(self, value: bytes | None, kafka_ms: int, topic: str) -> str:
        try:
            batch = decode(value, TelemetryBatch)
        except UndecodableRecordError as error:
            return str(error)
        if self.brokers and batch.broker not in self.brokers:
            return (
                f"broker {batch.broker} is not in the inventory: `regraft members add` admits it, or stop the process "
                "that sends in its name"
            )
        for name in PEERS:
            if self.brokers and not {sample.peer for sample in getattr(batch, name)} <= self.brokers | {""}:
                return f"a {name}.peer of broker {batch.broker} is not in the inventory"
        if self.topics.agent_of and topic != self.topics.name(TELEMETRY, batch.broker):
            agent = self.topics.agent_of.get(batch.broker, "")
            return WRONG_AGENT_TEXT % (batch.broker, agent or NO_AGENT_TEXT, topic)
        ahead_ms = batch.time_ms - kafka_ms
        for distance_ms, side, bound_ms in (
            (ahead_ms, "after", self.bounds.future_ms_max),
            (-ahead_ms, "before", self.bounds.past_ms_max),
        ):
            if bound_ms is not None and distance_ms > bound_ms:
                return (
                    f"its time is {distance_ms} ms {side} the record's Kafka time, but at most {bound_ms} are "
                    "accepted: "
                    f"check the clock of broker {batch.broker}"
                )
        return UNREADABLE

    def _is_known(self, batches: pa.StructArray) -> Mask:
        if not self.brokers:
            return np.ones(len(batches), dtype=np.bool_)
        is_member = is_of(batches, self.brokers)
        for name in PEERS:
            is_member &= has_only_peers(batches, name, self.brokers | {""})
        return is_member

    def _is_elsewhere(self, batches: pa.StructArray, topics: pa.StringArray) -> Mask:
        """Mark the batches in another topic than their broker's agent's."""
        brokers, coded = batches.field("broker").dictionary_encode(), topics.dictionary_encode()
        own = pa.array([self.topics.name(TELEMETRY, name) for name in brokers.dictionary.to_pylist()], type=pa.string())
        names = pa.concat_arrays([own, coded.dictionary]).dictionary_encode().indices.to_numpy()
        expected = names[: len(own)][brokers.indices.to_numpy()]
        return np.asarray(expected != names[len(own) :][coded.indices.to_numpy()])


class Report(NamedTuple):
    """Reports of batches about seconds: the batch's place, the second, the number of cells, and if its time is near."""

    owner: Longs
    second: Longs
    cells: Longs
    is_near: Mask


class _Bodies(NamedTuple):
    """Bodies of the newest schema, and the places of their records."""

    data: bytes
    starts: Longs
    ends: Longs
    places: Longs


def _too_long(size: int) -> str:
    is_long = size > RECORD_BYTES_MAX
    return f"the record has {size} bytes, but at most {RECORD_BYTES_MAX} are read" if is_long else ""


def _bodies(records: Records) -> _Bodies:
    """Return the bodies of all records that are framed as some version of telemetry.

    Those of the newest version, framed as we write them, are where they are in the values. All others are decoded and
    encoded again, one by one.
    """
    values = records.values
    _, offsets, raw = values.buffers()
    ends = np.frombuffer(offsets, dtype=np.int32)[values.offset : values.offset + len(values) + 1].astype(np.int64)
    first, last = int(ends[0]), int(ends[-1])
    data = b"" if raw is None else raw.slice(first, last - first).to_pybytes()
    starts, ends = ends[:-1] - first, ends[1:] - first
    sizes = ends - starts
    is_ours, is_whole = np.zeros(len(values), dtype=np.bool_), records.sizes == sizes
    long_enough = np.flatnonzero(is_whole & (sizes >= CONFLUENT_HEADER_BYTES))
    if long_enough.size:
        view = np.frombuffer(data, dtype=np.uint8)
        heads = view[starts[long_enough, None] + np.arange(CONFLUENT_HEADER_BYTES)]
        for wire_id in accepted_ids(latest_schema(TELEMETRY.record).schema_id):
            ours = np.frombuffer(CONFLUENT_MAGIC + wire_id.to_bytes(4, "big"), dtype=np.uint8)
            is_ours[long_enough] |= (heads == ours).all(axis=1)
    places = np.flatnonzero(is_ours)
    others = np.flatnonzero(~is_ours & is_whole & (sizes > 0))
    again = {int(place): _newest_body(data[starts[place] : ends[place]]) for place in others}
    added = {place: body for place, body in again.items() if body}
    if not added:
        return _Bodies(data, starts[places] + CONFLUENT_HEADER_BYTES, ends[places], places)
    lengths = np.array([len(body) for body in added.values()], dtype=np.int64)
    added_ends = len(data) + np.cumsum(lengths)
    return _Bodies(
        b"".join((data, *added.values())),
        np.concatenate([starts[places] + CONFLUENT_HEADER_BYTES, added_ends - lengths]),
        np.concatenate([ends[places], added_ends]),
        np.concatenate([places, np.array(list(added), dtype=np.int64)]),
    )


def _newest_body(value: bytes) -> bytes:
    """Return the record's body in the newest schema, b"" if it is no telemetry."""
    try:
        return encode(decode(value, TelemetryBatch))[CONFLUENT_HEADER_BYTES:]
    except (UndecodableRecordError, UnencodableRecordError):
        return b""


def cut_by_window(
    body: bytes, starts_ms: Collection[int], window_ms: int, kafka_ms: int | None, bounds: EventBounds
) -> dict[int, bytes]:
    """Return, for each of these windows, a body with what a batch reports on it alone; with no Kafka time, nothing.

    This is for the few batches that cannot be kept as they are: with cells far from Kafka's time, or in many windows.
    """
    try:
        batch = decode(header(TELEMETRY.record) + body, TelemetryBatch)
    except UndecodableRecordError as error:  # The columns are good, and what is not in a window is left out anyway.
        log.error("telemetry_not_cut", reason=str(error))
        return dict.fromkeys(starts_ms, body)
    none = msgspec.structs.replace(batch, deliveries=(), queues=(), probes=(), clients=(), seconds=())
    cut = dict.fromkeys(starts_ms, none)
    own_ms = batch.time_ms - batch.time_ms % window_ms
    if kafka_ms is not None and own_ms in cut:
        cut[own_ms] = msgspec.structs.replace(none, queues=batch.queues, probes=batch.probes, clients=batch.clients)
    for name in REPORTS if kafka_ms is not None else ():
        for start_ms, reports in _by_window(getattr(batch, name), window_ms, kafka_ms or 0, bounds).items():
            cut[start_ms] = msgspec.structs.replace(cut[start_ms], **{name: tuple(reports)})
    return {start_ms: encode(each)[CONFLUENT_HEADER_BYTES:] for start_ms, each in cut.items()}


def _by_window(
    reports: Sequence[Delivery | PackedSecond], window_ms: int, kafka_ms: int, bounds: EventBounds
) -> Mapping[int, list[Delivery | PackedSecond]]:
    grouped: dict[int, list[Delivery | PackedSecond]] = {}
    for report in reports:
        second_ms = report.second * SECOND_MS
        if bounds.accepts(second_ms, kafka_ms):
            grouped.setdefault(second_ms - second_ms % window_ms, []).append(report)
    return grouped


def longs_of(rows: pa.StructArray, name: str) -> Longs:
    """Return a column of integers."""
    longs: Longs = rows.field(name).to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    return longs
