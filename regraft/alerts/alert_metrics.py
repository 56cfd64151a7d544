"""Prometheus metrics of the alert stage, and its health."""

from __future__ import annotations

from regraft.infra.process.serve_metrics import Health, Pulse
from regraft.infra.process.stage_metrics import StageMetrics

PROOF_S_MAX = 60.0  # Positions are stored every 5 s, and an end is asked every 2 s.
SILENCE_S_MAX = 30.0  # A step that takes longer is unhealthy: no call in it waits for more than a few seconds.


class AlertMetrics:
    """Counters and gauges of the stage; names start with ``regraft_alerts_``."""

    def __init__(self) -> None:
        self.stage = stage = StageMetrics("alerts")
        self.registry = stage.registry
        self.active = stage.gauge("active", "Active alerts, by rule and severity.", ["rule", "severity"])
        self.silenced = stage.gauge("silenced", "Active alerts that are held back.")
        self.changes = stage.counter("changes", "Alerts raised and cleared, by rule.", ["rule", "status"])
        self.messages = stage.counter("messages", "Messages sent, by status.", ["status"])
        self.deliveries = stage.counter("deliveries", "Finished deliveries, by target and state.", ["target", "state"])
        self.waiting = stage.gauge("waiting_messages", "Messages waiting for a target.", ["target"])
        self.records = stage.counter("records", "Records read, by kind.", ["record"])
        self.windows = stage.counter("windows", "Windows judged.")
        self.window_age_ms = stage.gauge("window_age_ms", "Time since the end of the newest window judged, in ms.")
        self.errors = stage.gauge("errors", "Errors at the ports of the process since it started, by kind.", ["what"])
        self.step_ms = stage.histogram("step_ms", "Duration of one step of the loop, including storing, in ms.")


class AlertHealth:
    """The stage's health: whether it reads, judges and stores; queried from other threads.

    ``stored`` beats when Kafka has stored the positions, ``asked`` when it has said where its topics end;
    ``reading_error`` names topics whose records do not arrive although Kafka has them.
    """

    def __init__(self) -> None:
        self.pulse = Pulse("the alert loop", SILENCE_S_MAX)
        self.stored = Pulse("storing the positions in Kafka", PROOF_S_MAX)
        self.asked = Pulse("asking Kafka where its topics end", PROOF_S_MAX)
        self.is_ready = False
        self.judging_error = self.reading_error = ""

    def __call__(self) -> Health:
        """Return the stage's health."""
        errors = tuple(error for error in (self.pulse.error(), self.judging_error, self.reading_error) if error)
        if not self.is_ready:
            return Health(is_ready=False, errors=errors)
        notes = tuple(error for each in (self.stored, self.asked) if (error := each.error()))
        proved = (
            f"positions were last stored in Kafka {self.stored.silent_s:.0f} s ago",
            f"everything was last read up to the end reported by Kafka {self.asked.silent_s:.0f} s ago",
        )
        is_proved = not (errors or notes)
        return Health(is_proved, errors, notes, proved if is_proved else ())
