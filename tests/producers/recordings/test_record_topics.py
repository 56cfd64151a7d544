"""Recording from Kafka and replaying recordings, against librdkafka's mock cluster, and once a real one killed."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import structlog
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from regraft.infra.kafka.create_topics import create_topics
from regraft.infra.kafka.kafka_access import KafkaAccess
from regraft.infra.local.kafka_server import start_kafka
from regraft.infra.process.serve_metrics import Pulse
from regraft.infra.process.stack_error import StackError
from regraft.producers.recordings import record_topics, replay_recording
from regraft.producers.recordings.read_recording import open_recording
from regraft.producers.recordings.record_topics import RECORD_TYPES, RecorderHealth, RecordingProgress, TopicRecorder
from regraft.producers.recordings.replay_recording import (
    RecordingReplayer,
    check_replay_namespace,
)
from regraft.producers.recordings.write_recording import RecordingLimits, RecordingWriter
from regraft.schemas.client import Client, Role
from regraft.schemas.codec import encode
from regraft.schemas.command import CommandPhase, CommandResult, Outcome
from regraft.schemas.topics import (
    CLIENTS,
    DEAD_LETTERS,
    EVENTS,
    NO_AGENT,
    RESULTS,
    TELEMETRY,
    TOPICS,
    Topic,
    topic_name,
)
from tests.mock_kafka import make_topics, mock_kafka
from tests.producers.recorded_messages import (
    RECORD_TYPES_BY_SUFFIX,
    START_MS,
    Sent,
    batch_of,
    recorded_run,
    sent,
    telemetry,
    write,
)
from tests.schemas.old_versions import encode_as
from tests.wait_until import PATIENCE_S, wait_until

LIVE = "live"
HOUR_MS = 3_600_000


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Producer, str]]:
    """Yield a mock cluster that lives in a producer, and its address; on a busy machine it answers late."""
    for limit in ("CALL_S", "CONNECT_S_MAX"):
        monkeypatch.setattr(record_topics, limit, PATIENCE_S)
    monkeypatch.setattr(replay_recording, "CALL_S", PATIENCE_S)
    with mock_kafka(*(topic_name(topic, LIVE) for topic in TOPICS)) as owner_and_address:
        yield owner_and_address


def send(producer: Producer, messages: list[Sent], namespace: str = LIVE) -> None:
    for one in messages:
        producer.produce(f"{namespace}.{one.topic}", one.value, one.key, one.partition, timestamp=one.time_ms)
    assert producer.flush(PATIENCE_S) == 0


class Recording:
    """A recorder in a thread."""

    def __init__(
        self,
        bootstrap: str,
        out: Path,
        topics: tuple[Topic, ...],
        *,
        from_start: bool = False,
        to_end: bool = False,
        agents: tuple[str, ...] = (NO_AGENT,),
    ) -> None:
        self.writer = RecordingWriter(out, recorded_run(LIVE), RECORD_TYPES_BY_SUFFIX, RecordingLimits(), START_MS)
        self.recorder = TopicRecorder(
            KafkaAccess(bootstrap), LIVE, topics, self.writer, from_start=from_start, to_end=to_end, agents=agents
        )
        self.shown: list[RecordingProgress] = []
        self._stop = threading.Event()
        self.recorder.connect()
        self._thread = threading.Thread(
            target=self.recorder.run, args=(self._stop, None, self.shown.append), daemon=True
        )
        self._thread.start()

    def end(self, records: int) -> None:
        """Wait for this many records, then stop the recorder."""
        wait_until(lambda: self.writer.counts.records >= records)
        self._stop.set()
        self.await_end()

    def await_end(self) -> None:
        """Wait until the recorder has stopped by itself."""
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()
        self.writer.close()
        self.recorder.close()


def test_the_register_is_recorded_in_full_and_telemetry_from_now_on(
    cluster: tuple[Producer, str], tmp_path: Path
) -> None:
    """Earlier records are kept for compacted topics only; tombstones, keys, times and partitions are Kafka's."""
    producer, bootstrap = cluster
    client = sent(Client("p0", Role.PUBLISHER, "b0", (), 4.0, START_MS), "clients", "p0")
    gone = Sent("clients", START_MS + 1, 0, 1, b"p0", None)
    before, after = telemetry(range(8)), telemetry(range(8, 20))
    send(producer, [client, gone, *before])
    running = Recording(bootstrap, tmp_path / "rec.avro", (TELEMETRY, CLIENTS))
    send(producer, after)
    running.end(2 + len(after))
    found = list(open_recording(tmp_path / "rec.avro").messages())
    assert [(one.topic, one.key, one.value, one.time_ms) for one in found] == [
        (one.topic, one.key, one.value, one.time_ms) for one in [client, gone, *after]
    ]
    assert not running.recorder.missed


