"""Where a door finds its broker: one address, or those of several servers of one cluster, tried in turn. Pure.

In: the setting ``node.door``. Out: host and port to try now.
"""

from __future__ import annotations

from collections.abc import Mapping

from regraft.producers.door_faults import split_door
from regraft.producers.nodes.doors import DoorError


class DoorAddresses:
    """The addresses of one door; ``ports`` has the default port of each scheme that is possible.

    Raises DoorError with ``advice`` if one is no such address, or if they differ in scheme or path.
    """

    def __init__(self, door: str, ports: Mapping[str, int], advice: str) -> None:
        parts = split_door(door)
        self._places: list[tuple[str, int]] = []
        for part in parts:
            try:
                port = part.port or ports[part.scheme]
            except (KeyError, ValueError):
                port = 0
            if not port or not part.hostname:
                raise DoorError(f"{door!r} is not a door: {advice}")
            self._places.append((part.hostname, port))
        self.scheme, self.path = parts[0].scheme, parts[0].path
        if any((part.scheme, part.path) != (self.scheme, self.path) for part in parts):
            raise DoorError(
                f"{door!r} is not a door: all its addresses are of one cluster, with the same scheme and path"
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
