"""The controller's Kafka ports on a real broker: reading from a point in time, dead letters, stored plans, outages."""

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from confluent_kafka import Producer

from regraft.controller.control_ports import DeposedError
from regraft.controller.ports.plan_store import KafkaPlanStore
from regraft.controller.ports.topic_readers import LetterSender, TopicReader
from regraft.controller.run_controller import run_controller
from regraft.controller.settings.controller_settings import ControllerSettings
from regraft.controller.settings.decision_settings import DecisionSettings
from regraft.infra.kafka.create_topics import create_topics
from regraft.infra.kafka.kafka_access import KafkaAccess
from regraft.infra.kafka.read_messages import read_to_end
from regraft.infra.kafka.transaction_writer import TransactionWriter
from regraft.infra.local.kafka_server import RunningKafka
from regraft.infra.process.find_port import choose_ports
from regraft.schemas.codec import encode
from regraft.schemas.command import Command, CommandPhase, CommandResult, Outcome
from regraft.schemas.dead_letter import DeadLetter
from regraft.schemas.event import AdaptationEvent, EventKind, Severity
from regraft.schemas.plan import PlanPhase
from regraft.schemas.state import StateRow, WindowClosed
from regraft.schemas.topics import COMMANDS, DEAD_LETTERS, EVENTS, RESULTS, STATE, WINDOWS, topic_name
from tests.controller.kafka_overlay import KafkaOverlay
from tests.controller.state.test_plan_log import plan_at
from tests.overlay.small_overlays import inventory_of, line_of
from tests.scrape_stage import scraped
from tests.wait_until import wait_until

pytestmark = pytest.mark.stack
PATIENCE_S = 60.0


def collected(reader: TopicReader[Any], count: int) -> list[Any]:
    """Read until this many records have arrived, then once more to check that no other follows."""
    found: list[Any] = []
    wait_until(lambda: len(found) >= count or bool(found.extend(reader.poll())))
    return found + reader.poll()


def begun_store(kafka: RunningKafka, namespace: str) -> KafkaPlanStore:
    """Return a store that has fenced off any other."""
    store = KafkaPlanStore(kafka.access, namespace)
    wait_until(store.begin)
    return store


def test_reader_starts_at_a_point_in_time(kafka: RunningKafka, namespace: str) -> None:
    """Records written before the point are not read, later ones are, and a new reader reads them again."""
    topic = topic_name(RESULTS, namespace)
    answer = CommandResult("plan-1", CommandPhase.PREPARE, "b00", 1, Outcome.PREPARED, "", 3, 0)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    producer.produce(topic, encode(answer), timestamp=1_000_000)
    producer.produce(topic, encode(msgspec.structs.replace(answer, broker="b01")), timestamp=2_000_000)
    producer.flush(PATIENCE_S)
    for _ in range(2):
        reader = TopicReader(kafka.access, {topic: CommandResult}, 1_500_000, pytest.fail)
        assert [record.broker for record in collected(reader, 1)] == ["b01"]
        reader.close()


def test_reader_that_starts_at_the_end_misses_nothing_that_follows(kafka: RunningKafka, namespace: str) -> None:
    """With a point in time after all records, the next record written is the first one read."""
    earlier = Producer({"bootstrap.servers": kafka.bootstrap})
    earlier.produce(topic_name(COMMANDS, namespace), encode(Command("plan-1", CommandPhase.PREPARE, "b00", 0, 1)))
    assert earlier.flush(PATIENCE_S) == 0  # A sender waits only a second: a broker just started may take longer.
    store = begun_store(kafka, namespace)
    reader = TopicReader(
        kafka.access, {topic_name(COMMANDS, namespace): Command}, time.time_ns() // 1_000_000 + 60_000, pytest.fail
    )
    assert reader.poll() == []
    wait_until(lambda: reader.poll() == [] and reader.is_reading)
    wait_until(lambda: store.commit(None, [Command("plan-1", CommandPhase.PREPARE, "b01", 0, 1)]))
    store.close()
    assert [command.broker for command in collected(reader, 1)] == ["b01"]
    reader.close()


