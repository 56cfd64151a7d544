"""Records that lie about times, numbers or names: none stops the alert stage, blinds it or makes it grow."""

from collections.abc import Sequence
from typing import Any, cast

import msgspec
import pytest
from confluent_kafka import KafkaError, KafkaException
from hypothesis import given, settings
from hypothesis import strategies as st

from regraft.alerts import alert_engine
from regraft.alerts.alert_desk import DeskBatch
from regraft.alerts.alert_engine import BROKERS_KEPT_MAX, AlertEngine
from regraft.alerts.alert_metrics import AlertHealth, AlertMetrics
from regraft.alerts.alert_settings import AlertSettings
from regraft.alerts.alert_store import AlertStore
from regraft.alerts.deliver_messages import DeliveryLimits, MessageDelivery
from regraft.alerts.findings import Finding
from regraft.alerts.read_alert_inputs import InputReader, InputRecord, Lookback
from regraft.alerts.read_rules import load_rules
from regraft.alerts.run_alerts import AlertLoop
from regraft.infra.kafka.dead_letters import dead_letter
from regraft.infra.kafka.kafka_access import KafkaAccess
from regraft.infra.kafka.kafka_clients import SENT_BYTES_MAX
from regraft.infra.kafka.prove_reading import MISSES_MAX, ReadingProof
from regraft.infra.orders.order_keys import OrderSettings
from regraft.infra.process.serve_metrics import Pulse
from regraft.schemas.alert import Alert, AlertStatus
from regraft.schemas.bounds import NAME_LENGTH_MAX, TIME_MS_MAX
from regraft.schemas.codec import decode, encode
from regraft.schemas.dead_letter import DeadLetter
from regraft.schemas.event import ENDED, AdaptationEvent, EventKind
from regraft.schemas.plan import PlanPhase
from tests.alerts.scripted_alerts import BEGIN_MS, Scene, at, book, event, plan, queue_of, window, words
from tests.infra.kafka_message import kafka_message

NOWHERE = KafkaAccess("127.0.0.1:9", "test")
LETTERS = '[[rule]]\nname = "letters"\non = "dead_letters"\ncount = 3\nspan_s = 10\nclear_after_s = 10\n'
CONGESTION = '[[rule]]\nname = "c"\non = "queue.congestion"\nabove = 10\nclear_below = 5\n'
LOST = '[[rule]]\nname = "lost"\non = "window.incomplete"\nabove = 0.2\nclear_below = 0.0\n'


def letter(time_ms: int) -> DeadLetter:
    return dead_letter("lab.results", 0, 1, "garbage", b"x", time_ms)


def test_letters_far_older_than_the_newest_one_do_not_count_and_stop_nothing() -> None:
    """A dead letter has its record's time, which its sender chose: more old ones than are counted, in one go."""
    engine = AlertEngine(load_rules(), BEGIN_MS)
    engine.take(letter(BEGIN_MS), BEGIN_MS, BEGIN_MS)
    for _ in range(10_050):
        assert engine.take(letter(BEGIN_MS - 86_400_000), BEGIN_MS, BEGIN_MS) == []


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 40), max_size=60))
def test_letters_are_counted_within_their_span_in_whatever_order_their_times_are(seconds: list[int]) -> None:
    """The alert is raised exactly if a letter makes the third within ten seconds before the newest."""
    engine, times = AlertEngine(book(LETTERS), BEGIN_MS), []
    for second in seconds:
        raised = bool(engine.take(letter(BEGIN_MS + 1_000 * second), BEGIN_MS + 40_000, BEGIN_MS + 40_000))
        times.append(second)
        within = [one for one in times if one > max(times) - 10]
        assert raised == (len(within) >= 3 and second in within)
        if raised:
            return


def test_an_end_from_the_far_future_ends_an_alert_now() -> None:
    """Otherwise no later occurrence could raise it again for thousands of years."""
    scene = Scene(book('[[rule]]\nname = "asks"\non = "join.asked"\n'))
    scene.feed(event(EventKind.JOIN_REQUESTED, 1, "x1"))
    ended = cast(AdaptationEvent, event(EventKind.JOIN_REQUESTED, 2, "x1", **{ENDED: "yes"}).record)
    later = msgspec.structs.replace(ended, time_ms=TIME_MS_MAX)
    assert words(scene.engine.take(later, BEGIN_MS + 2_000, BEGIN_MS + 2_000)) == ["2 asks x1 cleared"]
    assert words(scene.feed(event(EventKind.JOIN_REQUESTED, 3, "x1"))) == ["3 asks x1 raised"]


def test_a_window_from_the_far_future_hides_none_of_the_present() -> None:
    """Windows are judged in the order of their ends; one of a later year would make all others late."""
    scene = Scene(book(CONGESTION))
    (marker,) = window(10**9, brokers=())
    scene.engine.take(marker.record, at(0), at(0))
    assert scene.windows([[queue_of("b01", congestion=20)]]) == ["1 c b01 raised"]
    assert scene.engine.gatherer.dropped == {"marker of a future window": 1}


