"""Bursts with and without detours are measured separately."""

from regraft.producers.brokers.broker_messages import Notification
from regraft.producers.emulator.measure_bursts import BurstMeter


def published(publish_ms: float) -> Notification:
    return Notification("p", 0, publish_ms, "b00", 0, {}, 1)


def test_delays_and_drains_are_separated_by_routing() -> None:
    """Notifications published before, between and after bursts do not count."""
    meter = BurstMeter()
    assert set(meter.figures().values()) == {None}
    meter.take(published(5.0), 9.0)
    meter.begin(10.0, is_dynamic=False)
    for number in range(100):
        meter.take(published(11.0), 12.0 + number)
    meter.end(20.0)
    meter.take(published(25.0), 2_000.0)
    meter.take(published(20.0), 3_020.0)
    meter.begin(5_000.0, is_dynamic=True)
    meter.take(published(5_001.0), 5_501.0)
    meter.end(6_000.0)
    assert meter.begun_ms == [10, 5_000]
    figures = meter.figures()
    assert figures == {
        "delay_ms_p95_static": 96.0,
        "drain_s_static": 3.0,
        "delay_ms_p95_dynamic": 500.0,
        "drain_s_dynamic": 0.0,
    }
