"""The Kafka ports against librdkafka's mock cluster: nothing is lost, bad commands become dead letters."""

import threading
import tracemalloc
from collections.abc import Iterator

import msgspec
import pytest
import structlog
from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, Producer, TopicPartition
from msgspec.structs import replace

from regraft.infra.kafka import prove_reading
from regraft.infra.kafka.decode_strictly import UnreadableRecordError
from regraft.infra.kafka.kafka_access import KafkaAccess
from regraft.infra.kafka.record_writer import RecordWriter
from regraft.producers.emulator import read_commands
from regraft.producers.emulator.kafka_ports import KafkaPorts, clients_at
from regraft.producers.emulator.read_commands import CommandReader, KafkaUnreachableError
from regraft.schemas.announcement import Announcement
from regraft.schemas.broker_topics import BrokerTopics
from regraft.schemas.client import Client, Role
from regraft.schemas.codec import decode, encode
from regraft.schemas.command import Command, CommandPhase, CommandResult, Outcome
from regraft.schemas.dead_letter import DeadLetter
from regraft.schemas.member import BrokerFacts, Member, MemberState
from regraft.schemas.plan import Plan, PlanPhase
from regraft.schemas.telemetry import TelemetryBatch
from regraft.schemas.topics import (
    ANNOUNCEMENTS,
    CLIENTS,
    COMMANDS,
    DEAD_LETTERS,
    MEMBERS,
    PLANS,
    RESULTS,
    TELEMETRY,
    TOPICS,
    topic_name,
)
from tests.infra.kafka_message import kafka_message
from tests.mock_kafka import make_topics, mock_kafka
from tests.wait_until import PATIENCE_S, wait_until

NAMESPACE = "test"
NOBODY = KafkaAccess("127.0.0.1:1")
OTHERS = 20_000


def plan_of(epoch: int, phase: PlanPhase) -> Plan:
    """Return a plan of which only epoch and phase matter."""
    return Plan(f"plan-{epoch}", epoch - 1, epoch, 0, (), (), (), (), 1.0, 1.0, phase, ())


COMMAND = Command("plan-1", CommandPhase.ACTIVATE, "b1", 0, 1)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Producer, str]]:
    """Yield a mock cluster with all topics that lives in a producer, and its address; it may answer late."""
    for module in (prove_reading, read_commands):
        monkeypatch.setattr(module, "CALL_S", PATIENCE_S)
    with mock_kafka(*(topic_name(topic, NAMESPACE) for topic in TOPICS)) as owner_and_address:
        yield owner_and_address


@pytest.fixture
def ports(cluster: tuple[Producer, str]) -> Iterator[KafkaPorts]:
    """Yield connected ports."""
    connected = KafkaPorts(KafkaAccess(cluster[1]), BrokerTopics(NAMESPACE), outage_s_max=60, buffer_records_max=1_000)
    connected.connect(PATIENCE_S)
    yield connected
    connected.close()