def test_invented_queues_raise_a_bounded_number_of_alerts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those beyond the bound are counted, and one is raised as soon as another has ended."""
    monkeypatch.setattr(alert_engine, "RAISED_MAX", 3)
    scene = Scene(book(CONGESTION))
    queues = [queue_of(f"b{number}", congestion=20) for number in range(5)]
    assert len(scene.windows([queues])) == 3
    assert scene.engine.not_raised == {"c": 2}
    assert scene.windows([queues[1:]], first=1) == ["2 c b0 cleared", "2 c b3 raised"]


def test_the_links_that_one_broker_reports_leave_room_for_alerts_about_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker reports a queue for each peer that it names; in the order of names its own come first."""
    monkeypatch.setattr(alert_engine, "RAISED_MAX", 6)
    monkeypatch.setattr(alert_engine, "RAISED_BY_ONE_MAX", 3)
    scene = Scene(book(CONGESTION))
    hostile = [queue_of("b00", f"p{number}", congestion=20) for number in range(9)]
    honest = [queue_of("b07", "b08", congestion=20), queue_of("b08", congestion=20)]
    assert scene.windows([[*hostile, *honest]]) == [f"1 c b00>p{number} raised" for number in range(3)] + [
        "1 c b07>b08 raised",
        "1 c b08 raised",
    ]
    assert scene.engine.not_raised == {"c": 6}
    assert scene.windows([[*hostile[2:], *honest]], first=1) == [
        "2 c b00>p0 cleared",
        "2 c b00>p1 cleared",
        "2 c b00>p3 raised",
        "2 c b00>p4 raised",
    ]
    again = AlertEngine(book(CONGESTION), BEGIN_MS, scene.engine.book.alerts.values())
    assert [again.book.has_room(_congested(broker)) for broker in ("b00", "b07", "b09")] == [False, True, True]


def _congested(broker: str) -> Finding:
    return Finding("c", f"{broker}>x", AlertStatus.RAISED, BEGIN_MS, 20.0, 10.0, (broker, "x"))


def test_an_alert_about_very_many_brokers_or_long_names_can_be_stored_and_read() -> None:
    """Kafka refuses records above its limit, and the whole batch of alerts would wait behind this one."""
    names = [f"{number:04d}".ljust(NAME_LENGTH_MAX, "\U0001f980") for number in range(6_000)]
    scene = Scene(book(LOST + '[[rule]]\nname = "flaps"\non = "flapping"\nflips = 1\n'))
    changed = scene.feed(*window(0, brokers=names, lost=dict.fromkeys(names, 4)))
    link = ((names[0], names[1]),)
    for number, way in enumerate(({"links_removed": link}, {"links_added": link}, {"links_removed": link})):
        changed += scene.feed(plan(number + 1, PlanPhase.COMPLETED, number + 1.0, **way))
    assert {alert.rule for alert in changed} == {"lost", "flaps"}
    assert max(len(alert.brokers) for alert in changed) == BROKERS_KEPT_MAX
    for alert in changed:
        assert len(encode(alert)) < SENT_BYTES_MAX
        assert decode(encode(alert), Alert) == alert


class Reader(InputReader):
    """A reader whose records are given."""

    def __init__(self, entries: Sequence[InputRecord]) -> None:
        super().__init__(NOWHERE, "lab", Lookback(0, 0, 0, 0), OrderSettings())
        self._entries = list(entries)

    @property
    def has_caught_up(self) -> bool:
        return True

    def poll(self) -> list[InputRecord]:
        entries, self._entries = self._entries, []
        return entries


class Store(AlertStore):
    """A store that takes everything."""

    def __init__(self) -> None:
        super().__init__(NOWHERE, "lab")
        self.batches: list[DeskBatch] = []

    def commit(self, batch: DeskBatch, positions: object, group: object) -> bool:
        self.batches.append(batch)
        return True


def entry_of(topic: str, record: msgspec.Struct) -> InputRecord:
    return InputRecord(record, BEGIN_MS, False, kafka_message(topic, encode(record)))


def loop_of(reader: Reader, store: Store, engine: Any, health: AlertHealth) -> AlertLoop:
    alert_settings = AlertSettings(bootstrap="127.0.0.1:9")
    delivery = MessageDelivery({}, DeliveryLimits())
    return AlertLoop(alert_settings, engine, reader, store, delivery, AlertMetrics(), health)


def test_a_record_that_breaks_a_rule_is_parked_and_those_behind_it_are_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """It becomes a dead letter, unless it is one itself, and positions move past it: no restart meets it again."""
    engine = AlertEngine(book(LETTERS + '[[rule]]\nname = "aborts"\non = "plan.aborted"\n'), BEGIN_MS)
    take = engine.take

    def failing(record: msgspec.Struct, *times: int, is_known: bool) -> list[Alert]:
        if getattr(record, "subject", "") == "poison" or isinstance(record, DeadLetter):
            raise IndexError("deque index out of range")
        return take(record, *times, is_known=is_known)

    monkeypatch.setattr(engine, "take", failing)
    poison, good = (event(EventKind.PLAN_ABORTED, 1, name).record for name in ("poison", "plan-1"))
    entries = [entry_of("lab.events", poison), entry_of("lab.dead-letters", letter(1)), entry_of("lab.events", good)]
    reader, store = Reader(entries), Store()
    loop_of(reader, store, engine, AlertHealth()).step(BEGIN_MS + 1_000)
    (batch,) = store.batches
    assert [alert.status for alert in batch.alerts.values()] == [AlertStatus.RAISED]
    assert [(one.topic, one.offset, one.value) for one in batch.letters] == [("lab.events", 7, encode(poison))]
    assert reader.parked == {"lab.events": 1, "lab.dead-letters": 1}


