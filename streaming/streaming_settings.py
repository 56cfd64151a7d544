"""Settings of the streaming stage: one frozen value, checked as a whole before anything starts.

Reads neither files nor the environment; ``regraft`` and ``submit_job.main`` fill it.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from regraft.infra.kafka.kafka_access import KafkaAccess, KafkaSecurity
from regraft.infra.local.hadoop_path import HadoopPath
from regraft.infra.process.serve_metrics import port_errors
from regraft.schemas.topics import DEFAULT_NAMESPACE, TELEMETRY, topic_name
from regraft.schemas.units import SECOND_MS

# Increase with every change of keys, windows or aggregates: a checkpoint's state is readable only by its own query.
QUERY_VERSION = 5

CATCH_UP_GRACE_MS = 60_000

# As tuned with the benchmark of the streaming stage, for the driver and for executors of a cluster. -Xss4m: stopping
# inside foreachBatch overflows smaller stacks. Java carries bytes here and starts often: what its thorough compiler
# costs does not come back.
JAVA_OPTIONS = "-Xss4m -XX:+UseParallelGC -XX:TieredStopAtLevel=1"
DRIVER_JAVA_OPTIONS = "spark.driver.extraJavaOptions"

# Spark's own patterns, extended for Kafka's options.
SECRET_OPTIONS = r"(?i)secret|password|token|access[.]?key|url|jaas|keystore"

# How Spark writes a checkpoint on a disk: it forks no process for each file, which halves the minimum duration of a
# micro-batch. The class name is that of Spark 4.2. For other stores, Spark or spark-defaults.conf chooses.
LOCAL_MANAGER = (
    "spark.sql.streaming.checkpointFileManagerClass",
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager",
)
LOCAL_SCHEMES = ("", "file")

# Session settings that the query requires or was tuned with, for ``SparkSession.builder.config``.
SPARK_SETTINGS: dict[str, str] = {
    "spark.sql.session.timeZone": "UTC",
    LOCAL_MANAGER[0]: LOCAL_MANAGER[1],
    # Python receives this many records at a time; each has many deliveries.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
    # Forks Python workers that do less work per task.
    "spark.python.daemon.module": "regraft.streaming.fork_workers",
    "spark.sql.streaming.numRecentProgressUpdates": "200",
    # What Spark keeps of micro-batches for its web pages, even if these are off: by default the last 1000, some 100 kB
    # of heap each. None of it is read here.
    "spark.sql.ui.retainedExecutions": "20",
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "200",
    DRIVER_JAVA_OPTIONS: JAVA_OPTIONS,
    "spark.executor.extraJavaOptions": JAVA_OPTIONS,
    # On a cluster, each executor writes its own log, which would eventually fill the worker's disk.
    "spark.executor.logs.rolling.strategy": "size",
    "spark.executor.logs.rolling.maxSize": str(16 << 20),
    "spark.executor.logs.rolling.maxRetainedFiles": "3",
    # Options of the Kafka source hold passwords and keys, which Spark must not show.
    "spark.redaction.regex": SECRET_OPTIONS,
    "spark.sql.redaction.options.regex": SECRET_OPTIONS,
}


CheckpointPath = Path | HadoopPath
URI = re.compile(r"[a-z][a-z0-9+.-]*:/{1,3}[^/].*")


@dataclass(frozen=True, slots=True)
class EventBounds:
    """How far event times may be after and before the time at which Kafka received the record, None for any distance.

    If ``future_ms_max`` is set, event times can be checked against Kafka's time.
    """

    future_ms_max: int | None = None
    past_ms_max: int | None = None

    def accepts(self, time_ms: int, kafka_ms: int) -> bool:
        """Return True if an event time is near enough to Kafka's."""
        is_early = self.past_ms_max is not None and kafka_ms - time_ms > self.past_ms_max
        return not is_early and (self.future_ms_max is None or time_ms - kafka_ms <= self.future_ms_max)


