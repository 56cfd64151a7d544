"""The recorder's health and metrics: whether it reads, and how much it has recorded."""

from __future__ import annotations

from regraft.infra.process.serve_metrics import Health, Pulse
from regraft.infra.process.stage_metrics import StageMetrics

SILENCE_S_MAX = 60.0  # Of the loop; Kafka's answers, the slowest part, are awaited for some seconds.
PROOF_S_MAX = 60.0


class RecorderMetrics:
    """The Prometheus metrics of a recording; names start with ``regraft_recorder_``."""

    def __init__(self) -> None:
        self.stage = StageMetrics("recorder")
        self.registry = self.stage.registry
        gauge = self.stage.gauge
        self.records = gauge("records", "Records in the recording.")
        self.bytes = gauge("bytes", "Bytes of the recording's files.")
        self.missed = gauge("missed", "Records that Kafka deleted before they were read, by topic.", ["topic"])
        self.stalled = gauge("stalled_topics", "Topics whose records are not arriving, although Kafka has them.")


class RecorderHealth:
    """The recorder's health, for /health and /ready; read from other threads.

    ``asked`` beats when Kafka has said where a partition ends; ``stalled`` are topics that were not read up to there.
    """

    def __init__(self) -> None:
        self.pulse = Pulse("the recorder", SILENCE_S_MAX)
        self.asked = Pulse("asking Kafka where its topics end", PROOF_S_MAX)
        self.has_asked = False
        self.stalled: frozenset[str] = frozenset()

    def __call__(self) -> Health:
        """Return the recorder's health now."""
        error = self.pulse.error()
        stalled = f"records of {', '.join(sorted(self.stalled))} are not arriving, although Kafka has them"
        silence = self.asked.error()
        notes = tuple(note for note in (stalled if self.stalled else "", silence) if note)
        is_proved = self.has_asked and error is None and not notes
        proved = f"everything was last read up to the end reported by Kafka {self.asked.silent_s:.0f} s ago"
        return Health(is_proved, () if error is None else (error,), notes, (proved,) if is_proved else ())
