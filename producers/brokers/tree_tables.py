"""Routing tables of one broker for one epoch: subscriptions, the path to their home, and where they were sent.

Pure data with the two queries that routing needs, and what a broker of a tree knows of the plan under way;
:mod:`producers.brokers.tree_interests` and :mod:`producers.brokers.tree_change` decide what is sent and when.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from regraft.overlay.overlay_configuration import link
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.producers.brokers.broker_messages import Advertise
from regraft.producers.brokers.broker_state import BrokerState, ContentPlanUnderWay
from regraft.producers.brokers.match_content import Filter, MatchIndex, covers

LOCAL = ""  # The destination of a subscription whose home is this broker; no broker has an empty name.


@dataclass(slots=True)
class Entry:
    """One subscription in one epoch's table.

    ``towards`` is the neighbour on the path to its home, or LOCAL. ``matching`` are the advertised publishers it
    matches. ``forwarded`` are the neighbours that hold it because of this broker. ``unconfirmed`` and ``unreleased``
    are those whose acknowledgement of a subscribe or an unsubscribe is outstanding; a neighbour that has released it
    gets it again if it is wanted there by then. ``waiting`` are those that wait for our acknowledgement.
    ``epoch_issued_max`` is the newest epoch in which its home issued it
    (:class:`producers.brokers.broker_messages.Subscribe`).
    """

    subscription: str
    home: str
    filter_: Filter
    towards: str
    matching: set[str]
    epoch_issued_max: int
    forwarded: set[str] = field(default_factory=set)
    unconfirmed: set[str] = field(default_factory=set)
    unreleased: set[str] = field(default_factory=set)
    waiting: set[str] = field(default_factory=set)
    leaving: bool = False

    @property
    def is_settled(self) -> bool:
        """Whether no neighbour's acknowledgement is outstanding, except of the subscription's own end."""
        return not self.unconfirmed and (self.leaving or not self.unreleased)


@dataclass(slots=True)
class TreePlanUnderWay(ContentPlanUnderWay):
    """The plan under way at a broker of a tree.

    ``awaited`` is the member of ``waiting_for`` that is checked first. ``lost``: the brokers that the plan names as
    lost. ``announces`` is set if brokers join, leave or are lost, so that new links may lead to brokers that know other
    publishers. Then ``near`` are the brokers that links of the older tree reach without crossing a lost one;
    ``doubtful`` the neighbours over links of both trees that may also know other publishers; ``unacknowledged``
    neighbour, publisher and stay that such a neighbour has yet to confirm; ``vouched`` the stays that neighbours in the
    newer epoch have announced; ``superseded`` what only the older epoch knew before neighbours announced otherwise.
    """

    awaited: str = ""
    lost: frozenset[str] = frozenset()
    announces: bool = False
    near: frozenset[str] = frozenset()
    doubtful: frozenset[str] = frozenset()
    unacknowledged: set[tuple[str, str, int]] = field(default_factory=set)
    vouched: set[tuple[str, int]] = field(default_factory=set)
    superseded: dict[str, Advertisement] = field(default_factory=dict)


@dataclass(slots=True)
class Advertisement:
    """A known publisher, its announcer, and what we await before we report that all brokers beyond us know it.

    ``awaited`` is the member of ``unsettled`` (subscriptions) that is checked first. ``successor`` is the advertisement
    of its next stay, with its sender, if that came before the end of this one.
    """

    epoch: int
    publisher: str
    connection: int
    home: str
    filter_: Filter
    announcer: str
    unanswered: set[str]
    unsettled: set[str] = field(default_factory=set)
    awaited: str = ""
    successor: tuple[str, Advertise] | None = None


class RoutingTables:
    """Everything that one broker knows for one epoch.

    ``moved`` maps clients whose home changed with this epoch to the new one, ``left`` to the old one; all subscribers
    of ``emptied`` brokers have moved. ``shared`` are the neighbours over links that the epoch before also had;
    ``same_path_to`` the brokers that such links alone reach: the path between any two of these is the same in both
    trees, broker by broker. ``fresh`` are the neighbours over new links; ``unsure`` those to which the plan to this
    epoch announces no publishers. ``lost`` are the brokers that this plan names as lost, ``dead`` those whose life in
    this epoch is over: nothing is awaited or accepted from it any more. A broker that is not in the overlay has tables
    without neighbours; so has one in it with ``is_outside``, as only an earlier life of it is in the overlay.
    """

    def __init__(
        self,
        broker: str,
        configuration: TreeConfiguration,
        older: TreeConfiguration | None = None,
        moved: Mapping[str, str] | None = None,
        left: Mapping[str, str] | None = None,
        *,
        emptied: Collection[str] = (),
        lost: frozenset[str] = frozenset(),
        is_outside: bool = False,
    ) -> None:
        self.broker = broker
        self.emptied = frozenset(emptied)
        self.moved = dict(moved or {})
        self.left = dict(left or {})
        self.configuration = configuration
        self.epoch = configuration.epoch
        self.is_outside = is_outside or broker not in configuration.neighbours
        self.neighbours: tuple[str, ...] = () if self.is_outside else configuration.neighbours[broker]
        self.next_hop = {} if self.is_outside else configuration.next_hops_from(broker)
        kept = frozenset() if older is None or self.is_outside else configuration.links_kept_since(older, lost)
        self.same_path_to = frozenset((broker,)) if self.is_outside else configuration.reached_over(kept, broker)
        self.shared = frozenset(peer for peer in self.neighbours if link(broker, peer) in kept)
        self.fresh = frozenset(self.neighbours) - self.shared
        self.unsure = frozenset[str]()
        self.lost = lost
        self.dead: set[str] = set(lost - set(configuration.brokers))
        self.entries: dict[str, Entry] = {}
        self.released: set[str] = set()  # Removed while the older epoch is live: not to be derived again.
        self.withdrawn: set[tuple[str, str]] = set()  # Subscription not held here, neighbour asked to release it.
        self.index = MatchIndex()
        self.ends_received: set[str] = set()
        self.ends_sent: set[str] = set()
        # Filters sent to a neighbour, by their eq predicates; covering is counted only among equals, which is cheap.
        self._sent: dict[tuple[str, Filter], dict[str, Filter]] = {}

    def install(self, entry: Entry) -> None:
        """Add an entry, so that matching notifications are routed towards its home."""
        self.entries[entry.subscription] = entry
        self.released.discard(entry.subscription)
        self.index.add(entry.subscription, entry.filter_, entry.towards)

    def is_moved(self, entry: Entry) -> bool:
        """Return True if the plan to this epoch moves a subscription of the epoch before: it is not derived."""
        return entry.home in self.emptied or self.left.get(entry.subscription) == entry.home

    def is_home_of(self, subscription: str) -> bool:
        """Return True if this broker is the home of a subscription in this epoch."""
        entry = self.entries.get(subscription)
        return entry is not None and entry.towards == LOCAL

    def remove(self, subscription: str) -> None:
        """Forget an entry."""
        entry = self.entries.pop(subscription)
        self.index.remove(subscription)
        for peer in entry.forwarded:
            self._forget_sent(entry, peer)

    def note_release(self, entry: Entry, peer: str) -> None:
        """Record that ``peer`` no longer holds the entry because of us."""
        entry.forwarded.discard(peer)
        self._forget_sent(entry, peer)

    def _forget_sent(self, entry: Entry, peer: str) -> None:
        self._sent.get((peer, _equalities(entry.filter_)), {}).pop(entry.subscription, None)

    def note_forward(self, entry: Entry, peer: str) -> bool:
        """Record that ``peer`` holds the entry because of us; return True if an entry sent earlier covers it."""
        entry.forwarded.add(peer)
        sent = self._sent.setdefault((peer, _equalities(entry.filter_)), {})
        covered = any(covers(wide, entry.filter_) for wide in sent.values())
        sent[entry.subscription] = entry.filter_
        return covered

    def await_withdrawn(self, entry: Entry) -> None:
        """Let a returning entry wait for the neighbours that were asked to release it while it was not here."""
        owing = {peer for name, peer in self.withdrawn if name == entry.subscription}
        entry.forwarded |= owing
        entry.unreleased |= owing

    def flow_has_ended(self, home: str) -> bool:
        """Return True if nothing of this epoch can still come from publishers at ``home``, another broker."""
        peer = self.next_hop.get(home)
        return peer is None or peer in self.ends_received  # None if it was not in this tree.

    def reached_without(self, lost: frozenset[str]) -> frozenset[str]:
        """Return the brokers that links of this epoch reach without crossing a lost one, including this broker."""
        if self.is_outside:
            return frozenset((self.broker,))
        past = frozenset(pair for pair in self.configuration.links if lost.isdisjoint(pair))
        return self.configuration.reached_over(past, self.broker)

    def lose_peer(self, peer: str) -> None:
        """Stop waiting for a dead broker: everything that it sent in this epoch has arrived."""
        self.dead.add(peer)
        if peer in self.neighbours:
            self.ends_received.add(peer)
            self.ends_sent.add(peer)
        for entry in self.entries.values():
            entry.unconfirmed.discard(peer)
            entry.unreleased.discard(peer)
            entry.waiting.discard(peer)
        self.withdrawn = {(name, asked) for name, asked in self.withdrawn if asked != peer}

    @property
    def is_drained(self) -> bool:
        """Whether END has come over every link of this epoch."""
        return len(self.ends_received) == len(self.neighbours)


def _equalities(filter_: Filter) -> Filter:
    return tuple(predicate for predicate in filter_ if predicate.operator == "eq")


TreeState = BrokerState[RoutingTables, TreePlanUnderWay]
