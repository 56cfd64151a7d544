"""Packed delivery rows: packing loses nothing, records are bounded, and bad ones are refused with a reason."""

import random

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regraft.controller.windows.gather_deliveries import gather_deliveries
from regraft.schemas.bounds import BLOCK_MAX, RECORD_BYTES_MAX
from regraft.schemas.codec import UndecodableRecordError, decode, encode
from regraft.schemas.packed_deliveries import DeliveryColumns, PackedDeliveries
from regraft.schemas.state import Churn, PublisherDelivery, StateRow, WindowClosed
from regraft.schemas.unpack_state import unpack_window
from regraft.streaming.pack_deliveries import PACKED_BYTES_MAX, pack_deliveries
from tests.schemas.encode_unchecked import encode_unchecked
from tests.schemas.packed_rows import columns_of, delivery_bodies, packed_window

BROKERS = ("b00", "b01", "b02", "b03")
BODIES = (
    PublisherDelivery("p", "b1", 3, 2, 9, (0, 7), (1, -5), (0, 2)),
    PublisherDelivery("p", "b2", 1, 0, 0, (7,), (4,), (0,)),
    PublisherDelivery("q", "b1", 1, 1, 3, (2**40,), (-(2**63),), (0,)),
)


def packed(*bodies: PublisherDelivery) -> PackedDeliveries:
    [found] = pack_deliveries(columns_of(bodies, 0), 0)
    return found


def row_of(body: PackedDeliveries) -> StateRow:
    return StateRow(0, 5_000, "packed_deliveries", "0", packed_deliveries=body)


def window_of(bodies: list[PublisherDelivery]) -> tuple[list[StateRow], WindowClosed]:
    rows = [
        StateRow(0, 5_000, "delivery", f"{body.publisher}|{body.broker}", delivery=body)
        for body in bodies
    ]  # fmt: skip
    rows.append(StateRow(0, 5_000, "churn", "b00", churn=Churn("b00", 1, 1)))
    return rows, WindowClosed(0, 5_000, 1, {"delivery": len(bodies), "churn": 1}, (), 0)


@given(delivery_bodies(BROKERS), st.sampled_from([1, 60, 200, PACKED_BYTES_MAX]), st.randoms(use_true_random=False))
def test_rows_survive_packing(bodies: list[PublisherDelivery], bytes_max: int, rng: random.Random) -> None:
    """Rows in records of any size, written, read and in any order, are the same rows, and so is their marker."""
    rows, marker = window_of(bodies)
    written, counted = packed_window(rows, marker, bytes_max)
    rng.shuffle(written)
    found, unpacked = unpack_window([decode(encode(row), StateRow) for row in written], counted)
    assert sorted(found, key=str) == sorted(rows, key=str)
    assert unpacked == marker


def test_missing_rows_stay_missing() -> None:
    """A lost record counts as one missing row, however many were packed in it."""
    rows, marker = window_of(list(BODIES))
    written, counted = packed_window(rows, marker, 1)
    found, unpacked = unpack_window([row for row in written if row.entity != "1"], counted)
    assert unpacked.row_counts["delivery"] == sum(row.kind == "delivery" for row in found) + 1


def test_rows_of_a_window_written_in_both_formats_appear_once() -> None:
    """An upgraded job may rewrite a window whose rows an older one had begun to write."""
    rows, marker = window_of(list(BODIES))
    written, counted = packed_window(rows, marker)
    found, unpacked = unpack_window([*rows[:2], *written], counted)
    assert sorted(found, key=str) == sorted(rows, key=str)
    assert unpacked.row_counts == marker.row_counts


def test_records_are_bounded() -> None:
    """Many rows, long names and a row too large for one record all fit Kafka's default limit, and nothing is lost."""
    rng = np.random.default_rng(3)
    count = 30_000
    masks = tuple(rng.integers(1, 2**62, count).tolist())
    long_row = PublisherDelivery("p", "b5", count, 7, 8, tuple(range(count)), masks, (0,) * count)
    many = [
        PublisherDelivery("ö" * 250 + str(n % 30), f"{n // 30:04d}" + "é" * 250, 1, 1, 1, (n,), (1,), (0,))
        for n in range(3_000)
    ]
    rows, marker = window_of([long_row, *many])
    written, counted = packed_window(rows, marker)
    sizes = [len(encode(row)) for row in written]
    assert max(sizes) < PACKED_BYTES_MAX + 1_000 < min(1_000_000, RECORD_BYTES_MAX)
    assert sorted(unpack_window(written, counted)[0], key=str) == sorted(rows, key=str)


def test_a_window_of_100_brokers_fits_a_few_records() -> None:
    """5,000 rows of three blocks each need only a few records."""
    cells = ((1, 2, 3), (1, 2, 3), (0, 0, 0))
    bodies = [PublisherDelivery(f"publisher-{n // 100:02d}", f"broker-{n % 100:02d}", 3, 3, 9, *cells)
              for n in range(5_000)]  # fmt: skip
    assert len(packed_window(*window_of(bodies))[0]) == 1 + 3


