"""What one broker of a structured cyclic overlay knows in one epoch: subscriptions, publishers, what has ended.

Pure data with the questions that routing and draining ask; what is sent and when is decided in
:mod:`producers.brokers.scot_interests` and :mod:`producers.brokers.scot_change`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from regraft.overlay.scot_configuration import ScotConfiguration
from regraft.producers.brokers.content_moves import ContentPlanUnderWay
from regraft.producers.brokers.match_content import Filter, MatchIndex
from regraft.producers.brokers.two_epochs import TwoEpochBroker

LOCAL = ""  # The destination of a subscription whose home is this broker; no broker has an empty name.
Stay = tuple[str, int]  # A publisher and the number of its stay.


@dataclass(slots=True)
class Hosted:
    """A publisher at home here; ``vector`` has the bits of the other clusters that want what it publishes."""

    filter_: Filter
    connection: int
    vector: int = 0
    awaited: set[str] = field(default_factory=set)


@dataclass(slots=True)
class Remote:
    """A publisher at home at another broker of the region; ``is_wanted`` here, as reported to the host.

    ``unanswered`` counts reports that it has not acknowledged yet.
    """

    host: str
    filter_: Filter
    is_wanted: bool = False
    unanswered: int = 0


@dataclass(slots=True)
class Entry:
    """A subscription of this cluster and whose acknowledgements it waits for: neighbours and stays of publishers."""

    filter_: Filter
    source: str
    awaited: set[str]
    awaited_bits: set[Stay]
    is_confirmed: bool = False


@dataclass(slots=True)
class ScotPlanUnderWay(ContentPlanUnderWay):
    """The plan under way at a broker of a structured cyclic overlay.

    ``expected``: publishers that are to come, with their old home; ``announced`` those that leave, with the number of
    the stay that ends here.
    """

    expected: dict[str, str] = field(default_factory=dict)
    announced: dict[str, int] = field(default_factory=dict)


class ScotTables:
    """All that one broker knows for one epoch.

    ``within`` are the neighbours in its cluster, ``across`` those in its regions, ``region`` the brokers of its first
    region by cluster. ``lost`` are those that the plan to this epoch names, ``dead`` those whose life in this epoch is
    over. ``ended`` and ``end_sent`` say by neighbour how many crossings notifications that follow have at least.
    """

    def __init__(
        self,
        broker: str,
        configuration: ScotConfiguration,
        *,
        lost: frozenset[str] = frozenset(),
        is_outside: bool = False,
    ) -> None:
        self.broker = broker
        self.configuration = configuration
        self.epoch = configuration.epoch
        self.is_outside = is_outside or broker not in configuration.neighbours
        self.neighbours: tuple[str, ...] = () if self.is_outside else configuration.neighbours[broker]
        self.within: tuple[str, ...] = () if self.is_outside else configuration.cluster_neighbours(broker)
        self.across = tuple(peer for peer in self.neighbours if peer not in self.within)
        self.region: tuple[str, ...] = () if self.is_outside else configuration.region_of(broker)
        self.lost = lost
        self.dead: set[str] = set(lost - set(configuration.brokers))
        self.index = MatchIndex()
        self.entries: dict[str, Entry] = {}
        self.hosted: dict[str, Hosted] = {}
        self.remotes: dict[Stay, Remote] = {}
        self.ended: dict[str, int] = {}
        self.end_sent: dict[str, int] = {}

    @property
    def crossings_max(self) -> int:
        """How often a notification goes from one cluster to another at most: it comes to none twice."""
        return self.configuration.cluster_count - 1

    def ended_count(self, peer: str) -> int:
        """Return up to how many crossings nothing follows from a neighbour, counted from 1; 0 where anything may."""
        if peer in self.dead:
            return self.crossings_max + 1
        return self.ended.get(peer, 0)

    def has_ended(self, crossings: int, but: str = LOCAL) -> bool:
        """Return True if nothing with this many crossings comes any more from neighbours other than ``but``."""
        within = all(self.ended_count(peer) > crossings for peer in self.within if peer != but)
        # Nothing comes from another cluster without having crossed.
        return within and (not crossings or all(self.ended_count(peer) > crossings for peer in self.across))

    @property
    def is_drained(self) -> bool:
        """Return True if nothing of this epoch can come any more."""
        return self.has_ended(self.crossings_max)

    def ends_due(self) -> Iterator[tuple[str, int]]:
        """Yield neighbours with the crossings up to which nothing follows to them now, and remember that."""
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
        """Wait for nothing more from a broker that is gone: all that it sent in this epoch has come."""
        self.dead.add(peer)
        for entry in self.entries.values():
            entry.awaited.discard(peer)
        for one in self.hosted.values():
            one.awaited.discard(peer)


ScotCore = TwoEpochBroker[ScotTables, ScotPlanUnderWay]
