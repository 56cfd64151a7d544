"""Windows as the streaming stage would write them, from a script of who wants what."""

from collections import Counter
from collections.abc import Iterable, Sequence

from regraft.controller.state.closed_window import ClosedWindow
from regraft.schemas.state import (
    BrokerCompleteness,
    PublisherDelivery,
    QueueState,
    StateRow,
    WindowClosed,
)
from tests.overlay.small_overlays import sets_of

WINDOW_MS = 1000
BATCHES_PER_WINDOW = 4


def signed(mask: int) -> int:
    """Return the 64 bits of a mask as a signed long."""
    return mask - (1 << 64) if mask >> 63 else mask


def rows_of(brokers: Sequence[str], start_ms: int, wanted: Sequence[set[str]], wait_ms: float = 0.0) -> list[StateRow]:
    """Return one delivery row for each broker that wants something, and one queue row for each broker."""
    rows = []
    for broker in brokers:
        blocks: dict[int, int] = {}
        for sequence, places in enumerate(wanted):
            if broker in places:
                blocks[sequence // 64] = blocks.get(sequence // 64, 0) | 1 << sequence % 64
        numbers = tuple(sorted(blocks))
        if blocks:
            masks = tuple(signed(blocks[number]) for number in numbers)
            count = sum(mask.bit_count() for mask in blocks.values())
            # Publishers are named after the window, so that windows hold different notifications.
            delivery = PublisherDelivery(
                f"p{start_ms}", broker, count, count, 100 * count, numbers, masks, (0,) * len(masks)
            )
            rows.append(StateRow(start_ms, start_ms + WINDOW_MS, "delivery", f"p/{broker}", delivery=delivery))
        queue = QueueState(broker, "", 5.0, 5.0, 5.0, 1.0, 1.0, 0.1, 0, 2, 0.0, WINDOW_MS, wait_ms)
        rows.append(StateRow(start_ms, start_ms + WINDOW_MS, "queue", broker, queue=queue))
    return rows


def marker_of(
    brokers: Iterable[str],
    start_ms: int,
    rows: Sequence[StateRow],
    epoch: int = 0,
    lost: dict[str, int] | None = None,
    first_window_ms: int = 0,
    boots: dict[str, int] | None = None,
    epochs: dict[str, int] | None = None,
) -> WindowClosed:
    """Return the marker of these rows.

    ``lost`` gives the number of missing batches by broker, ``epochs`` the epoch of brokers that differ from the rest.
    """
    sequence = (start_ms - first_window_ms) // WINDOW_MS * BATCHES_PER_WINDOW
    completeness = tuple(
        BrokerCompleteness(
            broker,
            (boots or {}).get(broker, 1),
            sequence,
            sequence + BATCHES_PER_WINDOW - 1,
            BATCHES_PER_WINDOW - (lost or {}).get(broker, 0),
            BATCHES_PER_WINDOW,
            (epochs or {}).get(broker, epoch),
            (epochs or {}).get(broker, epoch),
        )
        for broker in brokers
    )
    counts = dict(Counter(row.kind for row in rows))
    return WindowClosed(start_ms, start_ms + WINDOW_MS, 1, counts, completeness, 0)


def closed_window(
    brokers: tuple[str, ...], wanted: list[set[str]], start_ms: int = 0, epoch: int = 0, error: str = ""
) -> ClosedWindow:
    """Return a closed window as the assembler does."""
    sets = sets_of(brokers, wanted, publisher=f"p{start_ms}")
    return ClosedWindow(start_ms, start_ms + WINDOW_MS, sets, epoch_min=epoch, epoch_max=epoch, error=error)