def read_all(bootstrap: str, topic: str, count: int) -> list[tuple[str, bytes | None]]:
    """Return the first ``count`` keys and values of a topic, over all partitions."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "log_level": 0})
    partitions = consumer.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
    found: list[tuple[str, bytes | None]] = []

    def read_some() -> bool:
        for message in consumer.consume(100, timeout=0.1):
            if message.error() is None:
                found.append(((message.key() or b"").decode(), message.value()))
        return len(found) >= count

    wait_until(read_some)
    consumer.close()
    return found


def test_clients_of_an_earlier_run_leave_the_register(cluster: tuple[Producer, str], ports: KafkaPorts) -> None:
    """Clients at the brokers that start here leave; those at other brokers, and those that left, do not."""
    moved = (("s3", "b2"), ("s3", "b9"), ("s4", "b9"), ("s4", "b1"))
    for name, home in (("s1", "b1"), ("s2", "b9"), *moved, ("s5", "b1")):
        ports.put_client(Client(name, Role.SUBSCRIBER, home, (), 0.0, 1_000))
    ports.remove_client("s5")
    assert ports.flush(PATIENCE_S) == 0
    cluster[0].produce(topic_name(CLIENTS, NAMESPACE), key="s6", value=b"no client")
    assert cluster[0].flush(PATIENCE_S) == 0
    assert ports.withdraw_clients({"b1", "b2"}, PATIENCE_S) == 2
    newest = dict(read_all(cluster[1], topic_name(CLIENTS, NAMESPACE), 11))
    assert {name for name, value in newest.items() if value is not None} == {"s2", "s3", "s6"}
    assert ports.withdraw_clients({"b1", "b2"}, PATIENCE_S) == 0


def test_a_start_keeps_only_own_clients_of_the_register_and_logs_few_bad_records() -> None:
    """The register is shared: another agent may have written any number of clients, and of records that are none."""

    def register() -> Iterator[Message]:
        for number in range(OTHERS):
            record = Client(f"s{number}", Role.SUBSCRIBER, "b9", (), 0.0, 1_000)
            yield kafka_message("lab.clients", encode(record), number, record.client.encode())
            yield kafka_message("lab.clients", b"no client", number, b"bad")
        yield kafka_message("lab.clients", encode(Client("own", Role.SUBSCRIBER, "b1", (), 0.0, 1_000)), 0, b"own")

    tracemalloc.start()
    with structlog.testing.capture_logs() as logged:
        assert clients_at({"b1"}, register()) == ["own"]
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 10 * OTHERS
    assert len(logged) == OTHERS.bit_length()


def test_a_plan_that_may_still_be_committed_is_waited_for(cluster: tuple[Producer, str], ports: KafkaPorts) -> None:
    """Answers of brokers that no longer exist may commit it; the plans are read once that is decided."""
    plans = topic_name(PLANS, NAMESPACE)
    cluster[0].produce(plans, key="plan-1", value=encode(plan_of(1, PlanPhase.COMPLETED)))
    cluster[0].produce(plans, key="plan-2", value=encode(plan_of(2, PlanPhase.PREPARING)))
    assert cluster[0].flush(PATIENCE_S) == 0
    phases = {plan.phase for plan in ports.read_plans(PATIENCE_S, 0.0 - PATIENCE_S)}
    assert phases == {PlanPhase.COMPLETED, PlanPhase.PREPARING}  # It was not decided in time.

    def commit() -> None:
        cluster[0].produce(plans, key="plan-2", value=encode(plan_of(2, PlanPhase.ACTIVATING)))
        cluster[0].flush(PATIENCE_S)

    threading.Timer(1.0, commit).start()
    phases = {plan.phase for plan in ports.read_plans(PATIENCE_S, PATIENCE_S)}
    assert phases == {PlanPhase.COMPLETED, PlanPhase.ACTIVATING}


def test_unreadable_plans_stop_the_start(cluster: tuple[Producer, str], ports: KafkaPorts) -> None:
    """The error names the record: otherwise brokers could begin at an overlay that is no longer in force."""
    cluster[0].produce(topic_name(PLANS, NAMESPACE), key="plan-1", value=b"no plan")
    assert cluster[0].flush(PATIENCE_S) == 0
    with pytest.raises(UnreadableRecordError, match=r"offset 0, key 'plan-1'"):
        ports.read_plans(PATIENCE_S, PATIENCE_S)


def test_the_wait_for_plans_is_bounded_if_kafka_is_down() -> None:
    """The message names topic, address and time."""
    ports = KafkaPorts(NOBODY, BrokerTopics(NAMESPACE), outage_s_max=60, buffer_records_max=1_000)
    with pytest.raises(KafkaUnreachableError, match=r"test\.plans at 127\.0\.0\.1:1 could not be read within 0\.5 s"):
        ports.read_plans(0.5, 60.0)
    ports.close()


def test_all_earlier_clients_leave_even_if_they_exceed_the_buffer(
    cluster: tuple[Producer, str], ports: KafkaPorts
) -> None:
    """The buffer holds 1,000 records; every withdrawal is sent."""
    count = 2_300
    for number in range(count):
        ports.put_client(Client(f"s{number}", Role.SUBSCRIBER, "b1", (), 0.0, 1_000))
        if number % 500 == 0:
            assert ports.answers.flush(PATIENCE_S) == 0
    assert ports.withdraw_clients({"b1"}, PATIENCE_S) == count
    assert ports.answers.lost.total() == 0
    assert ports.withdraw_clients({"b1"}, PATIENCE_S) == 0


def test_an_unreadable_register_stops_the_start() -> None:
    """Otherwise clients that no broker has would be counted and placed forever."""
    ports = KafkaPorts(NOBODY, BrokerTopics(NAMESPACE), outage_s_max=60, buffer_records_max=1_000)
    with pytest.raises(KafkaUnreachableError, match="withdraw earlier clients"):
        ports.withdraw_clients({"b1"}, 0.5)
    ports.close()


def test_records_go_to_their_topics_by_key(cluster: tuple[Producer, str], ports: KafkaPorts) -> None:
    """Batches and results are keyed by broker, clients by name, and a client that has left is a tombstone."""
    batch = TelemetryBatch("b1", 7, 0, 1_000, 0)
    result = CommandResult("plan-1", CommandPhase.ACTIVATE, "b1", 1, Outcome.ACTIVATED, "", 3, 1_000)
    client = Client("s1", Role.SUBSCRIBER, "b1", (), 0.0, 1_000)
    ports.send_batch(batch)
    ports.send_result(result)
    ports.put_client(client)
    ports.remove_client("s1")
    assert ports.flush(PATIENCE_S) == 0
    expected: dict[str, list[tuple[str, msgspec.Struct | None]]] = {
        topic_name(TELEMETRY, NAMESPACE): [("b1", batch)],
        topic_name(RESULTS, NAMESPACE): [("b1", result)],
        topic_name(CLIENTS, NAMESPACE): [("s1", client), ("s1", None)],
    }
    for topic, records in expected.items():
        assert read_all(cluster[1], topic, len(records)) == [
            (key, None if record is None else encode(record)) for key, record in records
        ]
    assert ports.telemetry.written.total() == 1
    assert ports.answers.written.total() == 3


def test_only_commands_after_the_start_are_obeyed(cluster: tuple[Producer, str]) -> None:
    """Records already in the topic are of another run; bad records become dead letters with the reason."""
    owner, bootstrap = cluster
    topic = topic_name(COMMANDS, NAMESPACE)
    owner.produce(topic, value=encode(COMMAND), key=b"b1")
    owner.flush(PATIENCE_S)
    ports = KafkaPorts(KafkaAccess(bootstrap), BrokerTopics(NAMESPACE), outage_s_max=60, buffer_records_max=1_000)
    ports.connect(PATIENCE_S)
    newer = Command("plan-2", CommandPhase.PREPARE, "b1", 1, 2)
    for value in (b"nonsense", encode(newer)):
        owner.produce(topic, value=value, key=b"b1", timestamp=42)
    owner.flush(PATIENCE_S)
    got: list[Command] = []
    wait_until(lambda: got.extend(ports.poll()) or bool(got))  # type: ignore[func-returns-value]
    assert got == [newer]
    assert ports.flush(PATIENCE_S) == 0
    [(_, letter)] = read_all(bootstrap, topic_name(DEAD_LETTERS, NAMESPACE), 1)
    buried = decode(letter, DeadLetter)
    assert (buried.topic, buried.offset, buried.value, buried.time_ms) == (topic, 1, b"nonsense", 42)
    assert "expected 00" in buried.reason
    ports.close()


def test_an_agent_obeys_only_for_its_own_brokers(cluster: tuple[Producer, str]) -> None:
    """It answers in its own topic; a command there for another agent's broker becomes a dead letter."""
    owner, bootstrap = cluster
    ours = BrokerTopics(NAMESPACE, {"b1": "west", "b2": "east"}).of_agents(["west"])
    make_topics(owner, *(ours.name(topic, "b1") for topic in (COMMANDS, RESULTS, TELEMETRY)))
    ports = KafkaPorts(KafkaAccess(bootstrap), ours, outage_s_max=60, buffer_records_max=1_000)
    ports.connect(PATIENCE_S)
    for broker in ("b2", "b1"):
        command = msgspec.structs.replace(COMMAND, broker=broker)
        owner.produce(ours.name(COMMANDS, "b1"), encode(command), broker.encode(), 0)
    owner.flush(PATIENCE_S)
    got: list[Command] = []
    wait_until(lambda: got.extend(ports.poll()) or bool(got))  # type: ignore[func-returns-value]
    assert got == [COMMAND]
    result = CommandResult("plan-1", CommandPhase.ACTIVATE, "b1", 1, Outcome.ACTIVATED, "", 3, 0)
    batch = TelemetryBatch("b1", 7, 0, 1_000, 0)
    for broker in ("b2", "b1"):
        ports.send_result(msgspec.structs.replace(result, broker=broker))
        ports.send_batch(msgspec.structs.replace(batch, broker=broker))
    assert ports.flush(PATIENCE_S) == 0
    assert ports.telemetry.written == {f"{NAMESPACE}.telemetry.west": 1}
    assert read_all(bootstrap, f"{NAMESPACE}.telemetry.west", 1) == [("b1", encode(batch))]
    assert read_all(bootstrap, f"{NAMESPACE}.results.west", 1) == [("b1", encode(result))]
    [(_, letter)] = read_all(bootstrap, topic_name(DEAD_LETTERS, NAMESPACE), 1)
    assert "a broker of another agent: b2" in decode(letter, DeadLetter).reason
    ports.close()


