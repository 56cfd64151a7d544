"""Telemetry of two agents on a Kafka with TLS, logins and access rules: neither reports for a broker of the other."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest
from pyspark.sql import SparkSession

from regraft.infra.kafka.access_rules import access_rules, agent_principals, create_access_rules, default_principals
from regraft.infra.kafka.create_topics import create_topics
from regraft.infra.kafka.kafka_access import KafkaAccess
from regraft.infra.kafka.read_messages import read_messages
from regraft.infra.kafka.record_writer import RecordWriter
from regraft.infra.local.kafka_server import RunningKafka, start_kafka
from regraft.infra.local.secure_kafka import LOCAL_USER, SecuredKafka, secure_kafka
from regraft.overlay.inventory.inventory import Inventory
from regraft.schemas.codec import decode, encode
from regraft.schemas.dead_letter import DeadLetter
from regraft.schemas.state import StateRow, WindowClosed
from regraft.schemas.telemetry import Delivery, TelemetryBatch
from regraft.schemas.topics import DEAD_LETTERS, STATE, TELEMETRY, WINDOWS, Topic, topic_name
from regraft.streaming.run_job import run_job
from regraft.streaming.streaming_settings import StreamingSettings
from tests.overlay.small_overlays import inventory_of, line_of
from tests.wait_until import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.stack]

NAMESPACE = "live"
INVENTORY: Inventory = replace(inventory_of(line_of(2), {}), agent_of={"b00": "west", "b01": "east"})
TOPICS_OF = INVENTORY.broker_topics(NAMESPACE)
SECONDS = 10
PATIENCE_S = 120.0

R = TypeVar("R", bound=msgspec.Struct)


@dataclass(frozen=True)
class Site:
    """The Kafka, whose users are the job and the agents."""

    running: RunningKafka
    secured: SecuredKafka

    def write(self, agent: str, batches: list[tuple[str, TelemetryBatch]]) -> RecordWriter:
        """Write batches to the named topics with the agent's login; return the writer, which counts."""
        access = KafkaAccess(self.running.bootstrap, "regraft-emulator", self.secured.login(f"live-brokers-{agent}"))
        with closing(RecordWriter(access, outage_s_max=20, buffer_records_max=1_000, linger_ms=0)) as writer:
            for name, batch in batches:
                writer.write(name, batch.broker, batch)
            assert writer.flush(PATIENCE_S) == 0
            return writer

    def read(self, topic: Topic, kind: type[R]) -> list[R]:
        """Return all records of a topic."""
        found = read_messages(self.running.access, [topic_name(topic, NAMESPACE)], PATIENCE_S)
        return [decode(one.value() or b"", kind) for one in found]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    users = (LOCAL_USER, "live-streaming", "live-brokers-west", "live-brokers-east")
    secured = secure_kafka(tmp_path / "secrets", users)
    with start_kafka(tmp_path, secured=secured) as running:
        create_topics(running.access, namespace=NAMESPACE, agents=TOPICS_OF.agents)
        speakers = {agent: agent_principals(NAMESPACE, agent) for agent in TOPICS_OF.agents}
        create_access_rules(running.access, access_rules(default_principals(NAMESPACE), NAMESPACE, agents=speakers))
        yield Site(running, secured)


def batches_of(broker: str, begin_ms: int, boot: int, mask: int) -> list[TelemetryBatch]:
    found = []
    for second in range(SECONDS):
        time_ms = begin_ms + second * 1_000 + 500
        delivery = Delivery("p", second, time_ms // 1_000, mask, 1, 10)
        found.append(TelemetryBatch(broker, boot, second, time_ms, 1, (delivery,)))
    return found


def run_until(spark: SparkSession, settings: StreamingSettings, is_done: Callable[[], bool]) -> None:
    stop, failed = threading.Event(), []

    def run() -> None:
        try:
            run_job(spark, settings, stop)
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        wait_until(lambda: bool(failed) or is_done(), PATIENCE_S)
    finally:
        stop.set()
        thread.join(PATIENCE_S)
    assert not failed


def test_an_agent_reports_only_for_its_own_brokers(spark: SparkSession, site: Site, tmp_path: Path) -> None:
    """Kafka denies west the topic of east; west's records about east's broker have no effect."""
    INVENTORY.save(tmp_path / "inventory.json")
    begin_ms = (int(time.time()) - 60) * 1_000
    west, east = (TOPICS_OF.name(TELEMETRY, broker) for broker in INVENTORY.brokers)
    forged = batches_of("b01", begin_ms, boot=begin_ms, mask=0b1110)
    kept_out = site.write("west", [(east, forged[0])])
    assert (kept_out.written, kept_out.lost) == ({}, {east: 1})
    for agent, broker, name in (("west", "b00", west), ("east", "b01", east)):
        site.write(agent, [(name, batch) for batch in batches_of(broker, begin_ms, boot=1, mask=0b1)])
    site.write("west", [(west, batch) for batch in forged])
    settings = StreamingSettings(
        site.running.bootstrap,
        tmp_path / "checkpoint",
        namespace=NAMESPACE,
        window_ms=1_000,
        grace_ms=500,
        catch_up_grace_ms=500,
        trigger_ms=100,
        inventory_path=tmp_path / "inventory.json",
        security=site.secured.login("live-streaming"),
    )
    run_until(
        spark,
        settings,
        lambda: (
            len(site.read(WINDOWS, WindowClosed)) == SECONDS - 1 and len(site.read(DEAD_LETTERS, DeadLetter)) == SECONDS
        ),
    )
    for marker in site.read(WINDOWS, WindowClosed):
        assert [(each.broker, each.boot, each.received) for each in marker.brokers] == [("b00", 1, 1), ("b01", 1, 1)]
    packed = [row.packed_deliveries.columns() for row in site.read(STATE, StateRow) if row.packed_deliveries]
    counts = [zip(each.broker.tolist(), each.notifications.tolist(), strict=True) for each in packed]
    named = {(each.brokers[broker], count) for each, rows in zip(packed, counts, strict=True) for broker, count in rows}
    assert named == {("b00", 1), ("b01", 1)}
    letters = site.read(DEAD_LETTERS, DeadLetter)
    assert all("a broker of another agent: b01 belongs to east" in letter.reason for letter in letters)
    assert {letter.topic for letter in letters} == {west}
    assert sorted(letter.value for letter in letters) == sorted(encode(batch) for batch in forged)
