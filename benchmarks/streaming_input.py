"""Write telemetry for bench_streaming into Kafka: batches of 100 brokers as the emulator sends them.

The emulator's telemetry at its defaults was counted on the virtual clock (40 and 100 brokers, 4 notifications/s of each
publisher): 4 batches a second per broker; of those with deliveries, one in four has cells of two seconds and one in ten
to twenty cells of two windows; a cell is sent 2.4 times while it grows, so that 9 cells make one row; about half of
them need the column ``published``; 3 queues, 2 probes and up to 0.27 client changes a batch. This telemetry is the same
except for more cells, as in a busy overlay: 50 in each batch (instead of 3 to 8), of a random half of 100 publishers.
Every broker is the home of one publisher and has two neighbours; in the first batch of a second, half of the cells
belong to the previous second. One batch in 50 is sent twice, as by a restarted sender. Masks are sparse, so that a
wrong merge shows.
"""

import io
from dataclasses import dataclass
from typing import Any

import numpy as np
from confluent_kafka import Producer
from fastavro import schemaless_writer
from numpy.typing import NDArray

from regraft.infra.kafka.kafka_access import KafkaAccess
from regraft.infra.kafka.kafka_clients import open_producer
from regraft.schemas.arrays import Words
from regraft.schemas.codec import header
from regraft.schemas.packed_cells import COUNT_BYTES, SEPARATOR
from regraft.schemas.registry import latest_schema
from regraft.schemas.topics import TELEMETRY, topic_name

BROKERS, PUBLISHERS, CELLS_PER_BATCH = 100, 100, 50
BATCHES_PER_S = 4
NOTIFICATIONS_PER_S = 20
BEGIN_S = 1_700_000_000
WINDOW_MS = 5_000
CLOSING_MS = 120_000  # A heartbeat of every broker this much after the end closes every window.
SEED = 11
REPEATED_SHARE, CLIENT_SHARE = 0.02, 0.25
SUBSETS = 64  # Sets of publishers that a batch may cover, drawn in advance.
RECORD = "TelemetryBatch"


@dataclass(frozen=True, slots=True)
class Written:
    """The input written: records and cells including duplicates, and the totals that all rows must add up to."""

    records: int
    cells: int
    local_deliveries: int
    windows: int