def test_a_broker_announces_itself_until_it_is_a_member(cluster: tuple[Producer, str]) -> None:
    """An agent announces only its own brokers, in its own topic; a broker that has left is not a member."""
    topics = BrokerTopics(NAMESPACE, {"b1": "", "x1": "north"})
    ports = KafkaPorts(KafkaAccess(cluster[1]), topics, outage_s_max=60, buffer_records_max=1_000)
    announcement = Announcement("x1", BrokerFacts(agent="north"), 5)
    for broker in ("x1", "x2"):
        ports.announce(msgspec.structs.replace(announcement, broker=broker))
    assert ports.flush(PATIENCE_S) == 0
    ((key, value),) = read_all(cluster[1], topic_name(ANNOUNCEMENTS, NAMESPACE, "north"), 1)
    assert (key, decode(value or b"", Announcement)) == ("x1", announcement)
    assert not ports.is_member("x1")
    members = topic_name(MEMBERS, NAMESPACE)
    for broker, state in (("b1", MemberState.LEFT), ("x0", MemberState.DEAD), ("x1", MemberState.JOINING)):
        cluster[0].produce(members, key=broker, partition=0, value=encode(Member(broker, state, 5, "so")))
        cluster[0].produce(members, key="x9", partition=0, value=b"no member")
    assert cluster[0].flush(PATIENCE_S) == 0
    wait_until(lambda: ports.is_member("x1"))
    assert (ports.is_member("x0"), ports.is_member("b1")) == (True, False)
    assert [broker for broker in ("b1", "x0", "x1", "x2") if ports.has_left(broker)] == ["b1"]
    cluster[0].produce(members, key="x1", partition=0, value=encode(Member("x1", MemberState.LEFT, 6, "so")))
    assert cluster[0].flush(PATIENCE_S) == 0
    wait_until(lambda: not ports.is_member("x1"))
    assert ports.has_left("x1")
    ports.close()


