"""Delivery rows, plain and packed as the job packs them."""

from collections.abc import Sequence

import msgspec
import numpy as np
from hypothesis import strategies as st

from regraft.schemas.bounds import BLOCK_MAX
from regraft.schemas.state import PublisherDelivery, StateRow, WindowClosed
from regraft.streaming.merge_parts import MergedDeliveries
from regraft.streaming.pack_deliveries import PACKED_BYTES_MAX, pack_deliveries

LONGS = st.integers(-(2**63), 2**63 - 1)
BLOCKS = st.one_of(st.integers(0, 5), st.sampled_from([2**40, BLOCK_MAX]))


def columns_of(bodies: Sequence[PublisherDelivery], start_ms: int) -> MergedDeliveries:
    """Return bodies of one window as the job's columns."""
    rows = sorted(bodies, key=lambda body: (body.publisher, body.broker))
    publishers, brokers = (tuple(sorted({getattr(row, name) for row in rows})) for name in ("publisher", "broker"))
    places = [{name: place for place, name in enumerate(names)} for names in (publishers, brokers)]

    def longs(values: list[int]) -> np.typing.NDArray[np.int64]:
        return np.array(values, dtype=np.int64)

    return MergedDeliveries(
        publishers,
        brokers,
        longs([start_ms] * len(rows)),
        longs([places[0][row.publisher] for row in rows]),
        longs([places[1][row.broker] for row in rows]),
        longs([row.notifications for row in rows]),
        longs([row.local_deliveries for row in rows]),
        longs([row.bytes for row in rows]),
        np.cumsum([0, *(len(row.blocks) for row in rows)]),
        *(longs([value for row in rows for value in getattr(row, name)]) for name in ("blocks", "masks", "published")),
    )


def packed_window(
    rows: Sequence[StateRow], marker: WindowClosed, bytes_max: int = PACKED_BYTES_MAX
) -> tuple[list[StateRow], WindowClosed]:
    """Return rows of one window and their marker with the delivery rows packed."""
    bodies = [row.delivery for row in rows if row.delivery is not None]
    others = [row for row in rows if row.delivery is None]
    start_ms, end_ms = marker.window_start_ms, marker.window_end_ms
    packed = [
        StateRow(start_ms, end_ms, "packed_deliveries", str(number), packed_deliveries=body)
        for number, body in enumerate(pack_deliveries(columns_of(bodies, start_ms), start_ms, bytes_max))
    ]
    counts = {**marker.row_counts, "packed_deliveries": len(packed)}
    if counts.get("delivery") == len(bodies):
        del counts["delivery"]
    return [*others, *packed], msgspec.structs.replace(marker, row_counts=counts)


@st.composite
def delivery_bodies(draw: st.DrawFn, brokers: Sequence[str]) -> list[PublisherDelivery]:
    """Draw at most one body for each publisher and broker, with up to six blocks."""
    pairs = draw(st.sets(st.tuples(st.sampled_from(["p", "q", "ä r"]), st.sampled_from(brokers))))
    found = []
    for publisher, broker in sorted(pairs):
        blocks = draw(st.dictionaries(BLOCKS, st.tuples(LONGS, LONGS), min_size=1, max_size=6))
        numbers = tuple(sorted(blocks))
        masks, published = zip(*(blocks[number] for number in numbers), strict=True)
        sums = (draw(st.sampled_from([0, 1, 2**63 - 1])) for _ in range(3))
        found.append(PublisherDelivery(publisher, broker, *sums, numbers, masks, published))
    return found
