"""How far each broker's clock is from Kafka's, by the delays in the marker of a window.

In: the clocks of a marker. Out: offsets in ms, and the words for one. Pure; reporting belongs to others.
"""

from collections.abc import Iterable, Mapping
from statistics import median_low

from regraft.schemas.state import BrokerClock

CLOCK_OFFSET_MS_MAX = 500  # What a clock must keep; NTP and chrony keep it within some tens of ms.


def clock_offsets_ms(clocks: Iterable[BrokerClock]) -> dict[str, int]:
    """Return by broker how far its clock is ahead of Kafka's, below 0 how far behind.

    A batch that Kafka took before its own time proves a clock that is ahead by at least that much. A later batch was
    also in transit: a delay that half of all brokers share is not a clock's, as after an outage of Kafka.
    """
    delays_ms = {clock.broker: clock.delay_ms_min for clock in clocks}
    usual_ms = max(median_low(delays_ms.values()), 0) if delays_ms else 0
    return {
        broker: -delay_ms if delay_ms < 0 else -max(delay_ms - usual_ms, 0) for broker, delay_ms in delays_ms.items()
    }


def farthest_clocks(offsets_ms: Mapping[str, int], count_max: int) -> dict[str, int]:
    """Return the offsets of the clocks that are farthest off, the worst first."""
    worst = sorted(offsets_ms.items(), key=lambda item: (-abs(item[1]), item[0]))
    return dict(worst[:count_max])


def offset_text(offset_ms: int) -> str:
    """Return an offset as text."""
    return f"{abs(offset_ms) / 1_000:.3f} s {'ahead of' if offset_ms > 0 else 'behind'} Kafka's"
