"""The delivery ledger: what every subscription is owed and what it got, computed independently of any broker's tables.

In: what clients did and what brokers handed over. Out: a LedgerSnapshot. A notification is owed once to each
subscription that matches it, was confirmed before its publish time and was not cancelled before it. Notifications
published while the confirmation or the cancellation was on its way may be handed over too: they are not owed, and not a
error. The ledger knows neither links nor epochs, so that it catches all their errors; whether a death excuses a loss,
it asks a judge (:mod:`producers.emulator.judge_losses`).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from regraft.producers.brokers.broker_messages import Notification
from regraft.producers.brokers.match_content import Filter, MatchIndex, matches

OVERDUE_COUNT_MAX = 100_000  # Notifications that stay open after the settle time, in case they come very late.
LINGERING_COUNT_MAX = 10_000  # Ended subscriptions that no home has released, such as those of homes that have died.
UNEXPLAINED = "unexplained"
_ANYWHERE = "anywhere"  # The index has one destination: the ledger asks which subscriptions match, not where.


class Excuses(Protocol):
    """Decides which losses deaths excuse."""

    def reason_of(self, notification: Notification, subscription: str) -> str | None:
        """Return why a notification may be missing at a subscription, or None if it may not."""

    def forget(self, subscription: str) -> None:
        """Forget a subscription of which nothing can be missing any more."""


class _NoExcuses:
    """For overlays in which no broker dies."""

    def reason_of(self, notification: Notification, subscription: str) -> str | None:
        return None

    def forget(self, subscription: str) -> None:
        pass


@dataclass(frozen=True, slots=True)
class LedgerSnapshot:
    """The account at one moment.

    All counts but ``published`` are pairs of notification and subscription. ``expected`` is what was owed and equals
    ``delivered`` + ``lost`` + ``outstanding``. ``excused`` counts lost ones that had to cross a broker that died, or
    whose home had left the overlay; they are not an error. ``outstanding`` is owed but younger than the settle time;
    ``final``: these were settled too, after the model had become quiet. ``repeated``, ``unexpected`` and ``concurrent``
    are not part of ``delivered``; ``concurrent`` was published just before a subscription was confirmed or after it was
    cancelled. ``out_of_order`` counts deliveries with a smaller sequence number than an earlier one from the same
    publisher to the same subscription. ``out_of_order_on_detours`` counts those that took a path around congested
    links, or came after one that did; they are not an error, because two paths do not form one queue.
    ``delivery_ms_mean`` and ``delivery_ms_max`` run from publish time to delivery.
    """

    published: int = 0
    expected: int = 0
    delivered: int = 0
    lost: int = 0
    excused: int = 0
    repeated: int = 0
    out_of_order: int = 0
    out_of_order_on_detours: int = 0
    unexpected: int = 0
    outstanding: int = 0
    concurrent: int = 0
    lost_by_reason: Mapping[str, int] = field(default_factory=dict)
    delivery_ms_mean: float = 0.0
    delivery_ms_max: float = 0.0
    final: bool = False

    @property
    def is_clean(self) -> bool:
        """Whether everything owed came exactly once, in order, and nothing else came, except for what is excused.

        Deaths and homes that have left excuse losses, detours excuse disorder.
        """
        return not any((self.lost - self.excused, self.repeated, self.disordered, self.unexpected, self.outstanding))

    @property
    def disordered(self) -> int:
        """Deliveries out of order that are not excused by a detour."""
        return self.out_of_order - self.out_of_order_on_detours


@dataclass(slots=True)
class _Account:
    """One notification: which subscriptions got it (True) or not yet (False), and why it may be missing.

    ``excuses``: by overdue subscription, the reason why a death excuses it.
    """

    notification: Notification
    owed: dict[str, bool]
    missing: int
    reason: str = UNEXPLAINED
    is_overdue: bool = False
    excuses: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class _Life:
    """A subscription from its confirmation to its end, and on until its home delivers no more (``is_released``)."""

    filter_: Filter
    confirmed_ms: float
    cancelled_ms: float = float("inf")
    is_released: bool = False

    @property
    def has_ended(self) -> bool:
        """Whether its client has ended it."""
        return self.cancelled_ms < float("inf")


class Ledger:
    """Keeps an account of each notification until it is delivered to all that are owed it and the settle time is over.

    ``settle_ms`` must exceed the longest time that a notification can be in transit or held back: only after it does a
    missing one count as lost. One that comes even later counts as delivered after all.
    """

    def __init__(
        self,
        settle_ms: float,
        overdue_count_max: int = OVERDUE_COUNT_MAX,
        lingering_count_max: int = LINGERING_COUNT_MAX,
    ) -> None:
        self.excuses: Excuses = _NoExcuses()
        self.watch: Callable[[Notification, float], None] | None = None  # Called for each delivery that was owed.
        self._settle_ms = settle_ms
        self._overdue_count_max = overdue_count_max
        self._lingering_count_max = lingering_count_max
        self._index = MatchIndex()
        self._confirmed_ms: dict[str, float] = {}
        self._lives: dict[str, _Life] = {}  # Kept as long as order is checked.
        self._cancelled: deque[tuple[float, str]] = deque()
        self._gone: deque[tuple[float, str]] = deque()
        self._lingering: dict[str, None] = {}
        self._accounts: dict[tuple[str, int], _Account] = {}
        self._young: deque[tuple[str, int]] = deque()
        self._overdue: dict[tuple[str, int], None] = {}
        self._sequence_published_max: dict[str, int] = {}
        # By subscription and publisher: the newest sequence number, and whether it took a detour.
        self._newest_got: dict[str, dict[str, tuple[int, bool]]] = {}
        self._counts: Counter[str] = Counter()
        self._lost_by_reason: Counter[str] = Counter()
        self._delivery_ms_sum = 0.0
        self._delivery_ms_max = 0.0

    # --- what clients do -------------------------------------------------------------------------------------------

    def confirm(self, subscription: str, filter_: Filter, now_ms: float) -> None:
        """Owe the subscription everything published from now on."""
        self._index.add(subscription, filter_, _ANYWHERE)
        self._confirmed_ms[subscription] = now_ms
        self._lives[subscription] = _Life(filter_, now_ms)

    def confirm_partly(self, subscription: str, filter_: Filter) -> None:
        """Owe nothing yet to a subscription that one of two homes has confirmed; that home may already deliver."""
        self._lives[subscription] = _Life(filter_, float("inf"))

    def confirm_ended(self, subscription: str, now_ms: float) -> None:
        """Owe nothing to a subscription that its client had ended by the time it was confirmed."""
        self._lives[subscription] = _Life((), now_ms, now_ms)
        self._gone.append((now_ms, subscription))

    def cancel(self, subscription: str, now_ms: float) -> None:
        """Owe the subscription nothing published from now on; one that was never confirmed is owed nothing at all."""
        if subscription in self._confirmed_ms:
            self._cancelled.append((now_ms, subscription))
        elif subscription in self._lives:
            self._gone.append((now_ms, subscription))
        if subscription in self._lives:
            self._lives[subscription].cancelled_ms = now_ms

    def publish(self, notification: Notification) -> int:
        """Open an account when a client hands a notification to its home; return how many subscriptions are owed it."""
        self._forget_cancelled(notification.publish_ms)
        confirmed_ms = self._confirmed_ms
        owed = {
            subscription: False
            for subscription in self._index.keys_for(notification.content, _ANYWHERE)
            if confirmed_ms[subscription] < notification.publish_ms
        }
        key = (notification.publisher, notification.sequence)
        self._accounts[key] = _Account(notification, owed, len(owed))
        self._young.append(key)
        self._sequence_published_max[notification.publisher] = notification.sequence
        self._counts["published"] += 1
        self._counts["expected"] += len(owed)
        return len(owed)

    # --- what brokers do -------------------------------------------------------------------------------------------

    def stamp(self, notification: Notification) -> None:
        """Remember the epoch in which a notification was published."""
        account = self._accounts.get((notification.publisher, notification.sequence))
        if account is not None:
            account.notification = notification

    def release(self, subscription: str, now_ms: float) -> None:
        """Note that the home of an ended subscription delivers nothing more to it.

        It may deliver until all neighbours know of the end; if one is suspended, even after the settle time.
        """
        life = self._lives.get(subscription)
        if life is None or not life.has_ended:
            return
        life.is_released = True
        if subscription in self._lingering:
            del self._lingering[subscription]
            self._gone.append((now_ms, subscription))

    def deliver(self, notification: Notification, subscription: str, now_ms: float) -> None:
        """Record a delivery: it was owed, is a repeat, or was never owed."""
        account = self._accounts.get((notification.publisher, notification.sequence))
        if account is None:
            # Accounts close only when all that are owed it have it, so a later delivery is one too many.
            was_published = notification.sequence <= self._sequence_published_max.get(notification.publisher, -1)
            self._counts["repeated" if was_published else "unexpected"] += 1
            return
        has_it = account.owed.get(subscription)
        if has_it is None:
            account.owed[subscription] = True
            is_concurrent = self._is_concurrent(notification, subscription)
            self._counts["concurrent" if is_concurrent else "unexpected"] += 1
            if is_concurrent:
                self._check_order(notification, subscription)
            return
        if has_it:
            self._counts["repeated"] += 1
            return
        account.owed[subscription] = True
        account.missing -= 1
        self._counts["delivered"] += 1
        if account.is_overdue:
            reason = account.excuses.get(subscription)
            self._lost_by_reason[reason or account.reason] -= 1
            self._counts["excused"] -= reason is not None
            if not account.missing:
                self._close_account((notification.publisher, notification.sequence))
        delivery_ms = now_ms - account.notification.publish_ms
        self._delivery_ms_sum += delivery_ms
        self._delivery_ms_max = max(self._delivery_ms_max, delivery_ms)
        if self.watch is not None:
            self.watch(account.notification, now_ms)
        self._check_order(notification, subscription)

    def _is_concurrent(self, notification: Notification, subscription: str) -> bool:
        life = self._lives.get(subscription)
        if life is None or not matches(life.filter_, notification.content):
            return False
        return notification.publish_ms <= life.confirmed_ms or notification.publish_ms > life.cancelled_ms

    def drop(self, notification: Notification, reason: str) -> None:
        """Remember why a notification went no further, for the subscriptions that will not get it."""
        account = self._accounts.get((notification.publisher, notification.sequence))
        if account is not None and not account.is_overdue:
            account.reason = reason

    def _check_order(self, notification: Notification, subscription: str) -> None:
        got = self._newest_got.setdefault(subscription, {})
        newest, is_by_detour = got.get(notification.publisher, (-1, False))
        if notification.sequence < newest:
            self._counts["out_of_order"] += 1
            self._counts["out_of_order_on_detours"] += notification.is_detour or is_by_detour
        else:
            got[notification.publisher] = notification.sequence, notification.is_detour

    # --- settling --------------------------------------------------------------------------------------------------

    def settle(self, now_ms: float) -> None:
        """Decide everything older than the settle time and forget what is finished; call it now and then."""
        self._settle_until(now_ms - self._settle_ms)
        while len(self._overdue) > self._overdue_count_max:
            self._close_account(next(iter(self._overdue)))
        while self._gone and self._gone[0][0] < now_ms - self._settle_ms:
            subscription = self._gone.popleft()[1]
            life = self._lives.get(subscription)
            if life is None or life.is_released:
                self._forget(subscription)
            else:
                self._lingering[subscription] = None
        while len(self._lingering) > self._lingering_count_max:
            subscription = next(iter(self._lingering))
            del self._lingering[subscription]
            self._forget(subscription)

    def _forget(self, subscription: str) -> None:
        self._newest_got.pop(subscription, None)
        self._lives.pop(subscription, None)
        self.excuses.forget(subscription)

    def snapshot(self) -> LedgerSnapshot:
        """Return the present account."""
        return self._snapshot(is_final=False)

    def close(self) -> LedgerSnapshot:
        """Settle everything, however young, and return the final account; the model must be quiet."""
        self._settle_until(float("inf"))
        return self._snapshot(is_final=True)

    def _settle_until(self, publish_ms_max: float) -> None:
        while self._young and self._accounts[self._young[0]].notification.publish_ms < publish_ms_max:
            key = self._young.popleft()
            account = self._accounts[key]
            if account.missing:
                self._count_lost(account)
                self._overdue[key] = None
            else:
                del self._accounts[key]

    def _count_lost(self, account: _Account) -> None:
        missing = [subscription for subscription, has_it in account.owed.items() if not has_it]
        reasons = {one: self.excuses.reason_of(account.notification, one) for one in missing}
        account.is_overdue = True
        account.excuses = {one: reason for one, reason in reasons.items() if reason is not None}
        self._lost_by_reason.update(account.excuses.values())
        self._lost_by_reason[account.reason] += account.missing - len(account.excuses)
        self._counts["excused"] += len(account.excuses)

    def _close_account(self, key: tuple[str, int]) -> None:
        del self._overdue[key]
        del self._accounts[key]

    def _forget_cancelled(self, publish_ms: float) -> None:
        while self._cancelled and self._cancelled[0][0] < publish_ms:
            cancelled_ms, subscription = self._cancelled.popleft()
            self._index.remove(subscription)
            del self._confirmed_ms[subscription]
            self._gone.append((cancelled_ms, subscription))

    def _snapshot(self, *, is_final: bool) -> LedgerSnapshot:
        counts, lost = self._counts, self._lost_by_reason.total()
        counted: dict[str, Any] = dict(counts)
        return LedgerSnapshot(
            **counted,
            lost=lost,
            outstanding=counts["expected"] - counts["delivered"] - lost,
            lost_by_reason={reason: count for reason, count in sorted(self._lost_by_reason.items()) if count},
            delivery_ms_mean=self._delivery_ms_sum / max(counts["delivered"], 1),
            delivery_ms_max=self._delivery_ms_max,
            final=is_final,
        )
