"""Where a connector finds its broker: one address, or those of several servers of one cluster, tried in turn.

Pure: the caller passes the time. Between attempts to connect it waits, ever longer.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import SplitResult, urlsplit

from regraft.producers.nodes.connectors.connector import ConnectorError

RETRY_S, RETRY_S_MAX = 0.05, 2.0


def split_connector(connector: str) -> list[SplitResult]:
    """Return the addresses of a connector, which are separated by commas.

    Raises ValueError for brackets without IPv6.
    """
    return [urlsplit(part.strip()) for part in connector.split(",")]


class ConnectorAddresses:
    """The addresses of one connector; ``ports`` has the default port of each scheme that is possible.

    Raises ConnectorError with ``advice`` if one is no such address, or if they differ in scheme or path.
    """

    def __init__(self, connector: str, ports: Mapping[str, int], advice: str) -> None:
        parts = split_connector(connector)
        self._places: list[tuple[str, int]] = []
        for part in parts:
            try:
                port = part.port or ports[part.scheme]
            except (KeyError, ValueError):
                port = 0
            if not port or not part.hostname:
                raise ConnectorError(f"{connector!r} is not a connector: {advice}")
            self._places.append((part.hostname, port))
        self.scheme, self.path = parts[0].scheme, parts[0].path
        if any((part.scheme, part.path) != (self.scheme, self.path) for part in parts):
            raise ConnectorError(
                f"{connector!r} is not a connector: its addresses must be of one cluster, with the same scheme and path"
            )
        self._place = 0

    @property
    def host(self) -> str:
        """The host to try now."""
        return self._places[self._place][0]

    @property
    def port(self) -> int:
        """The port to try now."""
        return self._places[self._place][1]

    def advance(self) -> bool:
        """Turn to the next address; return True if all have been tried in this round."""
        self._place = (self._place + 1) % len(self._places)
        return self._place == 0

    def __len__(self) -> int:
        return len(self._places)

    def __str__(self) -> str:
        return " or ".join(f"{host}:{port}" for host, port in self._places)


class RetryPause:
    """Doubles with each attempt up to ``RETRY_S_MAX``, and starts over after a connection that lasted that long.

    So a broker that ends each connection at once, for example because two nodes share a name, is not called nonstop.
    """

    def __init__(self) -> None:
        self._next_s = RETRY_S
        self._opened_s: float | None = None

    def note_open(self, now_s: float) -> None:
        """Note that the connection is usable from now on."""
        self._opened_s = now_s

    def after(self, now_s: float) -> float:
        """Return how many seconds to wait, now that the connection has ended or failed."""
        if self._opened_s is not None and now_s - self._opened_s >= RETRY_S_MAX:
            self._next_s = RETRY_S
        self._opened_s = None
        pause_s, self._next_s = self._next_s, min(2 * self._next_s, RETRY_S_MAX)
        return pause_s
