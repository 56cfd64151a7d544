"""Run a real Kafka broker (KRaft, broker and controller in one process) as a supervised service.

In: a run directory, Java, the jars of the lock. Out: a Service and its bootstrap address. The same directory leads to
the same ports and data. Topics belong to create_topics.py.
"""

import os
import subprocess
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from regraft.infra.kafka.kafka_access import KafkaAccess, KafkaSecurity
from regraft.infra.kafka.kafka_clients import is_kafka_ready
from regraft.infra.local.fetch_jars import kafka_class_path
from regraft.infra.local.find_java import JavaRuntime, find_java
from regraft.infra.local.java_options import ClassArchive, archive_of, start_options
from regraft.infra.local.secure_kafka import SecuredKafka
from regraft.infra.local.service import SERVER_VARIABLES, RestartPolicy, Service
from regraft.infra.local.start_on_port import start_on_port
from regraft.infra.local.supervise import Supervisor
from regraft.infra.process.find_port import LOOPBACK, choose_ports, is_listening
from regraft.infra.process.quote_paths import JAVA_LOCALE, property_value, with_log_file
from regraft.infra.process.stack_error import StackError
from regraft.infra.process.write_private import write_private

HEAP_MB = 320
FORMAT_TIMEOUT_S = 120
READY_TIMEOUT_S = 90.0

# Sizes are for one machine and a run of minutes to hours: every log, index and cache is bounded and small. Timeouts are
# short because a killed broker's successor must wait until its registration expires.
PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{host}:{controller_port}
listeners=BROKER://{host}:{port},CONTROLLER://{host}:{controller_port}
advertised.listeners=BROKER://{host}:{port}
listener.security.protocol.map=BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=BROKER
controller.listener.names=CONTROLLER
log.dirs={data_dir}
auto.create.topics.enable=false
num.partitions=1
default.replication.factor=1
min.insync.replicas=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
offsets.topic.segment.bytes=8388608
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
transaction.state.log.segment.bytes=8388608
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.num.partitions=1
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
log.segment.bytes=67108864
log.retention.bytes=1073741824
log.index.size.max.bytes=1048576
log.cleaner.dedupe.buffer.size=8388608
log.cleaner.io.buffer.size=262144
metadata.log.segment.bytes=16777216
metadata.max.retention.bytes=67108864
num.network.threads=2
num.io.threads=4
background.threads=2
num.recovery.threads.per.data.dir=2
broker.heartbeat.interval.ms=500
broker.session.timeout.ms=4000
"""

LOG_PROPERTIES = """\
status=error
appender.file.type=RollingFile
appender.file.name=file
appender.file.fileName={file}
appender.file.filePattern={pattern}
appender.file.layout.type=PatternLayout
appender.file.layout.pattern=%d %p %m (%c{1})%n
appender.file.policies.type=Policies
appender.file.policies.size.type=SizeBasedTriggeringPolicy
appender.file.policies.size.size=16MB
appender.file.strategy.type=DefaultRolloverStrategy
appender.file.strategy.max=2
appender.console.type=Console
appender.console.name=console
appender.console.layout.type=PatternLayout
appender.console.layout.pattern=%d %p %m%n%throwable
appender.console.filter.level.type=ThresholdFilter
appender.console.filter.level.level=error
rootLogger.level=info
rootLogger.appenderRef.file.ref=file
rootLogger.appenderRef.console.ref=console
"""


class KafkaServerError(StackError):
    """Reports why the local Kafka broker could not be prepared or started."""


@dataclass(frozen=True, slots=True)
class KafkaAddress:
    """Where the broker listens; ``controller_port`` is used by Kafka itself only."""

    port: int
    controller_port: int

    @property
    def bootstrap(self) -> str:
        """Return the address for clients, ``host:port``."""
        return f"{LOOPBACK}:{self.port}"


@dataclass(frozen=True, slots=True)
class KafkaFiles:
    """Where one broker's files are in the run directory."""

    root: Path

    @property
    def properties(self) -> Path:
        """The broker's configuration file."""
        return self.root / "server.properties"

    @property
    def format_arguments(self) -> Path:
        """The file with the arguments for formatting the data directory; it exists only meanwhile."""
        return self.root / "format.arguments"

    @property
    def log_settings(self) -> Path:
        """The configuration of the broker's log."""
        return self.root / "log4j2.properties"

    @property
    def data(self) -> Path:
        """The directory of the topics' data."""
        return self.root / "data"

    @property
    def log(self) -> Path:
        """The file with the process's output, which is errors only; the log is kafka.log next to it."""
        return self.root / "process.log"


