"""The plan store on a real broker: a phase and its commands are atomic, one writer, strict reading of plans."""

from functools import partial

import pytest
from confluent_kafka import Producer

from regraft.controller.control_ports import DeposedError
from regraft.controller.ports import plan_store
from regraft.controller.ports.order_topic import REFUSED_BEFORE, KafkaOrders
from regraft.controller.ports.plan_store import KafkaPlanStore
from regraft.controller.ports.topic_readers import ResultReader, TopicReader
from regraft.controller.state.plan_log import PlanLog
from regraft.infra.kafka.create_topics import create_topics
from regraft.infra.kafka.decode_strictly import UnreadableRecordError
from regraft.infra.kafka.kafka_access import KafkaAccess
from regraft.infra.local.kafka_server import RunningKafka
from regraft.infra.orders.order_keys import OrderSettings
from regraft.schemas.audit import AuditOutcome, GivenOrder
from regraft.schemas.codec import encode
from regraft.schemas.command import Command, CommandPhase, CommandResult, Outcome
from regraft.schemas.dead_letter import DeadLetter
from regraft.schemas.event import AdaptationEvent, EventKind, Severity
from regraft.schemas.member import BrokerFacts, Member, MemberState
from regraft.schemas.order import Order, OrderKind
from regraft.schemas.plan import PlanPhase
from regraft.schemas.registry import newer_ids
from regraft.schemas.topics import AUDIT, COMMANDS, EVENTS, NO_AGENT, ORDERS, PLANS, RESULTS, topic_name
from tests.controller.state.test_plan_log import INVENTORY, plan_at
from tests.wait_until import wait_until

pytestmark = pytest.mark.stack
UNSIGNED = OrderSettings(allow_unsigned=True)
PREPARE = Command("plan-1", CommandPhase.PREPARE, "b00", 0, 1)


def begun(kafka: RunningKafka, namespace: str) -> KafkaPlanStore:
    store = KafkaPlanStore(kafka.access, namespace)
    wait_until(store.begin)
    return store


def answer_of(broker: str) -> CommandResult:
    return CommandResult("plan-1", CommandPhase.INSTALL, broker, 1, Outcome.INSTALLED, "", 3, 0)


def commands_in(kafka: RunningKafka, namespace: str, agent: str = NO_AGENT) -> list[Command]:
    """Return the commands that brokers read."""
    reader = TopicReader(kafka.access, {topic_name(COMMANDS, namespace, agent): Command}, 0, pytest.fail)
    found: list[Command] = []
    wait_until(lambda: bool(found.extend(reader.poll())) or reader.has_read_all())
    reader.close()
    return found


def write(kafka: RunningKafka, topic: str, key: bytes, value: bytes | None) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    producer.produce(topic, value, key)
    assert producer.flush(60) == 0


def test_stored_plans_are_loaded_in_their_newest_version(kafka: RunningKafka, namespace: str) -> None:
    """The next controller finds every acknowledged plan, in the order of storing."""
    store = begun(kafka, namespace)
    assert store.load() == []
    for plan in (plan_at(1, PlanPhase.PREPARING), plan_at(1, PlanPhase.COMPLETED), plan_at(2, PlanPhase.ACTIVATING)):
        wait_until(partial(store.commit, plan, []))
    found = KafkaPlanStore(kafka.access, namespace).load()
    assert found == [plan_at(1, PlanPhase.COMPLETED), plan_at(2, PlanPhase.ACTIVATING)]
    assert PlanLog(INVENTORY, found).moving == plan_at(2, PlanPhase.ACTIVATING)
    store.close()


def test_members_are_stored_with_a_plan_and_loaded_in_their_newest_state(kafka: RunningKafka, namespace: str) -> None:
    """The next leader reads each broker's last declared state, and the plan that followed."""
    store = begun(kafka, namespace)
    assert store.load_members() == []
    dead = Member("b01", MemberState.DEAD, 5, "silent for 10 s", boot_ms=3, deaths_ms=(5,), returns_ms=9, term=1)
    back = Member("b01", MemberState.JOINING, 20, "it reports again", boot_ms=12, deaths_ms=(5,), term=1)
    wait_until(lambda: store.commit(None, (), [dead, Member("b02", MemberState.LEAVING, 6, "drain by ann")]))
    wait_until(lambda: store.commit(plan_at(1, PlanPhase.PREPARING), [PREPARE], [back]))
    following = KafkaPlanStore(kafka.access, namespace)
    assert following.load_members() == [Member("b02", MemberState.LEAVING, 6, "drain by ann"), back]
    assert following.load() == [plan_at(1, PlanPhase.PREPARING)]
    assert commands_in(kafka, namespace) == [PREPARE]
    store.close()


