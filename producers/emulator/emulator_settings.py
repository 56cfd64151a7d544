"""Settings of the emulator: one frozen value, checked as a whole before anything starts.

Neither reads files nor the environment; ``regraft`` fills it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from infra.kafka_access import KafkaAccess, KafkaSecurity
from infra.run_clock import RunClock
from infra.serve_metrics import port_faults
from producers.workloads.checkin_settings import CheckinSettings
from schemas.topics import DEFAULT_NAMESPACE

SYMBOLS_SHIPPED = 49  # Symbols that the shipped subscriptions name (data/SOURCES.md).


@dataclass(frozen=True, slots=True)
class WorkloadSettings:
    """Who publishes and subscribes what, and when interests shift.

    ``publisher_count``: publishers, each with the quotes of one symbol. ``notifications_per_s``: what each publishes
    on average, at random times. ``interested_broker_count``: subscriptions to a symbol at a time on average, each at
    another broker while there are enough. ``lifetime_s_mean``: mean life of a subscription, which is then replaced by
    another one elsewhere. ``broker_load_exponent``: how uneven brokers are in drawing subscriptions, 0 for all alike,
    1 as in paper 000; the default lets interests weigh beside PlanetLab's delays, so that their shift asks for another
    overlay. ``popularity_sigma``: how uneven symbols are in being wanted, 0 for all alike.
    ``regime_change_s``: when, after the start of traffic, brokers and symbols change their shares; none for never.
    ``regime_change_spread_s``: in how long all subscriptions are then replaced. ``regime_change_every_s``: how long
    after one shift the next one follows, for long runs; none for one shift at most. ``burst_every_s``: pause from the
    start of one burst to that of the next; none for no bursts. ``burst_s``: how long a burst lasts. ``burst_factor``:
    what multiple of its rate each publisher publishes meanwhile.
    """

    publisher_count: int = SYMBOLS_SHIPPED
    notifications_per_s: float = 4.0
    interested_broker_count: int = 9
    lifetime_s_mean: float = 20.0
    broker_load_exponent: float = 4.0
    popularity_sigma: float = 0.5
    regime_change_s: float | None = None
    regime_change_spread_s: float = 3.0
    regime_change_every_s: float | None = None
    burst_every_s: float | None = None
    burst_s: float = 10.0
    burst_factor: float = 3.0

    def faults(self) -> list[str]:
        """Return every fault as one sentence with the value, the limit and what to do; empty when all is well."""
        found = _too_small(
            [
                ("interested_broker_count", self.interested_broker_count, 1, "nobody would want anything"),
                (
                    "lifetime_s_mean",
                    self.lifetime_s_mean,
                    1.0,
                    "subscriptions must outlive their set-up",
                ),
                ("broker_load_exponent", self.broker_load_exponent, 0.0, "0 makes all brokers alike"),
                ("popularity_sigma", self.popularity_sigma, 0.0, "0 makes all symbols alike"),
                ("regime_change_spread_s", self.regime_change_spread_s, 0.0, "0 replaces all at once"),
                ("burst_factor", self.burst_factor, 1.0, "1 is no burst at all"),
                ("burst_s", self.burst_s, 0.1, "it is a time"),
            ]
        )
        if not 1 <= self.publisher_count <= SYMBOLS_SHIPPED:
            found.append(
                f"publisher_count is {self.publisher_count}: from 1 to {SYMBOLS_SHIPPED}, the symbols that are shipped"
            )
        if not 0 < self.notifications_per_s <= 1_000:
            found.append(
                f"notifications_per_s is {self.notifications_per_s:g}: above 0 and at most 1000 for each publisher"
            )
        if self.regime_change_s is not None and self.regime_change_s <= 0:
            found.append(f"regime_change_s is {self.regime_change_s:g}: above 0, or none for no regime change")
        every_s = self.regime_change_every_s
        if every_s is not None and every_s <= self.regime_change_spread_s:
            found.append(
                f"regime_change_every_s is {every_s:g}: above regime_change_spread_s, {self.regime_change_spread_s:g}, "
                "so that one shift is over before the next, or none for one shift at most"
            )
        if self.burst_every_s is not None and self.burst_every_s <= self.burst_s:
            found.append(
                f"burst_every_s is {self.burst_every_s:g}: above burst_s, {self.burst_s:g}, or none for no bursts"
            )
        return found


@dataclass(frozen=True, slots=True)
class EmulatorSettings:
    """All that the emulator can be told; brokers, links and service times are in the inventory.

    ``bootstrap``: Kafka servers as host:port. ``inventory_path``: the brokers and costs to emulate, as JSON.
    ``status_file``: where the state of the run is written each second. ``namespace``: prefix of the topic names.
    ``seed``: of every random choice.
    ``workload``: who publishes and subscribes what on a tree. ``checkins``: who wants what where on a ring.
    ``control_service_ms``: how long a broker serves anything but a notification. ``queue_length_max``: messages in
    front of a broker beyond which notifications are dropped. ``link_bytes_per_ms``: bandwidth of a link in each
    direction, none for no limit. ``flush_ms``: pause between two telemetry batches of a broker.
    ``command_poll_ms``: pause between two looks for commands. ``settle_s``: age from which a missing notification
    counts as lost; longer than any outage, since a transition that waits for its controller holds deliveries back.
    ``drain_s_max``: how long the end may wait until the model is quiet. ``kafka_outage_s_max``: how long telemetry and
    results wait for a Kafka that is away. ``kafka_buffer_records_max``: how many of them may wait.
    ``metrics_port``, ``metrics_host``: where Prometheus may scrape, and /health and /ready answer; none opens no port,
    the default host is this one. ``clock``: what time it is; the wall clock unless a run is sped up.
    ``security``: Kafka's TLS and SASL.
    """

    bootstrap: str
    inventory_path: Path
    status_file: Path | None = None
    namespace: str = DEFAULT_NAMESPACE
    seed: int = 1
    workload: WorkloadSettings = WorkloadSettings()
    checkins: CheckinSettings = field(default_factory=CheckinSettings)
    control_service_ms: float = 0.05
    queue_length_max: int = 10_000
    link_bytes_per_ms: float | None = None
    flush_ms: float = 250.0
    command_poll_ms: float = 20.0
    settle_s: float = 300.0
    drain_s_max: float = 60.0
    kafka_outage_s_max: float = 600.0
    kafka_buffer_records_max: int = 500_000
    metrics_port: int | None = None
    metrics_host: str = "127.0.0.1"
    clock: RunClock = field(default_factory=RunClock)
    security: KafkaSecurity = field(default_factory=KafkaSecurity)

    @property
    def kafka(self) -> KafkaAccess:
        """How this stage reaches Kafka."""
        return KafkaAccess(self.bootstrap, "regraft-emulator", self.security)

    def faults(self) -> list[str]:
        """Return every fault as one sentence with the value, the limit and what to do; empty when all is well."""
        found = _too_small(
            [
                ("control_service_ms", self.control_service_ms, 0.0, "it is a time"),
                ("queue_length_max", self.queue_length_max, 1, "a broker needs room for one message"),
                ("flush_ms", self.flush_ms, 10.0, "each flush of each broker is a Kafka record"),
                ("command_poll_ms", self.command_poll_ms, 1.0, "each look takes time from the model"),
                ("settle_s", self.settle_s, 10.0, "notifications cross many links"),
                ("drain_s_max", self.drain_s_max, 1.0, "the last notifications need time to arrive"),
                ("kafka_outage_s_max", self.kafka_outage_s_max, 10.0, "Kafka takes seconds to come back"),
                ("kafka_buffer_records_max", self.kafka_buffer_records_max, 1_000, "an outage fills it quickly"),
            ]
        )
        for name, value in (("bootstrap", self.bootstrap), ("namespace", self.namespace)):
            if not value.strip():
                found.append(f"{name} is empty: name the Kafka servers as host:port and a prefix for the topics")
        if self.link_bytes_per_ms is not None and self.link_bytes_per_ms <= 0:
            found.append(f"link_bytes_per_ms is {self.link_bytes_per_ms:g}: above 0, or none for no limit")
        if self.flush_ms > 1_000:
            found.append(f"flush_ms is {self.flush_ms:g}: at most 1000, since a batch must not span a whole window")
        found += port_faults(self.metrics_port) + [f"workload.{fault}" for fault in self.workload.faults()]
        return found + [f"checkins.{fault}" for fault in self.checkins.faults()]


def _too_small(checks: Iterable[tuple[str, float, float, str]]) -> list[str]:
    return [
        f"{name} is {value:g}, at least {least:g} is needed: {reason}"
        for name, value, least, reason in checks
        if not value >= least
    ]