def start_kafka_service(
    supervisor: Supervisor,
    run_dir: Path,
    *,
    port: int | None = None,
    more_properties: Mapping[str, str] | None = None,
    secured: SecuredKafka | None = None,
) -> KafkaAddress:
    """Start a broker under ``supervisor`` with its data in ``run_dir/kafka`` and wait until it serves clients.

    ``more_properties`` are written after the usual ones and override them. With ``secured``, clients connect by TLS and
    SASL only; without it connections are plain text.
    Without ``port``, the ports of an earlier run in this directory are reused if they are free, else other free ones.
    Raises PortInUseError, KafkaServerError or ServiceFailedError.
    """
    java, class_path, files = find_java(), kafka_class_path(), KafkaFiles((run_dir / "kafka").absolute())

    def prepare(again: bool) -> tuple[KafkaAddress, Service]:
        address = _choose_address(files, port, again=again)
        write_settings(files, address, secured, more_properties)
        format_data(files, java, class_path, secured)
        access = KafkaAccess(address.bootstrap, security=secured.login() if secured else KafkaSecurity())
        command = java_command(files, java, class_path, HEAP_MB)
        return address, kafka_process(files, command, lambda: is_listening(address.port) and is_kafka_ready(access))

    return start_on_port(supervisor, "Kafka", port, prepare)


class RunningKafka:
    """A broker with a supervisor, for tests and tools; use it as a context manager or call ``stop``."""

    def __init__(self, supervisor: Supervisor, address: KafkaAddress, security: KafkaSecurity) -> None:
        self.supervisor = supervisor
        self.address = address
        self._security = security

    @property
    def bootstrap(self) -> str:
        """Return the address for clients, ``host:port``."""
        return self.address.bootstrap

    @property
    def access(self) -> KafkaAccess:
        """How clients reach the broker."""
        return KafkaAccess(self.bootstrap, security=self._security)

    def stop(self) -> None:
        """Stop the broker; its data remain."""
        self.supervisor.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def start_kafka(
    run_dir: Path,
    *,
    port: int | None = None,
    more_properties: Mapping[str, str] | None = None,
    secured: SecuredKafka | None = None,
) -> RunningKafka:
    """Start a single broker with its data in ``run_dir/kafka`` and wait until it serves clients."""
    supervisor = Supervisor()
    try:
        address = start_kafka_service(supervisor, run_dir, port=port, more_properties=more_properties, secured=secured)
        return RunningKafka(supervisor, address, secured.login() if secured else KafkaSecurity())
    except BaseException:
        supervisor.stop()
        raise


def _choose_address(files: KafkaFiles, port: int | None, *, again: bool) -> KafkaAddress:
    earlier = _read_address(files)
    usable = earlier is not None and not again and port in (None, earlier.port)
    if usable and earlier and not is_listening(earlier.port) and not is_listening(earlier.controller_port):
        return earlier
    free_port, controller_port = choose_ports(2)
    return KafkaAddress(port or free_port, controller_port)


def _read_address(files: KafkaFiles) -> KafkaAddress | None:
    if not files.properties.is_file():
        return None
    for line in files.properties.read_text().splitlines():
        if line.startswith("listeners="):
            port, controller_port = (int(part.rsplit(":", 1)[1]) for part in line.split(","))
            return KafkaAddress(port, controller_port)
    return None


