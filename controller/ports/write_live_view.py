"""Write the live view to Valkey or Redis: one key for each of its parts.

Best effort: each write covers the whole view, so a server that lost it has it again after the next write, and an
unavailable server costs one short attempt per pause. Kafka stays the source of truth.

Keys, each a JSON text: ``<namespace>:live:<part>``; :mod:`schemas.live_view` defines the parts.
"""

from __future__ import annotations

from pathlib import Path

from regraft.infra.live.live_keys import KeyClient, LiveKeys
from regraft.schemas.live_view import LiveView, encode_keys
from regraft.schemas.status_file import StatusFile


class StatusView:
    """Publishes the live view in a file."""

    def __init__(self, path: Path) -> None:
        self._file = StatusFile(path)

    def publish(self, view: LiveView, now_ms: int) -> None:
        """Replace the file by the view; a full disk stops nothing."""
        self._file.write(view)


class ValkeyView:
    """Writes the view through a client; after a failure it waits for a growing pause."""

    def __init__(self, client: KeyClient, namespace: str) -> None:
        self._keys = LiveKeys(client, "controller")
        self._prefix = f"{namespace}:live:"

    @property
    def failures(self) -> int:
        """The number of failed writes."""
        return self._keys.failures

    def publish(self, view: LiveView, now_ms: int) -> None:
        """Write the whole view, unless the server failed recently."""
        self._keys.write(lambda: self._texts(view), now_ms)

    def _texts(self, view: LiveView) -> dict[str, bytes]:
        return {self._prefix + key: text for key, text in encode_keys(view).items()}
