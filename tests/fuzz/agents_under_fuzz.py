"""Send an agent whatever a client, a broker or somebody who forges notes may send: it ends at most that one client."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Coroutine, Sequence
from typing import Any, cast

from regraft.producers.agents.broker_address import BrokerAddress
from regraft.producers.agents.nats_frames import FrameError, FrameReader
from regraft.producers.agents.nats_session import NatsSession
from regraft.producers.agents.nats_upstream import Upstream
from regraft.schemas.agent_note import AgentNote, NoteKind, note_bytes

CLIENT = "web1.k3-1"
BROKERS = {name: BrokerAddress(name, "127.0.0.1", 1) for name in ("b01", "b02")}
LINES = (
    b"SUB a.b 1\r\n", b"SUB a.* g 2\r\n", b"SUB > 3\r\n", b"UNSUB 1\r\n", b"UNSUB 1 2\r\n", b"PING\r\n", b"PONG\r\n",
    b"PUB a.b 2\r\nhi\r\n", b"PUB _REGRAFT.agent.x 2\r\nhi\r\n", b"HPUB a.b 12 14\r\nNATS/1.0\r\n\r\nhi\r\n",
)  # fmt: skip
ODD = (
    b"SUB\r\n", b"SUB a b c d\r\n", b"UNSUB\r\n", b"UNSUB 1 x\r\n", b"PUB a -1\r\n", b"PUB a 9 9 9\r\n",
    b"HPUB a 9 1\r\n", b"MSG a 1\r\n", b"CONNECT {\r\n", b"CONNECT []\r\n", b"\xff\xfe\r\n", b"HMSG a 1 9 1\r\n",
    b"MSG a 1 99999999999\r\n", b"-ERR 'Permissions Violation for Subscription to \"a.b\"'\r\n", b"INFO {}\r\n",
)  # fmt: skip


class _Pipe:
    """Stands in for a socket: what is written is counted."""

    def __init__(self) -> None:
        self.written = 0

    def write(self, data: bytes) -> None:
        self.written += len(data)

    def is_closing(self) -> bool:
        return False

    def close(self) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class _Session(NatsSession):
    """A session with brokers that are always there, and without what it would do beside the client."""

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        work.close()


def _session(counts: Counter[str]) -> NatsSession:
    session = _Session(CLIENT, BROKERS, "b01", counts, lambda _: None)
    session._transport = cast(Any, _Pipe())
    session.client.take_connect(b'CONNECT {"headers":true}\r\n')
    for broker, address in BROKERS.items():
        upstream = session.homes.upstreams[broker] = Upstream(address, session)
        upstream.transport, upstream.is_ready = cast(Any, _Pipe()), True
    return session


def feed_agents(rng: random.Random, count: int) -> Counter[str]:
    """Send a session lines of its client, messages of brokers and notes, of right and wrong form."""
    return asyncio.run(_feed(rng, count))


async def _feed(rng: random.Random, count: int) -> Counter[str]:
    counts: Counter[str] = Counter()
    events: Counter[str] = Counter()
    session = _session(events)
    for _ in range(count):
        if session.is_over:
            session = _session(events)
        if rng.random() < 0.4:
            session.data_received(rng.choice(LINES if rng.random() < 0.9 else ODD))
            session._holds.clear()
            counts["connection closed" if session.is_over else "read"] += 1
            continue
        upstream = session.homes.upstreams.get(rng.choice(list(BROKERS)))
        if upstream is None:
            session = _session(events)
            continue
        line = _broker_line(rng)
        try:
            list(FrameReader().feed(line))
        except FrameError:
            counts["refused"] += 1
            continue
        before = cast(_Pipe, session._transport).written
        upstream.data_received(line)
        counts["passed_on"] += cast(_Pipe, session._transport).written > before
        assert len(session._out) == 0
    assert session.moves._kept_bytes >= 0
    return counts


def _broker_line(rng: random.Random) -> bytes:
    how = rng.random()
    if how < 0.4:
        sid = rng.choice((b"1", b"2", b"3", b"9"))
        return b"MSG a.b %b 2\r\nhi\r\n" % sid
    if how < 0.5:
        block = rng.choice(
            (b"NATS/1.0\r\n\r\n", b"NATS/1.0\r\nRegraft-Carried-regraft: 1 x b p h\r\n\r\n", b"\xff\xff")
        )
        return b"HMSG a.b 1 %d %d\r\n%bhi\r\n" % (len(block), len(block) + 2, block)
    if how < 0.8:
        payload = hostile_note(rng, CLIENT, (1, 2, 3, 77))
        return b"MSG _REGRAFT.agent.%b regraft-n %d\r\n%b\r\n" % (CLIENT.encode(), len(payload), payload)
    if how < 0.9:
        place = rng.choice((b"1.a.b", b"x.a.b", b"1.", b"", b"9" * 5_000 + b".a"))
        return b"MSG _REGRAFT.to.%b.%b regraft-p 2\r\nhi\r\n" % (CLIENT.encode(), place)
    return rng.choice(ODD)


def hostile_note(rng: random.Random, client: str, numbers: Sequence[int], overlays: Sequence[str] = ()) -> bytes:
    """Return a note to a client's agent about one of these subscriptions, seldom one that is none."""
    if rng.random() < 0.1:
        return rng.choice((b"", b"{", b"[]", b'{"kind":"move","epoch":-1}', b"\xff", b"{" * 5_000))
    name = f"{client}.{rng.choice(numbers)}~0badcafe-1"
    named = rng.choice((name, name, name, "other.k1-1.1~x-1", "", "x"))
    broker = rng.choice(("b01", "b02", "b09", ""))
    kind, overlay = rng.choice(list(NoteKind)), rng.choice(overlays) if overlays else ""
    return note_bytes(AgentNote(kind, named, rng.choice((1, 1, 1, 2)), broker, rng.randrange(9), overlay))
