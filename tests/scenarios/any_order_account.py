"""The account of who is owed what and who got it, independent of brokers' tables, in place of the emulator's ledger.

In: what clients did and what brokers handed over, on a clock on which no two events are simultaneous. Out: a
BrokenPromiseError as soon as something is wrong, unless the account must keep counting. What waits at a publisher
between two homes is not published yet: a check of a run asks the publishers' side for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from regraft.producers.brokers.broker_messages import Notification
from regraft.producers.brokers.match_content import Filter, matches

Key = tuple[str, int]  # Publisher, sequence number.


class BrokenPromiseError(AssertionError):
    """The promise is broken; ``kind`` is the same for failures of one sort, ``detail`` gives names and facts."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind = kind
        self.detail = detail


@dataclass(frozen=True)
class AccountRules:
    """What the account tolerates.

    ``tolerates_concurrent``: a notification published before a subscription's confirmation or after its end may be
    handed over; it is never owed. ``orders_stays``: order is required across all stays of a publisher, not only within
    each. ``excuses``: reasons for which a notification may be dropped. ``raises``: the first fault ends the run.
    """

    tolerates_concurrent: bool = True
    orders_stays: bool = True
    excuses: frozenset[str] = frozenset()
    raises: bool = True


@dataclass
class Subscription:
    """What one subscription wants, from and until when, and what it got; ``is_dropped``: its home has ended it."""

    filter_: Filter
    asked_ms: float
    confirmed_ms: float | None = None
    cancelled_ms: float | None = None
    is_dropped: bool = False
    got: dict[Key, float] = field(default_factory=dict)
    newest: dict[str, tuple[int, int]] = field(default_factory=dict)  # Publisher -> newest sequence number, its stay.

    @property
    def is_open(self) -> bool:
        """Return True if its client still wants it."""
        return self.cancelled_ms is None


