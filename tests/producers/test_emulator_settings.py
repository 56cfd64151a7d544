"""All wrong settings are reported at once, each with its value and its limit."""

from dataclasses import replace
from pathlib import Path

import pytest

from regraft.producers.emulator_settings import EmulatorSettings
from regraft.producers.workloads.stock_settings import WorkloadSettings

GOOD = EmulatorSettings("127.0.0.1:9092", Path("inventory.json"))


def test_defaults_are_faultless() -> None:
    """The emulator starts with its defaults."""
    assert GOOD.errors() == []


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"bootstrap": " "}, "bootstrap is empty"),
        ({"namespace": ""}, "namespace is empty"),
        ({"subscribers_reported_max": -1}, "subscribers_reported_max is -1: must be at least 0"),
        ({"link_bytes_per_ms": 0.0}, "link_bytes_per_ms is 0: must be above 0"),
        ({"workload": WorkloadSettings(publisher_count=50)}, "workload.publisher_count is 50: must be from 1 to 49"),
        ({"workload": WorkloadSettings(notifications_per_s=0)}, "workload.notifications_per_s is 0: must be above 0"),
        ({"workload": WorkloadSettings(regime_change_s=0)}, "workload.regime_change_s is 0: must be above 0"),
        ({"workload": WorkloadSettings(lifetime_s_mean=0.5)}, "workload.lifetime_s_mean is 0.5: must be at least 1"),
        ({"brokers": "rabbit"}, "brokers is 'rabbit': must be one of emulated, nats"),
        ({"brokers": "nats", "outages": ("suspension a at 1 for 2",)}, "outages has suspension, which brokers = nats"),
        ({"brokers": "amqp", "outages": ("agent a at 1 for 2",)}, "outages has agent, which brokers = amqp"),
        ({"outages": ("agent a at 1 for 2",)}, "outages has agent, which brokers = emulated does not support"),
        (
            {"brokers": "nats", "chaos_every_s": 5.0},
            "random_outages has suspension, which brokers = nats does not support",
        ),
        ({"brokers": "nats", "newcomers": ("x01 at 60 by b03=2.5",)}, "newcomers cannot join brokers = nats"),
    ],
)
def test_each_error_names_value_and_limit(change: dict[str, object], error: str) -> None:
    """Each wrong setting gives one sentence."""
    errors = replace(GOOD, **change).errors()  # type: ignore[arg-type]
    assert len(errors) == 1
    assert errors[0].startswith(error)


def test_all_errors_are_listed_at_once() -> None:
    """One failed start reveals all mistakes."""
    wrong = replace(GOOD, namespace="", link_bytes_per_ms=-1.0, workload=WorkloadSettings(interested_broker_count=0))
    assert len(wrong.errors()) == 3
