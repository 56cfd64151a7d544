"""Build rows and keys of windowed state from merged figures. Pure; no clock, no Kafka, no Spark.

Shared by the Spark path (``close_windows``) and ``reference_aggregator``: names, keys and the formulas of rates and
congestion. How figures are merged is not shared, so that one can check the other.
"""

from dataclasses import dataclass

from regraft.overlay.link_congestion import PRODUCT, QueueWindow
from regraft.schemas.packed_deliveries import PackedDeliveries
from regraft.schemas.state import Churn, LinkRtt, PublisherDelivery, QueueState, StateRow

ROW_KINDS = ("delivery", "queue", "rtt", "churn")


@dataclass(frozen=True, slots=True)
class Window:
    """A tumbling window of event time, in ms since 1970; the end is not in it."""

    start_ms: int
    end_ms: int


@dataclass(frozen=True, slots=True)
class QueueSpan:
    """A queue's figures between its first and last sample of a window, summed over the boots of its broker."""

    messages_in: int
    messages_out: int
    notifications_out: int
    bytes_in: int
    bytes_out: int
    busy_ms: int
    wait_ms: int
    span_ms: int
    queue_length_last: int
    queue_length_max: int


def pair_entity(first: str, second: str) -> str:
    """Return the name of a pair, such as publisher and broker, or a broker and the other end of its link."""
    return f"{first}|{second}"


def state_key(window_start_ms: int, kind: str, entity: str) -> bytes:
    """Return the Kafka key of a state row; writing a window again uses the same keys."""
    return f"{window_start_ms}/{kind}/{entity}".encode()


def window_key(window_start_ms: int) -> bytes:
    """Return the Kafka key of a window's marker."""
    return str(window_start_ms).encode()


def delivery_row(window: Window, delivery: PublisherDelivery) -> StateRow:
    """Return the row of what one broker delivered and published for one publisher."""
    entity = pair_entity(delivery.publisher, delivery.broker)
    return StateRow(window.start_ms, window.end_ms, "delivery", entity, delivery=delivery)


def packed_row(window: Window, number: int, packed: PackedDeliveries) -> StateRow:
    """Return the row that holds packed delivery rows; ``number`` is its number in the window."""
    kind = "packed_deliveries"
    return StateRow(window.start_ms, window.end_ms, kind, str(number), packed_deliveries=packed)


def queue_row(window: Window, broker: str, peer: str, span: QueueSpan) -> StateRow:
    """Return the row of one queue: rates per second over the span (0 for a single sample), mean wait and congestion.

    Congestion is the measure that brokers apply to shorter windows (:data:`overlay.link_congestion.PRODUCT`).
    """
    span_s = span.span_ms / 1_000
    in_window = QueueWindow(span.messages_in, span.messages_out, span.queue_length_last)

    def rate(amount: int) -> float:
        return amount / span_s if span.span_ms else 0.0

    body = QueueState(
        broker=broker,
        peer=peer,
        messages_in_per_s=rate(span.messages_in),
        messages_out_per_s=rate(span.messages_out),
        notifications_out_per_s=rate(span.notifications_out),
        bytes_in_per_s=rate(span.bytes_in),
        bytes_out_per_s=rate(span.bytes_out),
        busy_share=span.busy_ms / span.span_ms if span.span_ms else 0.0,
        queue_length_last=span.queue_length_last,
        queue_length_max=span.queue_length_max,
        congestion=PRODUCT.measure(in_window),
        span_ms=span.span_ms,
        wait_ms_mean=span.wait_ms / span.messages_out if span.messages_out else 0.0,
    )
    return StateRow(window.start_ms, window.end_ms, "queue", pair_entity(broker, peer), queue=body)


def rtt_row(window: Window, broker: str, peer: str, rtt_ms_min: float, rtt_ms_last: float) -> StateRow:
    """Return the row of one link end's round-trip time."""
    body = LinkRtt(broker, peer, rtt_ms_min, rtt_ms_last)
    return StateRow(window.start_ms, window.end_ms, "rtt", pair_entity(broker, peer), rtt=body)


def churn_row(window: Window, broker: str, changes: int, clients: int) -> StateRow:
    """Return the row of the client changes that one broker reported."""
    return StateRow(window.start_ms, window.end_ms, "churn", broker, churn=Churn(broker, changes, clients))