def test_topics_of_all_agents_are_recorded_as_one(cluster: tuple[Producer, str], tmp_path: Path) -> None:
    """Their partitions are distinguished although all begin at offset 0; a topic without agents keeps its numbers."""
    producer, bootstrap = cluster
    results = [CommandResult("plan-1", CommandPhase.PREPARE, name, 1, Outcome.PREPARED, "", 3, 0) for name in "ab"]
    for agent, result in zip(("east", "west"), results, strict=True):
        producer.produce(f"{LIVE}.results.{agent}", encode(result), result.broker, 0, timestamp=START_MS)
        for one in telemetry(range(2)):
            producer.produce(f"{LIVE}.telemetry.{agent}", one.value, one.key, 0, timestamp=one.time_ms)
    assert producer.flush(PATIENCE_S) == 0
    running = Recording(
        bootstrap, tmp_path / "rec.avro", (TELEMETRY, CLIENTS, RESULTS), from_start=True, agents=("east", "west")
    )
    running.end(6)
    found = list(open_recording(tmp_path / "rec.avro").messages(["results"]))
    assert sorted((one.topic, one.partition, one.offset, one.key) for one in found) == [
        ("results", 0, 0, b"a"),
        ("results", 1, 0, b"b"),
    ]


def test_everything_is_recorded_from_the_start_on_request(cluster: tuple[Producer, str], tmp_path: Path) -> None:
    """Topics are read from the oldest record to the newest, and older schemas become the newest."""
    producer, bootstrap = cluster
    messages = telemetry(range(30))
    old = Sent("telemetry", START_MS + HOUR_MS, 3, 99, b"b3", encode_as(batch_of(3), 102))
    send(producer, [*messages, old])
    running = Recording(bootstrap, tmp_path / "rec.avro", tuple(RECORD_TYPES), from_start=True, to_end=True)
    running.await_end()
    found = list(open_recording(tmp_path / "rec.avro").messages())
    assert [one.value for one in found[:30]] == [one.value for one in messages]
    assert open_recording(tmp_path / "rec.avro").warnings == []
    assert not running.writer.counts.unread


def test_every_topic_but_the_dead_letters_has_a_record_type() -> None:
    """A new topic can be recorded with --all."""
    assert {topic.suffix: kind.__name__ for topic, kind in RECORD_TYPES.items()} == {
        topic.suffix: topic.record for topic in TOPICS if topic != DEAD_LETTERS
    }


def test_a_missing_kafka_is_reported(tmp_path: Path) -> None:
    """A wrong address gives one sentence with what to do, and leaves no file."""
    writer = RecordingWriter(tmp_path / "rec.avro", recorded_run(), RECORD_TYPES_BY_SUFFIX, RecordingLimits(), START_MS)
    recorder = TopicRecorder(KafkaAccess("127.0.0.1:9"), LIVE, (TELEMETRY,), writer, from_start=False)
    with closing(recorder), pytest.raises(StackError, match="did not answer within 5 s"):
        recorder.connect()
    assert not (tmp_path / "rec.avro").exists()


