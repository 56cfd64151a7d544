"""Packed cells unpack by columns to the original cells of each batch."""

import random

import pytest

from regraft.schemas.packed_cells import PackedSecond
from regraft.schemas.telemetry import Delivery, TelemetryBatch
from regraft.streaming.unpack_cells import is_torn, with_cells
from tests.streaming.random_telemetry import random_telemetry
from tests.streaming.test_tabulate_batches import columns_of


def cells_of(batches: list[TelemetryBatch]) -> list[list[Delivery]]:
    """Return the cells of each batch as its columns have them."""
    return [[Delivery(**cell) for cell in row["deliveries"]] for row in with_cells(columns_of(batches)).to_pylist()]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_columns_hold_the_cells_of_each_batch(seed: int) -> None:
    """A batch may be packed, have single cells, both, or none."""
    rng = random.Random(seed)
    batches = []
    for batch in random_telemetry(rng):
        packed = batch.packed()
        single = tuple(cell for cell in batch.cells() if rng.random() < 0.5)
        both = TelemetryBatch(batch.broker, 1, 0, batch.time_ms, 1, single, seconds=packed.seconds)
        batches.append(rng.choice((batch, packed, both, TelemetryBatch(batch.broker, 1, 0, batch.time_ms, 1))))
    assert cells_of(batches) == [list(batch.cells()) for batch in batches]
    assert not is_torn(columns_of(batches)).any()


def test_columns_without_batches_or_cells_unpack_to_nothing() -> None:
    """Nothing packed is nothing to unpack."""
    empty = TelemetryBatch("b", 1, 0, 0, 0)
    assert cells_of([empty, empty]) == [[], []]


def test_a_slice_of_columns_unpacks_to_its_own_cells() -> None:
    """Rows that do not start at the beginning of their buffers, as after a filter, keep their cells."""
    batches = [
        TelemetryBatch("b", 1, 0, 0, 0, seconds=(PackedSecond.of(n + 1, [(f"p{n}", n, n, n, n, n)] * (n + 1)),))
        for n in range(5)
    ]
    found = with_cells(columns_of(batches)[2:4]).to_pylist()
    assert [[Delivery(**cell) for cell in row["deliveries"]] for row in found] == [
        list(batch.cells()) for batch in batches[2:4]
    ]
