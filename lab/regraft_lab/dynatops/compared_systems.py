"""The systems that Zhao13 compares, behind one interface: cost of notifications, cost of changes, adaptation.

In: overlays, brokers' interests step by step. Out: measures at a moment and messages counted so far. Users' homes and
the choice of comparisons do not belong here.

One rule for all systems with roots: a broker that joins or leaves the tree of a topic sends a request to the root, one
message per hop of the route (Zhao13, section 6.2, subscription management overhead). TCO has no roots; its price is
that of rebuilding its overlay.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from regraft.api.rings import RingConfiguration, topic_roots
from regraft_lab.dynatops.bayeux import TapestryMesh, draw_mesh
from regraft_lab.dynatops.broker_interests import InterestStep
from regraft_lab.dynatops.connected_dissemination import connected_measures
from regraft_lab.dynatops.dissemination import Flags, Floats, RootedTrees, TopicMeasures, topic_measures
from regraft_lab.dynatops.geops import GeoOverlay
from regraft_lab.dynatops.reassign_over_time import WAYS, Reassigner
from regraft_lab.dynatops.topic_connected import build_overlay, rebuild_overlay

Ints = NDArray[np.integer]

# Base and number of digits of 32-bit IDs. The paper gives no base; Tapestry's default is 16.
BAYEUX = {"bayeux16": (16, 8), "bayeux4": (4, 16)}


@dataclass(frozen=True)
class Measures:
    """The cost of a notification at one moment, mean over topics, which are equally busy.

    ``delay``: from the root to a user's broker, mean over deliveries to users; ``broker_delay``: mean over subscribed
    brokers, the paper's d_p (Eq. 2). Both are in hops, or in the unit of the delays given. ``hops``: like ``delay``,
    but in hops. ``messages``: forwarded per notification; ``relays``: how many of these go to unsubscribed brokers.
    """

    delay: float
    broker_delay: float
    hops: float
    messages: float
    relays: float


@dataclass
class SystemCounts:
    """What a system has sent besides notifications since its start.

    ``requests``: messages of brokers that join or leave topics' trees. ``reassignments``: those that moved anything;
    ``moved``: brokers or links moved by them; ``reassignment_messages``: their cost.
    """

    requests: int = 0
    reassignments: int = 0
    moved: int = 0
    reassignment_messages: float = 0.0


class System(Protocol):
    """A system under comparison."""

    counts: SystemCounts

    def observe(self, step: InterestStep) -> None:
        """Count the messages of a step, and adapt to it if the system does so at once."""

    def adapt(self, step: InterestStep) -> None:
        """Reconfigure at the end of a period if the system does so."""

    def measures(self, step: InterestStep) -> Measures:
        """Return the cost of a notification at the end of a step."""


class RootedSystem:
    """A system whose topic trees never change: Bayeux, GeoPS.

    ``roots`` (topics,) and trees are by broker; ``request_hops`` (brokers, topics) is the route length from a broker to
    a root. ``hop_delays`` (brokers, brokers): if given, the delay of each hop, else delays count hops.
    """

    def __init__(self, trees: RootedTrees, roots: Ints, request_hops: Ints, hop_delays: Floats | None = None) -> None:
        self.counts = SystemCounts()
        self._trees, self._roots, self._request_hops = trees, roots, request_hops
        self._delays = None if hop_delays is None else trees.delays(hop_delays)

    @classmethod
    def bayeux(cls, mesh: TapestryMesh, topics: tuple[str, ...], hop_delays: Floats | None = None) -> RootedSystem:
        """Return Bayeux on a mesh."""
        roots = mesh.topic_roots(topics)
        return cls(mesh.trees, roots, mesh.trees.depths[:, roots], hop_delays)

    @classmethod
    def geops(cls, overlay: GeoOverlay, hop_delays: Floats | None = None) -> RootedSystem:
        """Return GeoPS; the root of a cell's topic is the broker of that cell."""
        roots = np.arange(len(overlay.long_links), dtype=np.int32)
        return cls(overlay.trees, roots, overlay.trees.depths.T, hop_delays)

    def observe(self, step: InterestStep) -> None:
        """Count requests."""
        if step.end_h > 0:
            self.counts.requests += int(self._request_hops[step.changed_brokers, step.changed_topics].sum())

    def adapt(self, step: InterestStep) -> None:
        """Do nothing."""

    def measures(self, step: InterestStep) -> Measures:
        """Return the cost of a notification."""
        return _measures(self._trees, self._roots, step.wanted, step.user_counts, self._delays)