def read_all(bootstrap: str, name: str, count: int) -> list[tuple[bytes | None, bytes | None, int, int]]:
    """Return key, value, time and partition of all messages, in order of time."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "log_level": 0})
    partitions = consumer.list_topics(name, timeout=PATIENCE_S).topics[name].partitions
    consumer.assign([TopicPartition(name, partition, OFFSET_BEGINNING) for partition in partitions])
    found: list[tuple[bytes | None, bytes | None, int, int]] = []

    def read_some() -> bool:
        for message in consumer.consume(100, timeout=0.1):
            if message.error() is None:
                found.append((message.key(), message.value(), message.timestamp()[1], message.partition() or 0))
        return len(found) >= count

    wait_until(read_some)
    consumer.close()
    return sorted(found, key=lambda one: one[2])


def replayer_of(file: Path, bootstrap: str, namespace: str, **options: object) -> RecordingReplayer:
    return RecordingReplayer(open_recording(file), KafkaAccess(bootstrap), namespace, **options)  # type: ignore[arg-type]


def test_a_replay_keeps_keys_times_and_partitions(cluster: tuple[Producer, str], tmp_path: Path) -> None:
    """Inputs are on Kafka again as they were; derived records only on request."""
    producer, bootstrap = cluster
    make_topics(producer, *(topic_name(topic, "again") for topic in TOPICS))
    client = sent(Client("p0", Role.PUBLISHER, "b0", (), 4.0, START_MS), "clients", "p0", START_MS - HOUR_MS)
    gone = Sent("clients", START_MS + 1_000, 0, 1, b"p0", None)
    messages = telemetry(range(40))
    write(tmp_path / "rec.avro", [client, *messages, gone])
    replayer = replayer_of(tmp_path / "rec.avro", bootstrap, "again")
    assert replayer.put(threading.Event(), lambda progress: None) == []
    assert read_all(bootstrap, "again.telemetry", 40) == [(m.key, m.value, m.time_ms, m.partition) for m in messages]
    assert [one[:3] for one in read_all(bootstrap, "again.clients", 2)] == [
        (b"p0", client.value, client.time_ms),
        (b"p0", None, gone.time_ms),
    ]
    assert replayer.done.records == {"telemetry": 40, "clients": 2}
    with pytest.raises(StackError, match=r"again.telemetry at .* already holds 40 records"):
        check_replay_namespace(KafkaAccess(bootstrap), "again", open_recording(tmp_path / "rec.avro"), "regraft")


def test_a_replayed_part_has_the_entire_register(cluster: tuple[Producer, str], tmp_path: Path) -> None:
    """Registers are replayed from their beginning, telemetry of the given span; the last of it can be held back."""
    producer, bootstrap = cluster
    make_topics(producer, *(topic_name(topic, "part") for topic in TOPICS))
    client = sent(Client("p0", Role.PUBLISHER, "b0", (), 4.0, START_MS), "clients", "p0", START_MS)
    messages = telemetry(range(40))
    write(tmp_path / "rec.avro", [client, *messages])
    from_ms, to_ms = messages[10].time_ms, messages[31].time_ms
    replayer = replayer_of(tmp_path / "rec.avro", bootstrap, "part", from_ms=from_ms, to_ms=to_ms)
    held = replayer.put(threading.Event(), lambda progress: None, hold_back_ms=500)
    assert [message.value for message in held] == [message.value for message in messages[26:31]]
    assert [one[1] for one in read_all(bootstrap, "part.telemetry", 16)] == [one.value for one in messages[10:26]]
    replayer.put_held(held)
    assert [one[1] for one in read_all(bootstrap, "part.telemetry", 21)] == [one.value for one in messages[10:31]]
    assert len(read_all(bootstrap, "part.clients", 1)) == 1
    with pytest.raises(StackError, match="holds no telemetry from that time"):
        replayer_of(tmp_path / "rec.avro", bootstrap, "part", from_ms=to_ms + HOUR_MS)


def test_a_paced_replay_follows_the_times_and_skips_gaps(cluster: tuple[Producer, str], tmp_path: Path) -> None:
    """Nothing is sent before it is due; a gap of an hour, or a clock set back by one, delays nothing."""
    producer, bootstrap = cluster
    make_topics(producer, "paced.telemetry")
    messages = telemetry(range(20))
    late = [Sent("telemetry", one.time_ms + HOUR_MS, 0, 50 + one.offset, one.key, one.value) for one in messages[10:]]
    write(tmp_path / "rec.avro", [*late, *messages[:10]])
    seen: list[float] = []
    replayer = replayer_of(tmp_path / "rec.avro", bootstrap, "paced", topics=(TELEMETRY,), speed=2.0)
    began_s = time.monotonic()
    replayer.put(threading.Event(), lambda progress: seen.append(progress.done_share))
    spent_s = time.monotonic() - began_s
    assert spent_s >= (messages[9].time_ms - messages[0].time_ms + late[-1].time_ms - late[0].time_ms) / 2_000
    assert replayer.done.holes_ms >= HOUR_MS
    assert "were skipped" in replayer.done.warnings[0]
    assert seen
    assert seen == sorted(seen)


def test_live_namespaces_are_refused(cluster: tuple[Producer, str], tmp_path: Path) -> None:
    """The recorded namespace and the one in the settings are refused, each with the reason."""
    _, bootstrap = cluster
    write(tmp_path / "rec.avro", telemetry(range(5)))
    recording = open_recording(tmp_path / "rec.avro")
    with pytest.raises(StackError, match="is the one that was recorded: a replay there would pass for live"):
        check_replay_namespace(KafkaAccess(bootstrap), "live", recording, "regraft")
    with pytest.raises(StackError, match=r"is the one of the settings \(kafka.namespace\)"):
        check_replay_namespace(KafkaAccess(bootstrap), "regraft", recording, "regraft")
    check_replay_namespace(KafkaAccess(bootstrap), "fresh", recording, "regraft")


def test_a_replay_that_is_stopped_ends_at_once(cluster: tuple[Producer, str], tmp_path: Path) -> None:
    """A replay that would last an hour ends on request, and what was sent is on Kafka."""
    producer, bootstrap = cluster
    make_topics(producer, "stopped.telemetry")
    write(tmp_path / "rec.avro", telemetry(range(20)))
    replayer = replayer_of(tmp_path / "rec.avro", bootstrap, "stopped", topics=(TELEMETRY,), speed=0.0001)
    stop = threading.Event()
    threading.Timer(0.3, stop.set).start()
    replayer.put(stop, lambda progress: None)
    assert replayer.done.records.total() < 20


@pytest.mark.stack
def test_recording_continues_once_kafka_is_back(tmp_path: Path) -> None:
    """Kafka is killed and restarts: nothing is missed and nothing is repeated."""
    messages = telemetry(range(40))
    with start_kafka(tmp_path / "kafka") as kafka:
        create_topics(kafka.access, [topic for topic in TOPICS if topic != EVENTS], LIVE)
        producer = Producer({"bootstrap.servers": kafka.bootstrap, "enable.idempotence": True, "log_level": 0})
        running = Recording(kafka.bootstrap, tmp_path / "rec.avro", (TELEMETRY, CLIENTS, EVENTS))
        send(producer, messages[:20])
        wait_until(lambda: running.writer.counts.records == 20)
        pid = kafka.supervisor.pid("kafka")
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: any(one.is_kafka_away for one in running.shown))
        for one in messages[20:]:
            producer.produce(topic_name(TELEMETRY, LIVE), one.value, one.key, one.partition, timestamp=one.time_ms)
        assert producer.flush(60) == 0
        running.end(40)
    found = list(open_recording(tmp_path / "rec.avro").messages())
    for key in {one.key for one in messages}:  # Kafka's times say nothing about the order between partitions.
        assert [one.value for one in found if one.key == key] == [one.value for one in messages if one.key == key]
    assert len(found) == len(messages)
    assert not running.recorder.missed


def test_transaction_markers_are_not_missed_records(
    cluster: tuple[Producer, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a gap behind which records were deleted is counted; a warning of 0 lost records never appears."""
    producer, bootstrap = cluster
    send(producer, telemetry(range(4)))
    writer = RecordingWriter(tmp_path / "r.avro", recorded_run(LIVE), RECORD_TYPES_BY_SUFFIX, RecordingLimits(), 0)
    recorder = TopicRecorder(KafkaAccess(bootstrap), LIVE, (TELEMETRY,), writer, from_start=True)
    recorder.connect()
    place = TopicPartition(topic_name(TELEMETRY, LIVE), 0)
    recorder._count_missed(TELEMETRY, place, 1)
    assert not recorder.missed
    recorder.close()
    begin_at_3 = type("Deleted", (), {"get_watermark_offsets": lambda *_, **__: (3, 4)})()
    monkeypatch.setattr(recorder, "_consumer", begin_at_3)
    recorder._count_missed(TELEMETRY, place, 1)
    assert recorder.missed == {TELEMETRY.suffix: 2}