class WritesAfter:
    """A consumer that writes a record right after the first answer to one kind of request."""

    def __init__(self, consumer: Any, question: str, write: Callable[[], object]) -> None:
        self._consumer, self._question, self._write = consumer, question, write

    def __getattr__(self, name: str) -> Any:
        asked = getattr(self._consumer, name)
        if name != self._question:
            return asked

        def ask(*given: Any, **options: Any) -> Any:
            answer = asked(*given, **options)  # A new topic may refuse the first request.
            if self._question:
                self._question = ""
                self._write()
            return answer

        return ask


@pytest.mark.parametrize("question", ["get_watermark_offsets", "offsets_for_times"])
def test_reader_misses_nothing_that_arrives_while_it_looks_up_its_start(
    kafka: RunningKafka, namespace: str, question: str
) -> None:
    """Or a standby might never learn who leads. The record may come twice, as a new topic may vanish for a moment."""
    topic = topic_name(RESULTS, namespace)
    answer = CommandResult("plan-1", CommandPhase.PREPARE, "b00", 1, Outcome.PREPARED, "", 3, 0)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})

    def write() -> None:
        producer.produce(topic, encode(answer))
        assert producer.flush(PATIENCE_S) == 0

    reader = TopicReader(kafka.access, {topic: CommandResult}, 0, pytest.fail)
    reader._consumer = WritesAfter(reader._consumer, question, write)  # type: ignore[assignment]
    assert set(collected(reader, 1)) == {answer}
    reader.close()


def test_undecodable_record_becomes_a_dead_letter(kafka: RunningKafka, namespace: str) -> None:
    """An invalid record is skipped, counted and kept with its position and the reason; the next one is read."""
    topic = topic_name(RESULTS, namespace)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    producer.produce(topic, b"rubbish")
    answer = CommandResult("plan-1", CommandPhase.PREPARE, "b00", 1, Outcome.PREPARED, "", 3, 0)
    producer.produce(topic, encode(answer))
    producer.flush(PATIENCE_S)
    sender = LetterSender(kafka.access, namespace)
    reader = TopicReader(kafka.access, {topic: CommandResult}, 0, sender.send)
    assert collected(reader, 1) == [answer]
    sender.close()
    assert reader.undecodable == {topic: 1}
    letters = TopicReader(kafka.access, {topic_name(DEAD_LETTERS, namespace): DeadLetter}, 0, pytest.fail)
    (letter,) = collected(letters, 1)
    assert (letter.topic, letter.offset, letter.value) == (topic, 0, b"rubbish")
    assert "expected 00" in letter.reason
    reader.close()
    letters.close()


def test_reader_reports_that_kafka_is_away() -> None:
    """Without a broker it returns nothing, in bounded time."""
    reader = TopicReader(KafkaAccess("127.0.0.1:1"), {"nowhere.results": CommandResult}, 0, pytest.fail)
    assert reader.poll() == []
    assert not reader.has_read_all()
    reader.close()


def test_the_end_behind_a_transaction_is_reached(kafka: RunningKafka, namespace: str) -> None:
    """Its marker takes an offset without a record; an open transaction is neither waited for nor read."""
    topic = topic_name(RESULTS, namespace)
    answer = CommandResult("plan-1", CommandPhase.PREPARE, "b00", 1, Outcome.PREPARED, "", 3, 0)
    writer = TransactionWriter(kafka.access, f"{namespace}-writer")
    wait_until(writer.begin)
    wait_until(lambda: writer.commit(lambda producer: producer.produce(topic, encode(answer))))
    reader = TopicReader(kafka.access, {topic: CommandResult}, 0, pytest.fail)
    found = []
    wait_until(lambda: bool(found.extend(reader.poll())) or reader.has_read_all())
    assert found == [answer]
    messages = read_to_end(kafka.access, topic)
    assert messages is not None
    assert [message.value() for message in messages] == [encode(answer)]
    reader.close()
    writer.close()


def test_the_reader_waits_for_a_missing_topic(kafka: RunningKafka) -> None:
    """A reader that starts before its topic exists reads it once it has been created."""
    reader = TopicReader(kafka.access, {topic_name(EVENTS, "later"): AdaptationEvent}, 0, pytest.fail)
    assert reader.poll() == []
    create_topics(kafka.access, namespace="later")
    event = AdaptationEvent("plan-1", EventKind.PLAN_STARTED, Severity.INFO, 0, "text", details={"a": "b"})
    store = begun_store(kafka, "later")
    store.emit(event)
    store.close()
    assert collected(reader, 1) == [event]
    reader.close()


