"""The grammar of protocol lines: whatever it accepts is one token of a line of NATS, MQTT and AMQP."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regraft.schemas.wire_grammar import (
    HEADERS_BYTES_MAX,
    SUBJECT_BYTES_MAX,
    TOKENS_MAX,
    block_error,
    filter_error,
    is_clean,
    is_header_name,
    subject_error,
)

TEXTS = st.text(st.sampled_from("ab.*>$\r\n\t \x00\x7f\x85\xa0\u2028\u202e\ufdd0\uffff\U0001ffffé\U0001f980_REGRAFT"))


@given(TEXTS)
def test_an_accepted_subject_is_one_word_of_one_line(subject: str) -> None:
    """No space splits it, no character ends the line, and it encodes; so a message is never two."""
    if not subject_error(subject):
        assert subject.encode().split() == [subject.encode()]
        assert len(subject.encode().splitlines()) == len(subject.splitlines()) == 1
        assert not subject.startswith("$")
        assert all(token not in ("", "*", ">") for token in subject.split("."))
        assert not filter_error(subject)


@given(TEXTS)
def test_what_is_refused_names_its_reason_in_clean_text(subject: str) -> None:
    """A reason goes into logs: it quotes the value, escaped."""
    for error in (subject_error(subject), filter_error(subject)):
        assert error.encode().decode().isprintable()


@pytest.mark.parametrize(
    "subject",
    ["", ".", "a..b", "a b", "a\tb", "a\r\nPUB b 1", "a.\x01", "a.\ud800", "a.\ufdd0", "a.\uffff", "a.*",
     "a.>", "$JS.API.STREAM.PURGE.ORDERS", "$SYS.x", "_REGRAFT.b01.x", "a." * TOKENS_MAX + "a",
     "a" * (SUBJECT_BYTES_MAX + 1), "é" * (SUBJECT_BYTES_MAX // 2 + 1), "a\u202e"],
)  # fmt: skip
def test_subjects_that_never_cross(subject: str) -> None:
    """Line ends, spaces, wildcards, names of servers and nodes, no UTF-8, too long."""
    assert subject_error(subject)


@pytest.mark.parametrize(
    "subject", ["a", "a.b", "room/x20/1.temp", "é.\U0001f980", "_INBOX.x.1", "a$b.$", "a*b.c>", "a" * SUBJECT_BYTES_MAX]
)
def test_subjects_that_cross(subject: str) -> None:
    """Any token of characters but wildcards alone; a request's inbox crosses."""
    assert not subject_error(subject)


def test_wildcards_are_wanted_but_not_published() -> None:
    """A filter may end in >, and have * anywhere."""
    assert not any(map(filter_error, (">", "a.>", "*.b", "a.*.>")))
    assert all(map(filter_error, ("a.>.b", "$SYS.>", "a..>", "a \n.>")))


@pytest.mark.parametrize(
    ("block", "is_right"),
    [
        (b"", True),
        (b"NATS/1.0\r\n\r\n", True),
        (b"NATS/1.0 503 No Responders\r\n\r\n", True),
        (b"NATS/1.0\r\nA: b\r\nA:c\r\nNo space: \xc3\xa9\tx\r\n\r\n", True),
        (b"NATS/1.0\r\nA: b\r\n", False),
        (b"NATS/1.0\r\nA: b\nInjected: c\r\n\r\n", False),
        (b"NATS/1.0\r\nA: b\rInjected: c\r\n\r\n", False),
        (b"NATS/1.0\r\nA: \x00\r\n\r\n", False),
        (b"NATS/1.0\r\n: a\r\n\r\n", False),
        (b"NATS/1.0\r\n\r\nPUB x 1\r\n\r\n", False),
        (b"HTTP/1.1\r\nA: b\r\n\r\n", False),
        (b"NATS/1.0\r\nA: " + b"b" * HEADERS_BYTES_MAX + b"\r\n\r\n", False),
    ],
)
def test_a_header_block_is_lines_of_name_and_value(block: bytes, is_right: bool) -> None:
    """A bare line end would add a header for clients that split lines there."""
    assert (block_error(block) == "") == is_right


def test_texts_and_header_names_that_every_client_can_read() -> None:
    """Clients in Go refuse a message whose header names are not tokens; MQTT brokers refuse unclean texts."""
    assert is_header_name("Regraft-Publisher")
    assert not any(map(is_header_name, ("", "größe", "a b", "a:b", "a\n")))
    assert is_clean("größe \u200e\U0001f980")
    assert not any(map(is_clean, ("a\n", "\x85", "\ud800", "\ufdd5", "\U0010ffff")))
