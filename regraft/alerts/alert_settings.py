"""Settings of the alert stage as one frozen value, each with its unit and the reason for its default."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from regraft.alerts.name_targets import name_target, name_webhook, target_faults, webhook_faults
from regraft.alerts.quiet_hours import QuietHoursError, parse_quiet_hours
from regraft.infra.kafka.kafka_access import KafkaAccess, KafkaSecurity
from regraft.infra.live.redis_access import RedisAccess, RedisSecurity
from regraft.infra.orders.order_keys import OrderSettings
from regraft.infra.process.run_clock import RunClock
from regraft.infra.process.serve_metrics import port_faults
from regraft.schemas.event import Severity
from regraft.schemas.topics import DEFAULT_NAMESPACE


@dataclass(frozen=True, kw_only=True)
class AlertSettings:
    """The alert stage: its rules, who is notified, and when not.

    ``bootstrap``: Kafka's bootstrap servers. ``security``: its TLS and SASL. ``namespace``: prefix of topics and
    live-view keys.
    ``redis_url``: where the live view is kept; None runs without one. ``redis_security``: its TLS and credentials.
    ``clock``: the clock of the run.
    ``status_file``: JSON for people; None writes none. ``window_ms``: length of the windows, which determines how far
    back the stage reads after a restart. ``orders``: whose orders about maintenance are followed.
    ``rules_file``: the rules, TOML; none means those that ``regraft alerts rules`` prints.
    ``targets``: apprise URLs of recipients, for example mailtos://user:password@example.org (apprise's documentation
    lists all kinds); they hold secrets, so prefer REGRAFT_ALERTS__TARGETS, a JSON list.
    ``webhooks``: http(s) URLs to which each message is posted as JSON, with its id as Idempotency-Key.
    ``quiet_hours``: when less urgent alerts wait, for example 22:00-07:00 Europe/Berlin; none for never.
    ``quiet_below``: alerts below this severity wait in the quiet hours: info, warning or critical.
    ``timeout_s``: timeout for connecting to a target, and again for its answer. Default 5 s.
    ``attempts_max``: attempts to send a message to a target before it becomes a dead letter. ``backoff_s``,
    ``backoff_s_max``: pause before the second attempt, doubled from one to the next, and its bound. Default 4 attempts
    in some 15 s: a target that is unreachable for longer gets the next alerts, and the dead letter shows what it
    missed.
    ``queue_max``: messages that may wait for one target; further ones become dead letters at once.
    ``resend_uncertain``: whether to resend a message that was being sent when the stage was killed: false, so that
    nothing is sent twice, or true for receivers that recognise its Idempotency-Key, so that none is missed.
    ``resume_ms_max``: how far back the stage reads windows that closed while it was down. Default 1 hour: older ones
    are not news, and reading all of them would take long.
    ``tick_ms``: period of the loop. ``status_ms``: period of status file and live view.
    ``stop_ms_max``: how long a stopping stage waits for messages being sent. Default 15 s.
    ``metrics_port``, ``metrics_host``: where Prometheus can scrape; none opens no port, the default host is this one.
    """

    bootstrap: str
    security: KafkaSecurity = field(default_factory=KafkaSecurity)
    namespace: str = DEFAULT_NAMESPACE
    redis_url: str | None = field(default=None, repr=False)
    redis_security: RedisSecurity = field(default_factory=RedisSecurity)
    orders: OrderSettings = field(default_factory=OrderSettings)
    clock: RunClock = field(default_factory=RunClock)
    status_file: Path | None = None
    window_ms: int = 5_000
    rules_file: Path | None = None
    targets: tuple[str, ...] = ()
    webhooks: tuple[str, ...] = ()
    quiet_hours: str | None = None
    quiet_below: Severity = Severity.CRITICAL
    timeout_s: float = 5.0
    attempts_max: int = 4
    backoff_s: float = 1.0
    backoff_s_max: float = 10.0
    queue_max: int = 100
    resend_uncertain: bool = False
    resume_ms_max: int = 3_600_000
    tick_ms: int = 200
    status_ms: int = 1_000
    stop_ms_max: int = 15_000
    metrics_port: int | None = None
    metrics_host: str = "127.0.0.1"

    @property
    def kafka(self) -> KafkaAccess:
        """This stage's access to Kafka."""
        return KafkaAccess(self.bootstrap, "regraft-alerts", self.security)

    @property
    def redis(self) -> RedisAccess | None:
        """This stage's access to the live view, None if none is configured."""
        return None if self.redis_url is None else RedisAccess(self.redis_url, self.redis_security)

    @property
    def target_names(self) -> tuple[str, ...]:
        """Return the names of all targets, without secrets."""
        return (*map(name_target, self.targets), *map(name_webhook, self.webhooks))

    def faults(self) -> list[str]:
        """Return everything that is wrong with the settings, one sentence each, without secrets."""
        least = {
            "attempts_max": 1, "queue_max": 1, "resume_ms_max": 0, "tick_ms": 1, "status_ms": 1, "stop_ms_max": 0,
            "window_ms": 1,
        }  # fmt: skip
        found = [
            f"{name} is {getattr(self, name)}: at least {limit}"
            for name, limit in least.items()
            if getattr(self, name) < limit
        ]
        for name in ("timeout_s", "backoff_s"):
            if getattr(self, name) <= 0:
                found.append(f"{name} is {getattr(self, name):g}: above 0")
        if self.backoff_s_max < self.backoff_s:
            found.append(f"backoff_s_max is {self.backoff_s_max:g}: at least backoff_s, {self.backoff_s:g}")
        if self.quiet_hours is None and self.quiet_below is not Severity.CRITICAL:
            found.append(f"quiet_below is {self.quiet_below} without quiet_hours: give these, or leave it out")
        if self.quiet_hours is not None:
            try:
                parse_quiet_hours(self.quiet_hours)
            except QuietHoursError as error:
                found.append(f"quiet_hours {error}")
        names = self.target_names
        twice = sorted({name for name in names if names.count(name) > 1})
        found += [f"{name} is named twice in targets or webhooks" for name in twice]
        found += port_faults(self.metrics_port, self.metrics_host)
        return found + target_faults(self.targets) + webhook_faults(self.webhooks)
