"""An agent: it listens where clients connect, and has a session for each.

In: addresses. Out: sessions, which know the broker that is nearest to here, and so to clients. What one client needs
belongs to :mod:`producers.agents.nats_session` or :mod:`producers.agents.mqtt_client_side`.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any, cast

from regraft.producers.agents.broker_address import BrokerAddress
from regraft.producers.agents.client_session import ClientSession
from regraft.producers.agents.measure_brokers import NearestBroker
from regraft.producers.agents.nats_session import NatsSession

CLIENTS_MAX = 10_000
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


class Agent:
    """``name`` is unique among the agents of an overlay; clients begin at ``home``, in sessions of a protocol."""

    def __init__(
        self, name: str, brokers: Mapping[str, BrokerAddress], home: str,
        session_of: type[ClientSession[Any]] = NatsSession,
    ) -> None:  # fmt: skip
        self.counts: Counter[str] = Counter()
        self.name, self.brokers, self._home, self._session_of = name, brokers, home, session_of
        self._run = _in_digits(int(time.time() * 1_000))
        self._sessions: set[ClientSession[Any]] = set()
        self._server: asyncio.Server | None = None
        self._count, self._tls = 0, cast(ssl.SSLContext | None, None)
        self.near = NearestBroker(brokers, home)
        self._measuring: asyncio.Task[None] | None = None

    @property
    def sessions(self) -> list[ClientSession[Any]]:
        """Return the sessions of the present clients."""
        return list(self._sessions)

    @property
    def port(self) -> int:
        """Return the port on which the agent listens."""
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    async def start(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> None:
        """Listen; raise OSError if that is not possible. Clients have to encrypt if ``tls`` is given."""
        self._tls = tls
        at_once = tls if self._session_of.is_tls_first else None
        self._server = await asyncio.get_running_loop().create_server(self._begin, host, port, ssl=at_once)
        if len(self.brokers) > 1:
            self._measuring = asyncio.create_task(self.near.run(self._note_nearest))

    def _note_nearest(self) -> None:
        for session in self._sessions:
            session.homes.note_near(self.near.nearest, self.near.reached)

    def _begin(self) -> asyncio.Protocol:
        if len(self._sessions) >= CLIENTS_MAX:
            self.counts["clients_refused"] += 1
            return _Refusal(self._session_of.refusal)
        self._count += 1
        session = self._session_of(
            f"{self.name}.{self._run}-{self._count}", self.brokers, self._home, self.counts, self._sessions.discard,
            self._tls,
        )  # fmt: skip
        session.present = self._sessions
        self._sessions.add(session)
        session.homes.note_near(self.near.nearest, self.near.reached)
        return session

    async def close(self) -> None:
        """End all clients, and listen no longer."""
        self._listen_no_longer()
        for session in self.sessions:
            session.end("")
        await asyncio.sleep(0)

    def abort(self) -> None:
        """End as if this process had been killed: what waits in its connections is lost."""
        self._listen_no_longer()
        for session in self.sessions:
            session.abort()

    def _listen_no_longer(self) -> None:
        if self._measuring is not None:
            self._measuring.cancel()
        if self._server is not None:
            self._server.close()


class _Refusal(asyncio.Protocol):
    def __init__(self, line: bytes) -> None:
        self._line = line

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.write(self._line)  # type: ignore[attr-defined]
        transport.close()


def _in_digits(number: int) -> str:
    digits = ""
    while number:
        number, rest = divmod(number, len(DIGITS))
        digits = DIGITS[rest] + digits
    return digits or "0"
