"""What one broker of a Chord ring knows for one epoch: the topic trees it is part of, and the publishers of its topics.

Pure data with the queries that routing needs; :mod:`producers.brokers.ring_trees` decides what is sent and when.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from regraft.overlay.ring.ring_configuration import RingConfiguration
from regraft.producers.brokers.broker_messages import Notification
from regraft.producers.brokers.ring_messages import ProbeBack, Register, Unregister

TOPIC = "topic"  # The attribute in which filters and notifications name their topic.

FromPublisher = Notification | ProbeBack | Unregister


@dataclass(slots=True)
class TopicEntry:
    """One topic's tree as this broker sees it.

    ``parent`` is the neighbour towards the rendezvous, None at the rendezvous itself. ``children`` get the topic's
    notifications; ``issued`` gives the newest epoch for which each child sends its own messages. ``subscriptions`` are
    the local ones, including those that have ended but may still be owed something (``ended_here``); ``fresh`` ones are
    not confirmed yet. ``is_joined``: the path from the rendezvous is complete; ``waiting`` are the children to notify
    once it is. ``flushing`` are the subscriptions that the flush under way will release, None if there is no flush.
    ``is_over``: nothing more of this epoch will come. ``is_derived``: taken over from the epoch before, whose
    acknowledgement also counts for this one.
    """

    topic: str
    parent: str | None
    is_joined: bool
    children: tuple[str, ...] = ()
    issued: dict[str, int] = field(default_factory=dict)
    subscriptions: dict[str, None] = field(default_factory=dict)  # In order of arrival.
    fresh: set[str] = field(default_factory=set)
    ended_here: set[str] = field(default_factory=set)
    waiting: set[str] = field(default_factory=set)
    flushing: frozenset[str] | None = None
    is_over: bool = False
    is_derived: bool = False

    def add_child(self, peer: str, issued_max: int) -> None:
        """Forward to a neighbour from now on."""
        self.issued[peer] = issued_max
        if peer not in self.children:
            self.children = tuple(sorted((*self.children, peer)))

    def drop_child(self, peer: str) -> None:
        """Stop forwarding to a neighbour."""
        self.children = tuple(child for child in self.children if child != peer)
        self.waiting.discard(peer)
        self.issued.pop(peer, None)


@dataclass(slots=True)
class TopicSubscription:
    """A subscription of a local user: whether it is confirmed or has ended, and which epochs have yet to confirm it.

    ``has_arrived``: it arrived by the plan under way, and its old home has it in the older epoch. ``epoch_min`` is the
    first epoch in which this broker serves it; its old home hands over everything of older epochs.
    """

    subscription: str
    user: str
    connection: int
    topic: str
    unconfirmed_epochs: set[int]
    is_confirmed: bool = False
    has_ended: bool = False
    has_arrived: bool = False
    epoch_min: int = 0

    def wants(self, notification: Notification) -> bool:
        """Return True if this broker must hand a notification over to the subscription.

        Notifications published after the confirmation arrive after it, and those published before the end arrive before
        the flush, so no publish times are compared.
        """
        return self.is_confirmed and notification.epoch >= self.epoch_min


@dataclass(slots=True)
class LocalPublisher:
    """A publisher of this broker: its topic, the number of its stay, and the epochs that have yet to confirm it.

    ``waits``: a repair began before it could publish, so it registers in the newer epoch once the older one is retired.
    """

    topic: str
    connection: int
    unconfirmed_epochs: set[int] = field(default_factory=set)
    may_publish: bool = False
    waits: bool = False


@dataclass(frozen=True, slots=True)
class Registration:
    """A publisher at its rendezvous: the number of its stay, and its home."""

    connection: int
    home: str


class RingTables:
    """Everything that one broker knows for one epoch.

    ``registered`` holds, by topic, the publishers of the topics whose rendezvous this broker is. ``successors`` holds,
    by topic and publisher, stays that began before the end of the earlier stay had come. ``awaited`` maps subscriptions
    that have moved here, and whose old home may still hand over something of this epoch, to their user. ``lost`` are
    the brokers whose incarnation ended in the epoch before. ``dead`` are those that died in this one, as their links or
    the controller report; ``ended_behind`` are those from which nothing more comes here in it, over any broker. A
    broker that is not on the ring has tables without neighbours; so has one on it with ``is_outside``, as only an
    earlier incarnation of it is on it.
    """

    def __init__(
        self,
        broker: str,
        configuration: RingConfiguration,
        *,
        lost: frozenset[str] = frozenset(),
        is_outside: bool = False,
    ) -> None:
        self.broker = broker
        self.configuration = configuration
        self.epoch = configuration.epoch
        self.lost = lost
        self.dead: set[str] = set()
        self.ended_behind: set[str] = set()
        self.is_outside = is_outside or broker not in configuration.place_of
        self.neighbours: tuple[str, ...] = () if self.is_outside else configuration.neighbours[broker]
        self.topics: dict[str, TopicEntry] = {}
        self.registered: dict[str, dict[str, Registration]] = {}
        self.successors: dict[tuple[str, str], Register] = {}
        self.ended: dict[tuple[str, str], int] = {}  # Stays by topic and publisher, while the epoch before is live.
        self.flushes: dict[tuple[str, str], set[str]] = {}  # (topic, asker) -> publishers not heard from yet.
        self.awaited: dict[str, str] = {}
        self._next_hop: dict[str, str] = {}
        self._parent: dict[str, str | None] = {}
        self._rendezvous: dict[str, str] = {}
        if not self.is_outside:
            self._find_paths()

    def derive_from(self, old: RingTables) -> None:
        """Derive our places in trees, and children, if the path from the rendezvous is the same in both epochs.

        Neighbours do the same, so no message is needed. A broker that has no use for its place in the new epoch leaves
        it.
        """
        for topic, entry in old.topics.items():
            if self.same_path(old, topic, self.broker):
                kept = {
                    peer: issued_max
                    for peer, issued_max in entry.issued.items()
                    if issued_max < self.epoch and self.same_path(old, topic, peer)
                }
                derived = self.topics[topic] = TopicEntry(
                    topic, entry.parent, entry.is_joined, tuple(sorted(kept)), kept, is_derived=True
                )
                # Ended subscriptions may still be owed something of the old epoch when that is retired.
                derived.subscriptions = {name: None for name in entry.subscriptions if name in entry.ended_here}
                derived.ended_here = set(entry.ended_here)
        for topic, publishers in old.registered.items():
            taken = {who: one for who, one in publishers.items() if self.takes_over(old, topic, one.home)}
            if taken:
                self.registered[topic] = taken

    def _find_paths(self) -> None:
        ring, position = self.configuration.ring, self.configuration.position_of[self.broker]
        names = self.configuration.broker_at
        self._next_hop = {names[to]: names[hop] for to, hop in enumerate(ring.next_hops[position].tolist())}
        above = ring.parents[:, position].tolist()
        self._parent = {names[root]: names[at] if at >= 0 else None for root, at in enumerate(above)}

    def rendezvous(self, topic: str) -> str:
        """Return the root of a topic's tree."""
        broker = self._rendezvous.get(topic)
        if broker is None:
            broker = self._rendezvous[topic] = self.configuration.rendezvous(topic)
        return broker

    def next_hop(self, target: str) -> str:
        """Return the neighbour on the path to another broker; raise KeyError if that is not on the ring."""
        return self._next_hop[target]

    def find_hop(self, target: str) -> str | None:
        """Return the neighbour on the path to another broker, or None if that is not on the ring."""
        return self._next_hop.get(target)

    def parent(self, topic: str) -> str | None:
        """Return the neighbour towards a topic's rendezvous in its tree, or None if this broker is the rendezvous."""
        return self._parent[self.rendezvous(topic)]

    def below(self, start: str) -> tuple[str, ...]:
        """Return the neighbours that follow this broker on the paths from ``start`` to all other brokers, sorted."""
        configuration = self.configuration
        above = configuration.ring.parents[configuration.position_of[start]]
        places = np.flatnonzero(above == configuration.position_of[self.broker])
        return tuple(sorted(configuration.broker_at[at] for at in places.tolist()))

    def is_over_from(self, start: str) -> bool:
        """Return True if everything on the path from ``start`` has arrived: a broker on it is dead."""
        return bool(self.ended_behind) and not self.ended_behind.isdisjoint(
            self.configuration.route(start, self.broker)
        )

    def is_gone(self, broker: str) -> bool:
        """Return True if a broker has died in this epoch."""
        return broker in self.dead or broker in self.ended_behind

    def takes_over(self, older: RingTables, topic: str, home: str) -> bool:
        """Return True if registrations of a topic's publishers at ``home`` are derived from an older epoch.

        Otherwise the home registers its publishers again; it also does so if a registration may have been lost.
        """
        root, places = older.rendezvous(topic), (older.configuration.place_of, self.configuration.place_of)
        is_kept = root == self.rendezvous(topic) and all(home in place_of for place_of in places)
        return is_kept and self.lost.isdisjoint(older.configuration.route(home, root))

    def same_path(self, older: RingTables, topic: str, broker: str) -> bool:
        """Return True if the path from a topic's rendezvous to a broker is that of an older epoch, broker by broker.

        This then also holds for all brokers on the path, because routes from one node share their beginnings.
        """
        root = self.rendezvous(topic)
        return root == older.rendezvous(topic) and self.same_route(older, root, broker)

    def same_route(self, older: RingTables, start: str, target: str) -> bool:
        """Return True if the path between two brokers is that of an older epoch, broker by broker.

        It is not if it touches a broker that is in only one of the rings, or whose incarnation ended in the older
        epoch.
        """
        place = self.configuration.place_of
        if start not in place or target not in place:
            return False
        return bool(self._same_routes_since(older)[place[start], place[target]])

    def changes_most(self, older: RingTables, root: str) -> bool:
        """Return True if most paths from a broker to the others differ from those of an older epoch."""
        return bool(np.mean(self._same_routes_since(older)[self.configuration.place_of[root]]) < 0.5)

    def _same_routes_since(self, older: RingTables) -> NDArray[np.bool_]:
        return self.configuration.same_routes_since(older.configuration, self.lost)