def test_recorded_poison_does_not_stop_a_replay(cluster: tuple[Producer, str], tmp_path: Path) -> None:
    """A message longer than Kafka takes, or from a later year, was once on another Kafka: the others are replayed."""
    producer, bootstrap = cluster
    make_topics(producer, "poison.telemetry")
    messages = telemetry(range(20))
    place = messages[-1].offset + 1
    long = Sent("telemetry", messages[5].time_ms, 0, place, b"b0", b"\x00" * 1_500_000)
    later = Sent("telemetry", 253_402_300_799_999, 0, place + 1, b"b0", messages[0].value)
    write(tmp_path / "rec.avro", [*messages, long, later])
    replayer = replayer_of(tmp_path / "rec.avro", bootstrap, "poison", topics=(TELEMETRY,))
    replayer.put(threading.Event(), lambda progress: None)
    found = read_all(bootstrap, "poison.telemetry", 21)
    assert [one[1] for one in found] == [*(one.value for one in messages), later.value]
    assert found[-1][2] <= time.time_ns() // 1_000_000
    assert [sentence.split(" ", 1)[0] for sentence in replayer.done.warnings[-2:]] == ["1", "1"]


def test_a_recorder_notices_records_that_do_not_arrive(cluster: tuple[Producer, str], tmp_path: Path) -> None:
    """The recording would lack them in silence: Kafka is asked where its topics end, and the log names the topic."""
    producer, bootstrap = cluster
    send(producer, telemetry(range(20)))
    writer = RecordingWriter(tmp_path / "r.avro", recorded_run(LIVE), RECORD_TYPES_BY_SUFFIX, RecordingLimits(), 0)
    recorder = TopicRecorder(KafkaAccess(bootstrap), LIVE, (TELEMETRY, CLIENTS), writer, from_start=True)
    recorder.connect()
    stalled = recorder._consumer
    with structlog.testing.capture_logs() as logged:
        for _ in range(30):  # Nothing is read meanwhile.
            recorder._prove(0.0)
    assert [entry["topics"] for entry in logged if entry["event"] == "recording_stalled"] == [["live.telemetry"]]
    assert recorder._consumer is not stalled
    assert not recorder.health().is_ready
    assert recorder.health().notes == ("records of live.telemetry are not arriving, although Kafka has them",)
    stop = threading.Event()

    def show(progress: RecordingProgress) -> None:
        for _ in range(10):
            recorder._prove(0.0)
        if recorder.health().is_ready:
            stop.set()

    writer.begin(time.monotonic())
    recorder.run(stop, PATIENCE_S, show)
    writer.close()
    recorder.close()
    assert len(list(open_recording(tmp_path / "r.avro").messages())) == 20  # Each once.
    assert recorder.health().is_ready
    assert len(recorder.health().proved) == 1
    assert recorder.stalls == {"live.telemetry": 1}


def test_a_recorder_is_ready_only_while_kafka_answers_and_its_loop_runs() -> None:
    """Both are needed for a recording without holes."""
    now_s = 0.0
    health = RecorderHealth()
    health.pulse, health.asked = (Pulse(what, 60.0, lambda: now_s) for what in ("the recorder", "asking"))
    assert not health().is_ready
    assert not health().errors
    health.has_asked = True
    assert health().is_ready
    now_s = 61.0
    health.pulse.beat()
    assert (health().is_ready, health().errors, len(health().notes)) == (False, (), 1)
    now_s = 122.0
    health.asked.beat()
    assert len(health().errors) == 1
