"""The account of what clients of real brokers were owed and received. Knows nothing of nodes, plans or Kafka.

In: notifications published and handed over, subscriptions begun, confirmed and left, and which brokers died. Out: the
account, in the form of the emulator's ledger.

A real broker confirms a subscription only for itself; the overlay confirms it for all brokers. A subscription that has
received anything is owed what is published after that confirmation. One that has received nothing yet, or is not
confirmed, is owed what is published later than ``FIRST_S_MAX`` after it began. Both hold until its client leaves. While
a broker of the overlay is dead or a link is cut, nothing is confirmed, so that time begins when the outage is over, for
clients of the dead broker when that is in the overlay again, for those of a dead agent when they are connected again. A
client stays until it has all it is owed, or for ``LEAVE_S_MAX``: what is missing then is lost.

A loss is excused if the dead broker was between publisher and subscriber in an overlay of that time (during a plan
there are two), and the notification was published between ``BEFORE_DEATH_MS`` before the death and ``AFTER_REPAIR_MS``
after the repair; for clients of the dead broker, until it was in the overlay again. The death of an agent excuses what
clients beside it lose until they are connected again. Nothing excuses what is repeated or out of order.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import structlog

from regraft.producers.brokers.broker_reports import AGENT_DIED, BROKER_DIED
from regraft.producers.emulator.ledger import LedgerSnapshot
from regraft.schemas.units import SECOND_MS

log = structlog.get_logger(__name__)

UNKNOWN = "unknown"
FIRST_S_MAX = 10.0
LEAVE_S_MAX = 120.0  # Longer than any link is cut.
LATE_MS_MAX = 4_000.0  # Longer than a plan holds a delivery back.
BEFORE_DEATH_MS = 5_000.0  # Published this long before, a notification may have been on its way to the dead broker.
AFTER_REPAIR_MS = 1_000.0  # Until all brokers, one after another, have seen the repair.
MOVE_MS = 15_000.0  # For this long, a client that a plan moves may be at either broker.
SUBSCRIBED_MS = 2_000.0  # Until a server has a subscription.
AFTER_RETURN_MS = 5_000.0  # Until what its clients want is known everywhere again.


@dataclass
class Death:
    """One broker's death. For each overlay of the moment, ``separations`` says whether it lay between two brokers.

    ``held_since_ms`` is when it began to hold what it could not forward because a link was cut; infinite if none was.
    ``repaired_ms`` and ``returned_ms`` are infinite until they are known.
    """

    broker: str
    at_ms: float
    separations: list[Callable[[str, str], bool]]
    repaired_ms: float = math.inf
    returned_ms: float = math.inf
    held_since_ms: float = math.inf

    def excuses(self, home: str, receiver: str, published_ms: float) -> bool:
        """Return True if a notification published at ``home`` at that time need not have reached ``receiver``."""
        if published_ms < min(self.at_ms, self.held_since_ms) - BEFORE_DEATH_MS:
            return False
        if self.broker in (home, receiver):
            return published_ms < self.returned_ms + AFTER_RETURN_MS
        is_apart = any(separates(home, receiver) for separates in self.separations)
        return is_apart and published_ms < self.repaired_ms + AFTER_REPAIR_MS


@dataclass
class AgentDeath:
    """The death of the agent at a broker: ``is_beside`` says which publishers and subscriptions are beside it.

    ``returned_ms`` is infinite until all of them are connected again.
    """

    broker: str
    is_beside: Callable[[str], bool]
    at_ms: float
    returned_ms: float = math.inf

    def excuses(self, publisher: str, subscription: str, published_ms: float) -> bool:
        """Return True if a notification published at that time need not have reached the subscription."""
        is_around = self.at_ms - BEFORE_DEATH_MS <= published_ms < self.returned_ms + AFTER_RETURN_MS
        return is_around and (self.is_beside(publisher) or self.is_beside(subscription))


@dataclass
class LinkOutage:
    """The time during which a link was cut or slow: nothing that crosses it is lost, but confirmations come late."""

    at_ms: float
    until_ms: float = math.inf


@dataclass
class _Placed:
    """Something with a home; ``homes`` are all so far, each with the time since when."""

    homes: list[tuple[float, str]]

    @property
    def home(self) -> str:
        """Where it is."""
        return self.homes[-1][1]

    def homes_around(self, time_ms: float) -> set[str]:
        """Return where it was at about that time: a client that is moving is at both."""
        ends_ms = [*(since_ms for since_ms, _ in self.homes[1:]), math.inf]
        spans = zip(self.homes, ends_ms, strict=True)
        return {home for (since_ms, home), end_ms in spans if since_ms - MOVE_MS < time_ms < end_ms + MOVE_MS}


@dataclass
class _Publisher(_Placed):
    times_ms: array[float] = field(default_factory=lambda: array("d"))


@dataclass
class _Subscription(_Placed):
    """``first`` is the first number received, ``newest`` the highest; ``owed_until`` is set when the client leaves.

    Of the numbers between that have not come, ``missing`` are owed, ``not_owed`` may still come.
    """

    name: str
    publisher: str
    begun_ms: float
    first: int | None = None
    newest: int = -1
    is_newest_by_detour: bool = False
    missing: set[int] = field(default_factory=set)
    not_owed: set[int] = field(default_factory=set)
    owed_until: int | None = None
    leaves_ms: float = math.inf


class ClientLedger:
    """Publishers and subscriptions by name."""

    def __init__(self) -> None:
        self.deaths: list[Death] = []
        self.agent_deaths: list[AgentDeath] = []
        self.link_outages: list[LinkOutage] = []
        self._publishers: dict[str, _Publisher] = {}
        self._open: dict[str, _Subscription] = {}
        self._ending: set[str] = set()  # Accounts are closed, but notifications may still arrive.
        self._confirmed_ms: dict[tuple[str, str], float] = {}  # By publisher and broker: since when.
        self._counts: Counter[str] = Counter()
        self._lost: Counter[str] = Counter()  # By reason.
        self._delivery_ms = 0.0
        self._delivered_remote = 0
        self._delivery_ms_max = 0.0
        self._detours: dict[tuple[str, str], set[int]] = {}
        self.watch: Callable[[float, float], None] = lambda _published_ms, _now_ms: None
        self._late_ms = -math.inf  # When a notification last arrived late.

    def __len__(self) -> int:
        return len(self._open)

    def add_publisher(self, publisher: str, home: str) -> None:
        """Note a publisher and its broker."""
        self._publishers[publisher] = _Publisher([(-math.inf, home)])

    def publish(self, publisher: str, now_ms: float) -> int:
        """Note a notification; return its number."""
        times_ms = self._publishers[publisher].times_ms
        times_ms.append(now_ms)
        return len(times_ms) - 1

    def begin(self, subscription: str, publisher: str, home: str, now_ms: float) -> None:
        """Note a new subscription to everything of a publisher."""
        self._open[subscription] = _Subscription([(-math.inf, home)], subscription, publisher, now_ms)

    def note_moved(self, client: str, home: str, now_ms: float) -> None:
        """Note where a publisher or subscription is from now on; nothing for one that has left, or is nowhere yet."""
        placed = self._publishers.get(client) or self._open.get(client)
        if placed is not None and home not in ("", placed.home):
            placed.homes.append((now_ms, home))

    def note_confirmed(self, publisher: str, home: str, now_ms: float | None) -> None:
        """Note that the overlay carries a publisher's notifications to a broker from now on; None: no longer."""
        if now_ms is None:
            self._confirmed_ms.pop((publisher, home), None)
        else:
            self._confirmed_ms[publisher, home] = now_ms

    def hand_over(self, subscription: str, number: int, now_ms: float) -> None:
        """Note that a notification reached a subscription."""
        account = self._open.get(subscription)
        if account is None:
            self._counts["concurrent" if subscription in self._ending else "unexpected"] += 1
            return
        publisher = self._publishers[account.publisher]
        if not 0 <= number < len(publisher.times_ms):
            self._counts["unexpected"] += 1
            return
        if account.owed_until is not None and number > account.owed_until:
            self._counts["concurrent"] += 1
            return
        is_by_detour = number in self._detours.get((account.publisher, account.home), ())
        if not self._take_in_order(account, number, is_by_detour=is_by_detour):
            return
        self._counts["delivered"] += 1
        self.watch(publisher.times_ms[number], now_ms)
        if publisher.home != account.home:
            took_ms = max(now_ms - publisher.times_ms[number], 0.0)
            self._delivered_remote += 1
            self._delivery_ms += took_ms
            self._delivery_ms_max = max(self._delivery_ms_max, took_ms)
            if took_ms > LATE_MS_MAX:
                self._late_ms = now_ms

    def _take_in_order(self, account: _Subscription, number: int, *, is_by_detour: bool) -> bool:
        """Note which number has come, and whether it is late; return False if it is not delivered now."""
        if account.first is None or number > account.newest:
            if account.first is None:
                account.first = number
            else:
                skipped = range(account.newest + 1, number)
                owed = self._owed(account, skipped)
                account.missing.update(owed)
                account.not_owed.update(range(skipped.start, owed.start))
            account.newest, account.is_newest_by_detour = number, is_by_detour
            return True
        is_due = number in account.missing
        if is_due or number in account.not_owed or number < account.first:
            self._counts["out_of_order"] += 1
            self._counts["out_of_order_on_detours"] += is_by_detour or account.is_newest_by_detour
        else:
            self._counts["repeated"] += 1
        account.missing.discard(number)
        account.not_owed.discard(number)
        return is_due

    def is_late(self, now_ms: float) -> bool:
        """Return True if deliveries of the last second were late without such an outage: the machine is busy.

        While links are cut or slow messages wait, and while an agent is dead some at its clients.
        """
        over_ms = [outage.until_ms for outage in self.link_outages]
        over_ms += [death.returned_ms for death in self.agent_deaths]
        is_disturbed = any(each_ms + FIRST_S_MAX * SECOND_MS > now_ms for each_ms in over_ms)
        return now_ms - self._late_ms < SECOND_MS and not is_disturbed

    def _owed(self, known: _Subscription, numbers: range) -> range:
        """Return the numbers that are owed: all that were published after some time, because numbers follow time."""
        owed_from_ms = self._due_ms(known)
        if known.first is not None:
            confirmed_ms = self._confirmed_ms.get((known.publisher, known.home), math.inf)
            if (known.publisher, known.home) in self._detours:  # What was published later may have come before.
                confirmed_ms = max(confirmed_ms, known.begun_ms + SUBSCRIBED_MS)
            owed_from_ms = min(owed_from_ms, confirmed_ms)
        times_ms = self._publishers[known.publisher].times_ms
        return range(bisect_left(times_ms, owed_from_ms, numbers.start, numbers.stop), numbers.stop)

    def note_detour(self, publisher: str, number: int, broker: str) -> None:
        """Note that a notification comes to a broker around congested links, before it is handed over there."""
        self._detours.setdefault((publisher, broker), set()).add(number)

    def leave(self, subscription: str, now_ms: float) -> None:
        """Note that a client wants nothing that is published from now on."""
        account = self._open.get(subscription)
        if account is not None and account.owed_until is None:
            account.owed_until, account.leaves_ms = len(self._publishers[account.publisher].times_ms) - 1, now_ms

    def may_end(self, subscription: str, now_ms: float) -> bool:
        """Return True if a leaving client has all it is owed or excused, or has waited for ``LEAVE_S_MAX``."""
        account = self._open[subscription]
        if now_ms - account.leaves_ms > LEAVE_S_MAX * SECOND_MS:
            return True
        return all(self._excuse(account, number) != UNKNOWN for number in self._missing(account, now_ms))

    def end(self, subscription: str, now_ms: float) -> None:
        """Close the account of a subscription: what is missing is lost. More may arrive until ``forget``."""
        account = self._open.pop(subscription)
        self._ending.add(subscription)
        for number in self._missing(account, now_ms):
            reason = self._excuse(account, number)
            self._lost[reason] += 1
            if reason == UNKNOWN:
                publisher = self._publishers[account.publisher]
                log.error(
                    "notification_lost",
                    publisher=account.publisher,
                    home=publisher.home,
                    number=number,
                    published_ms=publisher.times_ms[number],
                    subscription=subscription,
                    receiver=account.home,
                    begun_ms=account.begun_ms,
                    first=account.first,
                    newest=account.newest,
                    owed_until=account.owed_until,
                )

    def forget(self, subscription: str) -> None:
        """Note that nothing more can arrive for a subscription whose account is closed."""
        self._ending.discard(subscription)

    def leaving(self) -> list[str]:
        """Return the subscriptions whose clients want to leave."""
        return [name for name, known in self._open.items() if known.owed_until is not None]

    def leave_all(self, now_ms: float) -> None:
        """Note that all clients leave."""
        for subscription in list(self._open):
            self.leave(subscription, now_ms)

    def give_up(self, now_ms: float) -> None:
        """Close all accounts: what has not arrived by now is lost."""
        for subscription in list(self._open):
            self.end(subscription, now_ms)

    def snapshot(self, now_ms: float) -> LedgerSnapshot:
        """Return the account; it is final when no subscription is open."""
        outstanding = sum(len(self._missing(known, now_ms)) for known in self._open.values())
        lost = self._lost.total()
        counted: dict[str, Any] = dict(self._counts)
        return LedgerSnapshot(
            **counted,
            published=sum(len(publisher.times_ms) for publisher in self._publishers.values()),
            expected=self._counts["delivered"] + lost + outstanding,
            lost=lost,
            excused=lost - self._lost[UNKNOWN],
            outstanding=outstanding,
            lost_by_reason=dict(sorted(self._lost.items())),
            delivery_ms_mean=self._delivery_ms / max(self._delivered_remote, 1),
            delivery_ms_max=self._delivery_ms_max,
            final=not self._open,
        )

    def _missing(self, known: _Subscription, now_ms: float) -> list[int]:
        """Return the numbers that are owed and have not arrived."""
        until = len(self._publishers[known.publisher].times_ms) - 1 if known.owed_until is None else known.owed_until
        begin = known.newest + 1
        return [*sorted(known.missing), *self._owed(known, range(begin, max(until + 1, begin)))]

    def _due_ms(self, known: _Subscription) -> float:
        """Return the time from which on a subscription is owed everything, confirmed or not."""
        due_ms = known.begun_ms + FIRST_S_MAX * SECOND_MS
        outages = [
            (death.at_ms, death.returned_ms if death.broker == known.home else death.repaired_ms)
            for death in self.deaths
        ]
        outages += [(outage.at_ms, outage.until_ms) for outage in self.link_outages]
        outages += [(gone.at_ms, gone.returned_ms) for gone in self.agent_deaths if gone.is_beside(known.name)]
        for at_ms, over_ms in sorted(outages):
            if at_ms < due_ms < over_ms + FIRST_S_MAX * SECOND_MS:
                due_ms = over_ms + FIRST_S_MAX * SECOND_MS
        return due_ms

    def _excuse(self, known: _Subscription, number: int) -> str:
        """Return why a notification need not have come."""
        publisher = self._publishers[known.publisher]
        time_ms = publisher.times_ms[number]
        if any(death.excuses(known.publisher, known.name, time_ms) for death in self.agent_deaths):
            return AGENT_DIED
        pairs = list(product(publisher.homes_around(time_ms), known.homes_around(time_ms)))
        is_cut = any(death.excuses(home, receiver, time_ms) for death in self.deaths for home, receiver in pairs)
        return BROKER_DIED if is_cut else UNKNOWN
