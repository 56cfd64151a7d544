"""A small site whose brokers are a separate process: what happens to a plan when brokers or plans are lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from confluent_kafka.admin import AdminClient

from regraft.infra.kafka.create_topics import create_topics
from regraft.infra.kafka.kafka_access import KafkaAccess
from regraft.infra.kafka.kafka_clients import open_producer
from regraft.schemas.codec import encode
from regraft.schemas.member import BrokerFacts, Member, MemberState, PeerCost
from regraft.schemas.topics import MEMBERS, PLANS, topic_name
from tests.controller.failover_site import INVENTORY, NAMESPACE, PATIENCE_S, ROOT, FailoverSite
from tests.wait_until import wait_until


class RecoverySite(FailoverSite):
    """Brokers by `regraft stage emulate`, scripted windows, a controller as a process."""

    def __init__(self, kafka: KafkaAccess, folder: Path) -> None:
        super().__init__(kafka, folder)
        self._brokers_folder = folder / "brokers"
        self._brokers_folder.mkdir()
        INVENTORY.save(self._brokers_folder / "inventory.json")
        self._brokers: subprocess.Popen[bytes] | None = None

    def start_brokers(self) -> None:
        """Start the brokers and wait until they report an epoch."""
        (self._brokers_folder / "emulator.json").unlink(missing_ok=True)
        workload = ("publisher_count=10", "interested_broker_count=3", "lifetime_s_mean=5.0")
        settings = [f"run.directory={self._brokers_folder}", f"kafka.bootstrap={self.kafka.bootstrap}"]
        settings += [f"kafka.namespace={NAMESPACE}", *(f"emulator.workload.{one}" for one in workload)]
        command = [sys.executable, "-m", "regraft", "stage", "emulate"]
        for one in settings:
            command += ["--set", one]
        with (self._brokers_folder / "emulator.log").open("a") as log:
            self._brokers = subprocess.Popen(
                command, cwd=ROOT, stderr=log, stdout=log, env={**os.environ, "PYTHONPATH": str(ROOT)}
            )
        wait_until(lambda: self.epoch is not None, PATIENCE_S)

    def kill_brokers(self) -> None:
        """Kill all brokers at once."""
        assert self._brokers is not None
        self._brokers.kill()
        self._brokers.wait()

    @property
    def epoch(self) -> int | None:
        """The brokers' lowest epoch, or None before they report any."""
        try:
            document = json.loads((self._brokers_folder / "emulator.json").read_text())
        except (OSError, ValueError):
            return None
        return min(int(epoch) for epoch in document["brokers_by_epoch"])

    def _begin_brokers(self, folder: Path) -> None:
        """Do nothing: the test starts them."""

    def _release_answers(self) -> None:
        """Do nothing: no answer is held back."""

    def _end_brokers(self) -> None:
        if self._brokers is not None:
            self.kill_brokers()

    def lose_plans(self) -> None:
        """Delete the topic of plans and create it again."""
        name = topic_name(PLANS, NAMESPACE)
        admin = AdminClient({"bootstrap.servers": self.kafka.bootstrap, "log_level": 0})
        admin.delete_topics([name])[name].result()
        wait_until(lambda: name not in admin.list_topics(timeout=10).topics)
        create_topics(self.kafka, namespace=NAMESPACE)

    def add_member(self, broker: str, agent: str) -> None:
        """Store a joining member that has not reported yet and whose agent has no topics."""
        facts = BrokerFacts(link_costs=(PeerCost(INVENTORY.brokers[0], 1.0),), agent=agent)
        member = Member(broker, MemberState.JOINING, 1, "more room", facts=facts)
        producer = open_producer(self.kafka)
        producer.produce(topic_name(MEMBERS, NAMESPACE), key=broker, value=encode(member))
        assert producer.flush(PATIENCE_S) == 0

    def recover(self, *options: str) -> subprocess.CompletedProcess[str]:
        """Run `regraft recover`."""
        command = [sys.executable, "-m", "regraft", "recover", *options]
        for one in (
            f"run.directory={self._brokers_folder}",
            f"kafka.bootstrap={self.kafka.bootstrap}",
            f"kafka.namespace={NAMESPACE}",
            "controller.session_ms=2000",
        ):
            command += ["--set", one]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "300"}
        return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
