"""Order: an instruction of a person to the controller, which holds until revoked (compacted topic)."""

import json
from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct, structs, to_builtins

from regraft.schemas.bounds import Name, NameOrNone, Text, TimeMs
from regraft.schemas.member import BrokerFacts

SIGNED_AS = "regraft.order.2"  # Begins what is signed, so that no signature over anything else fits an order.
WHOLE_OVERLAY = "overlay"  # The subject of orders that concern all of it.


class OrderKind(StrEnum):
    """What is asked for. The newest order of a (scope, subject) is the one in force."""

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
        """What the order is about: a plan, a broker in the overlay, a member of the fleet, or the whole overlay."""
        return _SCOPES.get(self, "plan")


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

    ``by`` says who gave it and ``reason`` why, both for people. An order expires at ``until_ms`` (0: it holds until
    revoked); only ``pause`` and ``maintain`` may. ``evacuate`` asks that clients move away from the broker that is
    maintained. ``plan_digest`` says which plan an order about one means (:attr:`schemas.plan.Plan.approval_digest`).
    ``facts`` describe a broker that is added.

    ``key_name`` names the key that signed it, ``nonce`` distinguishes orders of that key, and ``source`` is where it
    was given: user and host, or a dashboard and the address that called it. All of them are empty in an order that is
    not signed, but for ``nonce`` and ``source``. ``signature`` is Ed25519, 64 bytes, over :meth:`signed_text`.
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
        """Return the key under which the newest order replaces the one before."""
        return f"{self.kind.scope}/{self.subject}"

    @property
    def by_and_why(self) -> str:
        """Return who gave the order, and the reason where one was given."""
        return f"{self.by}: {self.reason}" if self.reason else self.by

    def signed_text(self, namespace: str) -> bytes:
        """Return what is signed: all fields but the signature, for one namespace only.

        JSON of the fields by name. A field at its default is left out, so a field added by a later version leaves the
        signatures of earlier orders valid; the same holds for the facts of a broker.
        """
        kept = {name: value for name, value in _fields_of(self).items() if name != "signature"}
        return json.dumps([SIGNED_AS, namespace, kept], sort_keys=True, separators=(",", ":")).encode()

    def stands_at(self, now_ms: int) -> bool:
        """Return True if the order has not ended by itself."""
        return not self.until_ms or now_ms < self.until_ms


def _fields_of(record: Struct) -> dict[str, object]:
    """Return the fields that do not stand at their default, by name, as JSON has them."""
    values = ((field, getattr(record, field.name)) for field in structs.fields(record))
    return {
        field.name: _fields_of(value) if isinstance(value, Struct) else to_builtins(value, builtin_types=(bytes,))
        for field, value in values
        if value != field.default
    }