class Account:
    """The account of one run, with the methods of the emulator's ledger that clients and brokers call."""

    def __init__(self, rules: AccountRules | None = None) -> None:
        self.rules = rules or AccountRules()
        self.now_ms = 0.0
        self.subscriptions: dict[str, Subscription] = {}
        self.published: dict[Key, Notification] = {}
        self.missing: dict[Key, set[str]] = {}
        self.dropped: dict[Key, str] = {}
        self.stays: dict[str, int] = {}
        self.counts = dict.fromkeys(
            ("owed", "delivered", "repeated", "unexpected", "out_of_order", "concurrent", "out_of_order_over_stays"), 0
        )
        self.is_excused: Callable[[Key, str], bool] = lambda key, subscription: False  # What is no longer owed.
        self._stay_of: dict[Key, int] = {}
        self._sequence_next: dict[str, int] = {}

    # --- what clients do ---------------------------------------------------------------------------------------

    def begin_stay(self, publisher: str) -> None:
        """Begin a stay of a publisher, possibly again under its name."""
        self.stays[publisher] = self.stays.get(publisher, -1) + 1

    def sequence_next(self, publisher: str) -> int:
        """Return the sequence number with which a publisher's name continues."""
        return self._sequence_next.get(publisher, 0)

    def ask(self, subscription: str, filter_: Filter) -> None:
        """Note a client's request for a subscription."""
        self.subscriptions[subscription] = Subscription(filter_, self.now_ms)

    def confirm(self, subscription: str, filter_: Filter, now_ms: float) -> None:
        """Owe the subscription what is published from now on."""
        self.subscriptions[subscription].confirmed_ms = now_ms

    def confirm_partly(self, subscription: str, filter_: Filter) -> None:
        """Owe nothing yet to a subscription that only one of two homes has confirmed."""

    def confirm_ended(self, subscription: str, now_ms: float) -> None:
        """Owe nothing to a subscription that its client had ended by the time it was confirmed."""

    def cancel(self, subscription: str, now_ms: float) -> None:
        """Stop owing the subscription what is published from now on."""
        self.subscriptions[subscription].cancelled_ms = now_ms

    def release(self, subscription: str, now_ms: float) -> None:
        """Keep everything: deliveries after the end are compared with the time of publishing."""

    def drop_client(self, names: Iterable[str]) -> None:
        """Owe subscriptions nothing that is published from now on: their home has ended them, perhaps unheard."""
        for name in names:
            self.subscriptions[name].is_dropped = True

    def publish(self, notification: Notification) -> int:
        """Note which subscriptions are owed the notification; return their number."""
        key = notification.publisher, notification.sequence
        if key in self.published or notification.sequence < self.sequence_next(notification.publisher):
            raise BrokenPromiseError("sequence used twice", f"{key} at {self.now_ms}")
        self._sequence_next[notification.publisher] = notification.sequence + 1
        self._stay_of[key] = self.stays.get(notification.publisher, 0)
        return self._owe(key, notification)

    def arrive(self, publisher: str, sequence: int, now_ms: float) -> None:
        """Note that a notification has reached its home only now: it counts as published from now on."""
        key = publisher, sequence
        self.counts["owed"] -= len(self.missing[key])
        self._owe(key, replace(self.published[key], publish_ms=now_ms))

    def _owe(self, key: Key, notification: Notification) -> int:
        self.published[key] = notification
        owed = {
            name
            for name, one in self.subscriptions.items()
            if one.is_open
            and not one.is_dropped
            and one.confirmed_ms is not None
            and one.confirmed_ms < notification.publish_ms
            and matches(one.filter_, notification.content)
        }
        self.missing[key] = owed
        self.counts["owed"] += len(owed)
        return len(owed)

    # --- what brokers do ---------------------------------------------------------------------------------------

    def deliver(self, notification: Notification, subscription: str, now_ms: float) -> None:
        """Record a delivery."""
        key = notification.publisher, notification.sequence
        one = self.subscriptions[subscription]
        self.counts["delivered"] += 1
        if key in one.got:
            self._wrong("repeated", f"{key} to {subscription}, first at {one.got[key]}")
            return
        one.got[key] = self.now_ms
        missing = self.missing.get(key, set())
        if subscription in missing:
            missing.discard(subscription)
        elif self._is_concurrent(one, key):
            self.counts["concurrent"] += 1
        else:
            self._wrong("unexpected", f"{key} to {subscription}: {self.story_of(subscription)}")
        self._check_order(key, subscription, one)

    def stamp(self, notification: Notification) -> None:
        """Do nothing: deaths excuse nothing here."""

    def drop(self, notification: Notification, reason: str) -> None:
        """Remember why a notification was dropped."""
        self.dropped.setdefault((notification.publisher, notification.sequence), reason)

    def _is_concurrent(self, one: Subscription, key: Key) -> bool:
        notification = self.published.get(key)
        if notification is None or not self.rules.tolerates_concurrent:
            return False
        if not matches(one.filter_, notification.content):
            return False
        is_before = one.confirmed_ms is None or one.confirmed_ms >= notification.publish_ms
        return is_before or (one.cancelled_ms is not None and one.cancelled_ms < notification.publish_ms)

    def _check_order(self, key: Key, subscription: str, one: Subscription) -> None:
        publisher, sequence = key
        stay = self._stay_of.get(key, 0)
        newest, newest_stay = one.newest.get(publisher, (-1, stay))
        if sequence > newest:
            one.newest[publisher] = sequence, stay
        elif stay == newest_stay or self.rules.orders_stays:
            self._wrong("out_of_order", f"{key} to {subscription} behind {newest}")
        else:
            self.counts["out_of_order_over_stays"] += 1

    def _wrong(self, kind: str, detail: str) -> None:
        self.counts[kind] += 1
        if self.rules.raises:
            raise BrokenPromiseError(kind, f"{detail}, at {self.now_ms:.0f}")

    # --- the end -----------------------------------------------------------------------------------------------

    def lost(self) -> list[tuple[Key, str]]:
        """Return what is owed and undelivered, except what may be dropped; final once nothing is under way."""
        return [
            (key, name)
            for key, names in self.missing.items()
            if self.dropped.get(key) not in self.rules.excuses
            for name in sorted(names)
            if not self.is_excused(key, name)
        ]

    def check_nothing_lost(self) -> None:
        """Raise a BrokenPromiseError that names what was lost."""
        lost = self.lost()
        if lost:
            (publisher, sequence), name = lost[0]
            published_ms = self.published[publisher, sequence].publish_ms
            reason = self.dropped.get((publisher, sequence), "for an unknown reason")
            raise BrokenPromiseError(
                "lost",
                f"{len(lost)}, first {publisher}/{sequence} of {published_ms:.0f} to {name} ({reason}): "
                f"{self.story_of(name)}",
            )

    def story_of(self, subscription: str) -> str:
        """Describe when a subscription was requested, confirmed and ended."""
        one = self.subscriptions[subscription]
        return f"asked {one.asked_ms}, confirmed {one.confirmed_ms}, cancelled {one.cancelled_ms}"


def check_empty(owner: Any, attributes: Sequence[str], name: str) -> None:
    """Raise a BrokenPromiseError if one of these attributes exists and is not empty."""
    for attribute in attributes:
        found = getattr(owner, attribute, ())
        if len(found):
            raise BrokenPromiseError(f"leak of {attribute}", f"{name} keeps {str(found)[:300]}")
