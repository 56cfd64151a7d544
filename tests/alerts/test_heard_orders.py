"""Which orders for maintenance the alert stage accepts: those that are authentic, and that the controller accepted."""

import time
from collections.abc import Collection
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import Message
from msgspec import structs

from regraft.alerts.alert_engine import AlertEngine
from regraft.alerts.answered_orders import AnswerChangedError
from regraft.alerts.read_alert_inputs import InputReader, InputRecord, Lookback, TrustedKeysChangedError
from regraft.alerts.read_rules import load_rules
from regraft.infra.kafka.create_topics import create_topics
from regraft.infra.kafka.kafka_access import KafkaAccess
from regraft.infra.kafka.read_messages import read_messages
from regraft.infra.kafka.record_writer import RecordWriter
from regraft.infra.local.kafka_server import start_kafka
from regraft.infra.orders.order_keys import OrderSettings, make_local_keys
from regraft.infra.orders.send_orders import send_order
from regraft.schemas.audit import AuditEntry, AuditOutcome, GivenOrder
from regraft.schemas.codec import decode, encode
from regraft.schemas.order import Order, OrderKind
from tests.infra.kafka_message import kafka_message
from tests.wait_until import wait_until

WRITTEN_MS = 1_760_000_000_000
LOOKBACK = Lookback(windows_ms=0, state_ms=0, events_ms=0, resume_ms_max=0)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def given(kind: OrderKind, offset: int) -> Message:
    """Return the record of an unsigned order about b01, as Kafka has it at an offset."""
    order = Order("b01", kind, "ana", "", 0)
    return kafka_message("lab.orders", encode(order), offset, order.key.encode(), WRITTEN_MS)


def answer(kind: OrderKind, outcome: AuditOutcome, offset: int, subject: str = "b01") -> Message:
    """Return the controller's answer to the order at an offset."""
    entry = AuditEntry(subject, kind, "ana", "", outcome, "", 0, 0, WRITTEN_MS, offset)
    return kafka_message("lab.audit", encode(entry))


class Heard:
    """An alert stage's reader and what its rules know of maintenance; messages come by hand."""

    def __init__(self) -> None:
        settings = OrderSettings(allow_unsigned=True)
        self.reader = InputReader(KafkaAccess("127.0.0.1:9", "test"), "lab", LOOKBACK, settings)
        self.engine = AlertEngine(load_rules(), WRITTEN_MS)
        for topic in ("lab.orders", "lab.audit"):
            self.reader._next[topic, 0] = self.reader._judged_below[topic, 0] = 0
        self.reader._unread = {("lab.audit", 0)}

    def take(self, *messages: Message) -> list[str]:
        """Return the brokers in maintenance once these have arrived."""
        self.reader._consumer = cast(Any, SimpleNamespace(consume=lambda *_, **__: list(messages)))
        for entry in self.reader.poll():
            self.engine.take(entry.record, entry.written_ms, WRITTEN_MS)
        return list(self.engine.orders.maintained(WRITTEN_MS))

    def has_read_answers(self) -> None:
        """Mark the audit as read to its end."""
        self.reader._unread.clear()


def test_an_order_that_the_controller_refused_silences_nothing_and_ends_no_silence() -> None:
    """It is authentic for the alerts, but the controller may know more: brokers, keys, an earlier answer."""
    heard = Heard()
    heard.has_read_answers()
    assert heard.take(given(OrderKind.MAINTAIN, 3)) == []
    assert heard.take(answer(OrderKind.MAINTAIN, AuditOutcome.REFUSED, 3)) == []
    assert heard.take(given(OrderKind.MAINTAIN, 4), answer(OrderKind.MAINTAIN, AuditOutcome.ACCEPTED, 4)) == ["b01"]
    assert heard.take(answer(OrderKind.RETURN, AuditOutcome.REFUSED, 5), given(OrderKind.RETURN, 5)) == ["b01"]
    assert heard.take(given(OrderKind.RETURN, 6)) == ["b01"]
    assert heard.take(answer(OrderKind.RETURN, AuditOutcome.ACCEPTED, 6)) == []