@dataclass(frozen=True, slots=True)
class StreamingSettings:
    """All settings of the query."""

    # Kafka's servers as host:port, several with commas.
    bootstrap: str
    # Where Spark keeps its position and its state.
    checkpoint_directory: Path
    checkpoint_uri: Annotated[
        str,
        "Hadoop file-system URI for the checkpoint, needed if executors on other machines do not share run.directory",
    ] = ""
    # Prefix of all topic names.
    namespace: str = DEFAULT_NAMESPACE
    window_ms: Annotated[
        int,
        "length of a window of event time, a multiple of 1000",
    ] = 5_000
    grace_ms: Annotated[int, "how long a window waits for late rows while the job keeps up"] = 2_000
    catch_up_grace_ms: Annotated[
        int,
        "the same while a backlog is read, because partitions are then read unevenly",
    ] = CATCH_UP_GRACE_MS
    # Minimum time from the start of one micro-batch to that of the next; 0 for none. 50: a small part of what the
    # shortest micro-batch takes, so that an idle job does not use up a core.
    trigger_ms: int = 50
    # Maximum of that time while no window is complete: the next micro-batch waits so that one begins just when a
    # window is complete, for which it may take twice as long (:mod:`streaming.pace_batches`).
    pause_ms_max: int = 1_000
    records_per_trigger_max: Annotated[
        int,
        "maximum number of records in one micro-batch",
    ] = 60_000
    records_per_broker_max: Annotated[int, "the same for each broker of the inventory, if that is more"] = 120
    shards: Annotated[
        int,
        "parts into which the state is split by broker; 0 chooses by the number of brokers",
    ] = 0
    # Tasks that read telemetry at once, if that is more than shards.
    read_partitions_min: int = 0
    future_ms_max: Annotated[
        int | None,
        "how far event times may be ahead of Kafka's, at most half the grace; none for no check",
    ] = 1_000
    # How far event times may be before that time. An hour: senders keep records for ten minutes while Kafka is away,
    # and what is much older has a wrong clock.
    past_ms_max: int | None = 3_600_000
    create_time: Annotated[
        bool,
        "accept a telemetry topic with senders' timestamps, as in a replay; a wrong clock can then claim any time",
    ] = False
    # How long Kafka may acknowledge none of the waiting rows before the job ends; a slow Kafka that accepts some is
    # waited for.
    write_timeout_ms: int = 60_000
    # How long no micro-batch may end before /health reports that the job hangs. A micro-batch holds half a minute of
    # telemetry, so a job that takes longer for it could never catch up.
    silence_ms_max: int = 180_000
    # JSON file with the job's progress; none writes none.
    status_file: Path | None = None
    # The topic to read instead of the namespace's own: a replay has its own namespace, only benchmarks have another.
    telemetry_topic: str = ""
    metrics_port: Annotated[
        int | None,
        "port for /metrics, /health and /ready; none opens no port",
    ] = None
    # Host to listen on for metrics.
    metrics_host: str = "127.0.0.1"
    # The brokers, besides members that were added since; telemetry that names another broker, or is in the topic of
    # an agent that is not its broker's, is refused.
    inventory_path: Path | None = None
    # Kafka's TLS and SASL.
    security: KafkaSecurity = field(default_factory=KafkaSecurity)

    @property
    def kafka(self) -> KafkaAccess:
        """How this stage reaches Kafka."""
        return KafkaAccess(self.bootstrap, "regraft-streaming", self.security)

    @property
    def source_topic(self) -> str:
        """The topic that is read; with agents in the inventory, the prefix of their topics' names."""
        return self.telemetry_topic or topic_name(TELEMETRY, self.namespace)

    @property
    def bounds(self) -> EventBounds:
        """Accepted event times relative to Kafka's: ahead by less than the grace, so that no broker is shut out."""
        if self.future_ms_max is None:
            return EventBounds(None, None)
        return EventBounds(min(self.future_ms_max, self.grace_ms // 2), self.past_ms_max)

    @property
    def checkpoint(self) -> CheckpointPath:
        """Where Spark's checkpoint is, with the job's own files next to it."""
        return HadoopPath(self.checkpoint_uri) if self.checkpoint_uri else self.checkpoint_directory

    @property
    def query_directory(self) -> CheckpointPath:
        """Where Spark keeps the checkpoint of this version of the query."""
        return self.checkpoint / f"v{QUERY_VERSION}"

    @property
    def position_file(self) -> CheckpointPath:
        """Where the job keeps, next to the checkpoint, up to which offsets it has kept dead letters."""
        return self.checkpoint / f"dead_letters.v{QUERY_VERSION}.json"

    @property
    def rule_file(self) -> CheckpointPath:
        """Where the job keeps, next to the checkpoint, the rule by which its last query closed windows."""
        return self.checkpoint / f"closing_rule.v{QUERY_VERSION}.json"

    @property
    def members_file(self) -> Path:
        """Where the job keeps, on this machine, which brokers were added: this is also read before Spark runs."""
        return self.checkpoint_directory / "members.json"

    @property
    def members_copy(self) -> HadoopPath | None:
        """The same next to a checkpoint at a URI, for a start on another machine; None without a URI."""
        return HadoopPath(self.checkpoint_uri) / "members.json" if self.checkpoint_uri else None

    @property
    def session_options(self) -> dict[str, str]:
        """The settings of a session with our Java options, without the writer for disks if the store is another."""
        is_on_disk = self.checkpoint_uri.partition(":")[0] in LOCAL_SCHEMES
        left_out = {DRIVER_JAVA_OPTIONS} if is_on_disk else {DRIVER_JAVA_OPTIONS, LOCAL_MANAGER[0]}
        return {name: value for name, value in SPARK_SETTINGS.items() if name not in left_out}

    def errors(self) -> list[str]:
        """Return each error as one sentence with the value, the limit and what to do; empty if there is none."""
        errors: list[str] = []
        if not self.bootstrap.strip():
            errors.append("bootstrap is empty: name the Kafka servers as host:port")
        if self.checkpoint_uri and not URI.match(self.checkpoint_uri):
            errors.append(
                f"checkpoint_uri is {self.checkpoint_uri!r}: it must be a scheme and an absolute path, such "
                "as hdfs://NAME/PATH or file:///PATH"
            )
        if not self.namespace.strip():
            errors.append("namespace is empty: name the prefix of the topics, for example regraft")
        if self.window_ms < SECOND_MS or self.window_ms % SECOND_MS:
            errors.append(f"window_ms is {self.window_ms}: deliveries are reported per second, use a multiple of 1000")
        errors += [
            f"{name} is {value}: must be at least {least} ({advice})"
            for name, value, least, advice in (
                ("grace_ms", self.grace_ms, 0, "it is a duration in ms"),
                ("catch_up_grace_ms", self.catch_up_grace_ms, self.grace_ms, "a backlog is read less evenly"),
                ("records_per_trigger_max", self.records_per_trigger_max, 100, "each micro-batch has a fixed cost"),
                ("records_per_broker_max", self.records_per_broker_max, 0, "0 leaves the bound at that of a trigger"),
                ("shards", self.shards, 0, "each is kept by a task; 0 chooses by the number of brokers"),
            )
            if value < least
        ]
        if self.future_ms_max is not None and self.future_ms_max < 0:
            errors.append(f"future_ms_max is {self.future_ms_max}: must be at least 0, because it is a distance in ms")
        if self.past_ms_max is not None and self.past_ms_max < self.window_ms:
            errors.append(
                f"past_ms_max is {self.past_ms_max}, less than a window of {self.window_ms}: good records would be "
                "refused"
            )
        return errors + port_errors(self.metrics_port)
