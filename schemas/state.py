"""Records of windowed state: StateRow and the WindowClosed marker that follows all rows of a window."""

from msgspec import Struct

from regraft.schemas.bounds import (
    Block,
    DifferenceMs,
    Entity,
    Epoch,
    Length,
    Measure,
    Name,
    NameOrNone,
    RttMs,
    SequenceNumber,
    Sum,
    TimeMs,
    span_error,
)
from regraft.schemas.packed_deliveries import PackedDeliveries


class Interest(Struct, frozen=True):
    """The interest of one broker in the window: I_ii in ``notifications``, and I_ij for each peer in ``common``.

    Still read, but no longer written: it follows from what was delivered, and no reader used it.
    """

    broker: Name
    notifications: Sum
    peers: tuple[str, ...]
    common: tuple[Sum, ...]

    def __post_init__(self) -> None:
        if len(self.peers) != len(self.common):
            raise ValueError(f"{len(self.peers)} peers and {len(self.common)} figures: one for each")


class PublisherDelivery(Struct, frozen=True):
    """Which notifications of a publisher one broker delivered and published in the window.

    ``blocks[k]`` is a block number, ``masks[k]`` the signed 64-bit mask of what was handed to local subscribers, and
    ``published[k]`` that of what local clients published (:class:`schemas.telemetry.Delivery`); blocks are ascending
    and unique. ``notifications`` counts the bits of ``masks[k] | published[k]``.
    """

    publisher: Name
    broker: Name
    notifications: Sum
    local_deliveries: Sum
    bytes: Sum
    blocks: tuple[Block, ...]
    masks: tuple[int, ...]
    published: tuple[int, ...]

    def __post_init__(self) -> None:
        if not len(self.blocks) == len(self.masks) == len(self.published):
            sizes_text = f"{len(self.blocks)} blocks, {len(self.masks)} masks, {len(self.published)} published"
            raise ValueError(f"{sizes_text}: one of each for each block")


class QueueState(Struct, frozen=True):
    """Rates and congestion of one queue: a link end if ``peer`` is set, else the broker's service queue.

    ``congestion`` is CE * queue_length_last, with CE = messages in / messages out over the window (Shafique, Eq. 10),
    CE = 1 if nothing moved. Rates and ``busy_share`` are over ``span_ms``, the time between the first and the last
    sample. ``wait_ms_mean`` is how long the messages that left in that span had waited
    (:class:`schemas.telemetry.QueueSample`), 0 if none left.
    """

    broker: Name
    peer: NameOrNone
    messages_in_per_s: Measure
    messages_out_per_s: Measure
    notifications_out_per_s: Measure
    bytes_in_per_s: Measure
    bytes_out_per_s: Measure
    busy_share: Measure
    queue_length_last: Length
    queue_length_max: Length
    congestion: Measure
    span_ms: Sum
    wait_ms_mean: Measure = 0.0


class LinkRtt(Struct, frozen=True):
    """Round-trip time of one link end over the window."""

    broker: Name
    peer: Name
    rtt_ms_min: RttMs
    rtt_ms_last: RttMs


class Churn(Struct, frozen=True):
    """The number of distinct client changes that a broker reported in the window, and of clients that changed."""

    broker: Name
    changes: Sum
    clients: Sum


BODIES = ("interest", "delivery", "queue", "rtt", "churn", "packed_deliveries")


class StateRow(Struct, frozen=True):
    """One row of a window; exactly the body named by ``kind`` is set.

    (window_start_ms, kind, entity) is unique, so a repeated write overwrites. ``kind`` is one of BODIES. Deliveries are
    in ``packed_deliveries``, whose entities are numbers; rows of kind ``delivery``, one for each publisher and broker,
    are what readers by row unpack them to.
    """

    window_start_ms: TimeMs
    window_end_ms: TimeMs
    kind: str
    entity: Entity
    interest: Interest | None = None
    delivery: PublisherDelivery | None = None
    queue: QueueState | None = None
    rtt: LinkRtt | None = None
    churn: Churn | None = None
    packed_deliveries: PackedDeliveries | None = None

    def __post_init__(self) -> None:
        bodies = [name for name in BODIES if getattr(self, name) is not None]
        if bodies != [self.kind]:
            raise ValueError(f"a row of kind {self.kind!r} has the bodies {bodies}: it needs only its own")
        if error := span_error(self.window_start_ms, self.window_end_ms):
            raise ValueError(error)


class BrokerCompleteness(Struct, frozen=True):
    """Batches of one boot of a broker in the window: ``received``, and ``expected`` by their sequence numbers."""

    broker: Name
    boot: TimeMs
    sequence_min: SequenceNumber
    sequence_max: SequenceNumber
    received: Sum
    expected: Sum
    epoch_min: Epoch
    epoch_max: Epoch

    def __post_init__(self) -> None:
        for name, least, most in (
            ("sequence", self.sequence_min, self.sequence_max),
            ("epoch", self.epoch_min, self.epoch_max),
        ):
            if least > most:
                raise ValueError(
                    f"{name}_min of {self.broker} is {least}, {name}_max is {most}: the minimum must not "
                    "exceed the maximum"
                )


class BrokerClock(Struct, frozen=True):
    """A broker's clock compared with Kafka's, from the batches that Kafka received in the window.

    ``delay_ms_min`` is the minimum over batches of Kafka's receive time minus the batch's time by its broker's clock:
    the shortest transit time minus what the clock is ahead. ``refused`` counts the batches whose time was too far from
    Kafka's to be used.
    """

    broker: Name
    delay_ms_min: DifferenceMs
    refused: Sum = 0


class WindowClosed(Struct, frozen=True):
    """The marker written after all rows of a window.

    ``row_counts`` is the number of rows of each kind. ``late_rows`` counts the parts of batches that were dropped since
    the previous marker because they arrived for closed windows. ``clocks`` has one entry per broker; it is empty if
    event times cannot be compared with Kafka's.
    """

    window_start_ms: TimeMs
    window_end_ms: TimeMs
    query_version: Length
    row_counts: dict[str, Length]
    brokers: tuple[BrokerCompleteness, ...]
    late_rows: Sum
    clocks: tuple[BrokerClock, ...] = ()

    def __post_init__(self) -> None:
        if error := span_error(self.window_start_ms, self.window_end_ms):
            raise ValueError(error)
