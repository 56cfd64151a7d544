"""The live view in Valkey or Redis: one key for each of its parts.

Best effort: the view is written whole each time, so a server that lost it has it again with the next writing, and a
server that is away costs one short attempt per pause. Kafka stays the source of truth.

Keys, each a JSON text: ``<namespace>:live:<part>``; which parts there are, :mod:`schemas.live_view` says.
"""

from __future__ import annotations

from regraft.infra.live_keys import KeyClient, LiveKeys
from regraft.schemas.live_view import LiveView, encode_keys


class ValkeyView:
    """Writes the view through a client; after a failure it keeps away for a pause that grows."""

    def __init__(self, client: KeyClient, namespace: str) -> None:
        self._keys = LiveKeys(client, "controller")
        self._prefix = f"{namespace}:live:"

    @property
    def failures(self) -> int:
        """How many writings failed."""
        return self._keys.failures

    def publish(self, view: LiveView, now_ms: int) -> None:
        """Write the whole view, unless the server failed a short while ago."""
        self._keys.write(lambda: self._texts(view), now_ms)

    def _texts(self, view: LiveView) -> dict[str, bytes]:
        return {self._prefix + key: text for key, text in encode_keys(view).items()}
