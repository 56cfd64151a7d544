"""Who is owed what, apart from the product: it knows publishers, subscriptions and faults, but no plan and no protocol.

In: what clients write and what reaches them. Out: a BrokenPromiseError at once for what comes again or out of order,
and on request for what is missing. A subscription is owed what is published from when it was ``opened`` until it ended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field

from tests.scenarios.any_order_account import BrokenPromiseError


@dataclass
class Wanted:
    """A subscription, of one publisher or all: since which number each publisher's is owed, and what has come.

    ``unread`` is what may come once more, of each publisher: its broker has died, and the node has yet to read it.
    """

    only_of: str = ""
    since: dict[str, int] = field(default_factory=dict)
    came: dict[str, set[int]] = field(default_factory=dict)
    newest: dict[str, int] = field(default_factory=dict)
    unread: dict[str, set[int]] = field(default_factory=dict)
    is_open: bool = True
    may_repeat: bool = False


class ClientLedger:
    """All publishers and subscriptions; ``written`` is how much each publisher has published."""

    def __init__(self) -> None:
        self.written: Counter[str] = Counter()
        self.wanted: dict[str, Wanted] = {}
        self.struck: set[str] = set()  # Publishers and subscriptions that a fault excuses until they are opened again.
        self.late: dict[str, int] = {}  # Up to here, what a publisher wrote may come when its broker has long died.
        self.unanswered: dict[str, set[int]] = {}  # What a publisher may have published again when its broker died.
        self._newest: Counter[tuple[str, str]] = Counter()  # What any subscription of a client has, by publisher.
        self.apart: set[str] = set()  # Clients of whom a plan has moved some subscriptions, and others not.
        self.came_count = 0

    def write(self, publisher: str) -> int:
        """Return the number of what a publisher publishes next."""
        self.written[publisher] += 1
        return self.written[publisher]

    def subscribe(self, name: str, only_of: str = "") -> None:
        """Note a subscription, of one publisher or all; it is owed nothing until it is opened."""
        self.wanted[name] = Wanted(only_of)
        self.struck.add(name)

    def end(self, name: str) -> None:
        """Note that a subscription has ended."""
        self.wanted[name].is_open = False

    def strike(self, *names: str) -> None:
        """Excuse what these lose, as publishers and subscriptions."""
        self.struck.update(names)

    def strike_late(self, *names: str) -> None:
        """Excuse also that what these publishers have written comes late, and to those that are struck once more.

        A broker that has died may have sent it to its node, which has not read it.
        """
        self.strike(*names)
        self.late.update({name: self.written[name] for name in names})

    def note_unanswered(self, publisher: str, numbers: Collection[int]) -> None:
        """Note that a publisher's broker has died, or may have, before it answered these: they may come twice."""
        self.unanswered.setdefault(publisher, set()).update(numbers)

    def note_unread(self, name: str, publisher: str, number: int) -> None:
        """Note that the broker of a subscription has died, and that its node may read this later: it may come again."""
        self.wanted[name].unread.setdefault(publisher, set()).add(number)

    def open_all(self) -> None:
        """Note that from now on every subscription is owed everything."""
        self.struck.clear()
        for wanted in self.wanted.values():
            wanted.since = {name: count + 1 for name, count in self.written.items()}
            wanted.may_repeat = False

    def take(self, name: str, publisher: str, number: int) -> None:
        """Note what has come; raise BrokenPromiseError if it came before, or behind what was published later."""
        wanted, self.came_count = self.wanted[name], self.came_count + 1
        came, newest = wanted.came.setdefault(publisher, set()), wanted.newest.get(publisher, 0)
        is_late = number <= self.late.get(publisher, 0)
        is_read_late = number in came and number in wanted.unread.get(publisher, ())
        if is_read_late:
            wanted.unread[publisher].discard(number)  # It comes once more only.
        is_again = is_read_late or (number in came and number in self.unanswered.get(publisher, ()))
        if number in came and not (wanted.may_repeat or is_again or (is_late and name in self.struck)):
            raise BrokenPromiseError("repeated", f"{name} got {publisher}/{number} behind {newest}")
        may_be_behind = wanted.may_repeat or is_late or is_again
        if number < newest and not may_be_behind:
            raise BrokenPromiseError("out of order", f"{name} got {publisher}/{number} behind {newest}")
        if not 0 < number <= self.written[publisher]:
            raise BrokenPromiseError("invented", f"{name} got {publisher}/{number}")
        client = name.partition(":")[0]
        is_excused = may_be_behind or name in self.struck or client in self.apart
        if number < self._newest[client, publisher] and not is_excused:
            raise BrokenPromiseError("subscriptions out of order", f"{name} got {publisher}/{number} behind another's")
        self._newest[client, publisher] = max(number, self._newest[client, publisher])
        came.add(number)
        wanted.newest[publisher] = max(newest, number)

    def missing(self) -> list[str]:
        """Return what has not come of what is owed."""
        found = []
        for name, wanted in self.wanted.items():
            if not wanted.is_open or name in self.struck:
                continue
            for publisher, count in self.written.items():
                if publisher not in self.struck and wanted.only_of in ("", publisher):
                    owed = range(wanted.since.get(publisher, 1), count + 1)
                    lost = sorted(set(owed).difference(wanted.came.get(publisher, ())))
                    found += [f"{name} lost {publisher}/{lost}"] if lost else []
        return found

    def check(self) -> None:
        """Raise BrokenPromiseError if anything is missing."""
        if missing := self.missing():
            raise BrokenPromiseError("lost", f"{len(missing)}: {'; '.join(missing[:4])}")
