"""What an agent knows of one client: its login, its subscriptions and why it may have to stay. Pure.

In: the client's frames. Out: the lines for a server.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from regraft.producers.agents.nats_frames import FrameError, publish_frame
from regraft.schemas.agent_names import FLUSH, GROUP_PREFIX, ORDERS, PRIVATE, group_for
from regraft.schemas.stay_reasons import StayReason

NOTES_SID, PRIVATE_SID, FLUSH_SID, HOME_SID = b"regraft-n", b"regraft-p", b"regraft-f", b"regraft-h"
OWN_SIDS = frozenset({NOTES_SID, PRIVATE_SID, FLUSH_SID, HOME_SID})
SUBSCRIPTIONS_MAX = 10_000  # Of one client.
NOT_FOR_CLIENTS = b"_REGRAFT."
NOT_CHOSEN = (NOT_FOR_CLIENTS, GROUP_PREFIX.encode())  # As queue groups, and as subjects of answers.
FLUSH_LINES = (f"MSG {FLUSH}".encode(), f"HMSG {FLUSH}".encode())  # What a client gets that wants everything.
# In what a server says: the agent passes on messages, not who else there is, and has the only TLS with the server.
LEFT_OUT = ("connect_urls", "ws_connect_urls", "ldm", "tls_required", "tls_verify", "tls_available")


@dataclass(slots=True)
class Subscription:
    """One of the client's; ``number`` is the agent's, -1 if it stays. It ends after ``count_max`` messages, if any."""

    sid: bytes
    subject: bytes
    queue: bytes
    home: str
    number: int = -1
    delivered: int = 0
    count_max: int = 0

    @property
    def words(self) -> list[str]:
        """What it subscribes, word by word."""
        return self.subject.decode(errors="replace").split(".")


@dataclass
class NatsClient:
    """One client; ``name`` is the agent's name for it. ``stays_because`` is None if it may move."""

    name: str
    connect: dict[str, Any] = field(default_factory=dict)
    subscriptions: dict[bytes, Subscription] = field(default_factory=dict)
    stays_because: StayReason | None = None
    has_published: bool = False
    _numbers: int = 0
    _by_number: dict[int, Subscription] = field(default_factory=dict)

    # --- the client's frames -----------------------------------------------------------------------------------------

    def take_connect(self, raw: bytes) -> StayReason | None:
        """Note how the client introduces itself; return why it has to stay. Raises FrameError if that is not JSON."""
        try:
            connect = json.loads(raw[len(b"CONNECT ") :])
        except ValueError as error:
            raise FrameError(f"CONNECT is not JSON: {error}") from error
        if not isinstance(connect, dict):
            raise FrameError("CONNECT is not a JSON object")
        self.connect = connect
        if any(connect.get(key) for key in ("sig", "nkey", "jwt")):
            return StayReason.SIGNED_LOGIN
        if connect.get("echo") is False:
            return StayReason.NO_ECHO
        return None if connect.get("headers") else StayReason.NO_HEADERS

    @property
    def stays_partly(self) -> StayReason | None:
        """Why the client may not move, or nothing that it subscribes."""
        is_in_groups = bool(self.subscriptions) and not self._by_number
        return self.stays_because or (StayReason.QUEUE_GROUP if is_in_groups else None)

    def subscribe(self, words: list[bytes], home: str) -> Subscription:
        """Note a new subscription; raise FrameError if it is none, or one too many."""
        if len(words) not in (3, 4):
            raise FrameError(f"{b' '.join(words)[:80]!r} is not a subscription")
        subject, queue, sid = words[1], words[2] if len(words) == 4 else b"", words[-1]
        if sid in OWN_SIDS or len(self.subscriptions) >= SUBSCRIPTIONS_MAX:
            raise FrameError(f"a client has at most {SUBSCRIPTIONS_MAX} subscriptions, with its own sids")
        subscription = Subscription(sid, subject, queue, home)
        if not queue and not self.stays_because:
            self.renumber(subscription)
        self.subscriptions[sid] = subscription
        return subscription

    def stand_in(self, home: str) -> Subscription | None:
        """Return a new subscription by which a plan can move a client that only publishes; None if it needs none."""
        if self.stays_because or self._by_number or not self.has_published:
            return None
        subscription = Subscription(HOME_SID, f"{FLUSH}{self.name}.home".encode(), b"", home)
        self.renumber(subscription)
        self.subscriptions[HOME_SID] = subscription
        return subscription

    def renumber(self, subscription: Subscription) -> None:
        """Give a subscription a number that no earlier one had: it restarts."""
        self._by_number.pop(subscription.number, None)
        self._numbers += 1
        subscription.number = self._numbers
        self._by_number[self._numbers] = subscription

    def forget(self, sid: bytes) -> None:
        """Forget a subscription that has ended."""
        subscription = self.subscriptions.pop(sid, None)
        if subscription is not None:
            self._by_number.pop(subscription.number, None)

    def numbered(self, number: int) -> Subscription | None:
        """Return the subscription with a number of the agent's."""
        return self._by_number.get(number)

    def numbers_in(self, text: str) -> set[int]:
        """Return the numbers of the subscriptions whose subjects an error names."""
        numbered = self._by_number.items()
        return {number for number, each in numbered if each.subject.decode(errors="replace") in text}

    def has_ended(self, number: int) -> bool:
        """Return True for the number of a subscription that has ended."""
        return 0 < number <= self._numbers and number not in self._by_number

    # --- lines for a server ------------------------------------------------------------------------------------------

    def introduction(self) -> bytes:
        """Return the client's CONNECT as the agent sends it, and the subscriptions by which nodes reach the agent.

        An empty note shows whether the client's user may write notes: what is refused later is no reason to stay.
        """
        connect = {**self.connect, "verbose": False, "tls_required": False}
        lines = b"CONNECT " + json.dumps(connect).encode() + b"\r\n"
        if self.stays_because:
            return lines
        own = f"SUB {ORDERS}{self.name} {NOTES_SID.decode()}\r\nSUB {PRIVATE}{self.name}.> {PRIVATE_SID.decode()}\r\n"
        return lines + own.encode() + publish_frame(f"{ORDERS}{self.name}".encode(), b"")

    def sub_line(self, subscription: Subscription, name: str = "", epoch: int = -1) -> bytes:
        """Return the line that subscribes; a plan to ``epoch`` brings the overlay's subscription ``name``."""
        queue = subscription.queue
        if subscription.number >= 0:
            queue = group_for(name or f"{self.name}.{subscription.number}", epoch).encode()
        words = [b"SUB", subscription.subject, queue, subscription.sid] if queue else (
            [b"SUB", subscription.subject, subscription.sid]
        )  # fmt: skip
        return b" ".join(words) + b"\r\n"


def info_line(facts: dict[str, Any], *, needs_tls: bool, header_bytes: int = 0) -> bytes:
    """Return what the agent says of a server to its client: whether to encrypt, and the size of messages.

    The agent makes messages longer by up to ``header_bytes``.
    """
    shown = {key: value for key, value in facts.items() if key not in LEFT_OUT}
    if isinstance(shown.get("max_payload"), int):
        shown["max_payload"] = max(shown["max_payload"] - header_bytes, 1)
    if needs_tls:
        shown |= {"tls_required": True, "tls_available": True}
    return b"INFO " + json.dumps(shown).encode() + b"\r\n"


def unsub_line(sid: bytes) -> bytes:
    """Return the line that ends a subscription."""
    return b"UNSUB " + sid + b"\r\n"