def test_plan_survives_a_killed_broker(kafka: RunningKafka, namespace: str) -> None:
    """A plan stored while the broker is down is acknowledged after its return, and stored once and in order.

    A broker that died during a transaction may have forgotten it, which ends the store: the controller then opens
    another one.
    """
    stores = [begun_store(kafka, namespace)]

    def is_stored() -> bool:
        try:
            return stores[-1].commit(plan_at(1, PlanPhase.ACTIVATING), ())
        except DeposedError:
            stores[-1].close()
            stores.append(begun_store(kafka, namespace))
            return False

    wait_until(lambda: stores[-1].commit(plan_at(1, PlanPhase.PREPARING), ()))
    reader = TopicReader(
        kafka.access,
        {topic_name(STATE, namespace): StateRow, topic_name(WINDOWS, namespace): WindowClosed},
        0,
        pytest.fail,
    )
    assert reader.poll() == []
    pid = kafka.supervisor.pid("kafka")
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    wait_until(is_stored)
    assert len(stores) <= 2
    assert stores[-1].load() == [plan_at(1, PlanPhase.ACTIVATING)]
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    producer.produce(topic_name(WINDOWS, namespace), encode(WindowClosed(0, 1000, 1, {}, (), 0)))
    producer.flush(PATIENCE_S)
    assert len(collected(reader, 1)) == 1
    reader.close()
    stores[-1].close()


def check_scrape(settings: ControllerSettings) -> None:
    """Check the running stage: ready, its plan, reads and outbound queue measured, failures of the view counted."""
    found = scraped(settings.metrics_host, settings.metrics_port)
    assert found['regraft_controller_phase_ms_count{phase="draining"}'] == 1
    # A command that takes longer than resend_ms is sent and answered again; test_measure_ports counts them exactly.
    assert found['regraft_controller_results_total{outcome="retired"}'] >= 5
    assert found['regraft_controller_records_read_total{source="state"}'] > 10
    assert found['regraft_controller_queue_length{queue="outbound"}'] >= 0
    assert found['regraft_controller_records_lost{topic="events"}'] == 0
    assert (found["regraft_controller_leads"], found["regraft_controller_term"]) == (1, 1)
    assert found['regraft_controller_dead_letters{topic="state"}'] == 0
    assert found["regraft_controller_view_failures"] >= 1


def test_controller_runs_on_kafka(kafka: RunningKafka, namespace: str, tmp_path: Path) -> None:
    """Windows written to Kafka lead to a completed plan in Kafka, with brokers that answer over Kafka."""
    tree = line_of(5)
    inventory = inventory_of(tree, {("b00", "b04"): 2.0})
    inventory.save(tmp_path / "inventory.json")
    settings = ControllerSettings(
        bootstrap=kafka.bootstrap,
        namespace=namespace,
        inventory_path=tmp_path / "inventory.json",
        status_file=tmp_path / "controller.json",
        instance="first",
        redis_url="redis://127.0.0.1:1",  # Nothing listens there: the view is best effort.
        dry_run=False,
        decision=DecisionSettings(cool_down_windows=0, window_age_ms_max=600_000),
        tick_ms=20,
        metrics_port=choose_ports(1)[0],
    )
    stop = threading.Event()
    thread = threading.Thread(target=run_controller, args=(settings, stop))
    thread.start()
    store = KafkaPlanStore(kafka.access, namespace)  # read-only
    try:
        with KafkaOverlay(kafka.bootstrap, namespace, inventory):
            wait_until(lambda: [plan.phase for plan in store.load() or []] == [PlanPhase.COMPLETED])
            check_scrape(settings)
    finally:
        stop.set()
        thread.join(PATIENCE_S)
    shown = json.loads((tmp_path / "controller.json").read_text())
    assert (shown["is_standby"], shown["leader"], shown["term"]) == (False, "first", 1)
    assert shown["configuration"]["epoch"] == 1
    assert shown["plans"][0]["links_added"] == [["b00", "b04"]]
    assert shown["plans_completed"] >= 0
    assert list(shown["window_close_to_command_ms"]) == ["plan-1"]
