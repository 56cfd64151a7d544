"""Choose a broker for each user: the utility of brokers, the answer to users that ask, and all users one by one.

In: what the brokers of a cluster exchanged, and users with their topics. Out: a home for each. When users ask, what
their moves cost and how they are executed does not belong here.

Source: Zhao13, section 4 and Algorithm 1: utility = |S_b & s_u| / |s_u| - w_l * L_b. Readings:

- L_b is the broker's share of the subscriptions of its cluster, in [0, 1], and w_l counts for each broker: the share
  weighs w_l times the brokers of the cluster, so that a user loses w_l at a broker of mean load, however many there
  are. If the share weighed w_l alone, a broker with all users of ten would lose a tenth of that, and with skewed
  interests (Zipf) a few brokers would attract nearly all users.
- S_b includes what the user itself wants at its home, as the text says. Then |s_u| (1 - similarity) is the number of
  topics that the broker would begin to subscribe to, which is what a change of the user's topics costs at each broker.
  To users whose topics have not changed, their home is always perfect; for these, exclude their own part
  (:class:`OwnPart`). Then a rise in similarity, times |s_u|, is the decrease in topics that brokers subscribe to.
- The asked broker, too, uses what it last sent, so that each broker of a cluster gives the same answer.
- Among equals the present home stays; else the asked broker is chosen, then those that follow it in the cluster.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from regraft.overlay.ring.user_clusters import NO_BROKER, UserClusters
from regraft.schemas.arrays import Flags, Floats

Ints = NDArray[np.integer]

NO_HOME = -1
NO_PLACE = -1
ROUNDING = 1e-9  # Utilities that differ by less count as equal.
GATHERED_MAX = 4_000_000  # Counts of users gathered in one evaluation: 16 MB.


@dataclass(frozen=True)
class PlacementRules:
    """``load_weight`` is w_l; a broker with more than ``load_max`` times its cluster's mean load accepts no new users.

    A user moves if its utility rises by more than ``utility_min``.
    """

    load_weight: float = 1.0
    load_max: float = math.inf
    utility_min: float = 0.0

    def __post_init__(self) -> None:
        if not self.load_max >= 1:
            raise ValueError(
                f"load_max is {self.load_max}: must be at least 1 (the mean), or a cluster could accept no user"
            )


@dataclass(frozen=True, eq=False)
class BrokerStates:
    """What brokers send the others of their cluster at present.

    ``user_counts`` (topics, clusters, places): how many users of a broker want a topic. ``loads`` (clusters, places):
    how many subscriptions a broker's users have. :meth:`count_users` changes both.
    """

    clusters: UserClusters
    user_counts: NDArray[np.int32]
    loads: NDArray[np.int64]

    @classmethod
    def without_users(cls, clusters: UserClusters, topic_count: int) -> BrokerStates:
        """Return brokers without users."""
        shape = clusters.members.shape
        return cls(clusters, np.zeros((topic_count, *shape), np.int32), np.zeros(shape, np.int64))

    @classmethod
    def with_users(
        cls, clusters: UserClusters, topic_count: int, homes: Ints, starts: Ints, wanted: Ints
    ) -> BrokerStates:
        """Return brokers with users at ``homes``; user u wants the topics ``wanted[starts[u]:starts[u + 1]]``."""
        states = cls.without_users(clusters, topic_count)
        states.count_users(homes, np.diff(starts), wanted, 1)
        return states

    def copy(self) -> BrokerStates:
        """Return an independent copy of what brokers send at present."""
        return replace(self, user_counts=self.user_counts.copy(), loads=self.loads.copy())

    def count_users(self, homes: Ints, sizes: Ints, wanted: Ints, sign: int) -> None:
        """Add users to ``homes`` (sign 1) or remove them (-1); each wants the next ``sizes`` topics of ``wanted``."""
        slots = self.clusters.slot_of[homes]
        places = wanted.astype(np.int64) * self.loads.size + np.repeat(slots, sizes)
        np.add.at(self.user_counts.reshape(-1), places, sign)
        np.add.at(self.loads.reshape(-1), slots, sign * sizes)


@dataclass(frozen=True, eq=False)
class OwnPart:
    """The asking users' own part in the states of brokers.

    ``homes`` (users,) are where the states count each user, NO_HOME if they do not, ``sizes`` (users,) with how many
    subscriptions. ``counted`` (subscriptions,) marks which of the topics it wants now are counted, None if all.
    """

    homes: Ints
    sizes: Ints
    counted: Flags | None = None


@dataclass(frozen=True, eq=False)
class AskingUsers:
    """Users that ask at the same moment, so are answered on the same states of brokers.

    User i wants ``wanted[starts[i]:starts[i + 1]]``, asks the broker ``asked[i]`` and is at ``homes[i]``, NO_HOME
    before it has joined. With ``own``, its own part is excluded from what brokers want and from their load.
    """

    starts: Ints
    wanted: Ints
    asked: Ints
    homes: Ints
    own: OwnPart | None = None

    @classmethod
    def joining(cls, starts: Ints, wanted: Ints, asked: Ints) -> AskingUsers:
        """Return users that have no home yet and ask these brokers."""
        return cls(starts, wanted, asked, np.full(len(asked), NO_HOME))

    @classmethod
    def unchanged(cls, starts: Ints, wanted: Ints, homes: Ints) -> AskingUsers:
        """Return users that ask their homes with unchanged topics."""
        return cls(starts, wanted, homes, homes, OwnPart(homes, np.diff(starts)))

    @property
    def sizes(self) -> Ints:
        """The number of topics that each user wants."""
        return np.diff(self.starts)

    def ordered(self, users: Ints) -> AskingUsers:
        """Return these users, in this order."""
        sizes = self.sizes[users]
        starts = np.concatenate([[0], np.cumsum(sizes)])
        entries = np.arange(starts[-1]) + np.repeat(self.starts[:-1][users] - starts[:-1], sizes)
        own = self.own
        if own is not None:
            counted = None if own.counted is None else own.counted[entries]
            own = OwnPart(own.homes[users], own.sizes[users], counted)
        return AskingUsers(starts, self.wanted[entries], self.asked[users], self.homes[users], own)


def choose_homes(states: BrokerStates, asking: AskingUsers, rules: PlacementRules) -> tuple[Ints, Floats]:
    """Return the broker assigned to each user, and the rise of its utility there, 0 for one that stays.

    For a user from outside the asked broker's cluster, which cannot stay, the rise is the utility itself. For a user
    that wants nothing, all brokers are equal. Cost O(subscriptions * brokers of a cluster).
    """
    seen, users = _InClusters.of(states.clusters, asking), len(asking.asked)
    places, gains = np.empty(users, np.int64), np.empty(users)
    entries_max = max(1, GATHERED_MAX // states.clusters.places)
    first = 0
    while first < users:
        fitting = int(np.searchsorted(asking.starts, asking.starts[first] + entries_max, side="right")) - 1
        end = min(max(fitting, first + 1), users)
        places[first:end], gains[first:end] = _choose(states, seen.between(first, end), rules)
        first = end
    return states.clusters.members[seen.clusters, places], gains


def place_in_turn(
    states: BrokerStates, asking: AskingUsers, rules: PlacementRules, asking_at_once: int = 1
) -> tuple[Ints, Floats]:
    """Let users ask and move one by one, updating ``states``; return homes and rises in utility.

    The brokers of a cluster exchange their states after every ``asking_at_once`` users that have asked there. Clusters
    are independent, so users of different clusters are answered together, which changes no answer. Users must have
    their home in the cluster that they ask, or none. Cost O(subscriptions * brokers of a cluster), in as many array
    steps as the largest cluster has users, divided by ``asking_at_once``.
    """
    cluster = states.clusters.cluster_of[asking.asked]
    by_cluster = np.argsort(cluster, kind="stable")
    ranks = np.empty(len(cluster), np.int64)
    ranks[by_cluster] = np.arange(len(cluster)) - np.searchsorted(cluster[by_cluster], cluster[by_cluster])
    rounds = ranks // asking_at_once
    order = np.argsort(rounds, kind="stable")
    bounds = np.searchsorted(rounds[order], np.arange(int(rounds.max(initial=-1)) + 2)).tolist()
    seen = _InClusters.of(states.clusters, asking.ordered(order))
    places, gains = np.empty(len(order), np.int64), np.empty(len(order))
    for first, end in pairwise(bounds):
        at_once = seen.between(first, end)
        places[first:end], gains[first:end] = chosen, _ = _choose(states, at_once, rules)
        _move(states, at_once, chosen)
    back = np.argsort(order)
    return states.clusters.members[seen.clusters, places][back], gains[back]


@dataclass(frozen=True, eq=False)
class _InClusters:
    """Asking users in terms of clusters: brokers are places in the cluster of the asked one.

    ``home_places`` and ``own_places`` (users,) are NO_PLACE outside that cluster, ``entry_places`` (subscriptions,) is
    the place at which a subscription is the user's own.
    """

    starts: Ints
    wanted: Ints
    entry_clusters: Ints
    entry_places: Ints
    clusters: Ints
    sizes: Ints
    asked_places: Ints
    home_places: Ints
    own_places: Ints
    own_sizes: Ints

    @classmethod
    def of(cls, clusters: UserClusters, asking: AskingUsers) -> _InClusters:
        cluster, sizes = clusters.cluster_of[asking.asked], asking.sizes
        own = asking.own or OwnPart(np.full(len(sizes), NO_HOME), np.zeros(len(sizes), np.int64))
        home_places, own_places = (
            np.where((homes != NO_HOME) & (clusters.cluster_of[homes] == cluster), clusters.place_of[homes], NO_PLACE)
            for homes in (asking.homes, own.homes)
        )
        entry_places = np.repeat(own_places, sizes)
        if own.counted is not None:
            entry_places[~own.counted] = NO_PLACE
        asked_places = clusters.place_of[asking.asked]
        entry_clusters = np.repeat(cluster, sizes)
        return cls(
            asking.starts,
            asking.wanted,
            entry_clusters,
            entry_places,
            cluster,
            sizes,
            asked_places,
            home_places,
            own_places,
            own.sizes,
        )

    def between(self, first: int, end: int) -> _InClusters:
        starts = self.starts[first : end + 1]
        entries, users = slice(int(starts[0]), int(starts[-1])), slice(first, end)
        return _InClusters(
            starts - starts[0],
            self.wanted[entries],
            self.entry_clusters[entries],
            self.entry_places[entries],
            self.clusters[users],
            self.sizes[users],
            self.asked_places[users],
            self.home_places[users],
            self.own_places[users],
            self.own_sizes[users],
        )


def _choose(states: BrokerStates, seen: _InClusters, rules: PlacementRules) -> tuple[Ints, Floats]:
    """Return the place of the broker assigned to each user, and the rise in utility."""
    members, rows = states.clusters.members, np.arange(len(seen.sizes))
    means = np.maximum(states.loads.sum(axis=1) / states.clusters.sizes, ROUNDING)
    utilities = _utilities(states, seen, rules.load_weight / means)
    takes = (members != NO_BROKER) & (states.loads <= ((rules.load_max + ROUNDING) * means)[:, None])
    offered = np.where(takes[seen.clusters], utilities, -np.inf)
    best = offered.max(axis=1)
    turn = (np.arange(members.shape[1]) - seen.asked_places[:, None]) % members.shape[1]
    places = np.where(offered >= best[:, None] - ROUNDING, turn, members.shape[1]).argmin(axis=1)
    at_home = seen.home_places != NO_PLACE
    gains = best - np.where(at_home, utilities[rows, seen.home_places], 0.0)
    stays = at_home & (gains <= rules.utility_min + ROUNDING)
    return np.where(stays, seen.home_places, places), np.where(stays, 0.0, gains)


def _utilities(states: BrokerStates, seen: _InClusters, share_weights: Floats) -> Floats:
    """Return the utility of each broker of the asked one's cluster, shape (users, places)."""
    places = np.arange(states.clusters.places)
    # A broker wants a topic if more users want it there than this user itself.
    wanted = states.user_counts[seen.wanted, seen.entry_clusters] > (seen.entry_places[:, None] == places)
    loads = states.loads[seen.clusters] - (seen.own_places[:, None] == places) * seen.own_sizes[:, None]
    wants = seen.sizes > 0
    shared = np.zeros(loads.shape)
    if wants.any():
        shared[wants] = np.add.reduceat(wanted, seen.starts[:-1][wants], axis=0, dtype=np.int32)
    weights = share_weights[seen.clusters] * wants
    return np.asarray(shared / np.maximum(seen.sizes, 1)[:, None] - weights[:, None] * loads)


def _move(states: BrokerStates, seen: _InClusters, places: Ints) -> None:
    """Count users at these places of their clusters, and no longer at home."""
    moves = places != seen.home_places
    if not moves.any():
        return
    leaves = moves & (seen.home_places != NO_PLACE)
    slots, rows = seen.clusters * states.clusters.places, seen.wanted * np.int64(states.loads.size)
    for at, who, sign in ((places, moves, 1), (seen.home_places, leaves, -1)):
        # Users that stay add 0, at any index.
        counted = np.where(who, slots + at, 0)
        amounts = who * sign
        np.add.at(states.loads.reshape(-1), counted, amounts * seen.sizes)
        entries = rows + np.repeat(counted, seen.sizes)
        np.add.at(states.user_counts.reshape(-1), entries, np.repeat(amounts, seen.sizes))
