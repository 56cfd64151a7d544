"""What one broker of a structured cyclic overlay knows in one epoch: subscriptions, publishers, ended flows.

Pure data with the queries that routing and draining need; :mod:`producers.brokers.scot_interests` and
:mod:`producers.brokers.scot_change` decide what is sent and when.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from regraft.overlay.scot.scot_configuration import ScotConfiguration
from regraft.producers.brokers.broker_state import BrokerState, ContentPlanUnderWay
from regraft.producers.brokers.match_content import Filter, MatchIndex

LOCAL = ""  # The destination of a subscription whose home is this broker; no broker has an empty name.
Stay = tuple[str, int]  # A publisher and the number of its stay.


@dataclass(slots=True)
class Hosted:
    """A publisher at home here; ``vector`` has a bit set for each other cluster that wants what it publishes."""

    filter_: Filter
    connection: int
    vector: int = 0
    awaited: set[str] = field(default_factory=set)


@dataclass(slots=True)
class Remote:
    """A publisher at home at another broker of the region.

    ``is_wanted``: whether this cluster wants what it publishes, as last reported to its host. ``unanswered`` counts the
    reports that its host has not acknowledged yet.
    """

    host: str
    filter_: Filter
    is_wanted: bool = False
    unanswered: int = 0


@dataclass(slots=True)
class Entry:
    """A subscription of this cluster, and whose acknowledgement it awaits: neighbours, and hosts of stays by epoch."""

    filter_: Filter
    source: str
    awaited: set[str]
    awaited_bits: set[tuple[int, Stay]]
    is_confirmed: bool = False


@dataclass(slots=True)
class ScotPlanUnderWay(ContentPlanUnderWay):
    """The plan under way at a broker of a structured cyclic overlay.

    ``expected``: publishers that are to arrive, with their old home; ``announced``: those that leave, with the number
    of the stay that ends here. With ``keeps_interest`` the plan moves publishers alone: no subscriber moves, and both
    epochs have the same subscriptions.
    """

    expected: dict[str, str] = field(default_factory=dict)
    announced: dict[str, int] = field(default_factory=dict)
    keeps_interest: bool = False

    def may_bring(self, subscription: str, broker: str) -> bool:
        """Return True if the plan may bring a subscription to a broker."""
        return not self.keeps_interest and ContentPlanUnderWay.may_bring(self, subscription, broker)


class ScotTables:
    """Everything that one broker knows for one epoch.

    ``interest`` is the epoch in which the subscriptions (``entries``, ``index``) were issued: this one, or that of the
    tables that these continue. Messages about subscriptions bear it, whichever of these epochs are live.

    ``earlier`` are stays here of hosted publishers that a plan has brought back before the end of that stay has come.

    ``within`` are the neighbours in its cluster, ``across`` those in its regions, ``region`` the brokers of its first
    region by cluster, ``others`` the vector of all clusters but its own. ``lost`` are the brokers that the plan to this
    epoch names as lost, ``dead`` those whose incarnation in this epoch is over. ``ended`` and ``end_sent`` give, by
    neighbour, the fewest crossings that later notifications from it, or to it, can have.
    """

    def __init__(
        self,
        broker: str,
        configuration: ScotConfiguration,
        *,
        lost: frozenset[str] = frozenset(),
        is_outside: bool = False,
        continued: ScotTables | None = None,
    ) -> None:
        self.broker = broker
        self.configuration = configuration
        self.epoch = configuration.epoch
        self.interest: int = self.epoch if continued is None else continued.interest
        self.is_outside = is_outside or broker not in configuration.neighbours
        self.neighbours: tuple[str, ...] = () if self.is_outside else configuration.neighbours[broker]
        self.within: tuple[str, ...] = () if self.is_outside else configuration.cluster_neighbours(broker)
        self.across = tuple(peer for peer in self.neighbours if peer not in self.within)
        self.region: tuple[str, ...] = () if self.is_outside else configuration.region_of(broker)
        self.others = sum(1 << cluster for cluster, holder in enumerate(self.region) if holder != broker)
        self.lost = lost
        self.dead: set[str] = set(lost - set(configuration.brokers))
        self.index = MatchIndex()
        self.entries: dict[str, Entry] = {}
        if continued is not None:
            self.index, self.entries = continued.index, continued.entries
            self.dead |= continued.dead  # Nobody rejoins by such a plan.
        self.hosted: dict[str, Hosted] = {}
        self.earlier: dict[str, Hosted] = {}
        self.remotes: dict[Stay, Remote] = {}
        self.ended: dict[str, int] = {}
        self.end_sent: dict[str, int] = {}

    def host_of(self, publisher: str) -> Hosted | None:
        """Return what a publisher at home here is served by: its earlier stay, until the end of that has come."""
        return self.earlier.get(publisher) or self.hosted.get(publisher)

    def hosted_stay(self, publisher: str, connection: int) -> Hosted | None:
        """Return a publisher's stay that is at home here, or None."""
        both = (self.hosted.get(publisher), self.earlier.get(publisher))
        return next((one for one in both if one is not None and one.connection == connection), None)

    @property
    def crossings_max(self) -> int:
        """The most crossings between clusters that a notification makes: it enters no cluster twice."""
        return self.configuration.cluster_count - 1

    def ended_count(self, peer: str) -> int:
        """Return the fewest crossings that later notifications from a neighbour can have; 0 if any may follow."""
        if peer in self.dead:
            return self.crossings_max + 1
        return self.ended.get(peer, 0)

    def has_ended(self, crossings: int, but: str = LOCAL) -> bool:
        """Return True if nothing with at most this many crossings follows from any neighbour except ``but``."""
        within = all(self.ended_count(peer) > crossings for peer in self.within if peer != but)
        # Everything from another cluster has crossed at least once.
        return within and (not crossings or all(self.ended_count(peer) > crossings for peer in self.across))

    @property
    def is_drained(self) -> bool:
        """Whether nothing of this epoch can arrive any more."""
        return self.has_ended(self.crossings_max)

    def ends_due(self) -> Iterator[tuple[str, int]]:
        """Yield the markers that are due, as neighbour and crossings, each only once."""
        for peer, first in [*((peer, 0) for peer in self.within), *((peer, 1) for peer in self.across)]:
            if peer in self.dead:
                continue
            crossings = self.end_sent.get(peer, first)
            while crossings <= self.crossings_max and self._may_end(peer, crossings):
                yield peer, crossings
                crossings += 1
                self.end_sent[peer] = crossings

    def _may_end(self, peer: str, crossings: int) -> bool:
        if peer in self.within:
            return self.has_ended(crossings, but=peer)
        return self.has_ended(crossings - 1)

    def lose_peer(self, peer: str) -> None:
        """Stop waiting for a dead broker: everything that it sent in this epoch has arrived."""
        self.dead.add(peer)
        for entry in self.entries.values():
            entry.awaited.discard(peer)
        for one in (*self.hosted.values(), *self.earlier.values()):
            one.awaited.discard(peer)


ScotState = BrokerState[ScotTables, ScotPlanUnderWay]
