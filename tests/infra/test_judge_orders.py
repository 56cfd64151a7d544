"""Which orders are authentic: signed, in time, given once, by a permitted signer, under their own key."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME
from msgspec import structs

from regraft.infra.orders import judge_orders, order_keys
from regraft.infra.orders.judge_orders import ORDER_AGE_MS_MAX, ORDER_AHEAD_MS_MAX, OrderJudge
from regraft.infra.orders.order_keys import SigningKey, TrustedKeys
from regraft.schemas.codec import decode, encode
from regraft.schemas.event import AdaptationEvent, EventKind, Severity
from regraft.schemas.member import BrokerFacts
from regraft.schemas.order import WHOLE_OVERLAY, Order, OrderKind
from tests.infra.kafka_message import kafka_message
from tests.infra.order_signers import TRUSTED_UNTIL, trust

NOW_MS = 1_800_000_000_000
PAUSE = Order(WHOLE_OVERLAY, OrderKind.PAUSE, "ana", "patching", NOW_MS, NOW_MS + 5, source="ana@desk")


class Bench:
    """A judge that trusts ana and bo, and their keys."""

    def __init__(self, directory: Path, **options: Any) -> None:
        self.file, self.signers = trust(directory, "ana", "bo", **options)
        self.judge = OrderJudge(TrustedKeys(self.file), "live")

    def another_judge(self) -> OrderJudge:
        """Return the judge of another process."""
        return OrderJudge(TrustedKeys(self.file), "live")

    def sign(self, order: Order = PAUSE, by: str = "ana") -> Order:
        return self.signers[by].sign(order, "live")

    def refusal(self, order: Order, written_ms: int = NOW_MS, *, is_by_kafka: bool = True) -> str:
        return self.judge.refusal(order, order.key, written_ms, is_by_kafka=is_by_kafka)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_a_signed_order_is_accepted_after_its_way_through_kafka(bench: Bench) -> None:
    """The signature covers the values, so it does not matter how a record encodes them."""
    order = decode(encode(bench.sign()), Order)
    assert len(order.signature) == 64
    assert bench.refusal(order) == ""


@pytest.mark.parametrize(
    "changed",
    [
        {"subject": "b01", "kind": OrderKind.MAINTAIN},
        {"kind": OrderKind.RESUME},
        {"by": "bo"},
        {"reason": "x"},
        {"time_ms": NOW_MS + 1},
        {"until_ms": 0},
        {"evacuate": True},
        {"plan_digest": "1"},
        {"source": ""},
        {"nonce": "another"},
        {"key_name": "bo"},
        {"signature": b"\x00" * 64},
        {"signature": b"x"},
    ],
)
def test_no_field_can_be_changed(bench: Bench, changed: dict[str, Any]) -> None:
    """Whatever is changed, the signature no longer matches the order."""
    assert "its signature is not that of" in bench.refusal(structs.replace(bench.sign(), **changed))


def test_every_field_is_signed() -> None:
    """A field that is added to the record is signed, too, unless it has its default."""
    names = {field.name for field in structs.fields(Order)} - {"signature"}
    filled = Order("b1", OrderKind.MAINTAIN, "ana", "r", 1, 2, True, "d", "s", "k", "n", b"x", BrokerFacts(1.0))
    text = filled.signed_text("live").decode()
    assert all(f'"{name}":' in text for name in names)


def test_an_order_for_one_namespace_is_refused_in_another(bench: Bench) -> None:
    """Two systems may trust the same people."""
    order = bench.signers["ana"].sign(PAUSE, "lab")
    assert "in live" in bench.refusal(order)


def test_unsigned_orders_are_accepted_only_if_a_setting_permits_them(bench: Bench) -> None:
    """An order that claims to be signed must have a valid signature even then."""
    assert "it is unsigned" in bench.refusal(PAUSE)
    lenient = OrderJudge(TrustedKeys(bench.file), "live", allow_unsigned=True)
    assert lenient.refusal(PAUSE, PAUSE.key, NOW_MS, is_by_kafka=False) == ""
    forged = structs.replace(bench.sign(), reason="x")
    assert lenient.refusal(forged, forged.key, NOW_MS, is_by_kafka=True) != ""


def test_orders_of_an_untrusted_key_are_refused(bench: Bench, tmp_path: Path) -> None:
    """Even if it has the name of a trusted one."""
    other = tmp_path / "other"
    other.mkdir()
    _, strangers = trust(other, "ana", "eve")
    assert "its key 'eve' is not trusted" in bench.refusal(strangers["eve"].sign(PAUSE, "live"))
    assert "its signature is not that of ana" in bench.refusal(strangers["ana"].sign(PAUSE, "live"))


def test_new_orders_are_refused_while_the_trusted_keys_cannot_be_read(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mistake may be in the line where a key was revoked."""
    monkeypatch.setattr(order_keys, "POLL_S", 0.0)
    keys = TrustedKeys(bench.file)
    judge, order = OrderJudge(keys, "live"), bench.sign()
    bench.file.write_text("ana")
    keys.refresh()
    assert "it is unknown whether its key 'ana' is trusted" in judge.refusal(order, order.key, NOW_MS, is_by_kafka=True)


