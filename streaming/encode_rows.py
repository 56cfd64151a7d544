"""Rows of a window -> Kafka messages: key and Avro bytes, the same bytes as ``schemas.codec.encode`` writes.

Delivery rows are encoded from their columns, a window at a time: they are nearly all rows of a window, and record by
record they would cost more than everything Spark does. A test holds the bytes to those of the codec.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from schemas.codec import encode, header
from streaming.build_rows import pair_entity, state_key, window_key
from streaming.close_windows import WindowRows
from streaming.merge_parts import Longs

Message = dict[str, bytes]  # key and value, the form of confluent_kafka's produce_batch

PAIRS_CACHED_MAX = 1 << 17
NULL_BRANCH, RECORD_BRANCH = b"\x00", b"\x02"  # Positions 0 and 1 in a union, as Avro's zigzag longs.


def encode_window(window: WindowRows) -> list[Message]:
    """Return the messages of all rows of a window, in order."""
    return [
        *(
            {"key": state_key(row.window_start_ms, row.kind, row.entity), "value": encode(row)}
            for row in window.interest
        ),
        *_delivery_messages(window),
        *({"key": state_key(row.window_start_ms, row.kind, row.entity), "value": encode(row)} for row in window.others),
    ]


def encode_marker(window: WindowRows) -> Message:
    """Return the message of a window's marker."""
    return {"key": window_key(window.window.start_ms), "value": encode(window.marker)}


def encode_longs(values: Longs) -> tuple[bytes, Longs]:
    """Return all values as Avro longs (zigzag, 7 bits a byte) one after the other, and where each of them ends."""
    zigzag = ((values << 1) ^ (values >> 63)).view(np.uint64)
    lengths = np.ones(values.size, dtype=np.int64)
    for count in range(1, 10):
        lengths += zigzag >= np.uint64(1 << (7 * count))
    ends = np.cumsum(lengths)
    begins = ends - lengths
    out: NDArray[np.uint8] = np.empty(int(ends[-1]) if values.size else 0, dtype=np.uint8)
    rest, more = np.arange(values.size), zigzag
    for place in range(int(lengths.max()) if values.size else 0):
        goes_on = lengths[rest] > place + 1
        out[begins[rest] + place] = (more & np.uint64(0x7F)).astype(np.uint8) | (goes_on.astype(np.uint8) << 7)
        rest, more = rest[goes_on], more[goes_on] >> np.uint64(7)
    return out.tobytes(), ends


def _delivery_messages(window: WindowRows) -> list[Message]:
    columns, start_ms = window.deliveries, window.window.start_ms
    rows = columns.of_window(start_ms)
    if rows.start == rows.stop:
        return []
    longs, row_ends = _row_longs(window)
    encoded, ends = encode_longs(longs)
    cuts = [0, *ends[row_ends - 1].tolist()]
    times, _ = encode_longs(np.array([start_ms, window.window.end_ms], dtype=np.int64))
    front = header("StateRow") + times + _text("delivery")
    key_front = state_key(start_ms, "delivery", "")
    publishers, brokers = columns.publishers, columns.brokers
    codes = zip(columns.publisher[rows].tolist(), columns.broker[rows].tolist(), strict=True)
    messages: list[Message] = []
    for position, (publisher, broker) in enumerate(codes):
        entity, names = _pair(publishers[publisher], brokers[broker])
        value = front + names + encoded[cuts[position] : cuts[position + 1]]
        messages.append({"key": key_front + entity, "value": value})
    return messages


def _row_longs(window: WindowRows) -> tuple[Longs, Longs]:
    """Return all longs of the delivery rows after their names, row by row, and where each row ends.

    A row is notifications, local deliveries, bytes, three arrays (count, items, 0) and four unions that are null (0).
    """
    columns = window.deliveries
    rows = columns.of_window(window.window.start_ms)
    arrays = (columns.blocks, columns.masks, columns.published)
    starts = columns.starts[rows.start : rows.stop + 1]
    counts = np.diff(starts)
    lengths = counts * len(arrays) + 2 * len(arrays) + 7
    ends = np.cumsum(lengths)
    begins = ends - lengths
    longs = np.zeros(int(ends[-1]), dtype=np.int64)
    longs[begins] = columns.notifications[rows]
    longs[begins + 1] = columns.local_deliveries[rows]
    longs[begins + 2] = columns.bytes[rows]
    cells = slice(int(starts[0]), int(starts[-1]))
    place = np.arange(cells.stop - cells.start) - np.repeat(starts[:-1] - starts[0], counts)
    array_begins = begins + 3
    for array in arrays:
        longs[array_begins] = counts
        longs[np.repeat(array_begins + 1, counts) + place] = array[cells]
        array_begins = array_begins + counts + 2
    return longs, ends


@lru_cache(maxsize=PAIRS_CACHED_MAX)
def _pair(publisher: str, broker: str) -> tuple[bytes, bytes]:
    """Return the entity and the encoded names of a delivery row: entity, no interest, publisher and broker."""
    entity = pair_entity(publisher, broker)
    return entity.encode(), _text(entity) + NULL_BRANCH + RECORD_BRANCH + _text(publisher) + _text(broker)


def _text(text: str) -> bytes:
    raw = text.encode()
    length, _ = encode_longs(np.array([len(raw)], dtype=np.int64))
    return length + raw