def test_an_added_broker_is_reached_through_its_agent(kafka: RunningKafka, namespace: str) -> None:
    """Without reopening the store: commands go to its agent's topic, and answers are read once that topic exists."""
    store, letters = begun(kafka, namespace), list[DeadLetter]()
    answers = ResultReader(kafka.access, store, 0, letters.append)
    found: list[CommandResult] = []

    def has(count: int) -> bool:
        found.extend(answers.poll())
        return len(found) >= count

    added = Member("b41", MemberState.JOINING, 5, "added", facts=BrokerFacts(agent="east"))
    wait_until(lambda: store.commit(None, (), [added]))
    write(kafka, topic_name(RESULTS, namespace), b"b00", encode(answer_of("b00")))
    wait_until(lambda: has(1))  # The agent's topic does not exist yet, which blocks no other.
    create_topics(kafka.access, namespace=namespace, agents=("east",))
    commands = [PREPARE, Command("plan-1", CommandPhase.INSTALL, "b41", 0, 1)]
    wait_until(lambda: store.commit(None, commands))
    for broker in ("b00", "b41"):
        write(kafka, topic_name(RESULTS, namespace, "east"), broker.encode(), encode(answer_of(broker)))
    wait_until(lambda: has(2) and bool(letters))
    assert [result.broker for result in found] == ["b00", "b41"]
    assert [letter.topic for letter in letters] == [topic_name(RESULTS, namespace, "east")]
    assert commands_in(kafka, namespace) == commands[:1]
    assert commands_in(kafka, namespace, "east") == commands[1:]
    following = KafkaPlanStore(kafka.access, namespace)
    following.load_members()
    assert following.topics == store.topics  # The next leader knows the same topics.
    answers.close()
    store.close()


def test_a_forgotten_plan_is_not_loaded_again(kafka: RunningKafka, namespace: str) -> None:
    """Its tombstone and the pending events are part of the next transaction, each once."""
    store = begun(kafka, namespace)
    event = AdaptationEvent("plan-1", EventKind.PLAN_STARTED, Severity.INFO, 0, "text")
    wait_until(lambda: store.commit(plan_at(1, PlanPhase.COMPLETED), []))
    store.forget("plan-1")
    store.emit(event)
    wait_until(lambda: store.commit(plan_at(2, PlanPhase.PREPARING), []))
    store.flush()
    assert store.load() == [plan_at(2, PlanPhase.PREPARING)]
    reader = TopicReader(kafka.access, {topic_name(EVENTS, namespace): AdaptationEvent}, 0, pytest.fail)
    found: list[AdaptationEvent] = []
    wait_until(lambda: bool(found.extend(reader.poll())) or reader.has_read_all())
    assert found == [event]
    reader.close()
    store.close()


def test_a_fenced_leader_can_commit_nothing(kafka: RunningKafka, namespace: str) -> None:
    """What it committed before stays; later commits are refused, plan and commands alike."""
    first = begun(kafka, namespace)
    wait_until(lambda: first.commit(plan_at(1, PlanPhase.PREPARING), [PREPARE]))
    second = begun(kafka, namespace)
    with pytest.raises(DeposedError):
        first.commit(plan_at(1, PlanPhase.ACTIVATING), [PREPARE, PREPARE])
    assert second.load() == [plan_at(1, PlanPhase.PREPARING)]
    assert commands_in(kafka, namespace) == [PREPARE]
    wait_until(lambda: second.commit(plan_at(1, PlanPhase.ABORTING), []))
    first.close()
    second.close()


def test_an_open_transaction_of_a_dead_leader_is_not_read(kafka: RunningKafka, namespace: str) -> None:
    """A phase that was sent but not committed has not begun, and its commands reach no broker."""
    first = begun(kafka, namespace)
    wait_until(lambda: first.commit(plan_at(1, PlanPhase.PREPARING), [PREPARE]))
    producer = first._writer._producer
    producer.begin_transaction()
    first._fill((plan_at(1, PlanPhase.ACTIVATING), (PREPARE,), ()), producer)
    producer.flush(60)  # All of it is in Kafka; then the leader dies.
    second = begun(kafka, namespace)
    assert second.load() == [plan_at(1, PlanPhase.PREPARING)]
    assert commands_in(kafka, namespace) == [PREPARE]
    second.close()