def test_commands_that_do_not_arrive_are_noticed_and_read_by_another_consumer(
    cluster: tuple[Producer, str], ports: KafkaPorts
) -> None:
    """A consumer that hangs looks like one without commands; none is lost or repeated when it is replaced."""
    topic = topic_name(COMMANDS, NAMESPACE)
    partitions = range(COMMANDS.partitions)
    received: list[Command] = []

    def send(epoch: int) -> None:
        for partition in partitions:
            cluster[0].produce(topic, key="b1", partition=partition, value=encode(replace(COMMAND, epoch_to=epoch)))
        assert cluster[0].flush(PATIENCE_S) == 0

    def has_all(count: int) -> bool:
        received.extend(ports.poll())
        return len(received) >= count

    send(1)
    wait_until(lambda: has_all(len(partitions)))
    assert all(ports.prove_reading() for _ in range(4 * len(partitions)))
    consumer = ports._commands._consumer
    consumer.pause(consumer.assignment())
    send(2)
    answers = []
    while not ports.is_reading_stalled and len(answers) < 20 * len(partitions):
        answers.append(ports.prove_reading())
        ports.poll()
    assert not answers[-1]
    assert ports.is_reading_stalled
    ports.reopen_stalled()
    wait_until(lambda: has_all(2 * len(partitions)))
    assert sorted(command.epoch_to for command in received) == [*(1 for _ in partitions), *(2 for _ in partitions)]
    wait_until(ports.prove_reading)


