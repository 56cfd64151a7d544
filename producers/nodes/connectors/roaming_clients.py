"""Clients of MQTT brokers that ask for a session at one broker while another knows them: each broker serves them.

Nothing moves a session: this only says that there are two.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection
from itertools import islice

import structlog

from regraft.schemas.bounds import NAME_LENGTH_MAX, UNCLEAN_ANYWHERE
from regraft.schemas.wire_grammar import is_clean

log = structlog.get_logger(__name__)

ANNOUNCED_MAX = 100  # Names in one probe of a link.
KEPT_MAX = 1_000  # Names that wait for a probe; in a flood, the oldest are not announced.
MET_MAX = 10_000  # Pairs of client and other broker; further ones are only counted, each time that they are met.
ROAMS = "client_at_two_brokers"
SERVED_TWICE = (
    "both brokers may hold a session for it and queue the same messages: let it end its session before it moves, or "
    "lower connectors.mqtt.session_s"
)


class RoamingClients:
    """The clients of one broker; ``knows`` returns True for a client that its node knows."""

    def __init__(self, broker: str, counts: Counter[str], knows: Callable[[str], bool]) -> None:
        self.noted_count = 0
        self._broker, self._counts, self._knows = broker, counts, knows
        self._noted: deque[str] = deque(maxlen=KEPT_MAX)
        self._met: dict[tuple[str, str], None] = {}  # Client and other broker.

    def note(self, client: str) -> None:
        """Note that a client asks for a session here."""
        if 0 < len(client) <= NAME_LENGTH_MAX and is_clean(client) and UNCLEAN_ANYWHERE.search(client) is None:
            self._noted.append(client)
            self.noted_count += 1

    def announced_from(self, place: int) -> tuple[int, tuple[str, ...]]:
        """Return clients to announce to a peer that has those before ``place``, and its next place.

        A connection begins at place 0, as what was announced over the last one may be lost; clients that are gone since
        then are left out.
        """
        first = self.noted_count - len(self._noted)
        begin = max(place, first)
        announced = tuple(islice(self._noted, begin - first, begin - first + ANNOUNCED_MAX))
        return begin + len(announced), tuple(filter(self._knows, announced))

    def take(self, peer: str, clients: Collection[str]) -> None:
        """Count those that ask for a session at a peer and are known here, once each."""
        for client in clients:
            if not self._knows(client) or (client, peer) in self._met:
                continue
            self._counts[ROAMS] += 1
            if len(self._met) < MET_MAX:
                self._met[client, peer] = None
                log.warning(ROAMS, client=client, brokers=sorted((self._broker, peer)), reason=SERVED_TWICE)
