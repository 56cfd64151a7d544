"""The entire job on a real Kafka: rows before markers, dead letters, catching up, and what ends it."""

import dataclasses
import json
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from regraft.infra.kafka.create_topics import create_topics
from regraft.infra.kafka.dead_letters import SHARE_LETTERS_MAX
from regraft.infra.kafka.kafka_access import KafkaAccess
from regraft.infra.local.doctor import read_clock_offsets_ms
from regraft.infra.local.kafka_server import RunningKafka
from regraft.infra.process.find_port import choose_ports
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.schemas.codec import decode, encode
from regraft.schemas.dead_letter import DeadLetter
from regraft.schemas.event import AdaptationEvent, EventKind
from regraft.schemas.member import BrokerFacts, Member, MemberState
from regraft.schemas.state import StateRow, WindowClosed
from regraft.schemas.telemetry import Delivery, TelemetryBatch
from regraft.schemas.topics import (
    CREATE_TIME,
    DEAD_LETTERS,
    EVENTS,
    MEMBERS,
    NO_AGENT,
    STATE,
    TELEMETRY,
    TOPICS,
    WINDOWS,
    Topic,
    topic_name,
)
from regraft.schemas.unpack_state import unpack_window
from regraft.streaming.close_windows import BOOTS_MAX, JoinedWindow
from regraft.streaming.job_errors import EXIT_FAILED, EXIT_REFUSED, EXIT_TOPIC_LOST, StreamingJobError
from regraft.streaming.run_job import JobStatus, run_job
from regraft.streaming.source_topics import added_brokers
from regraft.streaming.streaming_settings import LOCAL_MANAGER, StreamingSettings
from regraft.streaming.submit_job import check_timestamps
from regraft.streaming.write_state import StateWriteError, StateWriter
from tests.full_disk import small_disk
from tests.overlay.small_overlays import inventory_of
from tests.scrape_stage import scraped
from tests.streaming.kill_parts import DRIVER_AFTER, DRIVER_BEFORE, Armed
from tests.streaming.mount_store import mounted
from tests.streaming.submitted_job import ask_to_stop, submitted_job
from tests.wait_until import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.stack]

BROKERS = 6
WAIT_S = 180.0  # A busy machine takes a minute to start a query.


@pytest.fixture
def job(kafka: RunningKafka, tmp_path: Path) -> StreamingSettings:
    """Settings with separate topics."""
    namespace = f"test-{uuid.uuid4().hex[:8]}"
    create_topics(kafka.access, TOPICS, namespace)
    return StreamingSettings(
        kafka.bootstrap,
        tmp_path / "checkpoint",
        namespace=namespace,
        window_ms=1_000,
        grace_ms=500,
        trigger_ms=100,
        write_timeout_ms=20_000,
        status_file=tmp_path / "status.json",
    )


def known_brokers_of(job: StreamingSettings, count: int = BROKERS) -> StreamingSettings:
    """Return the settings with an inventory of brokers, so that no window closes while one of them still sends."""
    names = [f"b{number}" for number in range(count)]
    path = job.checkpoint_directory.with_name("known.json")
    inventory_of(TreeConfiguration.of(1, names, [("b0", name) for name in names[1:]]), {}).save(path)
    return dataclasses.replace(job, inventory_path=path)


def wait_status(
    settings: StreamingSettings,
    until: Callable[[dict[str, Any]], bool],
    is_running: Callable[[], bool],
    wait_s: float = WAIT_S,
) -> dict[str, Any]:
    """Return the first status that meets the condition."""
    deadline, file = time.monotonic() + wait_s, settings.status_file
    assert file is not None
    while time.monotonic() < deadline and is_running():
        if file.exists() and until(status := json.loads(file.read_text())):
            return status
        time.sleep(0.05)
    raise AssertionError(f"the job ended, or {wait_s} s passed at {file.exists() and file.read_text()}")