def test_orders_from_before_a_keys_expiry_stay_in_force(tmp_path: Path) -> None:
    """An order is judged by the time at which Kafka received it, so the result does not depend on when it is read."""
    end_ms = NOW_MS + 1_000
    bench = Bench(tmp_path, until=datetime.fromtimestamp(end_ms / 1000, UTC))
    assert bench.refusal(bench.sign(), end_ms) == ""
    assert "the key ana expired at" in bench.refusal(bench.sign(), end_ms + 1)


def test_no_order_of_a_revoked_key_stays_in_force(bench: Bench) -> None:
    """A thief of the key may have signed at any time."""
    order = bench.sign()
    text = bench.file.read_text().splitlines()
    bench.file.write_text(text[0].replace(" }", ", revoked = true }") + "\n" + text[1])
    assert bench.another_judge().refusal(order, order.key, NOW_MS, is_by_kafka=True) == "the key ana is revoked"


def test_a_key_gives_only_the_orders_that_it_may(tmp_path: Path) -> None:
    """A night shift may pause and resume, but approves nothing."""
    bench = Bench(tmp_path, orders=(OrderKind.PAUSE,))
    assert bench.refusal(bench.sign()) == ""
    resumed = bench.sign(structs.replace(PAUSE, kind=OrderKind.RESUME))
    assert bench.refusal(resumed) == "the key ana may pause, not resume"


def test_a_persons_key_signs_only_for_its_name_but_a_dashboards_for_others(bench: Bench) -> None:
    """An order's name is that of its key, unless the key may sign for others."""
    for_bo = structs.replace(PAUSE, by="bo")
    assert "signs for ana only, not for bo" in bench.refusal(bench.sign(for_bo))
    bench.file.write_text(bench.signers["ana"].trusted_line(TRUSTED_UNTIL, for_others=True))
    order = bench.sign(for_bo)
    assert bench.another_judge().refusal(order, order.key, NOW_MS, is_by_kafka=True) == ""


def test_an_order_is_given_once(bench: Bench) -> None:
    """An immediate copy is detected by its nonce, a later one by its age, also by a judge that starts over."""
    order = bench.sign()
    latest_ms = NOW_MS + ORDER_AGE_MS_MAX
    assert bench.refusal(order) == ""
    assert bench.refusal(order) == "it is a copy of an order that was given before"
    assert bench.refusal(order, latest_ms) == "it is a copy of an order that was given before"
    assert "check for a copied order or a wrong clock" in bench.refusal(order, latest_ms + 1)
    assert "check for a copied order" in bench.another_judge().refusal(
        order, order.key, latest_ms + 1, is_by_kafka=True
    )
    bench.judge.forget()
    assert bench.refusal(order) == ""  # The topic is read again from its beginning.