def test_at_the_start_no_order_is_followed_before_all_answers_are_known() -> None:
    """A leader that ended before it stored that it had accepted may have left the answer to one who refused."""
    heard = Heard()
    assert heard.take(given(OrderKind.MAINTAIN, 3), answer(OrderKind.MAINTAIN, AuditOutcome.ACCEPTED, 3)) == []
    assert heard.take(answer(OrderKind.MAINTAIN, AuditOutcome.REFUSED, 3)) == []
    heard.has_read_answers()
    assert heard.take() == []


def test_an_order_that_is_refused_after_all_makes_the_stage_start_over() -> None:
    """What was in force before the order is in the topic; a later acceptance changes nothing."""
    heard = Heard()
    heard.has_read_answers()
    assert heard.take(given(OrderKind.MAINTAIN, 3), answer(OrderKind.MAINTAIN, AuditOutcome.ACCEPTED, 3)) == ["b01"]
    with pytest.raises(AnswerChangedError, match="maintain b01 by ana was refused"):
        heard.take(answer(OrderKind.MAINTAIN, AuditOutcome.REFUSED, 3))


def test_an_answer_to_another_order_does_not_count() -> None:
    """Orders differ by their place in the topic, and by Kafka's time, as a topic may be created again."""
    heard = Heard()
    heard.has_read_answers()
    assert heard.take(given(OrderKind.MAINTAIN, 3), answer(OrderKind.MAINTAIN, AuditOutcome.ACCEPTED, 2)) == []
    assert heard.take(answer(OrderKind.PAUSE, AuditOutcome.ACCEPTED, 3)) == []


def accept_orders(kafka: KafkaAccess, offsets: Collection[int]) -> None:
    """Answer the orders at these offsets as a controller does, the unsigned one as well."""
    wait_until(lambda: len(list(read_messages(kafka, ["live.orders"], 5.0))) == 3)
    entries = [
        GivenOrder(decode(message.value(), Order), message.timestamp()[1], offset).entry(AuditOutcome.ACCEPTED, "", 1)
        for message in read_messages(kafka, ["live.orders"], 5.0)
        if (offset := message.offset()) in offsets
    ]
    writer = RecordWriter(kafka, outage_s_max=5, buffer_records_max=10, linger_ms=1)
    for entry in entries:
        writer.write("live.audit", entry.subject, entry)
    assert writer.flush(5) == 0
    writer.close()


@pytest.mark.stack
def test_only_signed_orders_are_accepted_and_read_again_when_trusted_keys_change(tmp_path: Path) -> None:
    """A forged maintenance order would silence alerts; when a key is revoked the stage reads all orders again.

    On a real Kafka. The order about b03 is signed, but has no answer.
    """
    orders = OrderSettings(directory=tmp_path / "order-keys")
    assert make_local_keys(tmp_path / "order-keys", "ana", 1)
    key = orders.operator_key()
    assert key is not None
    with start_kafka(tmp_path) as kafka:
        create_topics(kafka.access, namespace="live")
        order = Order("b01", OrderKind.MAINTAIN, "ana", "new disks", now_ms())
        send_order(kafka.access, structs.replace(order, subject="b02"), "live")
        for broker in ("b01", "b03"):
            send_order(kafka.access, key.sign(structs.replace(order, subject=broker), "live"), "live")
        accept_orders(kafka.access, offsets=(0, 1))
        reader = InputReader(kafka.access, "live", LOOKBACK, orders)
        wait_until(lambda: reader.begin(now_ms()))
        found: list[InputRecord] = []
        wait_until(lambda: bool(found.extend(reader.poll())) or reader.has_caught_up)
        assert [one.record.subject for one in found if isinstance(one.record, Order)] == ["b01"]
        assert reader.orders_refused == 1
        trusted = tmp_path / "order-keys" / "trusted.toml"
        trusted.write_text(trusted.read_text().replace(" }", ", revoked = true }"))
        with pytest.raises(TrustedKeysChangedError):
            wait_until(lambda: bool(reader.poll()))
        reader.close()