def test_what_cannot_be_judged_shows_in_the_health_until_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    """A restart would read the same records: the stage runs on, says why it is not ready, and tries again."""
    engine, health = AlertEngine(book(LETTERS), BEGIN_MS), AlertHealth()
    loop = loop_of(Reader([]), Store(), engine, health)
    with monkeypatch.context() as patch:
        patch.setattr(engine, "tick", lambda _: 1 / 0)
        loop.step(BEGIN_MS)
        assert not health().is_ready
        assert health().errors == ("rules cannot be judged (ZeroDivisionError: division by zero)",)
    loop.step(BEGIN_MS + 1)
    assert health().is_ready
    assert not health().errors


class Producer:
    """Collects what is produced."""

    def __init__(self) -> None:
        self.keys: list[bytes] = []

    def produce(self, topic: str, key: bytes, value: bytes | None) -> None:
        self.keys.append(key)


def test_a_record_that_kafka_would_refuse_does_not_hold_up_its_batch() -> None:
    """The transaction would be filled and refused forever: what cannot be stored is left out, and counted."""
    store, producer = AlertStore(NOWHERE, "lab"), Producer()
    (long,) = Scene(book(CONGESTION)).feed(*window(0, [queue_of("b01", congestion=20)]))
    batch = DeskBatch({"long": msgspec.structs.replace(long, text="x" * SENT_BYTES_MAX), long.key: long})
    store._fill(cast(Any, producer), batch, [], None)
    assert producer.keys == [long.key.encode()]
    assert store.unstorable == 1


class Ends:
    """A consumer of one topic that only says where its partition ends; None for a Kafka that does not answer."""

    def __init__(self) -> None:
        self.end: int | None = 5

    def get_watermark_offsets(self, _: object, timeout: float) -> tuple[int, int]:
        if self.end is None:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return 0, self.end

    def close(self) -> None:
        """Do nothing."""


def test_records_that_do_not_arrive_although_kafka_has_them_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that gets nothing looks like one for which there is nothing: Kafka is asked where its topics end."""
    reader, ends = Reader([]), Ends()
    monkeypatch.setattr(reader, "_proof", ReadingProof(cast(Any, ends), 1.0))
    reader._next["lab.events", 0] = 3
    for _ in range(MISSES_MAX):
        assert reader.prove()
        assert not reader.stalled
    assert reader.prove()
    assert reader.stalled == {"lab.events"}
    reader._next["lab.events", 0] = 5
    assert reader.prove()
    assert not reader.stalled
    ends.end = None
    assert not reader.prove()


def test_an_end_that_a_recreated_topic_no_longer_has_is_not_awaited() -> None:
    """Nothing can arrive up to it: a reader that waits for it is not ready, and opens consumers, until it restarts."""
    ends, place = Ends(), ("lab.members", 0)
    proof = ReadingProof(cast(Any, ends), 1.0)
    assert proof.ask({place: 3})
    ends.end = 0
    for _ in range(2 * MISSES_MAX):
        assert proof.ask({place: 3})
    assert (proof.stalled, proof.needs_another_consumer) == (set(), False)
    ends.end = 4
    for _ in range(2 * MISSES_MAX):
        assert proof.ask({place: 3})
    assert proof.stalled == {"lab.members"}


def test_ready_says_what_is_proved_and_what_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ready only while Kafka stores and answers: records that do not arrive are an error, a restart may repair it."""
    now_s = 0.0
    health = AlertHealth()
    pulses = [Pulse(what, 60.0, lambda: now_s) for what in ("storing", "asking", "the loop")]
    health.stored, health.asked, health.pulse = pulses
    reader, ends = Reader([]), Ends()
    monkeypatch.setattr(reader, "_proof", ReadingProof(cast(Any, ends), 1.0))
    reader._next["lab.events", 0], reader._read_ms["lab.events", 0] = 5, BEGIN_MS
    loop = loop_of(reader, Store(), AlertEngine(book(LETTERS), BEGIN_MS), health)
    loop.step(BEGIN_MS)
    assert health().is_ready
    assert len(health().proved) == 2
    now_s = 61.0
    health.pulse.beat()
    assert not health().is_ready
    assert health().notes == (
        "storing has not run for 61.0 s; at most 60 s are normal",
        "asking has not run for 61.0 s; at most 60 s are normal",
    )
    assert health().proved == ()
    health.reading_error = "records of lab.events are not arriving, although Kafka has them"
    assert not health().is_ready
