"""A published message gets one header more, which a server and a client read as such; nothing else changes."""

import pytest

from regraft.producers.agents.nats_frames import Frame, FrameReader, header_block, named_frame

LINE = b"Regraft-Publisher: web1.a-1"


def frame_of(raw: bytes) -> Frame:
    (frame,) = FrameReader().feed(raw)
    return frame


@pytest.mark.parametrize(
    "raw",
    [
        b"PUB data 5\r\nhello\r\n",
        b"pub data _INBOX.1 0\r\n\r\n",
        b"HPUB data 23 28\r\nNATS/1.0\r\nTrace: 17\r\n\r\nhello\r\n",
        b"HPUB data _INBOX.1 16 21\r\nNATS/1.0 503\r\n\r\nhello\r\n",
    ],
)
def test_the_name_is_one_header_more(raw: bytes) -> None:
    before = frame_of(raw)
    after = frame_of(named_frame(before, LINE))
    assert after.words[1:-2] == before.words[1 : len(before.words) - (2 if before.headers_size else 1)]
    assert after.payload[after.headers_size :] == before.payload[before.headers_size :]
    headers, old = after.payload[: after.headers_size], before.payload[: before.headers_size]
    assert headers.endswith(b"\r\n\r\n")
    assert [line for line in headers.split(b"\r\n") if line != LINE] == (old or b"NATS/1.0\r\n\r\n").split(b"\r\n")
    assert len(headers) - len(old) <= len(header_block(LINE))


@pytest.mark.parametrize("headers", [b"NATS/1.0\r\nregraft-publisher: own\r\n\r\n", b"no headers of NATS\r\n\r\n"])
def test_a_message_that_names_its_publisher_keeps_that(headers: bytes) -> None:
    """And one whose headers the server will refuse stays as it is."""
    frame = frame_of(b"HPUB data %d %d\r\n%b\r\n" % (len(headers), len(headers), headers))
    assert named_frame(frame, LINE) == frame.raw
