"""Dead letters: what they contain, where they go, and what happens to a message that cannot be decoded."""

import pytest
import structlog
from confluent_kafka import Message

from regraft.infra.kafka.dead_letters import (
    SENDERS_PER_TOPIC_MAX,
    SHARE_BYTES_MAX,
    SHARE_LETTERS_MAX,
    SHARE_SPAN_S,
    VALUE_BYTES_MAX,
    LetterShare,
    RecordDecoder,
    addressed,
    dead_letter,
)
from regraft.schemas.codec import decode, encode
from regraft.schemas.dead_letter import DeadLetter
from regraft.schemas.order import WHOLE_OVERLAY, Order, OrderKind
from tests.infra.kafka_message import kafka_message


def message(value: bytes | None) -> Message:
    return kafka_message("regraft.orders", value, 5, b"b01", 1_234, partition=2)


def test_an_undecodable_record_is_kept_with_its_position_and_the_reason() -> None:
    """It becomes a dead letter, is counted by topic and logged; the caller continues without it."""
    letters: list[DeadLetter] = []
    decoder = RecordDecoder(letters.append)
    with structlog.testing.capture_logs() as logged:
        assert decoder.decode(message(b"rubbish"), Order) is None
    (letter,) = letters
    assert (letter.topic, letter.partition, letter.offset, letter.time_ms) == ("regraft.orders", 2, 5, 1_234)
    assert letter.value == b"rubbish"
    assert "expected 00" in letter.reason
    assert decoder.undecodable == {"regraft.orders": 1}
    assert [(entry["event"], entry["offset"], entry["reason"]) for entry in logged] == [
        ("record_refused", 5, letter.reason)
    ]


def test_a_flood_of_them_is_stored_completely_but_logged_rarely() -> None:
    """Every record is kept; the log gets the 1st, 2nd, 4th, 8th."""
    letters: list[DeadLetter] = []
    decoder = RecordDecoder(letters.append)
    with structlog.testing.capture_logs() as logged:
        for _ in range(10):
            decoder.decode(message(b"rubbish"), Order)
    assert len(letters) == 10
    assert [entry["count"] for entry in logged] == [1, 2, 4, 8]


def test_records_and_tombstones_are_not_dead_letters() -> None:
    """A record is returned, a tombstone gives None, and neither is counted."""
    decoder = RecordDecoder(pytest.fail)
    order = Order(WHOLE_OVERLAY, OrderKind.PAUSE, "ann", "night", 1_000)
    assert decoder.decode(message(encode(order)), Order) == order
    assert decoder.decode(message(None), Order) is None
    assert not decoder.undecodable


def test_a_long_value_is_cut_so_that_the_letter_fits_a_record() -> None:
    """A record as long as Kafka permits would be too long with its reason; the letter says how much is missing."""
    letter = dead_letter("t", 0, 1, "no record", b"x" * (VALUE_BYTES_MAX + 7), 0)
    assert len(letter.value) == VALUE_BYTES_MAX
    assert letter.reason == f"no record (the first {VALUE_BYTES_MAX} of {VALUE_BYTES_MAX + 7} bytes are kept)"


@pytest.mark.parametrize("time_ms", [-1, 2**63 - 1])
def test_a_letter_can_be_read_whatever_time_a_writer_gave(time_ms: int) -> None:
    """If Kafka keeps writers' timestamps, these may have any value."""
    letter = dead_letter("regraft.orders", 0, 1, "so", b"x", time_ms)
    assert decode(encode(letter), DeadLetter) == letter


def test_letters_are_keyed_by_where_the_record_came_from() -> None:
    """All stages of a namespace share one topic."""
    letter = dead_letter("live.results", 0, 1, "no record", b"", 0)
    assert addressed(letter, "live") == ("live.dead-letters", "live.results", letter)


def test_the_letters_of_one_bad_sender_do_not_displace_those_of_others() -> None:
    """Each has a share of a minute, in number and in bytes, by topic and key; what is beyond it is counted."""
    now_s = 0.0
    share = LetterShare(lambda: now_s)
    bad, good, other = dead_letter("t", 0, 1, "no", b"x", 0), b"b01", b"b02"
    assert sum(share.admits(bad, good) for _ in range(100_000)) == SHARE_LETTERS_MAX
    assert share.only_counted == {"t": 100_000 - SHARE_LETTERS_MAX}
    assert share.admits(bad, other)
    assert share.admits(dead_letter("t.west", 0, 1, "no", b"x", 0), good)
    long = dead_letter("t", 0, 1, "no", b"x" * VALUE_BYTES_MAX, 0)
    assert sum(share.admits(long, b"b03") for _ in range(1_000)) == SHARE_BYTES_MAX // VALUE_BYTES_MAX
    now_s = SHARE_SPAN_S
    assert share.admits(bad, good)


def test_random_keys_take_a_bounded_part_of_a_topic_and_nothing_of_another() -> None:
    """A sender that lies about its key is still kept from the share of other topics, by Kafka itself."""
    share = LetterShare(lambda: 0.0)
    letter = dead_letter("t.west", 0, 1, "no", b"x", 0)
    admitted = sum(share.admits(letter, str(number).encode()) for number in range(100_000))
    assert admitted == SENDERS_PER_TOPIC_MAX * SHARE_LETTERS_MAX
    assert share.admits(dead_letter("t.east", 0, 1, "no", b"x", 0), b"1")


def test_a_decoder_counts_all_that_it_refuses_beyond_the_share_of_letters() -> None:
    """Nothing is lost unnoticed: the counts are complete, the letters are not."""
    letters: list[DeadLetter] = []
    decoder = RecordDecoder(letters.append)
    for _ in range(2 * SHARE_LETTERS_MAX):
        decoder.decode(message(b"rubbish"), Order)
    assert len(letters) == SHARE_LETTERS_MAX
    assert decoder.undecodable == {"regraft.orders": 2 * SHARE_LETTERS_MAX}
    assert decoder.share.only_counted == {"regraft.orders": SHARE_LETTERS_MAX}
