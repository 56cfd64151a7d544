"""A batch that Kafka would refuse is sent in parts that report the same."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from regraft.infra.kafka_clients import SENT_BYTES_MAX
from regraft.schemas.bounds import NAME_LENGTH_MAX
from regraft.schemas.codec import encode
from regraft.schemas.split_batches import split_batch
from regraft.schemas.telemetry import ClientChange, Delivery, LinkProbe, QueueSample, TelemetryBatch
from regraft.streaming.reference_aggregator import ReferenceAggregator
from tests.streaming.random_telemetry import WINDOW_MS, as_dicts, random_telemetry

SECOND = 1_700_000_000


def test_publishers_invented_by_clients_do_not_make_a_batch_too_large() -> None:
    """6,000 names of 256 letters within one flush, as many clients, each letter four bytes: all is sent, in parts."""
    names = [f"{number:06d}".ljust(NAME_LENGTH_MAX, "\U0001f980") for number in range(6_000)]
    cells = tuple(Delivery(name, 1, SECOND, 1, 1, 9, 1) for name in names)
    changes = tuple(ClientChange(name, 1, "connected") for name in names)
    batch = TelemetryBatch("b1", 1, 7, SECOND * 1_000, 3, cells, (QueueSample("", *[1] * 9),), clients=changes)
    parts, left_out = split_batch(batch)
    assert left_out == 0
    assert all(len(encode(part.packed())) <= SENT_BYTES_MAX for part in parts)
    assert [part.sequence for part in parts] == list(range(7, 7 + len(parts)))
    assert sorted(cell.publisher for part in parts for cell in part.cells()) == names
    assert sorted(change.client for part in parts for change in part.clients) == names


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32), st.integers(400, 3_000))
def test_parts_give_the_same_windows_as_the_whole(seed: int, bytes_max: int) -> None:
    """Figures merge to the same rows; only the number of batches differs, and none counts as missing."""
    rng = random.Random(seed)
    batches = random_telemetry(rng)
    shifts: dict[tuple[str, int], int] = {}
    split: list[TelemetryBatch] = []
    for batch in batches:
        place = batch.broker, batch.boot
        shifted = TelemetryBatch(batch.broker, batch.boot, batch.sequence + shifts.get(place, 0), batch.time_ms,
                                 batch.epoch, batch.deliveries, batch.queues, batch.probes, batch.clients,
                                 batch.seconds)  # fmt: skip
        parts, left_out = split_batch(shifted, bytes_max, parts_max=1_000)
        assert left_out == 0
        shifts[place] = shifts.get(place, 0) + len(parts) - 1
        split += parts
    (whole, _), (parted, complete) = _windows(batches), _windows(split)
    assert parted == whole
    assert complete


def _windows(batches: list[TelemetryBatch]) -> tuple[list[object], bool]:
    reference = ReferenceAggregator(WINDOW_MS, grace_ms=0)
    for batch in as_dicts(batches):
        reference.take(batch)
    windows = reference.finish()
    entries = [entry for window in windows for entry in window.marker.brokers]
    return [window.rows for window in windows], all(entry.received == entry.expected for entry in entries)


def test_what_does_not_fit_into_all_parts_is_counted() -> None:
    """A flush has a bound; what the broker says of itself comes first."""
    cells = tuple(Delivery(f"p{number}", 1, SECOND, 1, 1, 9, 1) for number in range(100))
    batch = TelemetryBatch("b1", 1, 0, SECOND * 1_000, 3, cells, probes=(LinkProbe("b2", 3.0),))
    parts, left_out = split_batch(batch, bytes_max=1_000, parts_max=3)
    assert len(parts) == 3
    assert parts[0].probes == batch.probes
    assert left_out == 100 - sum(len(part.deliveries) for part in parts) > 0
