"""Run several Kafka brokers on this machine as one cluster, to try out and test the death of a broker.

In: a supervisor and a run directory. Out: a KafkaCluster, whose topics get as many replicas as it has brokers, at most
three. Each broker is also a controller, so any one of three may die. They share a disk, so the loss of a machine is not
shown. A single broker, as in the demo, belongs to :mod:`regraft.infra.local.kafka_server`.
"""

import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import psutil
from confluent_kafka import KafkaException

from regraft.infra.kafka.compare_topics import durability_of
from regraft.infra.kafka.kafka_access import KafkaAccess
from regraft.infra.kafka.kafka_clients import open_admin
from regraft.infra.local.fetch_jars import kafka_class_path
from regraft.infra.local.find_java import find_java
from regraft.infra.local.kafka_server import (
    READY_TIMEOUT_S,
    KafkaAddress,
    KafkaFiles,
    KafkaServerError,
    format_data,
    java_command,
    kafka_process,
    new_cluster_id,
    write_settings,
)
from regraft.infra.local.service import NO_RESTART
from regraft.infra.local.supervise import Supervisor
from regraft.infra.process.find_port import LOOPBACK, choose_ports, is_listening

HEAP_MB = 192
ASK_TIMEOUT_S = 10.0
POLL_S = 0.1
GRACE_S = 3.0  # The last brokers to stop have no quorum and would wait for it.


@dataclass(frozen=True, slots=True)
class KafkaCluster:
    """The brokers of one cluster; their node ids are 1, 2 and so on."""

    supervisor: Supervisor
    addresses: tuple[KafkaAddress, ...]

    @property
    def access(self) -> KafkaAccess:
        """How clients reach the cluster, through any of its brokers."""
        return KafkaAccess(",".join(address.bootstrap for address in self.addresses))

    def leader(self, topic: str, partition: int = 0) -> int:
        """Return the node id of the broker that leads a partition, negative if none does."""
        found = open_admin(self.access, ASK_TIMEOUT_S).list_topics(topic, timeout=ASK_TIMEOUT_S)
        return int(found.topics[topic].partitions[partition].leader)

    def kill(self, node: int) -> None:
        """Kill a broker at once (SIGKILL); it is not restarted."""
        pid = self.supervisor.pid(_name(node))
        if pid is None:
            raise KafkaServerError(f"Kafka broker {node} is not running: choose one that is.")
        psutil.Process(pid).kill()

    def brokers(self) -> int:
        """Return how many brokers the cluster has now, 0 if it does not answer."""
        try:
            return len(open_admin(self.access, ASK_TIMEOUT_S).list_topics(timeout=1.0).brokers)
        except KafkaException:
            return 0


def start_kafka_cluster(
    supervisor: Supervisor, run_dir: Path, *, brokers: int = 3, heap_mb: int = HEAP_MB
) -> KafkaCluster:
    """Start this many brokers under ``supervisor`` with their data in ``run_dir`` and wait until all serve clients.

    Raises KafkaServerError or ServiceFailedError.
    """
    java, class_path, cluster_id = find_java(), kafka_class_path(), new_cluster_id()
    ports = choose_ports(2 * brokers)
    addresses = tuple(map(KafkaAddress, ports[:brokers], ports[brokers:]))
    for node, address in enumerate(addresses, 1):
        files = KafkaFiles((run_dir / _name(node)).absolute())
        write_settings(files, address, None, _properties(node, addresses))
        format_data(files, java, class_path, None, cluster_id)
        # The first has no quorum yet; the loop below waits until all serve.
        is_up = partial(is_listening, address.controller_port)
        process = kafka_process(files, java_command(files, java, class_path, heap_mb), is_up)
        supervisor.start(replace(process, name=_name(node), restart=NO_RESTART, grace_s=GRACE_S))
    cluster = KafkaCluster(supervisor, addresses)
    deadline_s = time.monotonic() + READY_TIMEOUT_S
    while (there := cluster.brokers()) < brokers:
        if time.monotonic() > deadline_s:
            raise KafkaServerError(
                f"Kafka has {there} of {brokers} brokers after {READY_TIMEOUT_S:g} s: see the logs in {run_dir}."
            )
        time.sleep(POLL_S)
    return cluster


def _name(node: int) -> str:
    return f"kafka-{node}"


def _properties(node: int, addresses: tuple[KafkaAddress, ...]) -> dict[str, str]:
    """Return the properties that differ from those of a single broker."""
    durability = durability_of(len(addresses))
    replicas, insync = str(durability.replicas), str(durability.insync_min)
    voters = (f"{number}@{LOOPBACK}:{each.controller_port}" for number, each in enumerate(addresses, 1))
    return {
        "node.id": str(node),
        "controller.quorum.voters": ",".join(voters),
        "default.replication.factor": replicas,
        "min.insync.replicas": insync,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": insync,
    }
