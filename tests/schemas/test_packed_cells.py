"""Packing cells by second loses nothing, and a record that violates the layout is refused."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regraft.schemas.bounds import SECOND_MAX, SEQUENCE_MAX
from regraft.schemas.packed_cells import COUNT_MAX, Cell, PackedSecond
from regraft.schemas.telemetry import BLOCK_SIZE, Delivery, TelemetryBatch
from tests.schemas.plausible_records import CLEAN_TEXT, LONG_MAX, LONG_MIN

NAMES = st.text(CLEAN_TEXT, min_size=1, max_size=4)
BLOCKS = st.integers(0, SEQUENCE_MAX // BLOCK_SIZE)
MASKS = st.integers(LONG_MIN, LONG_MAX)
COUNTS = st.integers(0, COUNT_MAX)
DELIVERIES = st.builds(Delivery, NAMES, BLOCKS, st.integers(0, SECOND_MAX), MASKS, COUNTS, COUNTS, MASKS)
GOOD = PackedSecond.of(7, [("p", 1, 2, 3, 4, 5), ("q", 1, 2, 3, 4, 5)])


@given(st.lists(DELIVERIES, max_size=8))
def test_cells_survive_packing(deliveries: list[Delivery]) -> None:
    """Each cell appears as often as before, whatever its numbers; packing again changes nothing."""
    packed = TelemetryBatch("b", 1, 0, 0, 0, tuple(deliveries)).packed()
    assert not packed.deliveries
    assert sorted(packed.cells(), key=msgspec.structs.astuple) == sorted(deliveries, key=msgspec.structs.astuple)
    assert packed.packed() == packed
    seconds = [each.second for each in packed.seconds]
    assert seconds == sorted(set(seconds))


def test_single_and_packed_cells_are_all_counted() -> None:
    """A batch may hold both, such as one that a later version extends."""
    single = Delivery("s", 0, 1, 1, 1, 1)
    batch = TelemetryBatch("b", 1, 0, 0, 0, (single,), seconds=(GOOD,))
    assert [cell.publisher for cell in batch.cells()] == ["s", "p", "q"]
    assert [cell.publisher for cell in batch.packed().cells()] == ["s", "p", "q"]


def test_a_counter_beyond_seven_bytes_is_capped() -> None:
    """The largest number that fits is kept; nothing wraps around."""
    (cell,) = PackedSecond.of(1, [("p", 0, 1, COUNT_MAX + 1, COUNT_MAX, 0)]).cells()
    assert cell == ("p", 0, 1, COUNT_MAX, COUNT_MAX, 0)


@pytest.mark.parametrize("cell", [("", 0, 1, 1, 1, 0), ("p" * 257, 0, 1, 1, 1, 0), ("p\x00", 0, 1, 1, 1, 0)])
def test_invalid_publisher_names_are_refused(cell: Cell) -> None:
    """Empty and overlong names and control characters are reported."""
    with pytest.raises(ValueError, match="name"):
        PackedSecond.of(1, [cell])


@pytest.mark.parametrize("column", ["blocks", "masks", "published", "local_deliveries", "bytes"])
def test_a_column_of_another_length_is_refused(column: str) -> None:
    """The message names the column, the bytes found and those needed."""
    values = msgspec.structs.asdict(GOOD) | {column: bytes(3)}
    with pytest.raises(ValueError, match=f"{column} has 3 bytes, 2 publishers need 1[46]"):
        PackedSecond(**values)
