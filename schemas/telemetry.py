"""Records that brokers emit: one TelemetryBatch for each flush (architecture, section 4).

Every measure can be aggregated idempotently, so a record that arrives twice changes nothing.
"""

from msgspec import Struct

BLOCK_SIZE = 64  # Sequence numbers in one mask: a block fits one signed 64-bit long.


class Delivery(Struct, frozen=True):
    """What one broker published or delivered of one publisher's block within one second of publish time.

    ``mask`` has bit ``sequence % 64`` set for each notification of block ``sequence // 64`` that a local client
    published or that was handed to local subscribers, as a signed 64-bit integer. ``local_deliveries`` and ``bytes``
    are cumulative within the cell (broker, publisher, block, second), so a cell may be sent early and again.
    """

    publisher: str
    block: int
    second: int
    mask: int
    local_deliveries: int
    bytes: int


class QueueSample(Struct, frozen=True):
    """Counters of one queue since the broker's boot, and its length now and at most since the last sample.

    ``peer`` names the neighbour for the outgoing end of a link and is empty for the broker's own service queue.
    For a link end ``messages_in`` counts what was handed to the link and ``messages_out`` what the peer received.
    ``notifications_out`` counts notifications only, ``messages_out`` also control messages and markers.
    """

    peer: str
    messages_in: int
    messages_out: int
    notifications_out: int
    bytes_in: int
    bytes_out: int
    busy_ms: int
    queue_length: int
    queue_length_max: int


class LinkProbe(Struct, frozen=True):
    """A measured round trip to a neighbour."""

    peer: str
    rtt_ms: float


class ClientChange(Struct, frozen=True):
    """A client that came, left or changed its interest at this broker; ``sequence`` counts per client."""

    client: str
    sequence: int
    change: str


class TelemetryBatch(Struct, frozen=True):
    """All that one broker has to say in one flush; an empty batch is the heartbeat that moves the watermark.

    ``boot`` is the time of the broker's start (ms) and separates counter resets; ``sequence`` counts batches per boot
    from 0; ``epoch`` is the configuration that the broker stamps on what it publishes.
    """

    broker: str
    boot: int
    sequence: int
    time_ms: int
    epoch: int
    deliveries: tuple[Delivery, ...] = ()
    queues: tuple[QueueSample, ...] = ()
    probes: tuple[LinkProbe, ...] = ()
    clients: tuple[ClientChange, ...] = ()
