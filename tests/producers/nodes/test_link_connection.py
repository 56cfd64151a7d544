"""One end of a connection between nodes under a peer that does not keep to the protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from regraft.producers.nodes.links.link_connection import LinkConnection
from regraft.producers.nodes.links.link_frames import (
    HELLO_BYTES_MAX,
    FrameReader,
    Probe,
    frame,
    link_frame,
    read_link_frame,
)
from regraft.producers.nodes.links.link_session import LINK_VERSION, Hello, LinkSession

HELLO = Hello(LINK_VERSION, "n0", "1", "", 0)


class Wire:
    """A socket that keeps what is written, and whether it was ended."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.is_ended = False

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def abort(self) -> None:
        self.is_ended = True

    def is_closing(self) -> bool:
        return self.is_ended

    def frames(self) -> list[Any]:
        reader = FrameReader()
        return [read_link_frame(body) for data in self.written for number, body in reader.feed(data) if not number]


@pytest.fixture
def run_connection() -> Callable[..., None]:
    def run(steps: Callable[[LinkConnection, Wire], None]) -> None:
        async def go() -> None:
            session = LinkSession("n1", "1")
            connection = LinkConnection(lambda _, hello: session, lambda *_: None, lambda *_: None)
            wire = Wire()
            connection.connection_made(wire)  # type: ignore[arg-type]
            steps(connection, wire)
            await asyncio.sleep(0)

        asyncio.run(go())

    return run


@pytest.mark.parametrize("sent_ms", [0.0, -1e300, 1e300, float("nan"), float("inf")])
def test_a_peer_cannot_invent_a_round_trip(run_connection: Callable[..., None], sent_ms: float) -> None:
    """What an answer repeats counts only if it is the probe that is due; so no figure in telemetry is the peer's."""

    def steps(connection: LinkConnection, wire: Wire) -> None:
        connection.data_received(link_frame(HELLO))
        connection.data_received(link_frame(Probe(sent_ms, True)))
        assert connection.rtt_ms is None
        connection.probe()
        connection.data_received(link_frame(Probe(sent_ms, True)))
        assert connection.rtt_ms is None
        due = next(each for each in wire.frames() if isinstance(each, Probe) and not each.is_answer)
        for _ in range(3):
            connection.data_received(link_frame(Probe(due.sent_ms, True)))
        assert connection.rtt_ms is not None
        assert 0 <= connection.rtt_ms < 60_000
        assert not wire.is_ended

    run_connection(steps)


@pytest.mark.parametrize(
    "data",
    [
        frame(0, bytes(HELLO_BYTES_MAX + 1)),
        frame(1, b"x"),
        link_frame(Probe(1.0, False)),
        link_frame(Hello(LINK_VERSION, "n" * 300, "1", "", 0)),
        link_frame(Hello(LINK_VERSION, "n0", "1", "", -1)),
        link_frame(Hello(LINK_VERSION, "n0", "\n", "", 0)),
        link_frame(HELLO) + link_frame(HELLO),
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)
def test_whoever_does_not_begin_with_one_hello_is_cut_off(run_connection: Callable[..., None], data: bytes) -> None:
    """Strangers reach the port, too: they hold no more than a hello's bytes, and end nothing but their connection."""

    def steps(connection: LinkConnection, wire: Wire) -> None:
        connection.data_received(data)
        assert wire.is_ended

    run_connection(steps)