class RingSystem:
    """A Chord ring whose IDs are reassigned after each period: DYNATOPS, with SSBR or with our assignment.

    ``broker_at`` (positions,): the broker at each position, by its index in the configuration. ``reassigner``: None
    keeps all IDs. ``hop_delays`` (brokers, brokers): if given, the delay of each hop, else delays count hops.
    """

    def __init__(
        self,
        configuration: RingConfiguration,
        topics: tuple[str, ...],
        reassigner: Reassigner | None = None,
        hop_delays: Floats | None = None,
    ) -> None:
        self.counts = SystemCounts()
        ring = self._ring = configuration.ring
        self._roots = topic_roots(configuration, topics)
        self._reassigner, self._hop_delays = reassigner, hop_delays
        self._trees = RootedTrees(ring.parents, ring.depths, ring.depths + ring.depths.T)
        place = {broker: number for number, broker in enumerate(configuration.brokers)}
        self._set_positions(np.array([place[broker] for broker in configuration.broker_at]))

    def observe(self, step: InterestStep) -> None:
        """Count requests."""
        if step.end_h > 0:
            self.counts.requests += int(self._request_hops[step.changed_brokers, step.changed_topics].sum())

    def adapt(self, step: InterestStep) -> None:
        """Reassign IDs if that pays."""
        if self._reassigner is None:
            return
        wanted = step.wanted[self.broker_at]
        reassignment = self._reassigner.reassign(self._ring, self._roots, wanted, self._position_delays)
        if reassignment is not None and reassignment.moved:
            self.counts.reassignments += 1
            self.counts.moved += reassignment.moved
            self.counts.reassignment_messages += reassignment.cost
            self._set_positions(self.broker_at[reassignment.mapping])

    def measures(self, step: InterestStep) -> Measures:
        """Return the cost of a notification."""
        at = self.broker_at
        return _measures(self._trees, self._roots, step.wanted[at], step.user_counts[at], self._delays)

    def _set_positions(self, broker_at: Ints) -> None:
        self.broker_at = broker_at
        self._request_hops = self._ring.depths[np.argsort(broker_at)][:, self._roots]
        self._position_delays = None
        self._delays = None
        if self._hop_delays is not None:
            self._position_delays = self._hop_delays[np.ix_(broker_at, broker_at)]
            self._delays = self._trees.delays(self._position_delays)


class ConnectedSystem:
    """TCO: an overlay rebuilt as soon as a topic is disconnected (DCB-M)."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.counts = SystemCounts()
        self._rng = rng
        self._overlay = build_overlay(np.zeros((1, 1), dtype=np.bool_), rng)
        self._is_built = False

    def observe(self, step: InterestStep) -> None:
        """Rebuild the overlay if a topic is no longer connected; each changed link costs a message."""
        if not self._is_built:
            self._overlay, self._is_built = build_overlay(step.wanted, self._rng), True
            return
        self._overlay, changed = rebuild_overlay(self._overlay, step.wanted)
        self.counts.reassignments += changed > 0
        self.counts.moved += changed
        self.counts.reassignment_messages += changed

    def adapt(self, step: InterestStep) -> None:
        """Do nothing: ``observe`` adapts at once."""

    def measures(self, step: InterestStep) -> Measures:
        """Return the cost of a notification."""
        measured = connected_measures(self._overlay.adjacency, step.wanted, self._rng, audience=step.user_counts)
        by_broker = connected_measures(self._overlay.adjacency, step.wanted, self._rng)
        return Measures(
            measured.mean_delay(), by_broker.mean_delay(), measured.mean_delay(), measured.mean_messages(), 0.0
        )


def ring_systems(
    configuration: RingConfiguration,
    topics: tuple[str, ...],
    events_per_period: float,
    rng_of: Callable[[], np.random.Generator],
    hop_delays: Floats | None = None,
) -> dict[str, System]:
    """Return the ring with fixed IDs ("chord"), with DYNATOPS-Greedy ("ssbr") and with our planner ("assignment").

    ``events_per_period``: events of each topic between two reassignments. ``rng_of``: returns equal generators, so that
    all systems see the same events.
    """
    events = np.full(len(topics), events_per_period)
    systems: dict[str, System] = {"chord": RingSystem(configuration, topics, None, hop_delays)}
    for way in WAYS:
        systems[way] = RingSystem(configuration, topics, Reassigner(way, events, rng_of()), hop_delays)
    return systems


def bayeux_systems(
    broker_count: int,
    topics: tuple[str, ...],
    rng_of: Callable[[str], np.random.Generator],
    hop_delays: Floats | None = None,
    rtt_ms: Floats | None = None,
) -> dict[str, System]:
    """Return Bayeux with digits of base 16 ("bayeux16") and base 4 ("bayeux4").

    ``rtt_ms`` (brokers, brokers): if given, turns on proximity neighbour selection and adds "_pns" to the names.
    ``rng_of``: returns the generator for a name.
    """
    systems: dict[str, System] = {}
    for name, (base, digits) in BAYEUX.items():
        mesh = draw_mesh(broker_count, rng_of(name), base, digits, rtt_ms)
        suffix = "" if rtt_ms is None else "_pns"
        systems[name + suffix] = RootedSystem.bayeux(mesh, topics, hop_delays)
    return systems


def _measures(trees: RootedTrees, roots: Ints, wanted: Flags, audience: Ints, delays: Floats | None) -> Measures:
    by_user = topic_measures(trees, roots, wanted, delays, audience)
    by_broker = topic_measures(trees, roots, wanted, delays)
    in_hops = by_user if delays is None else topic_measures(trees, roots, wanted, None, audience)
    return Measures(
        by_user.mean_delay(),
        by_broker.mean_delay(),
        in_hops.mean_delay(),
        by_user.mean_messages(),
        _mean_relays(by_user),
    )


def _mean_relays(topic_measures: TopicMeasures) -> float:
    return float(topic_measures.relay.mean())
