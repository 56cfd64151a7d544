"""Settings of the emulator: one frozen value, checked as a whole before anything starts.

Reads neither files nor the environment; ``regraft`` fills it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

from regraft.infra.kafka.kafka_access import KafkaAccess
from regraft.infra.process.run_clock import RunClock
from regraft.infra.process.serve_metrics import port_errors
from regraft.producers.emulator.newcomers import newcomer_of
from regraft.producers.emulator.outage_schedule import EMULATED_KINDS, Chaos, OutageKind, outage_of
from regraft.producers.reporting_settings import ReportingSettings
from regraft.producers.workloads.checkin_settings import CheckinSettings
from regraft.producers.workloads.field_texts import EMULATOR_TEXTS, WORKLOAD_TEXTS, text_errors, with_texts
from regraft.producers.workloads.stock_settings import Detours, WorkloadSettings, too_small

EMULATED, NATS, MQTT, AMQP = "emulated", "nats", "mqtt", "amqp"
REAL_BROKERS = (NATS, MQTT, AMQP)
BROKERS = (EMULATED, *REAL_BROKERS)
WITH_AGENTS = (NATS, MQTT)


def possible_outages(brokers: str) -> tuple[OutageKind, ...]:
    """Return the kinds of outages that brokers can have: nodes of real ones share a process, so none hangs."""
    if brokers not in REAL_BROKERS:
        return EMULATED_KINDS
    of_agents = (OutageKind.AGENT,) if brokers in WITH_AGENTS else ()
    return (OutageKind.DEATH, OutageKind.SLOW, OutageKind.CUT, *of_agents)


@dataclass(frozen=True, slots=True)
class EmulatorSettings(ReportingSettings):
    """All settings of the emulator; brokers, links and service times are in the inventory."""

    # Where the state of the run is written each second.
    status_file: Path | None = None
    # Seed of every random choice.
    seed: int = 1
    brokers: Annotated[
        str,
        "emulated, or nats, mqtt or amqp for real NATS, Mosquitto or RabbitMQ servers on this machine with a node "
        "each, on whose links the inventory's costs are delays in ms, and without suspensions",
    ] = EMULATED
    workload: Annotated[
        WorkloadSettings,
        "Workload on a tree: publishers and subscriptions",
    ] = field(default_factory=WorkloadSettings)
    checkins: Annotated[
        CheckinSettings,
        "Workload on a ring: users and their topics",
    ] = field(default_factory=CheckinSettings)
    # How long a broker takes to serve anything but a notification.
    control_service_ms: float = 0.05
    # Length of a broker's queue beyond which notifications are dropped.
    queue_length_max: int = 10_000
    link_bytes_per_ms: Annotated[float | None, "bandwidth of a link in each direction, none for no limit"] = None
    # How many probes per second all brokers together send over links that are not in the overlay, each broker in turn
    # to its 40 nearest peers, so that the controller knows what these links would cost; 0 for none. Default 40: each
    # of 40 brokers has probed all others within 40 s.
    candidate_probes_per_s: float = 40.0
    # Age from which a missing notification counts as lost: longer than any outage, because a transition that waits for
    # its controller holds deliveries back. Longer on a faster clock.
    settle_s: float = 300.0
    # How long the end waits at most for the model to become quiet.
    drain_s_max: float = 60.0
    # How many telemetry and result records may wait.
    kafka_buffer_records_max: int = 500_000
    outages: Annotated[
        tuple[str, ...],
        'brokers that die or hang and links that are slow or cut, each as "KIND TARGETS at SECONDS for SECONDS", '
        'such as "death b03,b07 at 60 for 60", "suspension b01 at 10 for 5", "slow b01,b02 at 20 for 10 by 20", "cut '
        'b01,b02 at 20 for 10"; TARGETS may be "site:4", the four brokers nearest to one another',
    ] = ()
    # Mean pause between two random outages, none for none. These fields are given by the text below.
    chaos_every_s: float | None = None
    # Time after which no random outage starts, none for no end.
    chaos_until_s: float | None = None
    # Mean length of a random outage.
    chaos_for_s: float = 20.0
    # Which kinds occur.
    chaos_kinds: tuple[str, ...] = EMULATED_KINDS
    random_outages: Annotated[
        str | None,
        'outages drawn at random, such as "every 20 for 20 until 600 kinds death,slow": the mean pause between two, '
        "and unless other values are given 20 s each on average, without end, of the kinds death, suspension, slow and "
        "cut (real brokers: death, slow, cut and agent); none for none",
    ] = None
    # Largest share of the brokers that may be down at once.
    chaos_down_share_max: float = 0.25
    newcomers: Annotated[
        tuple[str, ...],
        'brokers that join while it runs and announce themselves (docs/members.md), each as "x01 at 60 by '
        'b03=2.5,b07=4" (time in s, link costs) or "x01 at 60 near 11.6,48.1", optionally followed by "through '
        'AGENT"',
    ] = ()
    # Time until neighbours notice a death, at least.
    outage_notice_ms: float = 2_000.0
    # The run's clock; the wall clock unless a run is sped up.
    clock: RunClock = field(default_factory=RunClock)
    agents: Annotated[
        tuple[str, ...],
        "the agents of the inventory for whose brokers it sends telemetry and answers commands; an absent agent "
        "leaves its brokers silent, and empty means all",
    ] = ()
    detours: Annotated[
        str,
        "on a structured cyclic overlay, whether notifications go around congested links: always, never, or "
        "alternate for every second burst",
    ] = Detours.ALWAYS
    subscribers_reported_max: Annotated[
        int,
        "number of subscribers that each broker reports separately, those that receive most, so that they can "
        "be moved individually; each costs some additional cells. Default 0",
    ] = 0

    def with_texts(self) -> EmulatorSettings:
        """Return the settings with the fields that their texts give."""
        return replace(with_texts(self, EMULATOR_TEXTS), workload=with_texts(self.workload, WORKLOAD_TEXTS))

    @property
    def kafka(self) -> KafkaAccess:
        """How the emulator reaches Kafka."""
        return KafkaAccess(self.bootstrap, "regraft-emulator", self.security)

    @property
    def chaos(self) -> Chaos | None:
        """The random outages, None for none."""
        if self.chaos_every_s is None:
            return None
        kinds = tuple(OutageKind(kind) for kind in self.chaos_kinds)
        return Chaos(self.chaos_every_s, self.chaos_for_s, kinds, self.chaos_down_share_max, self.chaos_until_s)

    def errors(self) -> list[str]:
        """Return every error as one sentence with the value, the limit and what to do; empty if there is none."""
        errors = too_small(
            [("subscribers_reported_max", self.subscribers_reported_max, 0, "0 reports none separately")]
        )
        for name, value in (("bootstrap", self.bootstrap), ("namespace", self.namespace)):
            if not value.strip():
                errors.append(f"{name} is empty: name the Kafka servers as host:port and a prefix for the topics")
        if self.link_bytes_per_ms is not None and self.link_bytes_per_ms <= 0:
            errors.append(f"link_bytes_per_ms is {self.link_bytes_per_ms:g}: must be above 0, or none for no limit")
        if self.detours not in set(Detours):
            errors.append(f"detours is {self.detours!r}: must be one of {', '.join(Detours)}")
        errors += self._broker_errors() + self._outage_errors()
        errors += port_errors(self.metrics_port)
        return errors + [f"workload.{error}" for error in self.workload.errors()]

    def _broker_errors(self) -> list[str]:
        if self.brokers not in BROKERS:
            return [f"brokers is {self.brokers!r}: must be one of {', '.join(BROKERS)}"]
        if self.brokers not in REAL_BROKERS:
            return []
        if self.newcomers:
            return [f"newcomers cannot join brokers = {self.brokers}: nodes do not announce themselves yet"]
        return []

    def _outage_errors(self) -> list[str]:
        errors = text_errors(self, EMULATOR_TEXTS) + too_small(
            [
                ("chaos_every_s", 1.0 if self.chaos_every_s is None else self.chaos_every_s, 0.1, "pauses need time"),
                ("chaos_for_s", self.chaos_for_s, 0.1, "an outage needs time"),
            ]
        )
        unknown = [kind for kind in self.chaos_kinds if kind not in set(OutageKind)]
        if unknown or not self.chaos_kinds:
            errors.append(
                f"random_outages has kinds {', '.join(unknown) or 'nothing'}: some of {', '.join(OutageKind)}"
            )
        possible = possible_outages(self.brokers)
        drawn = () if self.chaos_every_s is None else self.chaos_kinds
        begun = [text.split()[0] for text in self.outages if text.strip()]
        for name, kinds in (("outages", begun), ("random_outages", drawn)):
            refused = sorted({kind for kind in kinds if kind in set(OutageKind) and kind not in possible})
            if refused:
                errors.append(
                    f"{name} has {', '.join(refused)}, which brokers = {self.brokers} does not support: "
                    f"choose kinds of {', '.join(possible)}"
                )
        checks = [(outage_of, text) for text in self.outages] + [(newcomer_of, text) for text in self.newcomers]
        for check, text in checks:
            try:
                check(text)
            except ValueError as error:
                errors.append(str(error))
        return errors
