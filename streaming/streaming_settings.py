"""Settings of the streaming stage: one frozen value, checked as a whole before anything starts.

Neither reads files nor the environment; ``regraft`` and ``submit_job.main`` fill it.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path

from regraft.infra.hadoop_path import HadoopPath
from regraft.infra.kafka_access import KafkaAccess, KafkaSecurity
from regraft.infra.serve_metrics import port_faults
from regraft.schemas.bounds import ITEMS_MAX
from regraft.schemas.topics import DEFAULT_NAMESPACE, TELEMETRY, topic_name

# Bump with every change of keys, windows or aggregates: a checkpoint holds state that only its own query understands.
QUERY_VERSION = 4

SECOND_MS = 1_000
CATCH_UP_GRACE_MS = 60_000

# What one Avro body may claim before anything is allocated. Without these a record of a few bytes that announces a
# string or array of 2 GB ends the JVM, and does so again after every restart. Read once, when Avro is first used.
AVRO_LIMITS: dict[str, int] = {
    "org.apache.avro.limits.string.maxLength": 1 << 20,
    "org.apache.avro.limits.bytes.maxLength": 1 << 20,
    "org.apache.avro.limits.collectionItems.maxLength": ITEMS_MAX,
}

# What the benchmark of the streaming stage was tuned with, for the driver and for executors of a cluster. -Xss4m:
# stopping inside foreachBatch overflows smaller stacks.
JAVA_OPTIONS = "-Xss4m -XX:+UseParallelGC " + " ".join(f"-D{name}={limit}" for name, limit in AVRO_LIMITS.items())

# Spark's own patterns, and what Kafka's options add.
SECRET_OPTIONS = r"(?i)secret|password|token|access[.]?key|url|jaas|keystore"

# How Spark writes a checkpoint on a disk: no process is forked for each file, which lowers the floor of a small
# micro-batch by half. The class name is 4.0's. Elsewhere Spark chooses, or spark-defaults.conf says.
LOCAL_MANAGER = (
    "spark.sql.streaming.checkpointFileManagerClass",
    "org.apache.spark.sql.execution.streaming.FileSystemBasedCheckpointFileManager",
)
LOCAL_SCHEMES = ("", "file")

# Session settings that the query needs or was tuned with, for ``SparkSession.builder.config``.
SPARK_SETTINGS: dict[str, str] = {
    "spark.sql.session.timeZone": "UTC",
    LOCAL_MANAGER[0]: LOCAL_MANAGER[1],
    # Python takes this many parts at a time; each has many deliveries.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
    # Forks Python workers that do less for each task.
    "spark.python.daemon.module": "regraft.streaming.fork_workers",
    "spark.sql.streaming.numRecentProgressUpdates": "200",
    # What Spark remembers of each micro-batch for its pages, with the page off too: by default of the last 1000, some
    # 100 kB of heap each. None of it is read here.
    "spark.sql.ui.retainedExecutions": "20",
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "200",
    "spark.driver.extraJavaOptions": JAVA_OPTIONS,
    "spark.executor.extraJavaOptions": JAVA_OPTIONS,
    # On a cluster each executor writes its own log, which would fill the worker's disk in time.
    "spark.executor.logs.rolling.strategy": "size",
    "spark.executor.logs.rolling.maxSize": str(16 << 20),
    "spark.executor.logs.rolling.maxRetainedFiles": "3",
    # Options of the Kafka source hold passwords and keys: nowhere does Spark show these.
    "spark.redaction.regex": SECRET_OPTIONS,
    "spark.sql.redaction.options.regex": SECRET_OPTIONS,
}


CheckpointPath = Path | HadoopPath
URI = re.compile(r"[a-z][a-z0-9+.-]*:/{1,3}[^/].*")


@dataclass(frozen=True, slots=True)
class EventBounds:
    """How far event times may lie after and before the time at which Kafka took the record, None for any distance.

    If ``future_ms_max`` is set, event times can be checked against Kafka's time.
    """

    future_ms_max: int | None = None
    past_ms_max: int | None = None


@dataclass(frozen=True, slots=True)
class StreamingSettings:
    """All settings of the query.

    ``bootstrap``: Kafka's servers as host:port, several with commas. ``namespace``: prefix of all topic names.
    ``checkpoint_directory``: where Spark keeps how far it is and its state.
    ``checkpoint_uri``: a location in Hadoop's file systems that replaces this directory, such as hdfs://NAME/PATH; with
    executors on other machines, they must share the directory, or this must be set.
    ``window_ms``: length of a window of event time, a multiple of 1000; the controller decides once a window.
    ``grace_ms``: how long a window waits for late rows while the job keeps up.
    ``catch_up_grace_ms``: how long it waits while a backlog is read; there the partitions are read unevenly, and event
    time passes quickly anyway.
    ``trigger_ms``: time from the start of one micro-batch to that of the next, at least; 0 sets no such bound.
    ``pause_ms_max``: the same at most, while no window is complete: the next micro-batch waits so that one begins just
    when a window is, which may take twice that (:mod:`streaming.pace_batches`). 0 never waits.
    ``records_per_trigger_max``: records in one micro-batch over all partitions, in a small overlay.
    ``records_per_broker_max``: the same for each broker of the inventory, where that is more. A job further behind than
    one micro-batch catches up with the longer grace, and every state is stale meanwhile; so the bound must hold what
    comes while a query starts, up to 30 s on a busy machine: 4 records a second and broker, for 30 s. That is 4,800 for
    40 brokers, where 20,000 are 125 s, and 120,000 for 1,000, where 20,000 would be 5 s. 0 leaves it at the former.
    ``shards``: into how many parts by broker the state is split, each kept, merged and written by one task; at most as
    many as the executors have cores. A checkpoint has those it was begun with. 0 takes these, and for a new one 1 for
    each 500 brokers of the inventory, 2 at least.
    ``read_partitions_min``: Spark tasks that read telemetry at once, where that is more than ``shards``; more than
    Kafka's partitions splits these up, of fewer each reads several.
    ``future_ms_max``, ``past_ms_max``: how far event times may lie after and before the time at which Kafka took the
    record; of the first no more than half the grace counts. None takes any time, as runs at another clock need; without
    the first, the fastest clock closes the windows of all.
    ``create_time``: take times that senders gave their records, as in a replay, which puts back those that Kafka gave;
    else a topic of telemetry that has such is refused, as a wrong clock could say anything.
    ``write_timeout_ms``: how long Kafka may acknowledge none of the rows that wait before the job ends; a slow one that
    accepts some is waited for.
    ``silence_ms_max``: how long no micro-batch may end before ``/health`` reports that the job hangs. A restart runs
    the same micro-batch again, so this must be longer than the slowest one takes.
    ``status_file``: JSON that says how far the job is; None writes none.
    ``telemetry_topic``: the topic to read instead of the namespace's own, for a replay next to a running job.
    ``metrics_port``, ``metrics_host``: where Prometheus may scrape, and /health and /ready answer; None opens no port,
    the default host is this one.
    ``inventory_path``: the brokers, next to members that were added since; telemetry that names another one, or stands
    in the topic of an agent that does not speak for its broker, is refused. None takes any name.
    ``security``: Kafka's TLS and SASL.
    """

    bootstrap: str
    checkpoint_directory: Path
    checkpoint_uri: str = ""
    namespace: str = DEFAULT_NAMESPACE
    window_ms: int = 5_000
    grace_ms: int = 2_000
    catch_up_grace_ms: int = CATCH_UP_GRACE_MS
    trigger_ms: int = 50
    pause_ms_max: int = 1_000
    records_per_trigger_max: int = 20_000
    records_per_broker_max: int = 120
    shards: int = 0
    read_partitions_min: int = 0
    future_ms_max: int | None = 1_000
    past_ms_max: int | None = 3_600_000
    create_time: bool = False
    write_timeout_ms: int = 60_000
    silence_ms_max: int = 180_000
    status_file: Path | None = None
    telemetry_topic: str = ""
    metrics_port: int | None = None
    metrics_host: str = "127.0.0.1"
    inventory_path: Path | None = None
    security: KafkaSecurity = field(default_factory=KafkaSecurity)

    @property
    def kafka(self) -> KafkaAccess:
        """How this stage reaches Kafka."""
        return KafkaAccess(self.bootstrap, "regraft-streaming", self.security)

    @property
    def source_topic(self) -> str:
        """The topic that is read; agents of the inventory have one each, whose names begin so."""
        return self.telemetry_topic or topic_name(TELEMETRY, self.namespace)

    @property
    def bounds(self) -> EventBounds:
        """How far from Kafka's time event times are taken: ahead always less than the grace, so nobody is shut out."""
        future_ms_max = None if self.future_ms_max is None else min(self.future_ms_max, self.grace_ms // 2)
        return EventBounds(future_ms_max, self.past_ms_max)

    @property
    def checkpoint(self) -> CheckpointPath:
        """Where the checkpoint of Spark is, and what the job keeps next to it."""
        return HadoopPath(self.checkpoint_uri) if self.checkpoint_uri else self.checkpoint_directory

    @property
    def query_directory(self) -> CheckpointPath:
        """Where Spark keeps the checkpoint of this version of the query."""
        return self.checkpoint / f"v{QUERY_VERSION}"

    @property
    def position_file(self) -> CheckpointPath:
        """Where the job keeps, next to the checkpoint, how far it has reported its input."""
        return self.checkpoint / f"dead_letters.v{QUERY_VERSION}.json"

    @property
    def rule_file(self) -> CheckpointPath:
        """Where the job keeps, next to the checkpoint, by which rule its last query closed windows."""
        return self.checkpoint / f"closing_rule.v{QUERY_VERSION}.json"

    @property
    def members_file(self) -> Path:
        """Where the job keeps, on this machine, which brokers were added: they are asked for before Spark runs, too."""
        return self.checkpoint_directory / "members.json"

    @property
    def members_copy(self) -> HadoopPath | None:
        """The same next to a checkpoint at a URI, for a start on another machine; None where it is on this one."""
        return HadoopPath(self.checkpoint_uri) / "members.json" if self.checkpoint_uri else None

    @property
    def session_options(self) -> dict[str, str]:
        """Return what a session needs for this query: ``SPARK_SETTINGS``, but for stores that are not a disk."""
        is_on_disk = self.checkpoint_uri.partition(":")[0] in LOCAL_SCHEMES
        return {name: value for name, value in SPARK_SETTINGS.items() if is_on_disk or name != LOCAL_MANAGER[0]}

    def faults(self) -> list[str]:
        """Return every fault as one sentence with the value, the limit and what to do; empty when all is well."""
        found: list[str] = []
        if not self.bootstrap.strip():
            found.append("bootstrap is empty: name the Kafka servers as host:port")
        if self.checkpoint_uri and not URI.match(self.checkpoint_uri):
            found.append(
                f"checkpoint_uri is {self.checkpoint_uri!r}: it is a scheme and an absolute path, like "
                "hdfs://NAME/PATH or file:///PATH"
            )
        if not self.namespace.strip():
            found.append("namespace is empty: name the prefix of the topics, for example regraft")
        if self.window_ms < SECOND_MS or self.window_ms % SECOND_MS:
            found.append(f"window_ms is {self.window_ms}: deliveries come by the second, take a multiple of 1000")
        found += [
            f"{name} is {value}, at least {least} is needed: {advice}"
            for name, value, least, advice in (
                ("grace_ms", self.grace_ms, 0, "it is a wait, in ms"),
                ("catch_up_grace_ms", self.catch_up_grace_ms, self.grace_ms, "a backlog is read less evenly"),
                ("trigger_ms", self.trigger_ms, 0, "0 starts each micro-batch when the last one ends"),
                ("pause_ms_max", self.pause_ms_max, 0, "0 never waits for a window to be complete"),
                ("silence_ms_max", self.silence_ms_max, 30_000, "Spark reports an idle query every 10 s"),
                ("records_per_trigger_max", self.records_per_trigger_max, 100, "each micro-batch has a fixed cost"),
                ("records_per_broker_max", self.records_per_broker_max, 0, "0 leaves the bound at that of a trigger"),
                ("shards", self.shards, 0, "a task keeps each of them, 0 leaves it to the number of brokers"),
                ("read_partitions_min", self.read_partitions_min, 0, "it is a number of Spark tasks"),
                ("write_timeout_ms", self.write_timeout_ms, 1_000, "Kafka needs time to acknowledge"),
            )
            if value < least
        ]
        if self.future_ms_max is not None and self.future_ms_max < 0:
            found.append(f"future_ms_max is {self.future_ms_max}: at least 0, it is a distance in ms")
        if self.past_ms_max is not None and self.past_ms_max < self.window_ms:
            found.append(
                f"past_ms_max is {self.past_ms_max}, less than a window of {self.window_ms}: good records would be "
                "refused"
            )
        return found + port_faults(self.metrics_port)
