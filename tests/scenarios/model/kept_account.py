"""The account of one run as a value: what each subscription is owed, and what the protocol must not do.

In: what clients do and what brokers deliver. Out: the next account, or a Violation. It knows no times, links or epochs:
what is owed is settled when a notification is handed to its publisher's home.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from regraft.producers.brokers.match_content import Filter, matches

Pair = tuple[str, str, int]  # Subscription, publisher, sequence number.


class Violation(Exception):  # noqa: N818 - a finding, not an error of the checker
    """The protocol has broken its promise."""


@dataclass(frozen=True)
class Rules:
    """What the promise means in cases that allow several meanings.

    ``early``: deliveries of notifications published before the confirmation are "wrong", or fine "after_request" (if
    published after the subscription was requested), or "fine". ``late``: deliveries of what was published after the
    subscription ended are "wrong" or, while the end is on its way, "fine". Neither is owed, but comes at most once and
    in order. The cores judge both by the order of events, so the defaults are what no home can know without clocks.
    ``is_ordered_across_stays``: a publisher that reconnects under its name continues in one order.
    """

    early: str = "fine"
    late: str = "fine"
    is_ordered_across_stays: bool = True


@dataclass(frozen=True)
class Account:
    """``states`` are the subscriptions that are not gone: name and filter, and "asked", "confirmed" or "ended".

    ``owed`` must still be delivered, ``allowed`` may be: what :class:`Rules` call fine. ``stays`` are first sequence
    numbers of publishers' stays, if they matter.
    """

    rules: Rules = Rules()
    states: frozenset[tuple[str, Filter, str]] = frozenset()
    owed: frozenset[Pair] = frozenset()
    allowed: frozenset[Pair] = frozenset()
    published: tuple[tuple[str, int, Hashable], ...] = ()
    stays: frozenset[tuple[str, int]] = frozenset()

    def after(self, note: tuple[Any, ...]) -> Account:
        """Return the account after one more event; raise Violation if that is not allowed."""
        match note:
            case ("ask", name, filter_):
                return self._ask(name, filter_)
            case ("confirm", name):
                return self._become(name, "confirmed")
            case ("cancel", name):
                return self._become(name, "ended") if self.rules.late == "fine" else self._forget(name)
            case ("gone", name):
                return self._forget(name)
            case ("publish", publisher, sequence, content):
                return self._publish(publisher, sequence, content)
            case ("deliver", name, publisher, sequence):
                return self._deliver((name, publisher, sequence))
            case ("stay", publisher, sequence):
                return self if self.rules.is_ordered_across_stays else self._stay(publisher, sequence)
            case ("excuse", pairs):
                found = self.owed.intersection(pairs)
                return replace(self, owed=self.owed - found, allowed=self.allowed | found)
            case ("none under way",):
                if self.owed:
                    raise Violation(f"lost: {_named(self.owed)}")
                return replace(self, allowed=frozenset())
        raise ValueError(f"the account does not know {note}")

    def fault(self) -> str:
        """Describe what is wrong when nothing is under way any more, empty if nothing is."""
        waiting = sorted(name for name, _, state in self.states if state == "asked")
        if self.owed:
            return f"lost: {_named(self.owed)}"
        return f"never confirmed: {', '.join(waiting)}" if waiting else ""

    def _ask(self, name: str, filter_: Filter) -> Account:
        allowed = self.allowed
        if self.rules.early == "fine":
            earlier = [one for one in self.published if matches(filter_, one[2])]  # type: ignore[arg-type]
            allowed |= {(name, publisher, sequence) for publisher, sequence, _ in earlier}
        return replace(self, states=self.states | {(name, filter_, "asked")}, allowed=allowed)

    def _become(self, name: str, state: str) -> Account:
        found = {one for one in self.states if one[0] == name and one[2] != "ended"}
        return replace(self, states=self.states - found | {(name, one[1], state) for one in found})

    def _forget(self, name: str) -> Account:
        return replace(self, states=frozenset(one for one in self.states if one[0] != name))

    def _publish(self, publisher: str, sequence: int, content: Any) -> Account:
        owed, allowed = set(self.owed), set(self.allowed)
        for name, filter_, state in self.states:
            if matches(filter_, content):
                if state == "confirmed":
                    owed.add((name, publisher, sequence))
                elif state == "ended" or self.rules.early != "wrong":
                    allowed.add((name, publisher, sequence))
        published = self.published
        if self.rules.early == "fine":
            published += ((publisher, sequence, content),)
        return replace(self, owed=frozenset(owed), allowed=frozenset(allowed), published=published)

    def _stay(self, publisher: str, sequence: int) -> Account:
        return replace(self, stays=self.stays | {(publisher, sequence)})

    def _deliver(self, pair: Pair) -> Account:
        if pair not in self.owed and pair not in self.allowed:
            raise Violation(f"repeated or unexpected: {_named([pair])}")
        before = {one for one in self.owed | self.allowed if one[:2] == pair[:2] and one[2] < pair[2]}
        began = max((first for publisher, first in self.stays if publisher == pair[1] and first <= pair[2]), default=0)
        before = {one for one in before if one[2] >= began}
        if before & self.owed:
            raise Violation(f"lost or out of order: {_named([pair])} came before {_named(before & self.owed)}")
        return replace(self, owed=self.owed - {pair}, allowed=self.allowed - {pair} - before)


def _named(pairs: Iterable[Pair]) -> str:
    return ", ".join(f"{publisher}/{sequence} for {name}" for name, publisher, sequence in sorted(pairs))
