"""Measure from outside what the services of a run use, and when its windows were written.

In: the process that supervises the services, access to Kafka. Out: samples of CPU time and memory, markers. Each
service is the leader of a session that contains all its processes. Running services does not belong here.
"""

import os
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import psutil
from confluent_kafka import TopicPartition

from regraft.infra.kafka.kafka_access import KafkaAccess
from regraft.infra.kafka.kafka_clients import open_consumer
from regraft.schemas.codec import decode
from regraft.schemas.state import WindowClosed
from regraft.schemas.topics import WINDOWS, topic_name

MB = 1 << 20

# Words of the command line that identify a service.
STAGES = {
    "kafka": ("kafka.Kafka",),
    "streaming": ("regraft", "stage", "stream"),
    "controller": ("regraft", "stage", "control"),
    "emulator": ("regraft", "stage", "emulate"),
}


@dataclass(slots=True)
class StageUse:
    """CPU time so far in s, and memory now, of one stage; ``parts``: memory by kind of process (java, python)."""

    cpu_s: float = 0.0
    rss_bytes: int = 0
    parts: dict[str, int] = field(default_factory=lambda: defaultdict(int))


@dataclass(frozen=True, slots=True)
class StageSample:
    """The use of all stages at one time."""

    at_s: float
    stages: Mapping[str, StageUse]


def sample_stages(supervisor: psutil.Process) -> StageSample:
    """Sample all stages once; a process that ends meanwhile is left out."""
    sessions: dict[int, str] = {}
    by_stage = {stage: StageUse() for stage in STAGES}
    for process in sorted(supervisor.children(recursive=True), key=lambda process: process.create_time()):
        try:
            session, words = os.getsid(process.pid), process.cmdline()
            stage = sessions.get(session) or _stage_of(words)
            if stage is None:
                continue
            sessions[session] = stage
            spent, rss_bytes = process.cpu_times(), process.memory_info().rss
        except (psutil.NoSuchProcess, psutil.ZombieProcess, ProcessLookupError):
            continue
        use = by_stage[stage]
        use.cpu_s += spent.user + spent.system
        use.rss_bytes += rss_bytes
        use.parts["java" if "java" in words[0] else "python"] += rss_bytes
    return StageSample(time.monotonic(), by_stage)


def cores_taken(samples: list[StageSample], stage: str) -> float:
    """Return how many cores a stage used on average, without what an ended process used after its last sample."""
    spent_s = [sample.stages[stage].cpu_s for sample in samples]
    rises_s = sum(max(after - before, 0.0) for before, after in pairwise(spent_s))
    return rises_s / (samples[-1].at_s - samples[0].at_s)


def rss_bytes_max(samples: list[StageSample], stage: str, part: str = "") -> int:
    """Return the largest memory of a stage, or of its processes of one kind, in any sample."""
    uses = [sample.stages[stage] for sample in samples]
    return max(use.parts.get(part, 0) if part else use.rss_bytes for use in uses)


def _stage_of(words: list[str]) -> str | None:
    return next((stage for stage, known in STAGES.items() if set(known) <= set(words)), None)


class MarkerReader:
    """Reads the markers of closed windows during a run; close it at the end."""

    def __init__(self, kafka: KafkaAccess) -> None:
        self._consumer = open_consumer(kafka)
        self._consumer.assign([TopicPartition(topic_name(WINDOWS), 0, 0)])

    def read(self, wait_s: float = 1.0) -> list[tuple[WindowClosed, int]]:
        """Return the markers since the last call, each with its Kafka timestamp in ms."""
        deadline_s, markers = time.monotonic() + wait_s, []
        while (left_s := deadline_s - time.monotonic()) > 0:
            for message in self._consumer.consume(100, timeout=left_s):
                if message.error() is None:
                    markers.append((decode(message.value() or b"", WindowClosed), message.timestamp()[1]))
        return markers

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that this share of all values does not exceed."""
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]
