"""Order: what a person tells the controller, and what stands until it is taken back (compacted topic)."""

import json
from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct, structs

from schemas.bounds import Name, NameOrNone, Text, TimeMs

SIGNED_AS = "regraft.order.2"  # Begins what is signed, so that no signature over anything else fits an order.
WHOLE_OVERLAY = "overlay"  # The subject of orders that concern all of it.


class OrderKind(StrEnum):
    """What is asked for. The newest order of a (scope, subject) is the one that stands."""

    APPROVE = "approve"
    REFUSE = "refuse"
    CANCEL = "cancel"
    PAUSE = "pause"
    RESUME = "resume"
    MAINTAIN = "maintain"
    RETURN = "return"

    @property
    def scope(self) -> str:
        """What the order's subject is: a plan, a broker, or the whole overlay."""
        if self in (OrderKind.PAUSE, OrderKind.RESUME):
            return "adaptation"
        return "broker" if self in (OrderKind.MAINTAIN, OrderKind.RETURN) else "plan"


class Order(Struct, frozen=True):
    """One order about one subject: a plan, a broker, or WHOLE_OVERLAY.

    ``by`` says who gave it and ``reason`` why, both for people. An order ends by itself at ``until_ms`` (0: it stands
    until it is taken back); only ``pause`` and ``maintain`` may. ``evacuate`` asks that clients move away from the
    broker that is maintained. ``plan_digest`` says which plan an order about one means
    (:attr:`schemas.plan.Plan.digest`).

    ``key_name`` names the key that signed it, ``nonce`` tells two orders of that key apart, and ``source`` is where it
    was given: user and host, or a dashboard and the address that asked it. All of them are empty in an order that is
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

    @property
    def key(self) -> str:
        """Return the key under which the newest order replaces the one before."""
        return f"{self.kind.scope}/{self.subject}"

    def signed_text(self, namespace: str) -> bytes:
        """Return what is signed: all fields but the signature, for one namespace only.

        JSON of the fields by name. One that stands at its default is left out, so a field that a later version adds
        leaves the signatures of earlier orders as they are.
        """
        told = {field.name: getattr(self, field.name) for field in structs.fields(self) if field.name != "signature"}
        defaults = {field.name: field.default for field in structs.fields(self)}
        kept = {name: value for name, value in told.items() if value != defaults[name]}
        return json.dumps([SIGNED_AS, namespace, kept], sort_keys=True, separators=(",", ":")).encode()

    def stands_at(self, now_ms: int) -> bool:
        """Tell whether the order has not ended by itself."""
        return not self.until_ms or now_ms < self.until_ms
