"""Settings of the alert stage as one frozen value, each with its unit and the reason for its default."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from regraft.alerts.name_targets import name_target, name_webhook, target_errors, webhook_errors
from regraft.alerts.quiet_hours import QuietHoursError, parse_quiet_hours
from regraft.infra.orders.operated_settings import OperatedSettings
from regraft.infra.process.run_clock import RunClock
from regraft.infra.process.serve_metrics import port_errors
from regraft.schemas.event import Severity

BELOW = " below "  # Before the severity in the text of quiet hours.


@dataclass(frozen=True, kw_only=True)
class AlertSettings(OperatedSettings):
    """The alert stage: its rules, who is notified, and when not."""

    client_id = "regraft-alerts"

    # The clock of the run.
    clock: RunClock = field(default_factory=RunClock)
    # Length of the windows, which determines how far back the stage reads after a restart.
    window_ms: int = 5_000
    rules_file: Annotated[Path | None, "alert rules (TOML); none for those that `regraft alerts rules` prints"] = None
    targets: Annotated[
        tuple[str, ...],
        "apprise URLs of recipients, such as mailtos://user:password@example.org; they hold secrets, so "
        "prefer REGRAFT_ALERTS__TARGETS, a JSON list",
    ] = ()
    webhooks: Annotated[
        tuple[str, ...],
        "http(s) URLs to which each message is posted as JSON, with its id as Idempotency-Key",
    ] = ()
    quiet_hours: Annotated[
        str | None,
        "hours in which alerts below critical are held back, such as 22:00-07:00 Europe/Berlin, or "
        "22:00-07:00 Europe/Berlin below warning",
    ] = None
    # Timeout for connecting to a target, and again for its answer: a webhook that takes longer is retried, and one dead
    # target must not hold up the others.
    timeout_s: float = 5.0
    # Attempts to send a message to a target before it becomes a dead letter: with the doubling pauses, some seconds, as
    # an alert that comes later has often cleared.
    attempts_max: int = 4
    # Pause before the second attempt, doubled from one to the next.
    backoff_s: float = 1.0
    # Bound of that pause.
    backoff_s_max: float = 10.0
    # Messages that may wait for one target; further ones become dead letters at once.
    queue_max: int = 100
    resend_uncertain: Annotated[
        bool,
        "resend a message that was being sent when the stage was killed; receivers must recognise its Idempotency-Key",
    ] = False
    # How far back the stage reads windows that closed while it was down. Default 1 hour: older ones are not news, and
    # reading all of them would take long.
    resume_ms_max: int = 3_600_000
    # Period of the loop.
    tick_ms: int = 200
    # Period of status file and live view.
    status_ms: int = 1_000
    # How long a stopping stage waits for messages being sent. Default 15 s.
    stop_ms_max: int = 15_000
    metrics_port: Annotated[
        int | None,
        "port for /metrics, /health and /ready; none opens no port",
    ] = None
    # Host to listen on for metrics.
    metrics_host: str = "127.0.0.1"

    @property
    def target_names(self) -> tuple[str, ...]:
        """Return the names of all targets, without secrets."""
        return (*map(name_target, self.targets), *map(name_webhook, self.webhooks))

    @property
    def quiet_span(self) -> str:
        """The quiet hours without the severity, empty for none."""
        return (self.quiet_hours or "").partition(BELOW)[0]

    @property
    def quiet_below(self) -> Severity:
        """The severity below which alerts wait in the quiet hours."""
        severity = (self.quiet_hours or "").partition(BELOW)[2].strip()
        return Severity(severity) if severity in set(Severity) else Severity.CRITICAL

    def errors(self) -> list[str]:
        """Return everything that is wrong with the settings, one sentence each, without secrets."""
        errors: list[str] = []
        if self.quiet_hours is not None:
            try:
                parse_quiet_hours(self.quiet_span)
            except QuietHoursError as error:
                errors.append(f"quiet_hours {error}")
            severity = self.quiet_hours.partition(BELOW)[2].strip()
            if BELOW in self.quiet_hours and severity not in set(Severity):
                errors.append(
                    f"quiet_hours is {self.quiet_hours!r}: the severity after 'below' must be one of "
                    f"{', '.join(Severity)}"
                )
        names = self.target_names
        twice = sorted({name for name in names if names.count(name) > 1})
        errors += [f"{name} is named twice in targets or webhooks" for name in twice]
        errors += port_errors(self.metrics_port)
        return errors + target_errors(self.targets) + webhook_errors(self.webhooks)
