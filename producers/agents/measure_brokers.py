"""Which broker is nearest to an agent, and so to its clients: how long each takes to answer on a new connection.

In: addresses. Out: the nearest broker, once it is known and whenever it changes, and which can be reached at all.
"""

from __future__ import annotations

import asyncio
import math
import secrets
import time
from collections import deque
from collections.abc import Callable, Mapping

from regraft.producers.agents.broker_address import BrokerAddress
from regraft.schemas.agent_note import reported_brokers

EVERY_S = 15.0
ANSWER_S_MAX = 5.0
ROUNDS = 2  # The best of these counts: an answer may be late, but never early.
AT_ONCE_MAX = 32  # Brokers measured in one round; of more, each comes in turn.
SPEAKING_FIRST = ("nats", "tls")
# Of MQTT 5: a client without a session, by one name for each agent's run, so that brokers keep nothing of it.
NAME = b"regraft-near-" + secrets.token_hex(4).encode()
CONTENT = b"\x00\x04MQTT\x05\x02\x00\x0a\x00" + len(NAME).to_bytes(2) + NAME
CONNECT, DISCONNECT = b"\x10" + bytes((len(CONTENT),)) + CONTENT, b"\xe0\x00"
NEARER_SHARE, NEARER_S = 0.8, 0.002  # Another is nearer if it answers in this share of the time, and so much earlier.


class NearestBroker:
    """``nearest`` is ``home`` until another is clearly nearer, and "" until one has answered."""

    def __init__(self, brokers: Mapping[str, BrokerAddress], home: str) -> None:
        self.nearest = ""
        self._brokers, self._home = dict(brokers), home
        self._times_s: dict[str, deque[float]] = {broker: deque(maxlen=ROUNDS) for broker in brokers}
        self._turn = deque(brokers)
        self._answered: set[str] = set()

    @property
    def reached(self) -> tuple[str, ...]:
        """The brokers to which clients can be taken: without those that have never answered; empty before the first.

        A single broker is not measured.
        """
        if len(self._brokers) > 1 and not self._answered:
            return ()
        return reported_brokers(
            broker for broker in self._brokers if broker in self._answered or not self._times_s[broker]
        )

    async def run(self, on_round: Callable[[], None]) -> None:
        """Measure again and again; call back after each round."""
        while True:
            await self.measure()
            on_round()
            await asyncio.sleep(EVERY_S)

    async def measure(self) -> None:
        """Measure the brokers whose turn it is."""
        here = [self._turn[place] for place in range(min(len(self._turn), AT_ONCE_MAX))]
        self._turn.rotate(-len(here))
        times_s = await asyncio.gather(*(_answer_s(self._brokers[broker]) for broker in here))
        for broker, took_s in zip(here, times_s, strict=True):
            self._times_s[broker].append(took_s)
            if took_s < math.inf:
                self._answered.add(broker)
        self._choose()

    def _choose(self) -> None:
        best_s = {broker: min(times_s) for broker, times_s in self._times_s.items() if times_s}
        present = self.nearest or self._home
        present_s = best_s.get(present, math.inf)
        nearest = min(best_s, key=lambda broker: (best_s[broker], broker))
        is_nearer = best_s[nearest] < present_s * NEARER_SHARE and best_s[nearest] < present_s - NEARER_S
        if is_nearer or (not self.nearest and best_s[nearest] < math.inf):
            self.nearest = nearest if is_nearer else present


async def _answer_s(address: BrokerAddress) -> float:
    """Return how long a broker takes to answer on a new connection; infinite if it does not.

    A broker that speaks first does so after two round trips, those of the connection included. With MQTT the agent
    introduces itself without a login, for as long as it takes to be accepted or refused, and that counts twice.
    """
    began_s = time.perf_counter()
    is_first = address.scheme in SPEAKING_FIRST
    tls = None if is_first else address.tls
    try:
        async with asyncio.timeout(ANSWER_S_MAX):
            name = address.host if tls is not None else None
            reader, writer = await asyncio.open_connection(address.host, address.port, ssl=tls, server_hostname=name)
            try:
                if not is_first:
                    began_s = time.perf_counter()
                    writer.write(CONNECT)
                answer = await reader.read(1)
                took_s = time.perf_counter() - began_s
                if not is_first:
                    writer.write(DISCONNECT)
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return math.inf
    if not answer:
        return math.inf
    return took_s if is_first else 2 * took_s