def test_members_that_do_not_arrive_are_noticed_and_read_with_another_consumer(
    cluster: tuple[Producer, str], ports: KafkaPorts
) -> None:
    """A node could never reach brokers that were added; commands arrive meanwhile."""

    def add(broker: str) -> None:
        record = Member(broker, MemberState.JOINING, 1, "", facts=BrokerFacts(1.0, address=f"{broker}:7000"))
        cluster[0].produce(topic_name(MEMBERS, NAMESPACE), key=broker, partition=0, value=encode(record))
        assert cluster[0].flush(PATIENCE_S) == 0

    add("x01")
    wait_until(lambda: "x01" in ports.member_addresses())
    assert ports.requested_share() is None
    wait_until(ports.prove_reading)
    assert ports._members is not None
    consumer = ports._members.tail._consumer
    consumer.pause(consumer.assignment())
    add("x02")
    answers = []
    while not ports.is_reading_stalled and len(answers) < 20:
        answers.append(ports.prove_reading())
        ports.member_addresses()
    assert not answers[-1]
    ports.reopen_stalled()
    assert ports._members.tail._consumer is not consumer
    wait_until(lambda: "x02" in ports.member_addresses())
    wait_until(lambda: ports.prove_reading() or ports.poll() is None)


def test_a_missing_kafka_is_reported_in_one_sentence() -> None:
    """Without Kafka the start ends in time and the message says what to do."""
    letters = RecordWriter(NOBODY, outage_s_max=10, buffer_records_max=10, linger_ms=0)
    reader = CommandReader(NOBODY, BrokerTopics(NAMESPACE), letters)
    with pytest.raises(KafkaUnreachableError, match=r"test\.commands at 127\.0\.0\.1:1 did not answer within 0\.1 s"):
        reader.connect(0.1)
    reader.close()


def test_records_written_before_kafka_answers_arrive_once_and_in_order(cluster: tuple[Producer, str]) -> None:
    """Records written while no server answers wait, and arrive in order once one does."""
    bootstrap = cluster[1]
    writer = RecordWriter(KafkaAccess(f"127.0.0.1:1,{bootstrap}"), outage_s_max=60, buffer_records_max=100, linger_ms=0)
    batches = [TelemetryBatch("b1", 7, number, 1_000, 0) for number in range(20)]
    topic = topic_name(TELEMETRY, NAMESPACE)
    for batch in batches:
        writer.write(topic, "b1", batch)
    assert writer.flush(PATIENCE_S) == 0
    assert writer.waiting_count == 0
    assert [decode(value, TelemetryBatch) for _, value in read_all(bootstrap, topic, 20)] == batches