def seconds_for(cells: int) -> int:
    """Return the least number of seconds of telemetry that hold this many cells."""
    return -(-cells // (BROKERS * CELLS_PER_BATCH * BATCHES_PER_S))


def window_count(seconds: int) -> int:
    """Return how many windows contain telemetry; the last batches arrive after the second that they report."""
    return (seconds * 1_000 + 2 * BROKERS) // WINDOW_MS + 1


def write_telemetry(bootstrap: str, seconds: int) -> Written:
    """Write the telemetry, then the heartbeats that close all windows."""
    telemetry = Telemetry(seconds)
    options: dict[str, str | int | float | bool] = {"linger.ms": 50, "compression.type": "lz4", "batch.size": 1 << 20}
    producer = open_producer(KafkaAccess(bootstrap), options)
    for flush in range(seconds * BATCHES_PER_S):
        for broker in range(BROKERS):
            value = telemetry.batch(broker, flush)
            for _ in range(1 + telemetry.is_repeated()):
                _send(producer, broker, value)
                telemetry.count_batch()
        producer.poll(0)
    for broker in range(BROKERS):
        _send(producer, broker, telemetry.heartbeat(broker))
        telemetry.records += 1
    if producer.flush(60):
        raise RuntimeError("Kafka did not accept all telemetry within 60 s")
    return telemetry.written()


def _send(producer: Producer, broker: int, value: bytes) -> None:
    while True:
        try:
            producer.produce(topic_name(TELEMETRY), value, key=_broker_name(broker))
            return
        except BufferError:
            producer.poll(0.1)


class Telemetry:
    """Makes batches in order of time and counts them."""

    def __init__(self, seconds: int) -> None:
        self._rng = np.random.default_rng(SEED)
        self._seconds = seconds
        self._schema = latest_schema(RECORD).parsed
        draws = (self._rng.permutation(PUBLISHERS)[:CELLS_PER_BATCH] for _ in range(SUBSETS))
        self._subsets = [_Subset.of(np.sort(draw)) for draw in draws]
        self._masks: dict[int, Words] = {}  # By broker: final masks of all publishers' cells, current second.
        self._masks_before: dict[int, Words] = {}
        self._handed_over = np.zeros((BROKERS, 2, PUBLISHERS), dtype=np.int64)  # Previous, current second.
        self._local_deliveries = 0
        self.records = self.cells = 0

    def written(self) -> Written:
        """Return the totals."""
        return Written(
            self.records,
            self.cells,
            self._local_deliveries + int(self._handed_over.sum()),
            window_count(self._seconds),
        )

    def is_repeated(self) -> bool:
        """Draw whether a batch is sent twice."""
        return bool(self._rng.random() < REPEATED_SHARE)

    def count_batch(self) -> None:
        """Count a batch that is sent."""
        self.records += 1
        self.cells += CELLS_PER_BATCH

    def heartbeat(self, broker: int) -> bytes:
        """Return a broker's last batch, which closes all windows."""
        time_ms = (BEGIN_S + self._seconds) * 1_000 + CLOSING_MS
        return self._encode(_batch(broker, self._seconds * BATCHES_PER_S, time_ms))

    def batch(self, broker: int, flush: int) -> bytes:
        """Return a broker's batch for the quarter of a second that has just passed."""
        second, quarter = divmod(flush, BATCHES_PER_S)
        if quarter == 0:
            self._begin_second(broker)
        subset = self._subsets[self._rng.integers(SUBSETS)]
        if quarter == 0 and second > 0:
            seconds = [self._cells(broker, second - 1, None, subset.first), self._cells(broker, second, 0, subset.last)]
        else:
            seconds = [self._cells(broker, second, quarter, subset)]
        time_ms = BEGIN_S * 1_000 + (flush + 1) * 1_000 // BATCHES_PER_S + 2 * broker
        batch = _batch(broker, flush, time_ms) | {"seconds": seconds, "queues": _queues(broker, flush)}
        rtts_ms = self._rng.normal(40.0, 0.8, 2).tolist()
        batch["probes"] = [
            {"peer": peer, "rtt_ms": rtt_ms} for peer, rtt_ms in zip(_neighbours(broker), rtts_ms, strict=True)
        ]
        if self._rng.random() < CLIENT_SHARE:
            client = {"client": f"s{self._rng.integers(10_000):07d}", "sequence": flush, "change": "came as subscriber"}
            batch["clients"] = [client]
        return self._encode(batch)

    def _begin_second(self, broker: int) -> None:
        if broker in self._masks:
            self._masks_before[broker] = self._masks[broker]
        draws = self._rng.integers(0, 1 << 64, (3, PUBLISHERS), dtype=np.uint64)
        # One fixed bit in each quarter, so that no cell is empty, and an eighth of the others.
        self._masks[broker] = draws[0] & draws[1] & draws[2] | np.uint64(0x0001_0001_0001_0001)
        self._local_deliveries += int(self._handed_over[broker, 0].sum())
        self._handed_over[broker, 0] = self._handed_over[broker, 1]
        self._handed_over[broker, 1] = 0

    def _cells(self, broker: int, second: int, quarter: int | None, subset: "_Subset") -> dict[str, Any]:
        """Return the cells of a subset after a quarter of their second; with None after all of it."""
        if quarter is None:
            masks = self._masks_before[broker][subset.places]
        else:
            masks = self._masks[broker][subset.places] & np.uint64((1 << 16 * (quarter + 1)) - 1)
        counts = np.bitwise_count(masks).astype(np.int64)
        self._handed_over[broker, 0 if quarter is None else 1, subset.places] = counts
        published = np.where(subset.places == broker, masks, np.uint64(0))
        return {
            "second": BEGIN_S + second,
            "publishers": subset.lines,
            "blocks": _uint56(np.full(masks.size, second * NOTIFICATIONS_PER_S // 64)),
            "masks": masks.astype("<u8").tobytes(),
            "published": published.astype("<u8").tobytes() if published.any() else b"",
            "local_deliveries": _uint56(counts),
            "bytes": _uint56(counts * 200),
        }

    def _encode(self, batch: dict[str, Any]) -> bytes:
        buffer = io.BytesIO(header(RECORD))
        buffer.seek(0, io.SEEK_END)
        schemaless_writer(buffer, self._schema, batch)
        return buffer.getvalue()


@dataclass(frozen=True, eq=False, slots=True)
class _Subset:
    """Some publishers, ascending, with their names as encoded in a record."""

    places: NDArray[np.int64]
    lines: str

    @classmethod
    def of(cls, places: NDArray[np.int64]) -> "_Subset":
        return cls(places, SEPARATOR.join(f"publisher-{place:03d}" for place in places.tolist()))

    @property
    def first(self) -> "_Subset":
        """The first half of them."""
        return _Subset.of(self.places[: CELLS_PER_BATCH // 2])

    @property
    def last(self) -> "_Subset":
        """The other half."""
        return _Subset.of(self.places[CELLS_PER_BATCH // 2 :])


def _broker_name(number: int) -> str:
    return f"broker-{number % BROKERS:03d}"


def _neighbours(broker: int) -> tuple[str, str]:
    return _broker_name(broker - 1), _broker_name(broker + 1)


def _batch(broker: int, sequence: int, time_ms: int) -> dict[str, Any]:
    batch: dict[str, Any] = {"broker": _broker_name(broker), "boot": BEGIN_S * 1_000, "sequence": sequence}
    batch |= {"time_ms": time_ms, "epoch": 1}
    return batch | {name: [] for name in ("deliveries", "queues", "probes", "clients", "seconds")}


def _queues(broker: int, flush: int) -> list[dict[str, Any]]:
    """Return samples of a broker's own queue and of the two link ends, at a steady rate."""
    counters = {"messages_in": 40, "messages_out": 40, "notifications_out": 30, "bytes_in": 8_000, "bytes_out": 8_000}
    counters |= {"busy_ms": 20, "wait_ms": 9}
    grown = {name: (flush + 1) * step for name, step in counters.items()}
    lengths = {"queue_length": flush % 3, "queue_length_max": 2 + flush % 5}
    return [{"peer": peer} | grown | lengths for peer in ("", *_neighbours(broker))]


def _uint56(values: NDArray[np.int64]) -> bytes:
    return values.astype("<i8").view(np.uint8).reshape(-1, 8)[:, :COUNT_BYTES].tobytes()