class Running:
    """The job in a thread."""

    def __init__(self, spark: SparkSession, settings: StreamingSettings) -> None:
        self.stop, self.error, self.settings = threading.Event(), None, settings
        self.status: JobStatus | None = None

        def run() -> None:
            try:
                self.status = run_job(spark, settings, self.stop)
            except StreamingJobError as error:
                self.error = error

        self.thread = threading.Thread(target=run, daemon=True)
        self.thread.start()

    def wait(self, until: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        return wait_status(self.settings, until, self.thread.is_alive)

    def end(self) -> JobStatus:
        self.stop.set()
        self.thread.join(WAIT_S)
        assert self.status is not None, self.error
        return self.status


def send(settings: StreamingSettings, values: list[tuple[str, bytes]], agent: str = NO_AGENT) -> None:
    producer = Producer({"bootstrap.servers": settings.bootstrap, "queue.buffering.max.messages": 200_000})
    for key, value in values:
        producer.produce(topic_name(TELEMETRY, settings.namespace, agent), value, key=key)
    assert producer.flush(20) == 0


def beats(seconds: range, begin_ms: int) -> list[tuple[str, bytes]]:
    values = []
    for second in seconds:
        for number in range(BROKERS):
            time_ms = begin_ms + second * 1_000 + 500
            deliveries = (Delivery("p", second, time_ms // 1_000, 1 << number | 1, 1, 10),)
            batch = TelemetryBatch(f"b{number}", begin_ms, second, time_ms, 1, deliveries)
            values.append((batch.broker, encode(batch)))
    return values


def read(settings: StreamingSettings, topic: Topic, kind: type[msgspec.Struct]) -> list[tuple[bytes, Any, int]]:
    """Return key, record and Kafka timestamp of all records of a topic."""
    consumer = Consumer({"bootstrap.servers": settings.bootstrap, "group.id": "test"})
    place = TopicPartition(topic_name(topic, settings.namespace), 0, 0)
    _, high = consumer.get_watermark_offsets(place, timeout=10)
    consumer.assign([place])
    found = []
    while len(found) < high:
        for message in consumer.consume(high - len(found), timeout=5):  # It returns as soon as it has this many.
            found.append((message.key(), decode(message.value(), kind), message.timestamp()[1]))
    consumer.close()
    return found


def check_windows(settings: StreamingSettings, windows: int) -> None:
    """Check that each window has one key, all rows that its marker announces, and a marker no older than its rows."""
    rows = {key: (row, time_ms) for key, row, time_ms in read(settings, STATE, StateRow)}
    markers = {key: (marker, time_ms) for key, marker, time_ms in read(settings, WINDOWS, WindowClosed)}
    assert len(markers) == windows
    for marker, marked_ms in markers.values():
        mine = [(row, time_ms) for row, time_ms in rows.values() if row.window_start_ms == marker.window_start_ms]
        assert Counter(row.kind for row, _ in mine) == {k: n for k, n in marker.row_counts.items() if n}
        single, counted = unpack_window([row for row, _ in mine], marker)
        assert len(single) == sum(counted.row_counts.values()) == BROKERS
        assert all(time_ms <= marked_ms for _, time_ms in mine)
        assert [entry.received for entry in marker.brokers] == [1] * BROKERS


def check_scrape(settings: StreamingSettings) -> None:
    """Check that the running job is alive and ready, and that its metrics match its status."""
    found = scraped(settings.metrics_host, settings.metrics_port)
    assert found["regraft_streaming_windows_total"] == 109
    assert found["regraft_streaming_dead_letters_total"] == 2
    assert found["regraft_streaming_records_total"] == 110 * BROKERS + 2
    assert found['regraft_streaming_query_starts_total{grace="catch_up"}'] == 1
    assert found['regraft_streaming_query_starts_total{grace="live"}'] >= 1
    assert found["regraft_streaming_batches_total"] > 2
    assert found["regraft_streaming_heap_bytes"] > 1_000_000
    assert found["regraft_streaming_state_store_bytes"] > 0
    assert found["regraft_streaming_batch_floor_ms"] > 0
    assert found["regraft_streaming_backlog_partition_max"] == 0
    assert found["regraft_streaming_window_delay_ms"] > 0
    assert found['regraft_streaming_state_part_ms{part="commit"}'] >= 0  # Whole ms for a state of some kB.


def test_telemetry_becomes_state_through_catch_up_and_restart(spark: SparkSession, job: StreamingSettings) -> None:
    """Backlog, live telemetry and a restart give every window once, none late, and every bad record a dead letter."""
    # Less than what waits, so the job catches up.
    job = dataclasses.replace(
        known_brokers_of(job), records_per_trigger_max=500, records_per_broker_max=0, metrics_port=choose_ports(1)[0]
    )
    job = dataclasses.replace(job, checkpoint_uri=job.checkpoint_directory.as_uri())
    begin_ms = (int(time.time()) - 200) * 1_000
    bad = [("x", b"garbage"), ("y", b"\x00\x00\x00\x0f\xffzz")]
    send(job, [*bad, *beats(range(100), begin_ms)])
    running = Running(spark, job)
    running.wait(lambda status: status["windows"] == 99 and status["grace_ms"] == job.grace_ms)  # The live query runs.
    send(job, beats(range(100, 110), begin_ms))
    # A micro-batch's records are counted after its windows.
    running.wait(lambda status: status["windows"] == 109 and status["records"] == 110 * BROKERS + 2)
    check_scrape(job)
    assert running.end().dead_letters == 2
    send(job, [("z", b""), *beats(range(110, 115), begin_ms)])
    again = Running(spark, job)
    again.wait(lambda status: status["dead_letters"] == 1 and not status["catching_up"])
    send(job, beats(range(115, 120), begin_ms))
    status = again.wait(lambda status: status["windows"] == 10 and status["dead_letters"] == 1)
    again.end()
    assert status["late_rows"] == 0
    assert status["window_end_ms_last"] == begin_ms + 119_000
    check_windows(job, 119)
    found = [letter for _, letter, _ in read(job, DEAD_LETTERS, DeadLetter)]
    assert sorted(letter.value for letter in found) == [b"", bad[1][1], b"garbage"]
    assert {letter.topic for letter in found} == {topic_name(TELEMETRY, job.namespace)}
    assert any("schema id 4095 is unknown" in letter.reason for letter in found)


def test_a_restart_with_nothing_to_read_is_ready(spark: SparkSession, job: StreamingSettings) -> None:
    """No micro-batch runs then, so that the query is idle shows that the job works; else its supervisor gives up."""
    job = dataclasses.replace(known_brokers_of(job), metrics_port=choose_ports(1)[0])
    first = Running(spark, job)
    first.wait(lambda status: status["batch_id"] >= 0 and not status["catching_up"])
    first.end()
    assert job.status_file is not None
    job.status_file.unlink()
    again = Running(spark, job)
    assert again.wait(lambda status: not status["catching_up"])["records"] == 0
    found = scraped(job.metrics_host, job.metrics_port)  # It also asserts that the job is ready.
    assert found["regraft_streaming_records_total"] == 0
    again.end()


def test_an_uncommitted_micro_batch_closes_the_same_windows_after_any_absence(
    spark: SparkSession, job: StreamingSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that dies after a marker, and then has a long backlog and another broker, announces the same."""
    job = dataclasses.replace(known_brokers_of(job, BROKERS - 1), records_per_trigger_max=200, records_per_broker_max=0)
    begin_ms = (int(time.time()) - 300) * 1_000
    send(job, beats(range(20), begin_ms))
    running = Running(spark, job)
    running.wait(lambda status: status["windows"] == 19 and not status["catching_up"])
    write_windows = StateWriter.write_windows

    def die_after(writer: StateWriter, windows: Sequence[JoinedWindow]) -> None:
        write_windows(writer, windows)
        raise StateWriteError("the job dies behind the marker")

    monkeypatch.setattr(StateWriter, "write_windows", die_after)
    send(job, beats(range(20, 22), begin_ms))
    running.thread.join(WAIT_S)
    assert "dies behind the marker" in str(running.error)
    monkeypatch.undo()
    announced = read(job, WINDOWS, WindowClosed)
    add_member(job, f"b{BROKERS - 1}")
    told_late = (Delivery("p", 900, begin_ms // 1_000 + 20, 1, 1, 1),)
    late = TelemetryBatch("b0", begin_ms, 900, begin_ms + 20_900, 1, told_late)
    send(job, [("b0", encode(late)), *beats(range(22, 150), begin_ms)])
    again = Running(spark, job)
    again.wait(lambda status: status["records"] > 128 * BROKERS and not status["catching_up"])
    send(job, beats(range(150, 153), begin_ms))  # The open windows of the backlog close when more arrives.
    again.wait(lambda status: status["window_end_ms_last"] == begin_ms + 152_000)
    again.end()
    assert f"b{BROKERS - 1}" in added_brokers(job)
    markers = {key: encode(marker) for key, marker, _ in announced}
    repeated = [
        (key, marker) for key, marker, _ in read(job, WINDOWS, WindowClosed)[len(announced) :] if key in markers
    ]
    assert len(repeated) >= 1  # It did run again.
    assert all(encode(marker) == markers[key] for key, marker in repeated)


AHEAD_MS = {"b0": 3_000, "b1": -3_000}  # The clock errors of two of five brokers.
FAR_AHEAD_MS = 59 * 60_000


def send_by_clocks(job: StreamingSettings, ticks: range, boot: int, far_at: int) -> None:
    """Send what five brokers report by their own clocks, ten times a second; at one tick b2 is 59 minutes ahead."""
    for tick in ticks:
        now_ms = time.time_ns() // 1_000_000
        ahead_ms = AHEAD_MS | ({"b2": FAR_AHEAD_MS} if tick == far_at else {})
        batches = [
            TelemetryBatch(f"b{number}", boot, tick, now_ms + ahead_ms.get(f"b{number}", 0), 1) for number in range(5)
        ]
        send(job, [(batch.broker, encode(batch)) for batch in batches])
        time.sleep(0.1)


def test_wrong_clocks_cost_the_other_brokers_nothing(spark: SparkSession, job: StreamingSettings) -> None:
    """With a clock ahead, one behind, one record far ahead and a restart, the others' windows are complete."""
    boot = int(time.time() * 1_000)
    job = dataclasses.replace(job, catch_up_grace_ms=500)
    running = Running(spark, job)
    send_by_clocks(job, range(60), boot, far_at=25)
    running.wait(lambda status: status["windows"] >= 3)
    clocks_off = running.end().clocks_off
    send_by_clocks(job, range(60, 80), boot, far_at=-1)
    again = Running(spark, job)
    send_by_clocks(job, range(80, 120), boot, far_at=-1)
    again.wait(lambda status: status["windows"] >= 3 and status["records_behind"] == 0)
    clocks_off += again.end().clocks_off
    markers = sorted((one for _, one, _ in read(job, WINDOWS, WindowClosed)), key=lambda one: one.window_start_ms)
    of_broker = {
        name: [entry for one in markers for entry in one.brokers if entry.broker == name] for name in ("b2", "b3", "b4")
    }
    # There is no gap in or between windows, except for the one record of b2.
    for name, entries in of_broker.items():
        received = sum(entry.received for entry in entries)
        assert received == entries[-1].sequence_max + 1 - (name == "b2")
    clocks = [clock for one in markers for clock in one.clocks]
    assert not [entry for one in markers for entry in one.brokers if entry.broker == "b0"]
    assert max(clock.delay_ms_min for clock in clocks if clock.broker == "b0") < -job.bounds.future_ms_max
    assert min(clock.delay_ms_min for clock in clocks if clock.broker == "b1") >= 3_000
    assert [clock.refused for clock in clocks if clock.broker == "b2" and clock.refused] == [1]
    assert clocks_off > sum(clock.refused for clock in clocks if clock.broker == "b2")
    offsets_ms = read_clock_offsets_ms(KafkaAccess(job.bootstrap), job.namespace)
    assert offsets_ms is not None
    assert [name for name, ms in sorted(offsets_ms.items()) if abs(ms) > 1_000] == ["b0", "b1"]
    assert offsets_ms["b0"] > 0 > offsets_ms["b1"]


def test_a_flood_of_boots_and_of_garbage_does_not_stop_the_job(spark: SparkSession, job: StreamingSettings) -> None:
    """75,000 tiny batches of one broker, each of another boot, and 2,000 that do not decode, within one window.

    The marker of the window fits into a record, refused records have letters within their sender's share, and the
    other brokers' batches all count.
    """
    job = known_brokers_of(job)
    begin_ms = (int(time.time()) - 60) * 1_000  # No beat is ahead of Kafka's time, however fast it is sent.
    flood = [
        ("b0", encode(TelemetryBatch("b0", begin_ms - boot, 0, begin_ms + 500, 1, (), ()))) for boot in range(1, 75_001)
    ]
    send(job, [*beats(range(2), begin_ms), *flood[:50_000]])
    running = Running(spark, job)
    send(job, [*flood[50_000:], *[("b0", b"garbage")] * 2_000, *beats(range(2, 8), begin_ms)])
    running.wait(lambda status: status["closed_ms"] >= begin_ms + 6_000 and status["records_behind"] == 0)
    status = running.end()
    assert status.dead_letters == 2_000
    assert status.rows_over > 70_000
    assert len(read(job, DEAD_LETTERS, DeadLetter)) == SHARE_LETTERS_MAX
    (marker,) = (one for _, one, _ in read(job, WINDOWS, WindowClosed) if one.window_start_ms == begin_ms)
    assert sum(entry.broker == "b0" for entry in marker.brokers) == BOOTS_MAX
    others = [entry for entry in marker.brokers if entry.broker != "b0"]
    assert [entry.received for entry in others] == [1] * (BROKERS - 1)


def test_telemetry_with_senders_timestamps_is_refused(job: StreamingSettings) -> None:
    """For an existing topic the message says how to alter it; a replay, which restores old times, may read it."""
    made = [dataclasses.replace(TELEMETRY, timestamps=CREATE_TIME)]
    old = dataclasses.replace(job, namespace=f"{job.namespace}-old")
    create_topics(KafkaAccess(job.bootstrap), made, old.namespace)
    reason = (
        r"message.timestamp.type of topic .*-old.telemetry is CreateTime, .* --add-config message.timestamp.type=Log"
    )
    with pytest.raises(StreamingJobError, match=reason) as caught:
        check_timestamps(old)
    assert caught.value.exit_code == EXIT_REFUSED
    check_timestamps(dataclasses.replace(old, create_time=True))
    check_timestamps(job)


def ends_of(job: StreamingSettings) -> list[TopicPartition]:
    """Return the end offset of each partition of telemetry."""
    consumer = Consumer({"bootstrap.servers": job.bootstrap, "group.id": "test"})
    topic = topic_name(TELEMETRY, job.namespace)
    ends = [consumer.get_watermark_offsets(TopicPartition(topic, at), timeout=10)[1] for at in range(4)]
    consumer.close()
    return [TopicPartition(topic, at, end) for at, end in enumerate(ends)]


def test_records_deleted_unread_are_reported_and_the_job_continues(spark: SparkSession, job: StreamingSettings) -> None:
    """After an outage longer than retention, windows come from what is left, and an event names what is missing."""
    job, begin_ms = dataclasses.replace(job, catch_up_grace_ms=500), (int(time.time()) - 100) * 1_000
    send(job, beats(range(20), begin_ms))
    first = Running(spark, job)
    first.wait(lambda status: status["windows"] == 19)
    assert first.end().records_lost == 0
    before = ends_of(job)
    send(job, [("x", b"garbage"), *beats(range(20, 40), begin_ms)])
    admin, ends = AdminClient({"bootstrap.servers": job.bootstrap}), ends_of(job)
    for deleted in admin.delete_records(ends).values():
        deleted.result(20)
    newer = encode(TelemetryBatch("b0", 1, 0, begin_ms, 1)).replace((103).to_bytes(4), (104).to_bytes(4), 1)
    send(job, [("y", b"junk"), ("b0", newer), *beats(range(40, 60), begin_ms)])
    again = Running(spark, job)
    again.wait(lambda status: status["window_end_ms_last"] == begin_ms + 59_000)
    status = again.end()
    assert (status.records_lost, status.late_rows) == (20 * BROKERS + 1, 0)
    assert (status.dead_letters, status.records_newer) == (2, 1)
    seconds = {(marker.window_start_ms - begin_ms) // 1_000 for _, marker, _ in read(job, WINDOWS, WindowClosed)}
    assert seconds == {*range(20), *range(40, 59)}
    [(_, event, _)] = read(job, EVENTS, AdaptationEvent)
    assert event.kind is EventKind.TELEMETRY_LOST
    assert event.subject == topic_name(TELEMETRY, job.namespace)
    lost = {
        f"partition {old.partition}": f"offsets {old.offset} to {end.offset - 1} ({end.offset - old.offset} records)"
        for old, end in zip(before, ends, strict=True)
        if end.offset > old.offset
    }
    assert {name: text for name, text in event.details.items() if name.startswith("partition")} == lost
    assert all(f"{name} {text}" in event.text for name, text in lost.items())
    assert begin_ms < int(event.details["since_ms"]) <= int(event.details["until_ms"]) <= event.time_ms
    third = Running(spark, job)  # What was reported is not reported again.
    third.wait(lambda status: not status["catching_up"])
    assert third.end().records_lost == 0


@pytest.fixture
def sparks_manager(spark: SparkSession) -> Iterator[None]:
    """Write checkpoints as Spark does by default, which is correct for stores that are not a disk."""
    spark.conf.unset(LOCAL_MANAGER[0])
    yield
    spark.conf.set(*LOCAL_MANAGER)


@pytest.mark.usefixtures("sparks_manager")
def test_a_recreated_topic_is_read_from_its_beginning(spark: SparkSession, job: StreamingSettings) -> None:
    """With the checkpoint of the earlier topic, no record of the new one is skipped.

    The checkpoint is in a store that is not a disk for Hadoop.
    """
    begin_ms, uri = (int(time.time()) - 100) * 1_000, mounted(spark, job.checkpoint_directory.with_name("mounted"))
    job = dataclasses.replace(job, catch_up_grace_ms=500, checkpoint_uri=uri)
    send(job, beats(range(20), begin_ms))
    first = Running(spark, job)
    first.wait(lambda status: status["windows"] == 19)
    first.end()
    topic, admin = topic_name(TELEMETRY, job.namespace), AdminClient({"bootstrap.servers": job.bootstrap})
    admin.delete_topics([topic])[topic].result(20)
    wait_until(lambda: topic not in admin.list_topics(timeout=10).topics)
    create_topics(KafkaAccess(job.bootstrap), TOPICS, job.namespace)
    send(job, beats(range(40, 50), begin_ms))
    again = Running(spark, job)
    again.wait(lambda status: status["windows"] == 9)
    again.end()
    assert (job.query_directory.parent / f"{job.query_directory.name}.before" / "offsets").is_dir()
    check_windows(job, 19 + 9)


AGENT_OF = {"b0": "west", "b1": "west", "b2": "east", "b3": "east", "b4": "east", "b5": "east"}

NORTH = {f"b{number}": "north" for number in range(1, BROKERS)}


def send_by_agent(job: StreamingSettings, values: list[tuple[str, bytes]], agent_of: Mapping[str, str]) -> None:
    for agent in {NO_AGENT, *agent_of.values()}:
        send(job, [(key, value) for key, value in values if agent_of.get(key, NO_AGENT) == agent], agent)


def name_agents(job: StreamingSettings, agent_of: Mapping[str, str]) -> tuple[str, ...]:
    """Write them into the job's inventory, create their topics, and return all agents."""
    assert job.inventory_path is not None
    tree = TreeConfiguration.of(1, sorted(AGENT_OF), [("b0", f"b{number}") for number in range(1, BROKERS)])
    inventory = dataclasses.replace(inventory_of(tree, {}), agent_of=agent_of)
    inventory.save(job.inventory_path)
    agents = inventory.broker_topics(job.namespace).agents
    create_topics(KafkaAccess(job.bootstrap), TOPICS, job.namespace, agents)
    return agents


def test_added_agents_are_read_and_speak_only_for_their_own_brokers(
    spark: SparkSession, job: StreamingSettings, tmp_path: Path
) -> None:
    """The checkpoint continues while agents come and go; what one forges is refused and affects no other."""
    job = dataclasses.replace(job, catch_up_grace_ms=500, inventory_path=tmp_path / "inventory.json")
    begin_ms, sent = (int(time.time()) - 100) * 1_000, 0
    forged = 0
    for agent_of in ({}, {"b0": "west"}, AGENT_OF, AGENT_OF | {"b2": "north"}, {"b0": "west"} | NORTH):
        name_agents(job, agent_of)
        values = beats(range(sent, sent + 20), begin_ms)
        if agent_of:
            lies = [
                ("b5", encode(TelemetryBatch("b5", 1, second, begin_ms + second * 1_000, 1)))
                for second in range(sent, sent + 19)
            ]
            send(job, lies, "west")
            forged += len(lies)
        send_by_agent(job, values, agent_of)
        sent += 20
        running = Running(spark, job)
        status = running.wait(lambda status, until=sent: status["window_end_ms_last"] == begin_ms + (until - 1) * 1_000)
        running.end()
        assert (status["late_rows"], status["records_lost"], status["windows_rewritten"]) == (0, 0, 0)
    assert not job.query_directory.with_name(f"{job.query_directory.name}.before").exists()
    check_windows(job, sent - 1)
    letters = [letter for _, letter, _ in read(job, DEAD_LETTERS, DeadLetter)]
    assert len(letters) == forged
    assert {letter.topic for letter in letters} == {f"{job.namespace}.telemetry.west"}
    assert all("a broker of another agent: b5 belongs to " in letter.reason for letter in letters)


def add_member(job: StreamingSettings, broker: str, agent: str = NO_AGENT) -> None:
    member = Member(broker, MemberState.JOINING, 1, "more room", facts=BrokerFacts(1.0, agent=agent))
    producer = Producer({"bootstrap.servers": job.bootstrap})
    producer.produce(topic_name(MEMBERS, job.namespace), encode(member), key=broker)
    assert producer.flush(20) == 0


def test_an_added_broker_is_known_without_a_restart(
    spark: SparkSession, job: StreamingSettings, tmp_path: Path
) -> None:
    """Its telemetry is refused until it is a member and counts from then on, even in a new agent's topic."""
    job = dataclasses.replace(job, catch_up_grace_ms=500, inventory_path=tmp_path / "inventory.json")
    job = dataclasses.replace(job, checkpoint_uri=(tmp_path / "by-uri").as_uri())
    names = [f"b{number}" for number in range(BROKERS)]
    tree = TreeConfiguration.of(1, names[:-1], [("b0", name) for name in names[1:-1]])
    inventory_of(tree, {}).save(tmp_path / "inventory.json")
    begin_ms = (int(time.time()) - 100) * 1_000
    running = Running(spark, job)
    send(job, beats(range(20), begin_ms))
    status = running.wait(lambda status: status["window_end_ms_last"] == begin_ms + 19_000)
    assert status["dead_letters"] == 20
    create_topics(KafkaAccess(job.bootstrap), TOPICS, job.namespace, ("west",))
    [before] = [query.runId for query in spark.streams.active]
    add_member(job, "b5", "west")
    wait_until(lambda: [query.runId for query in spark.streams.active if query.runId != before] != [], WAIT_S)
    assert added_brokers(job) == json.loads((tmp_path / "by-uri" / "members.json").read_text()) == {"b5": "west"}
    values = beats(range(20, 40), begin_ms)
    send(job, [(key, value) for key, value in values if key == "b5"], "west")  # First, or no window waits for it.
    send(job, [(key, value) for key, value in values if key != "b5"])
    status = running.wait(lambda status: status["window_end_ms_last"] == begin_ms + 39_000)
    running.end()
    assert (status["late_rows"], status["dead_letters"]) == (0, 20)
    brokers = {
        window.window_end_ms: {each.broker for each in window.brokers}
        for _, window, _ in read(job, WINDOWS, WindowClosed)
    }
    assert brokers[begin_ms + 10_000] == {*names} - {"b5"}
    assert brokers[begin_ms + 35_000] == {*names}


def test_a_deleted_topic_ends_the_job_with_one_sentence(spark: SparkSession, job: StreamingSettings) -> None:
    """The job reports that its topic is gone and what to do, and does not continue as if nothing were lost."""
    begin_ms = (int(time.time()) - 20) * 1_000
    send(job, beats(range(10), begin_ms))
    running = Running(spark, dataclasses.replace(job, catch_up_grace_ms=500))
    running.wait(lambda status: status["windows"] >= 8)
    topic = topic_name(TELEMETRY, job.namespace)
    admin = AdminClient({"bootstrap.servers": job.bootstrap})
    admin.delete_topics([topic])[topic].result(20)
    # Spark asks for the partitions, then for their ends; if the topic disappears in between, it retries for 60 s.
    running.thread.join(60 + WAIT_S)
    assert running.error is not None
    assert str(running.error).startswith(f"topic {topic} was deleted: create it again")
    assert running.error.exit_code == EXIT_TOPIC_LOST


def test_wrong_settings_and_foreign_checkpoints_are_refused(spark: SparkSession, job: StreamingSettings) -> None:
    """The job does not start with invalid settings or on the checkpoint of another query."""
    for wrong, reason in (
        (dataclasses.replace(job, grace_ms=-1), "grace_ms is -1"),
        (dataclasses.replace(job, checkpoint_directory=Path("/proc/none")), "/proc/none"),
    ):
        with pytest.raises(StreamingJobError, match=reason) as caught:
            run_job(spark, wrong, threading.Event())
        assert caught.value.exit_code == EXIT_REFUSED
    stopped = threading.Event()
    stopped.set()
    run_job(spark, job, stopped)
    with pytest.raises(StreamingJobError, match="window_ms 1000 instead of 2000"):
        run_job(spark, dataclasses.replace(job, window_ms=2_000), stopped)


def test_a_full_disk_ends_the_job_and_a_restart_with_room_continues(
    spark: SparkSession, job: StreamingSettings, tmp_path: Path
) -> None:
    """The job names the full disk and what to do; with room it continues, every window complete and none lost."""
    begin_ms = (int(time.time()) - 60) * 1_000
    with small_disk(tmp_path / "disk") as disk:
        small = dataclasses.replace(job, checkpoint_directory=disk.directory / "checkpoint")
        reason = f"the disk of {small.checkpoint_directory} is full: free some space and start again; nothing is lost"
        send(job, beats(range(20), begin_ms))
        running = Running(spark, small)
        running.wait(lambda status: status["windows"] == 19)
        disk.fill()
        send(job, beats(range(20, 30), begin_ms))
        running.thread.join(WAIT_S)
        assert str(running.error) == reason
        with pytest.raises(StreamingJobError, match="is full") as caught:
            run_job(spark, small, threading.Event())
        assert caught.value.exit_code == EXIT_FAILED
        disk.make_room()
        again = Running(spark, small)
        again.wait(lambda status: status["window_end_ms_last"] == begin_ms + 29_000)
        assert again.end().late_rows == 0
    check_windows(job, 29)


def test_a_topic_that_refuses_rows_ends_the_job(spark: SparkSession, job: StreamingSettings) -> None:
    """Rows that Kafka rejects leave their window without a marker, and the error names the topic."""
    admin = AdminClient({"bootstrap.servers": job.bootstrap})
    state = topic_name(STATE, job.namespace)
    admin.delete_topics([state])[state].result(20)
    begin_ms = (int(time.time()) - 20) * 1_000
    send(job, beats(range(10), begin_ms))
    short = dataclasses.replace(job, write_timeout_ms=1_500, catch_up_grace_ms=500)
    running = Running(spark, short)
    running.thread.join(WAIT_S)
    assert running.error is not None
    assert str(running.error).startswith(f"could not write {state}: ")
    assert running.error.exit_code == EXIT_FAILED
    assert read(job, WINDOWS, WindowClosed) == []


def test_a_writer_without_kafka_gives_up_in_time() -> None:
    """A missing Kafka is reported with its address after the timeout."""
    writer = StateWriter(KafkaAccess("127.0.0.1:9"), "none", 1_000)
    with pytest.raises(StateWriteError, match=r"could not write none.dead-letters: .*127.0.0.1:9 runs"):
        writer.write_dead_letters([DeadLetter("t", 0, 0, "r", b"", 0)])
    writer.close()


def test_spark_submit_runs_the_same_job_through_deaths_of_its_driver(job: StreamingSettings, tmp_path: Path) -> None:
    """The driver is killed with its children before its markers, and alone after them: it announces the same again."""
    begin_ms, sent = (int(time.time()) - 60) * 1_000, 0
    armed = Armed(tmp_path / "armed")
    armed.directory.mkdir()
    for point in (DRIVER_BEFORE, DRIVER_AFTER, ""):
        with submitted_job(job, tmp_path, "local[2]", armed=armed.directory if point else None) as process:
            if point:
                armed.arm(point)
            send(job, beats(range(sent, sent + 10), begin_ms))
            sent += 10
            if not point:
                last_ms = begin_ms + (sent - 1) * 1_000
                wait_status(
                    job,
                    lambda status, last_ms=last_ms: status["window_end_ms_last"] == last_ms,
                    lambda process=process: process.poll() is None,
                )
                ask_to_stop(process)
            assert (process.wait(WAIT_S) == 0) == (not point), (tmp_path / "log").read_text()
    check_windows(job, sent - 1)
    written = [(key, encode(marker)) for key, marker, _ in read(job, WINDOWS, WindowClosed)]
    assert len(written) > len({*written}) == sent - 1  # Repeated records are the same.
