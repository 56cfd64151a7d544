"""The live view in Valkey or Redis: the loop's document, cut into one key for each part.

Best effort: the view is written whole each time, so a server that lost it has it again with the next writing, and a
server that is away costs one short attempt per pause. Kafka stays the source of truth.

Keys, each a JSON text: ``<namespace>:live:<part>`` with part one of VIEW_PARTS, or ``counts`` for all single numbers.
"""

from __future__ import annotations

import json

from controller.control_ports import Document
from infra.live_keys import KeyClient, LiveKeys

VIEW_PARTS = (
    "configuration",
    "window",
    "network",
    "cost",
    "plans",
    "orders",
    "refusals",
    "events",
    "last_decision",
    "faults",
    "shadows",
)


class ValkeyView:
    """Writes the document through a client; after a failure it keeps away for a pause that grows."""

    def __init__(self, client: KeyClient, namespace: str) -> None:
        self._keys = LiveKeys(client, "controller")
        self._prefix = f"{namespace}:live:"

    @property
    def failures(self) -> int:
        """How many writings failed."""
        return self._keys.failures

    def publish(self, document: Document, now_ms: int) -> None:
        """Write the whole view, unless the server failed a short while ago."""
        self._keys.write(lambda: self._texts(document), now_ms)

    def _texts(self, document: Document) -> dict[str, str]:
        parts = {part: document.get(part) for part in VIEW_PARTS}
        parts["counts"] = {key: value for key, value in document.items() if key not in VIEW_PARTS}
        return {self._prefix + part: json.dumps(value) for part, value in parts.items()}
