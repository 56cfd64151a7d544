"""How far each broker's clock is from Kafka's, from the delays in the marker of a window."""

from collections.abc import Iterable, Mapping
from statistics import median_low

from regraft.schemas.state import BrokerClock

CLOCK_OFFSET_MS_MAX = 500  # The largest tolerated offset; NTP and chrony keep clocks within some tens of ms.


def clock_offsets_ms(clocks: Iterable[BrokerClock]) -> dict[str, int]:
    """Return how far each broker's clock is ahead of Kafka's, negative if behind.

    If Kafka received a batch before the batch's own time, the clock is ahead by at least the difference. Otherwise the
    delay includes transit: a delay shared by half of all brokers, as after an outage of Kafka, is not due to clocks.
    """
    delays_ms = {clock.broker: clock.delay_ms_min for clock in clocks}
    usual_ms = max(median_low(delays_ms.values()), 0) if delays_ms else 0
    return {
        broker: -delay_ms if delay_ms < 0 else -max(delay_ms - usual_ms, 0) for broker, delay_ms in delays_ms.items()
    }


def farthest_clocks(offsets_ms: Mapping[str, int], count_max: int) -> dict[str, int]:
    """Return the offsets of the ``count_max`` clocks that are farthest off, the worst first."""
    worst = sorted(offsets_ms.items(), key=lambda item: (-abs(item[1]), item[0]))
    return dict(worst[:count_max])


def offset_text(offset_ms: int) -> str:
    """Return an offset as text, such as ``0.250 s ahead of Kafka's``; a delay does not prove a clock wrong."""
    text = f"{abs(offset_ms) / 1_000:.3f} s {'ahead of' if offset_ms > 0 else 'behind'} Kafka's"
    return text if offset_ms > 0 else f"{text}, or its path to Kafka is slow"