def test_a_plan_that_cannot_be_read_stops_the_start(kafka: RunningKafka, namespace: str) -> None:
    """The error names its position, after the plan or after its marker; a tombstone under its key removes it."""
    store, topic = begun(kafka, namespace), topic_name(PLANS, namespace)
    wait_until(lambda: store.commit(plan_at(1, PlanPhase.COMPLETED), []))
    write(kafka, topic, b"plan-2", b"rubbish")
    place = rf"topic {topic}, partition 0, offset [12], key 'plan-2'.*nothing starts.*under its key"
    with pytest.raises(UnreadableRecordError, match=place):
        store.load()
    write(kafka, topic, b"plan-2", None)
    assert store.load() == [plan_at(1, PlanPhase.COMPLETED)]
    store.close()


def test_an_order_of_a_newer_version_stops_the_start_and_rubbish_does_not(kafka: RunningKafka, namespace: str) -> None:
    """The former may forbid what is done next. Rubbish is never an order: it becomes a dead letter, now as later."""
    topic, letters = topic_name(ORDERS, namespace), []
    pause = Order("overlay", OrderKind.PAUSE, "ann", "storm", 5)
    write(kafka, topic, pause.key.encode(), encode(pause))
    write(kafka, topic, b"broker b01", b"rubbish")
    write(kafka, topic, b"broker b02", b"\0" + newer_ids("Order")[0].to_bytes(4, "big") + b"what we cannot know")
    orders = KafkaOrders(kafka.access, namespace, letters.append, UNSIGNED)
    with pytest.raises(UnreadableRecordError, match="key 'broker b02'"):
        wait_until(lambda: orders.poll() is None or orders.is_known)
    orders.close()
    write(kafka, topic, b"broker b02", None)
    orders = KafkaOrders(kafka.access, namespace, letters.append, UNSIGNED)
    found: list[GivenOrder] = []
    wait_until(lambda: bool(found.extend(orders.poll())) or orders.is_known)
    assert [given.order for given in found if given.order is not None] == [pause]
    seen = len(letters)
    write(kafka, topic, b"broker b01", b"rubbish")
    wait_until(lambda: bool(orders.poll()) or len(letters) > seen)
    orders.close()


def test_an_order_that_one_leader_refused_is_refused_by_the_next(kafka: RunningKafka, namespace: str) -> None:
    """The first has no keys, or no right to follow it; the second could, but its giver was answered."""
    pause = Order("overlay", OrderKind.PAUSE, "ann", "storm", 5)
    write(kafka, topic_name(ORDERS, namespace), pause.key.encode(), encode(pause))
    first = KafkaOrders(kafka.access, namespace, pytest.fail, OrderSettings())
    found: list[GivenOrder] = []
    wait_until(lambda: bool(found.extend(first.poll())) or first.is_known)
    (refused,) = found
    assert refused.refusal != ""
    store = begun(kafka, namespace)
    store.keep(refused.entry(AuditOutcome.REFUSED, refused.refusal, 10))
    wait_until(lambda: store.flush() is None and store.waiting_count == 0)
    first.close()
    second = KafkaOrders(kafka.access, namespace, pytest.fail, UNSIGNED)
    again: list[GivenOrder] = []
    wait_until(lambda: bool(again.extend(second.poll())) or second.is_known)
    assert [(given.refusal, given.is_new) for given in again] == [(REFUSED_BEFORE, False)]
    second.close()
    store.close()


def test_store_reports_that_kafka_is_away() -> None:
    """Without a broker loading returns None and beginning False, in bounded time."""
    store = KafkaPlanStore(KafkaAccess("127.0.0.1:1"), "nowhere")
    assert store.load() is None
    assert not store.begin()
    store.close()


def test_a_flood_of_answers_to_orders_displaces_no_event(
    kafka: RunningKafka, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What waits for Kafka is bounded for each topic, and there is room again once it is stored."""
    monkeypatch.setattr(plan_store, "REPORTS_WAITING_MAX", 3)
    store = begun(kafka, namespace)
    order = GivenOrder(Order("b01", OrderKind.MAINTAIN, "ann", "", 1), refusal="it is unsigned")
    for time_ms in range(5):
        store.keep(order.entry(AuditOutcome.REFUSED, "it is unsigned", time_ms))
    for time_ms in range(2):
        store.emit(AdaptationEvent("b01", EventKind.MEMBER_CHANGED, Severity.INFO, time_ms, ""))
    assert store.waiting_count == 5
    assert store.lost == {topic_name(AUDIT, namespace): 2}
    store.flush()
    wait_until(lambda: not store.waiting_count or bool(store.flush()))
    for time_ms in range(3):
        store.keep(order.entry(AuditOutcome.REFUSED, "it is unsigned", time_ms))
    assert store.waiting_count == 3
    assert store.lost.total() == 2
    store.close()
