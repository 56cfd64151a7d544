"""Sample everything that may grow in a run: processes, topics, files, the live view, the stages' metrics.

In: a running local stack and the ports of the stages' metrics. Out: one flat row of numbers per sample. Judging them
belongs to :mod:`benchmarks.soak_growth`.
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil
import redis
from confluent_kafka import KafkaException, TopicPartition
from prometheus_client.parser import text_string_to_metric_families

from regraft.infra.kafka.kafka_access import KafkaAccess
from regraft.infra.kafka.kafka_clients import leave_to_caller, open_consumer
from regraft.infra.local.local_stack import LocalStack
from regraft.infra.local.supervise import OWN_NAME
from regraft.schemas.topics import TOPICS, topic_name

ANSWER_S_MAX = 2.0
YOUNG_S = 5.0
# Metrics of the stages' queues and tables, with their names in a row.
SCRAPED = {
    "regraft_streaming_heap_live_bytes": "streaming: live heap bytes",
    "regraft_streaming_state_rows": "streaming: state rows",
    "regraft_streaming_state_bytes": "streaming: state bytes",
    "regraft_streaming_backlog_records": "streaming: backlog records",
    "regraft_controller_queue_length": "controller: waiting records",
    "regraft_emulator_records_waiting": "emulator: waiting records",
    "regraft_emulator_held_deliveries": "emulator: held deliveries",
    "regraft_emulator_behind_ms": "emulator: behind ms",
}
CPU = "cpu s: "  # Per service since its start: not checked for growth, but it limits the speed of the clock.
Row = dict[str, float]


class SoakSampler:
    """Samples one run; each sample is bounded in time, and a source that does not answer is left out of the row."""

    def __init__(self, stack: LocalStack, namespace: str, ports: Mapping[str, int]) -> None:
        self._stack = stack
        self._namespace = namespace
        self._ports = ports
        self._redis = redis.Redis.from_url(stack.redis_url, socket_timeout=ANSWER_S_MAX)
        self._consumer = open_consumer(KafkaAccess(stack.bootstrap), on_error=leave_to_caller)
        self.unhealthy: Counter[str] = Counter()

    def sample(self) -> Row:
        """Return the current numbers as a row."""
        return {
            **dict(self._memory()),
            **dict(self._topics()),
            **dict(self._live_view()),
            **dict(self._files()),
            **dict(self._scraped()),
        }

    def close(self) -> None:
        """Close the connections."""
        self._consumer.close()
        self._redis.close()

    def _memory(self) -> Iterator[tuple[str, float]]:
        """Yield the resident memory by service and program, and the CPU time of each service."""
        by_stage: Counter[str] = Counter()
        for service in ("kafka", "valkey", "emulator", "streaming", "controller"):
            pid = self._stack.supervisor.pid(service)
            if pid is None:
                continue
            try:
                process = psutil.Process(pid)
                cpu_s = 0.0
                for each in (process, *process.children(recursive=True)):
                    if time.time() - each.create_time() < YOUNG_S:
                        continue  # A fork that is about to exec some small program.
                    by_stage[f"memory: {service}/{_program(each)}"] += each.memory_info().rss
                    times = each.cpu_times()
                    cpu_s += times.user + times.system
                yield f"{CPU}{service}", cpu_s
            except psutil.NoSuchProcess:
                continue
        yield from by_stage.items()
        yield f"memory: {OWN_NAME}", psutil.Process().memory_info().rss

    def _topics(self) -> Iterator[tuple[str, float]]:
        """Yield bytes on disk of each topic, and its records unless it is compacted (offsets then have gaps)."""
        data = self._stack.run_dir / "kafka" / "data"
        for topic in TOPICS:
            name, records = topic_name(topic, self._namespace), 0
            try:
                for partition in range(topic.partitions):
                    low, high = self._consumer.get_watermark_offsets(
                        TopicPartition(name, partition), timeout=ANSWER_S_MAX
                    )
                    records += high - low
            except KafkaException:
                continue
            if not topic.compacted:
                yield f"topic records: {topic.suffix}", records
            yield f"topic bytes: {topic.suffix}", sum(_size(folder)[1] for folder in data.glob(f"{name}-*"))

    def _live_view(self) -> Iterator[tuple[str, float]]:
        try:
            yield "valkey: bytes", float(self._redis.info("memory")["used_memory"])
            yield "valkey: keys", float(self._redis.dbsize())
        except redis.RedisError:
            return

    def _files(self) -> Iterator[tuple[str, float]]:
        run = self._stack.run_dir
        count, size = _size(run / "checkpoint")
        yield "checkpoint: files", count
        yield "checkpoint: bytes", size
        yield "spark local: bytes", _size(run / "spark")[1]
        yield "valkey files: bytes", _size(run / "valkey")[1]
        yield "logs: bytes", _size(run / "logs")[1]
        yield "kafka logs: bytes", sum(file.stat().st_size for file in (run / "kafka").glob("*.log*"))

    def _scraped(self) -> Iterator[tuple[str, float]]:
        for stage, port in self._ports.items():
            try:
                health = urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=ANSWER_S_MAX)
                metrics = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=ANSWER_S_MAX)
            except urllib.error.HTTPError as error:
                self.unhealthy[f"{stage}: {'; '.join(json.load(error)['errors'])}"] += 1
                continue
            except OSError as error:
                self.unhealthy[f"{stage}: {error}"] += 1
                continue
            with health, metrics:
                yield from _known(metrics.read().decode())


def _known(text: str) -> Iterator[tuple[str, float]]:
    by_name: Counter[str] = Counter()
    for family in text_string_to_metric_families(text):
        if family.name in SCRAPED:
            for sample in family.samples:
                by_name[SCRAPED[family.name]] += sample.value  # type: ignore[assignment]
    yield from by_name.items()


def _program(process: psutil.Process) -> str:
    name = process.name()
    return "java" if "java" in name else "python" if "python" in name else name


def _size(folder: Path) -> tuple[int, int]:
    """Return the number of files in a folder and their bytes; files may vanish meanwhile."""
    count = size = 0
    for file in folder.rglob("*"):
        try:
            if file.is_file():
                count, size = count + 1, size + file.stat().st_size
        except OSError:
            continue
    return count, size