def test_the_layout_is_the_documented_one() -> None:
    """Byte for byte, as read by someone who has only the schema."""
    found = packed(*BODIES)
    assert (found.publishers, found.brokers, found.row_count) == ("p\nq", "b1\nb2", 3)
    assert found.publisher == bytes.fromhex("00000000 00000000 01000000")
    assert found.broker == bytes.fromhex("00000000 01000000 00000000")
    assert found.block_counts == bytes.fromhex("02000000 01000000 01000000")
    assert found.notifications == bytes.fromhex("0300000000000000 0100000000000000 0100000000000000")
    assert found.masks[8:16] == bytes.fromhex("fbffffffffffffff")
    assert found.blocks[24:] == bytes.fromhex("0000000000010000")


def swapped(name: str, at: int, value: int, width: int = 8) -> PackedDeliveries:
    """Return a record with another number at one place of a column, as a faulty writer would send it."""
    record = packed(*BODIES)
    column = bytearray(getattr(record, name))
    column[at * width : (at + 1) * width] = (value % (1 << 8 * width)).to_bytes(width, "little")
    return spoiled(**{name: bytes(column)})


def spoiled(**values: object) -> PackedDeliveries:
    """Return a record whose consistency was not checked."""
    record = packed(*BODIES)
    for name, value in values.items():
        msgspec.structs.force_setattr(record, name, value)
    return record


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (spoiled(masks=packed(*BODIES).masks[:-8]), "masks has 24 bytes, 32 are 4 numbers"),
        (spoiled(blocks=packed(*BODIES).blocks[:-3]), "blocks has 29 bytes, 24 are 3 numbers"),
        (spoiled(publisher=b"\0" * 13), "publisher has 13 bytes, 12 are 3 numbers"),
        (spoiled(bytes=b""), "bytes has 0 bytes, 24 are 3 numbers"),
        (swapped("block_counts", 0, 3, 4), "rows announce 5 blocks, there are 4"),
        (swapped("block_counts", 0, 2**32 - 1, 4), "rows announce 4294967297 blocks"),
        (swapped("publisher", 2, 9, 4), "of publisher 9, there are 2 names"),
        (swapped("broker", 1, 7, 4), "of broker 7, there are 2 names"),
        (swapped("broker", 1, 0, 4), "rows are not unique and ascending"),
        (swapped("publisher", 0, 1, 4), "rows are not unique and ascending"),
        (swapped("blocks", 1, 0), "blocks of a row are not ascending"),
        (swapped("blocks", 0, 8), "blocks of a row are not ascending"),
        (swapped("blocks", 0, -1), "a block is outside"),
        (swapped("blocks", 3, BLOCK_MAX + 1), "a block is outside"),
        (swapped("local_deliveries", 2, -1), "local_deliveries of a row is below 0"),
        (spoiled(brokers="b2\nb1"), "brokers: names are not unique and ascending"),
        (spoiled(brokers="b1\nb1"), "brokers: names are not unique and ascending"),
        (spoiled(brokers="b1\n"), "brokers: names of 0 to 2 characters"),
        (spoiled(publishers="p\n" + "q" * 257), "publishers: names of 1 to 257 characters"),
        (spoiled(publishers="p\nq\x07"), "publishers: a name has a control character"),
        (spoiled(publishers=""), "of publisher 1, there are 0 names"),
    ],
)
def test_an_inconsistent_record_is_refused_with_the_reason(body: PackedDeliveries, reason: str) -> None:
    """Cut, contradictory or unsorted columns never reach a window: they become dead letters with the reason."""
    with pytest.raises(UndecodableRecordError, match=f"is invalid.*{reason}"):
        decode(encode_unchecked(row_of(body)), StateRow)


def test_an_empty_record_is_valid() -> None:
    """A record may have no rows."""
    empty = np.array([], dtype=np.int64)
    record = PackedDeliveries.of(DeliveryColumns((), (), *(empty,) * 9))
    assert decode(encode(row_of(record)), StateRow).packed_deliveries == record


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=3), st.integers(0, 40))
def test_an_accepted_record_is_consistent(changes: list[tuple[int, int]], cut: int) -> None:
    """Whatever bytes are spoiled or cut off, a record is refused, or can be unpacked and gathered."""
    value = bytearray(encode(row_of(packed(*BODIES))))
    for place, byte in changes:
        value[place % len(value)] = byte
    try:
        row = decode(bytes(value[: len(value) - max(cut - 20, 0)]), StateRow)
    except UndecodableRecordError:
        return
    single, _ = unpack_window([row], WindowClosed(0, 5_000, 1, {}, (), 0))
    assert {each.kind for each in single} <= {"delivery", "churn", "interest", "queue", "rtt"}
    found = gather_deliveries([row], ("b1", "b2"), 5.0)
    expected = gather_deliveries([each for each in single if _is_of(each, ("b1", "b2"))], ("b1", "b2"), 5.0)
    assert found.sets.words.tolist() == expected.sets.words.tolist()
    assert (found.homes, found.local_deliveries) == (expected.homes, expected.local_deliveries)


def _is_of(row: StateRow, brokers: tuple[str, ...]) -> bool:
    return row.delivery is not None and row.delivery.broker in brokers
