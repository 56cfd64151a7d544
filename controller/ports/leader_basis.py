"""What a controller decides on besides Kafka's records: a controller that follows must have the same.

The basis is in headers, not in the record of a term: controllers of earlier versions read that, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from confluent_kafka import Message

from regraft.infra.orders.order_keys import TrustedKeys
from regraft.overlay.inventory.inventory import Inventory

INVENTORY, KEYS, YES = "inventory", "trusted-keys", b"yes"


@dataclass(frozen=True, slots=True)
class LeaderBasis:
    """The digest of an inventory, empty if unknown, and whether orders can be verified by trusted keys.

    ``keys_error`` is why a file of keys that the settings name cannot be used.
    """

    inventory: str = ""
    has_keys: bool = False
    keys_error: str = ""

    @classmethod
    def of(cls, inventory: Inventory, keys: TrustedKeys, *, is_named: bool) -> LeaderBasis:
        """Return the basis of a controller with this inventory and these keys, whose file may be named or a default."""
        keys.refresh()
        return cls(inventory.digest, not keys.error and bool(keys.by_name), keys.error if is_named else "")

    @classmethod
    def in_headers(cls, message: Message) -> LeaderBasis:
        """Return the basis in the headers of a term's message; of earlier versions, nothing is known."""
        headers: Mapping[str, str | bytes | None] = dict(message.headers() or ())
        digest = headers.get(INVENTORY)
        named = digest.decode(errors="replace") if isinstance(digest, bytes) else ""
        return cls(named, headers.get(KEYS) == YES)

    @property
    def headers(self) -> Sequence[tuple[str, bytes]]:
        """The headers that keep this basis with a term."""
        return [(INVENTORY, self.inventory.encode()), *([(KEYS, YES)] if self.has_keys else [])]

    def objection(self, earlier: LeaderBasis, leader: str) -> str:
        """Return why a controller with this basis must not follow a leader that had ``earlier``; empty if it may."""
        if self.keys_error:
            return f"orders cannot be verified: {self.keys_error}"
        if earlier.inventory not in ("", self.inventory):
            return (
                f"its inventory ({self.inventory}: brokers and initial overlay) differs from that of {leader}, which "
                f"led last ({earlier.inventory}): give it the same file (controller.inventory_path); if the new one is "
                "right, stop all controllers and run `regraft recover --yes` with it"
            )
        if earlier.has_keys and not self.has_keys:
            return (
                f"it has no trusted keys, but {leader}, which led last, had: it would refuse each order; name the file "
                "(orders.trusted_keys_file)"
            )
        return ""
