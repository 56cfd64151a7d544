"""Batches that are split for Kafka: the same cells and changes once each, under consecutive numbers."""

from hypothesis import given
from hypothesis import strategies as st

from regraft.schemas.codec import encode
from regraft.schemas.split_batch import BATCH_BYTES_MAX, split_batch
from regraft.schemas.telemetry import ClientChange, Delivery, LinkProbe, QueueSample, TelemetryBatch

NAMES = st.text("pé", min_size=1, max_size=256)
CELLS = st.lists(st.builds(Delivery, NAMES, st.just(1), st.just(6), st.just(7), st.just(8), st.just(9)), max_size=30)
CHANGES = st.lists(st.builds(ClientChange, NAMES, st.just(1), st.just("came")), max_size=30)


@given(CELLS, CHANGES, st.integers(1, 2_000))
def test_parts_hold_together_what_the_batch_holds(
    cells: list[Delivery], changes: list[ClientChange], bytes_max: int
) -> None:
    """Nothing is lost or repeated, order is kept, and each part but a single item is within the bound."""
    queues, probes = (QueueSample("", 1, 1, 1, 1, 1, 1, 1, 1),), (LinkProbe("b2", 1.0),)
    batch = TelemetryBatch("b1", 1, 5, 6_000, 0, tuple(cells), queues, probes, tuple(changes))
    parts = split_batch(batch, bytes_max)
    assert [part.sequence for part in parts] == list(range(5, 5 + len(parts)))
    assert [cell for part in parts for cell in part.deliveries] == cells
    assert [change for part in parts for change in part.clients] == changes
    assert [part.queues for part in parts] == [queues, *[()] * (len(parts) - 1)]
    assert [part.probes for part in parts] == [probes, *[()] * (len(parts) - 1)]
    for part in parts:
        items = len(part.deliveries) + len(part.clients)
        assert items <= 1 or len(encode(part.packed())) <= bytes_max + 400 or len(parts) == 1


def test_the_longest_names_of_all_publishers_fit_what_kafka_accepts() -> None:
    """10,000 names of 256 characters of three bytes in one flush."""
    names = [f"{number:05}" + "\u4e1c" * 251 for number in range(10_000)]
    batch = TelemetryBatch("b1", 1, 0, 6_000, 0, tuple(Delivery(name, 1, 6, 1, 1, 1) for name in names))
    parts = split_batch(batch)
    assert max(len(encode(part.packed())) for part in parts) <= BATCH_BYTES_MAX
    assert [cell.publisher for part in parts for cell in part.deliveries] == names