def test_a_copy_is_detected_until_it_is_too_old(bench: Bench) -> None:
    """Even if its signer's clock was ahead: the nonce is remembered until the order's age alone refuses it."""
    early_ms = NOW_MS - ORDER_AHEAD_MS_MAX
    order = bench.sign()
    assert bench.refusal(order, early_ms) == ""
    for written_ms in range(early_ms, NOW_MS + 2 * ORDER_AGE_MS_MAX, 30_000):
        assert bench.refusal(bench.sign(structs.replace(PAUSE, time_ms=written_ms)), written_ms) == ""
        assert bench.refusal(order, written_ms) != ""


def test_a_clock_that_is_far_ahead_is_refused(bench: Bench) -> None:
    """Its orders could be copied for that long."""
    assert bench.refusal(bench.sign(), NOW_MS - ORDER_AHEAD_MS_MAX) == ""
    assert "a wrong clock" in bench.refusal(bench.sign(), NOW_MS - ORDER_AHEAD_MS_MAX - 1)


def test_nonces_are_bounded_by_refusing_more(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A forgotten nonce would let its order be given again."""
    monkeypatch.setattr(judge_orders, "NONCES_MAX", 2)
    assert [bench.refusal(bench.sign()) for _ in range(3)][:2] == ["", ""]
    assert "2 orders arrived within minutes" in bench.refusal(bench.sign())
    later_ms = NOW_MS + 2 * ORDER_AGE_MS_MAX
    assert bench.refusal(bench.sign(structs.replace(PAUSE, time_ms=later_ms)), later_ms) == ""


@pytest.mark.parametrize("nonce", ["x" * 65])
def test_a_nonce_has_a_length(bench: Bench, nonce: str) -> None:
    """What is remembered of an order must be small."""
    assert "its nonce has 65 characters" in bench.refusal(bench.sign(structs.replace(PAUSE, nonce=nonce)))


def test_a_topic_that_keeps_the_times_of_writers_is_refused(bench: Bench) -> None:
    """A copy could claim there to have been written when the order was given."""
    assert "LogAppendTime" in bench.refusal(bench.sign(), is_by_kafka=False)


def given(bench: Bench, order: Order | None, key: bytes | None, kind: int = TIMESTAMP_LOG_APPEND_TIME) -> str:
    message = kafka_message("lab.orders", b"", 5, key, NOW_MS, times_by=kind)
    found = bench.judge.given(message, order)
    assert (found.offset, found.written_ms) == (5, NOW_MS)
    return found.refusal


def test_an_order_is_accepted_only_under_its_own_key(bench: Bench) -> None:
    """Under another key it would replace that key's order when the topic is compacted."""
    assert given(bench, bench.sign(), b"broker/b01") == (
        "its record has the key 'broker/b01', that of such an order is 'adaptation/overlay'"
    )
    assert given(bench, bench.sign(), None) != ""
    assert given(bench, bench.sign(), PAUSE.key.encode(), TIMESTAMP_CREATE_TIME) != ""
    assert given(bench, bench.sign(), PAUSE.key.encode()) == ""


def test_a_tombstone_of_an_order_is_refused(bench: Bench) -> None:
    """Nobody writes such a record: orders are revoked by orders."""
    assert "deletes an order from the topic" in given(bench, None, b"adaptation/overlay")
    for key in (None, b"", b"a\x00b\n", b"\xff" * 3_000):
        message = kafka_message("lab.orders", None, key=key)
        subject = bench.judge.given(message, None).key
        assert decode(
            encode(AdaptationEvent(subject, EventKind.ORDER_REFUSED, Severity.WARNING, 0, "")), AdaptationEvent
        )


def test_signing_keeps_all_but_what_it_adds(tmp_path: Path) -> None:
    """The nonce is new for each order, unless the signer chose one to find the answer by."""
    _, signers = trust(tmp_path, "ana")
    key: SigningKey = signers["ana"]
    first, second = key.sign(PAUSE, "live"), key.sign(PAUSE, "live")
    assert first.nonce != second.nonce
    assert structs.replace(first, nonce="", key_name="", signature=b"") == PAUSE
    assert key.sign(structs.replace(PAUSE, nonce="mine"), "live").nonce == "mine"
