"""Clock offsets of brokers, from the least delays of a window."""

import pytest

from regraft.schemas.clock_offsets import clock_offsets_ms, farthest_clocks, offset_text
from regraft.schemas.state import BrokerClock


@pytest.mark.parametrize(
    ("delays_ms", "offsets_ms"),
    [
        ((20, 25, 30), (0, 0, -5)),
        ((-3_000, 20, 25), (3_000, 0, -5)),
        ((3_020, 20, 20), (-3_000, 0, 0)),
        ((-3_000, 20), (3_000, -20)),
        ((15_000, 15_000, 15_020), (0, 0, -20)),  # After an outage all telemetry is late.
        ((3_020, 3_020, 20), (0, 0, 0)),  # Kafka's clock itself may be ahead.
        ((-3_000, -3_000, 20), (3_000, 3_000, -20)),
        ((), ()),
    ],
)
def test_clocks_are_compared_with_kafkas(delays_ms: tuple[int, ...], offsets_ms: tuple[int, ...]) -> None:
    """A clock is ahead by what Kafka's time proves, and behind by how much its telemetry is later than others'."""
    clocks = [BrokerClock(f"b{number}", delay_ms) for number, delay_ms in enumerate(delays_ms)]
    assert tuple(clock_offsets_ms(clocks).values()) == offsets_ms


def test_the_largest_offsets_are_named_first() -> None:
    """Both directions count."""
    found = farthest_clocks({"b1": 20, "b2": -3_000, "b3": 2_977, "b4": 0}, 2)
    assert found == {"b2": -3_000, "b3": 2_977}
    assert [offset_text(each) for each in found.values()] == [
        "3.000 s behind Kafka's, or its path to Kafka is slow",
        "2.977 s ahead of Kafka's",
    ]
