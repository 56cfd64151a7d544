"""Backup and restore on a real Kafka: what a controller must not lose comes back as it was, or not at all."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from regraft.infra.kafka.create_topics import create_topics
from regraft.infra.kafka.kafka_access import KafkaAccess
from regraft.infra.kafka.kafka_clients import open_producer
from regraft.infra.kafka.read_messages import read_to_end
from regraft.infra.local.kafka_server import RunningKafka, start_kafka
from regraft.producers.recordings.read_recording import open_recording
from regraft.recordings.restore_topics import RESTORED
from regraft.schemas.codec import encode
from regraft.schemas.leader import LeaderTerm
from regraft.schemas.member import Member, MemberState
from regraft.schemas.order import Order, OrderKind
from regraft.schemas.plan import Plan, PlanPhase
from regraft.schemas.plan_life import entered
from regraft.schemas.topics import AUDIT, LEADER, MEMBERS, ORDERS, PLANS, Topic, topic_name
from tests.overlay.small_overlays import inventory_of, line_of

ROOT = Path(__file__).parents[3]
NAMESPACE = "kept"
INVENTORY = inventory_of(line_of(3), {})
PLAN = Plan(
    "plan-1", 0, 1, 5_000, (), (), (), tuple(sorted(INVENTORY.bootstrap.links)), 9.0, 5.0, PlanPhase.PREPARING, ()
)
pytestmark = pytest.mark.stack


@pytest.fixture(scope="module")
def lost(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningKafka]:
    """The Kafka that is backed up."""
    with start_kafka(tmp_path_factory.mktemp("lost")) as kafka:
        create_topics(kafka.access, namespace=NAMESPACE)
        fill(kafka.access)
        yield kafka


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[RunningKafka]:
    """A Kafka without topics."""
    with start_kafka(tmp_path / "fresh") as kafka:
        yield kafka


def fill(kafka: KafkaAccess) -> None:
    """Write two versions of a plan, a member, a term, orders, and a record that no reader understands."""
    now_ms = time.time_ns() // 1_000_000
    begun = entered(PLAN, PlanPhase.PREPARING, "chosen", now_ms)
    activated = entered(begun, PlanPhase.ACTIVATING, "prepared", now_ms)
    pause = Order("*", OrderKind.PAUSE, "ada", "new disks", now_ms)
    records: list[tuple[Topic, str, bytes | None]] = [
        (PLANS, "plan-1", encode(begun)),
        (PLANS, "plan-1", encode(activated)),
        (PLANS, "plan-0", encode(begun)),
        (PLANS, "plan-0", None),
        (MEMBERS, "b01", encode(Member("b01", MemberState.DEAD, now_ms, "silent"))),
        (LEADER, "leader", encode(LeaderTerm(7, "c1", now_ms))),
        (ORDERS, pause.key, encode(pause)),
        (ORDERS, "strange", b"\x01no order"),
        (AUDIT, "*", b"kept though unreadable"),
    ]
    producer = open_producer(kafka)
    for topic, key, value in records:
        producer.produce(topic_name(topic, NAMESPACE), key=key, value=value)
    assert producer.flush(30) == 0


def call(
    kafka: RunningKafka, folder: Path, *arguments: str, namespace: str = NAMESPACE
) -> subprocess.CompletedProcess[str]:
    """Run a command against a Kafka, with the inventory in the run directory; both outputs are in one text."""
    folder.mkdir(exist_ok=True)
    INVENTORY.save(folder / "inventory.json")
    settings = ("--set", f"run.directory={folder}", "--set", f"kafka.namespace={namespace}")
    command = [sys.executable, "-m", "regraft", *arguments, *settings, "--bootstrap", kafka.access.bootstrap]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "400"}
    return subprocess.run(
        command, cwd=ROOT, env=environment, text=True, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def contents(kafka: KafkaAccess) -> dict[tuple[str, bytes | None], tuple[bytes | None, int]]:
    """Return value and time of the newest record of each key, without tombstones."""
    found: dict[tuple[str, bytes | None], tuple[bytes | None, int]] = {}
    for topic in RESTORED:
        for message in read_to_end(kafka, topic_name(topic, NAMESPACE)) or []:
            found[topic.suffix, message.key()] = (message.value(), message.timestamp()[1])
    return {place: kept for place, kept in found.items() if kept[0] is not None}


def test_what_was_backed_up_is_restored_with_its_times(lost: RunningKafka, fresh: RunningKafka, tmp_path: Path) -> None:
    """Plans, members, terms and the audit, byte for byte; orders cannot be copied, and those in force are named."""
    file, run = tmp_path / "backup.avro", tmp_path / "run"
    backup = call(lost, run, "backup", str(file))
    assert (backup.returncode, "1 records of audit could not be decoded: they are kept" in backup.stdout) == (1, True)
    shown = call(fresh, run, "recover", "--from", str(file))
    assert "1 leader, 1 members, 1 audit, 1 plans" in shown.stdout
    assert "Nothing was written" in shown.stdout
    assert "give it again: regraft pause --reason 'new disks'" in shown.stdout
    restored = call(fresh, run, "recover", "--from", str(file), "--yes")
    assert restored.returncode == 0, restored.stdout
    assert contents(fresh.access) == contents(lost.access)
    assert "give it again: regraft pause --reason 'new disks'" in restored.stdout
    again = call(fresh, run, "recover", "--from", str(file), "--yes")
    assert (again.returncode, "already holds" in again.stdout) == (1, True)


def test_a_backup_that_is_not_whole_or_of_another_namespace_restores_nothing(
    lost: RunningKafka, tmp_path: Path
) -> None:
    """A cut file, somebody else's backup, a recording and no file at all: one sentence each."""
    file, cut, run = tmp_path / "backup.avro", tmp_path / "cut.avro", tmp_path / "run"
    call(lost, run, "backup", str(file))
    cut.write_bytes(file.read_bytes()[:-40])
    recording = Path(__file__).parent / "small.avro"
    for path, namespace, said, code in (
        (file, "other", "is of namespace kept, but kafka.namespace is other", 1),
        (cut, NAMESPACE, "is incomplete", 1),
        (recording, open_recording(recording).info.namespace, "only backups can be restored", 1),
        (tmp_path / "none.avro", NAMESPACE, "none.avro does not exist", 2),
    ):
        refused = call(lost, run, "recover", "--from", str(path), "--yes", namespace=namespace)
        assert (refused.returncode, said in refused.stdout) == (code, True), refused.stdout
        assert "Traceback" not in refused.stdout
