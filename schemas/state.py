"""Records of windowed state: StateRow and the WindowClosed marker that follows all rows of a window."""

from msgspec import Struct


class Interest(Struct, frozen=True):
    """Common interest of one broker: I_ii in ``notifications`` and I_ij of each peer, all counts of the window."""

    broker: str
    notifications: int
    peers: tuple[str, ...]
    common: tuple[int, ...]


class PublisherDelivery(Struct, frozen=True):
    """Which notifications of a publisher one broker delivered and published in the window.

    ``blocks[k]`` is a block number, ``masks[k]`` the signed 64-bit mask of what was handed to local subscribers and
    ``published[k]`` that of what a local client published (:class:`schemas.telemetry.Delivery`); blocks are ascending
    and unique. ``notifications`` counts the bits of ``masks[k] | published[k]``. ``published`` is empty in a record of
    version 1, whose ``masks`` hold both kinds of bits.
    """

    publisher: str
    broker: str
    notifications: int
    local_deliveries: int
    bytes: int
    blocks: tuple[int, ...]
    masks: tuple[int, ...]
    published: tuple[int, ...] = ()


class QueueState(Struct, frozen=True):
    """Rates and congestion of one queue: a link end when ``peer`` is set, else the broker's service queue.

    ``congestion`` is CE * queue_length_last, with CE = messages in / messages out over the window (Shafique, Eq. 10),
    CE = 1 when nothing moved. ``busy_share`` is busy time over time between the samples.
    ``notifications_out`` is the number over the span of the samples, ``span_ms`` that span. ``wait_ms_mean`` is how
    long a message that went out in the span had waited (:class:`schemas.telemetry.QueueSample`), 0 when none did.
    """

    broker: str
    peer: str
    messages_in_per_s: float
    messages_out_per_s: float
    notifications_out_per_s: float
    bytes_in_per_s: float
    bytes_out_per_s: float
    busy_share: float
    queue_length_last: int
    queue_length_max: int
    congestion: float
    span_ms: int
    wait_ms_mean: float = 0.0


class LinkRtt(Struct, frozen=True):
    """Round-trip time of one link end over the window."""

    broker: str
    peer: str
    rtt_ms_min: float
    rtt_ms_last: float


class Churn(Struct, frozen=True):
    """How many distinct client changes a broker reported in the window, and of how many clients."""

    broker: str
    changes: int
    clients: int


class StateRow(Struct, frozen=True):
    """One row of one window; exactly the body named by ``kind`` is set.

    (window_start_ms, kind, entity) is unique, so a repeated write overwrites. ``kind`` is one of ``interest``,
    ``delivery``, ``queue``, ``rtt``, ``churn``.
    """

    window_start_ms: int
    window_end_ms: int
    kind: str
    entity: str
    interest: Interest | None = None
    delivery: PublisherDelivery | None = None
    queue: QueueState | None = None
    rtt: LinkRtt | None = None
    churn: Churn | None = None


class BrokerCompleteness(Struct, frozen=True):
    """Batches of one boot of one broker in the window: how many came, how many the sequence span says were sent."""

    broker: str
    boot: int
    sequence_min: int
    sequence_max: int
    received: int
    expected: int
    epoch_min: int
    epoch_max: int


class BrokerClock(Struct, frozen=True):
    """How a broker's clock stands to Kafka's, by the batches that Kafka took in the window.

    ``delay_ms_min`` is the least distance from the time of a batch by its broker's clock to the time at which Kafka
    took it: the shortest way to Kafka less what the clock is ahead. ``refused`` counts the batches whose time was too
    far from Kafka's to be used.
    """

    broker: str
    delay_ms_min: int
    refused: int = 0


class WindowClosed(Struct, frozen=True):
    """The marker written after all rows of a window.

    ``row_counts`` is the number of rows of each kind; ``late_rows`` counts what was dropped behind the watermark
    since the previous marker (rows after Spark's partial aggregation, so a lower bound of records). ``clocks`` is by
    broker; empty in a record of version 1, and where event times cannot be held against Kafka's.
    """

    window_start_ms: int
    window_end_ms: int
    query_version: int
    row_counts: dict[str, int]
    brokers: tuple[BrokerCompleteness, ...]
    late_rows: int
    clocks: tuple[BrokerClock, ...] = ()
