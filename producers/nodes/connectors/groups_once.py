"""Queue groups whose members at all brokers together handle each message once.

Only the broker where a message is published decides, from its own tables, and the decision travels with the message, so
two brokers never differ about it.

A group with a member at the publisher's broker handles the message there: that broker delivers it by itself, before any
node sees it. Otherwise the brokers take turns, by a checksum of publisher and number.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from urllib.parse import quote, unquote
from zlib import crc32

from regraft.producers.brokers.match_content import Content, Filter, MatchIndex

GROUPS_MAX = 100  # Of one message.
_NAME = re.compile(r".*\.s\.[0-9]+\.g\.([^.]+)")
Handlers = tuple[tuple[str, str], ...]  # Group and broker.


def key_of(subject: str, group: str) -> str:
    """Return the name under which a connector reports the interest of a group; no subject has a space."""
    return f"{subject} {group}"


def parts_of(key: str) -> tuple[str, str]:
    """Return subject and group of an interest; the group is "" if it belongs to none."""
    subject, _, group = key.partition(" ")
    return subject, group


def group_suffix(group: str) -> str:
    """Return what the name of a group's subscription ends in."""
    return f".g.{quote(group, safe='').replace('.', '%2E')}" if group else ""


def group_of(subscription: str) -> str:
    """Return the group of a subscription, "" if it belongs to none."""
    match = _NAME.fullmatch(subscription)
    return unquote(match[1]) if match else ""


class GroupHandlers:
    """Where the groups of an overlay handle what is published at one broker.

    ``holds`` returns True if the broker's tables still have a subscription.
    """

    def __init__(self, broker: str, holds: Callable[[str], bool]) -> None:
        self._broker, self._holds = broker, holds
        self._index = MatchIndex()
        self._homes: dict[str, str] = {}  # Subscription -> its broker.
        self._before: dict[str, tuple[str, Filter]] = {}

    def note(self, subscription: str, home: str, filter_: Filter) -> None:
        """Note a subscription; only those of groups count."""
        if subscription not in self._homes and group_of(subscription):
            self._homes[subscription] = home
            self._index.add(subscription, filter_, subscription)

    def replace(self, subscriptions: Iterable[tuple[str, str, Filter]]) -> None:
        """Note all subscriptions of the tables; others are forgotten the second time that they are not there."""
        now = {name: (home, filter_) for name, home, filter_ in subscriptions if group_of(name)}
        kept, self._before = {**self._before, **now}, now
        for name in self._homes.keys() - kept.keys():
            self._index.remove(name)
            del self._homes[name]
        for name, (home, filter_) in kept.items():
            self.note(name, home, filter_)

    def choose(self, content: Content, publisher: str, number: int) -> Handlers:
        """Return the broker at which each group handles a message."""
        if not self._homes:
            return ()
        brokers: dict[str, set[str]] = {}
        for name in self._index.destinations(content):
            if self._holds(name):
                brokers.setdefault(group_of(name), set()).add(self._homes[name])
        turn = crc32(f"{publisher} {number}".encode(errors="replace"))
        chosen = (
            (group, self._broker if self._broker in homes else sorted(homes)[turn % len(homes)])
            for group, homes in sorted(brokers.items())
        )
        return tuple(chosen)[:GROUPS_MAX]


def excluded_groups(subscriptions: Iterable[str], handlers: Handlers, broker: str) -> frozenset[str] | None:
    """Return the groups that must not get a message at a broker; None if nobody there must, because all are groups."""
    names = [group_of(name) for name in subscriptions]
    chosen = dict(handlers)
    excluded = frozenset(group for group in names if group and chosen.get(group, broker) != broker)
    return None if names and all(group in excluded for group in names) else excluded
