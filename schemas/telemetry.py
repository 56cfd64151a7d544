"""Records that brokers emit: one TelemetryBatch for each flush (ARCHITECTURE.md, "From telemetry to state").

All measures aggregate idempotently, so a record that arrives twice changes nothing.
"""

from __future__ import annotations

from itertools import groupby

import msgspec
from msgspec import Struct

from regraft.schemas.bounds import (
    Block,
    Epoch,
    Items,
    Length,
    Name,
    NameOrNone,
    RttMs,
    Second,
    SequenceNumber,
    TimeMs,
    Total,
)
from regraft.schemas.packed_cells import Cell, PackedSecond

BLOCK_SIZE = 64  # Sequence numbers per mask: a block fits into one signed 64-bit long.


class Delivery(Struct, frozen=True):
    """What one broker delivered and published of a publisher's block within one second of publish time.

    ``mask`` has bit ``sequence % 64`` set for each notification of block ``sequence // 64`` that was handed to local
    subscribers, ``published`` for each that a local client published; both are signed 64-bit integers.
    ``local_deliveries`` and ``bytes`` are cumulative within the cell (broker, publisher, block, second), so a cell may
    be sent early and again. V(n) follows from ``mask | published``.
    """

    publisher: Name
    block: Block
    second: Second
    mask: int
    local_deliveries: Total
    bytes: Total
    published: int = 0


class QueueSample(Struct, frozen=True):
    """Counters of one queue since the broker's boot, and its length, now and the maximum since the last sample.

    ``peer`` names the neighbour for the outgoing end of a link and is empty for the broker's own service queue. For a
    link end, ``messages_in`` counts what was handed to the link and ``messages_out`` what the peer received.
    ``notifications_out`` counts notifications only, ``messages_out`` also control messages and markers. ``wait_ms`` is
    the total time that the messages of ``messages_out`` waited before they left: in the service queue from their
    arrival to the start of their service, at a link end from being handed over until their last byte was sent. So it
    excludes the link's delay, and is 0 if the bandwidth is not limited.
    """

    peer: NameOrNone
    messages_in: Total
    messages_out: Total
    notifications_out: Total
    bytes_in: Total
    bytes_out: Total
    busy_ms: Total
    queue_length: Length
    queue_length_max: Length
    wait_ms: Total = 0


class LinkProbe(Struct, frozen=True):
    """A measured round trip to a neighbour."""

    peer: Name
    rtt_ms: RttMs


class ClientChange(Struct, frozen=True):
    """A client that connected, left or changed its interest at this broker; ``sequence`` counts per client."""

    client: Name
    sequence: SequenceNumber
    change: Name


class TelemetryBatch(Struct, frozen=True):
    """What one broker reports in one flush; an empty batch is the heartbeat that lets windows close.

    ``boot`` is the broker's start time in ms and distinguishes counter resets; ``sequence`` counts batches per boot
    from 0; ``epoch`` is the configuration that the broker stamps on publications. Deliveries go to Kafka in
    ``seconds``; senders before version 3 wrote ``deliveries``. Both are read.
    """

    broker: Name
    boot: TimeMs
    sequence: SequenceNumber
    time_ms: TimeMs
    epoch: Epoch
    deliveries: Items[Delivery] = ()
    queues: Items[QueueSample] = ()
    probes: Items[LinkProbe] = ()
    clients: Items[ClientChange] = ()
    seconds: Items[PackedSecond] = ()

    def packed(self) -> TelemetryBatch:
        """Return the batch as sent to Kafka: all cells in ``seconds``, ascending."""
        cells = sorted(self.cells(), key=lambda cell: (cell.second, cell.publisher, cell.block))
        seconds = tuple(
            PackedSecond.of(second, [_plain(cell) for cell in of_second])
            for second, of_second in groupby(cells, key=lambda cell: cell.second)
        )
        return msgspec.structs.replace(self, deliveries=(), seconds=seconds)

    def cells(self) -> tuple[Delivery, ...]:
        """Return all cells of ``deliveries`` and ``seconds``."""
        packed = (
            Delivery(publisher, block, each.second, mask, local_deliveries, size, published)
            for each in self.seconds
            for publisher, block, mask, local_deliveries, size, published in each.cells()
        )
        return (*self.deliveries, *packed)


def _plain(cell: Delivery) -> Cell:
    return cell.publisher, cell.block, cell.mask, cell.local_deliveries, cell.bytes, cell.published
