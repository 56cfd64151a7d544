"""Order: an operator's instruction to the controller, in force until revoked (compacted topic)."""

import json
from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct, structs, to_builtins

from regraft.schemas.bounds import Name, NameOrNone, Text, TimeMs
from regraft.schemas.member import BrokerFacts

SIGNED_AS = "regraft.order.2"  # Prefix of the signed text: no signature over anything else fits an order.
WHOLE_OVERLAY = "overlay"  # The subject of orders about the overlay as a whole.


class OrderKind(StrEnum):
    """What an order asks for. The newest order of each (scope, subject) is in force."""

    APPROVE = "approve"
    REFUSE = "refuse"
    CANCEL = "cancel"
    PAUSE = "pause"
    RESUME = "resume"
    MAINTAIN = "maintain"
    RETURN = "return"
    ADD = "add"
    DRAIN = "drain"
    DEAD = "dead"
    REMOVE = "remove"
    READMIT = "readmit"

    @property
    def scope(self) -> str:
        """The scope: ``plan``, ``broker`` in the overlay, ``member`` of the fleet, or ``adaptation`` as a whole."""
        return _SCOPES.get(self, "plan")

    @property
    def done(self) -> str:
        """What was done by it, for sentences such as "drained by ana"."""
        return _DONE[self]


_DONE = {
    OrderKind.APPROVE: "approved",
    OrderKind.REFUSE: "refused",
    OrderKind.CANCEL: "cancelled",
    OrderKind.PAUSE: "paused",
    OrderKind.RESUME: "resumed",
    OrderKind.MAINTAIN: "put into maintenance",
    OrderKind.RETURN: "returned",
    OrderKind.ADD: "added",
    OrderKind.DRAIN: "drained",
    OrderKind.DEAD: "declared dead",
    OrderKind.REMOVE: "removed",
    OrderKind.READMIT: "readmitted",
}
_SCOPES = {
    OrderKind.PAUSE: "adaptation",
    OrderKind.RESUME: "adaptation",
    OrderKind.MAINTAIN: "broker",
    OrderKind.RETURN: "broker",
    OrderKind.ADD: "member",
    OrderKind.DRAIN: "member",
    OrderKind.DEAD: "member",
    OrderKind.REMOVE: "member",
    OrderKind.READMIT: "member",
}


class Order(Struct, frozen=True):
    """One order about one subject: a plan, a broker, or WHOLE_OVERLAY.

    ``by`` says who gave it and ``reason`` why, both for people. An order expires at ``until_ms`` (0: in force until
    revoked); only ``pause`` and ``maintain`` may expire. ``evacuate`` asks that clients move away from the broker in
    maintenance. ``plan_digest`` identifies the plan of an order about a plan
    (:attr:`schemas.plan.Plan.approval_digest`). ``facts`` describe a broker to add.

    ``key_name`` names the key that signed it, ``nonce`` distinguishes orders signed with that key, and ``source`` is
    where it was given: user and host, or a dashboard and the address of its caller. ``signature`` is Ed25519, 64 bytes,
    over :meth:`signed_text`. In an unsigned order ``key_name`` and ``signature`` are empty.
    """

    subject: Name
    kind: OrderKind
    by: Text
    reason: Text
    time_ms: TimeMs
    until_ms: TimeMs = 0
    evacuate: bool = False
    plan_digest: NameOrNone = ""
    source: Text = ""
    key_name: NameOrNone = ""
    nonce: NameOrNone = ""
    signature: Annotated[bytes, Meta(max_length=64)] = b""
    facts: BrokerFacts | None = None

    @property
    def key(self) -> str:
        """Return the order's key in the compacted topic."""
        return f"{self.kind.scope}/{self.subject}"

    @property
    def by_and_why(self) -> str:
        """Return who gave the order, and the reason if one was given."""
        return f"{self.by}: {self.reason}" if self.reason else self.by

    def signed_text(self, namespace: str) -> bytes:
        """Return the text to sign: all fields but the signature, valid for one namespace only.

        JSON of the fields by name. Fields at their default are left out, so that fields added by later versions leave
        earlier signatures valid; the same applies to the facts of a broker.
        """
        kept = {name: value for name, value in _fields_of(self).items() if name != "signature"}
        return json.dumps([SIGNED_AS, namespace, kept], sort_keys=True, separators=(",", ":")).encode()

    def is_in_force_at(self, now_ms: int) -> bool:
        """Return True if the order has not expired."""
        return not self.until_ms or now_ms < self.until_ms


def _fields_of(record: Struct) -> dict[str, object]:
    """Return the fields that differ from their defaults, by name, as JSON values."""
    values = ((field, getattr(record, field.name)) for field in structs.fields(record))
    return {
        field.name: _fields_of(value) if isinstance(value, Struct) else to_builtins(value, builtin_types=(bytes,))
        for field, value in values
        if value != field.default
    }