def write_settings(
    files: KafkaFiles, address: KafkaAddress, secured: SecuredKafka | None, more: Mapping[str, str] | None
) -> None:
    """Write the settings, readable by this user only because a secured server's hold a password.

    Raises KafkaServerError if Kafka cannot use the directory.
    """
    if "," in str(files.data):  # Kafka reads a list here, without any escape.
        raise KafkaServerError(f"Kafka cannot store data in {files.data}: choose a directory without a comma.")
    files.root.mkdir(mode=0o700, parents=True, exist_ok=True)
    text = PROPERTIES.format(
        host=LOOPBACK, port=address.port, controller_port=address.controller_port, data_dir=property_value(files.data)
    )
    text += secured.properties() if secured else ""
    text += "".join(f"{name}={value}\n" for name, value in (more or {}).items())
    write_private(files.properties, text.encode())
    files.log_settings.write_text(with_log_file(LOG_PROPERTIES, files.root / "kafka.log"))


def java_command(files: KafkaFiles, java: JavaRuntime, class_path: str, heap_mb: int) -> tuple[str, ...]:
    """Return the command, without the class, that runs a class of Kafka with this heap."""
    return (
        str(java.executable),
        *start_options(kafka_archive(java, class_path)),
        f"-Xmx{heap_mb}m",
        "-Xms64m",
        "-XX:+UseSerialGC",  # for a small heap: least memory, pauses of milliseconds
        # Only the quick compiler: in the first minute the other one took 12 of Kafka's 28 CPU seconds.
        "-XX:TieredStopAtLevel=1",
        "-XX:+ExitOnOutOfMemoryError",  # a dead broker is restarted, a half-dead one is not
        f"-Dlog4j2.configurationFile={files.log_settings.as_uri()}",
        *("-cp", class_path),
    )


def kafka_archive(java: JavaRuntime, class_path: str) -> ClassArchive:
    """Return the archive of the broker's classes, which need not exist."""
    return archive_of("kafka", java, class_path)


def new_cluster_id() -> str:
    """Return the id of a new cluster."""
    return urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def format_data(
    files: KafkaFiles, java: JavaRuntime, class_path: str, secured: SecuredKafka | None, cluster_id: str = ""
) -> None:
    """Write the broker's identity and users to a new data directory; an existing one is not changed.

    ``cluster_id`` is the same for all brokers of a cluster; a single broker gets a new one.
    """
    if (files.data / "meta.properties").is_file():
        return
    # With "=", because an id may start with a dash and would then be parsed as an option.
    arguments = ["--ignore-formatted", f"--cluster-id={cluster_id or new_cluster_id()}", "-c", str(files.properties)]
    arguments += secured.format_arguments() if secured else []
    # Not on the command line, which every user of this machine can read.
    write_private(files.format_arguments, "\n".join(arguments).encode())
    command = [
        *java_command(files, java, class_path, heap_mb=128),
        *("kafka.tools.StorageTool", "format", f"@{files.format_arguments}"),
    ]
    answer = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=FORMAT_TIMEOUT_S,
        check=False,
        env={**os.environ, **JAVA_LOCALE},
    )
    files.format_arguments.unlink()
    if answer.returncode != 0:
        lines = (answer.stderr or answer.stdout).strip().splitlines() or ["no output"]
        raise KafkaServerError(
            f"Kafka's data directory {files.data} could not be prepared ({lines[0]}): check its disk."
        )


def kafka_process(files: KafkaFiles, command: tuple[str, ...], ready: Callable[[], bool]) -> Service:
    """Return the service of one broker, which is restarted if it dies; ``command`` is that of ``java_command``."""
    return Service(
        name="kafka",
        command=(*command, "kafka.Kafka", str(files.properties)),
        log_file=files.log,
        environment={"MALLOC_ARENA_MAX": "2", **JAVA_LOCALE},  # glibc: otherwise threads hold many half-empty arenas
        inherited=SERVER_VARIABLES,
        ready=ready,
        ready_timeout_s=READY_TIMEOUT_S,
        grace_s=20.0,
        restart=RestartPolicy(),
    )
