"""Users that ask for a home at each change of their topics, over hours: their homes, and the cost for brokers.

In: changes of users (:class:`UserChanges`), clusters of brokers, the rules of placement. Out: the home of each user at
each change, and step by step brokers' subscription changes, handovers, management messages and loads. Notifications do
not belong here.

Source: Zhao13, sections 4 and 6.2. Readings:

- at the start users join one after the other, and brokers know each other's states; afterwards they exchange states
  every T_update, and requests in between are answered from the last exchange;
- a broker reports the topics of all its users, including the one that is changing: without that user, leaving would
  look as good as staying whenever no other user wants its topics, and the user would move with all five topics because
  of one change;
- a broker informs each other broker of its cluster by a separate message: c (c - 1) messages for c brokers;
- a broker that joins or leaves the tree of a topic sends a request to the root: one message per hop of the route.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from regraft.api.planners import AskingUsers, BrokerStates, OwnPart, PlacementRules, choose_homes, place_in_turn
from regraft.api.rings import RingConfiguration, UserClusters, topic_roots
from regraft_lab.dynatops.broker_interests import InterestStep, interest_steps
from regraft_lab.dynatops.user_changes import Ints, UserChanges

Positions = NDArray[np.integer]

ROUNDING = 1e-9  # Of a time measured in exchanges.


@dataclass(frozen=True, eq=False)
class UserHomes:
    """Homes of users, as positions of brokers.

    ``first`` (users,): at the start. ``after`` (changes,): of the changing user from each change on; None if users
    never move.
    """

    first: Positions
    after: Positions | None = None


@dataclass(frozen=True, eq=False)
class UserStep:
    """One step of time: counts within it, and ``interests`` of brokers at its end."""

    interests: InterestStep
    tree_messages: int
    exchange_messages: int

    @property
    def subscription_changes(self) -> int:
        """How often a broker subscribed to or unsubscribed from a topic."""
        return len(self.interests.changed_brokers)

    @property
    def management_messages(self) -> int:
        """The subscription management overhead of section 6.2: for topics' trees and for states within clusters."""
        return self.tree_messages + self.exchange_messages

    @property
    def loads(self) -> NDArray[np.int64]:
        """The number of subscriptions of each broker's users at the end, shape (brokers,)."""
        return np.asarray(self.interests.user_counts.sum(axis=1, dtype=np.int64))


@dataclass(frozen=True)
class UserTotals:
    """Sums over the steps after the start, and the spread of loads at their ends, averaged."""

    subscription_changes: int
    handovers: int
    tree_messages: int
    exchange_messages: int
    load_std: float
    load_cv: float

    @property
    def management_messages(self) -> int:
        """The subscription management overhead."""
        return self.tree_messages + self.exchange_messages


def place_by_utility(
    changes: UserChanges,
    clusters: UserClusters,
    rules: PlacementRules,
    asked: Positions,
    asked_after: Positions | None = None,
    update_h: float = 1.0,
    leaves_out_itself: bool = False,
) -> UserHomes:
    """Return the homes chosen by Algorithm 1: users join one by one, and ask again at each of their changes.

    ``asked`` (users,): the brokers that users ask first; ``asked_after`` (changes,): those that they ask later, by
    default their homes. ``update_h``: T_update. ``leaves_out_itself``: exclude the asking user from the interests and
    load of its home. Cost O(subscriptions of changes * brokers of a cluster), and O(brokers * topics) for each
    exchange.
    """
    held = _HeldTopics(changes)
    states = BrokerStates.without_users(clusters, changes.topic_count)
    homes = place_in_turn(states, AskingUsers.joining(changes.starts, changes.wanted, asked), rules)[0]
    first, after = homes.copy(), np.empty(changes.change_count, dtype=np.int32)
    for rows in _windows(changes, update_h):
        reported, reported_homes, reported_sets = states.copy(), homes.copy(), held.set_of.copy()
        for turn in _turns(changes.users[rows]):
            places = turn + rows.start
            users, sets = changes.users[places], held.sets_after(places)
            own = held.part_of(reported_homes[users], reported_sets[users], sets) if leaves_out_itself else None
            asks = homes[users] if asked_after is None else asked_after[places]
            asking = AskingUsers(*held.topics(sets), asks, homes[users], own)
            chosen = choose_homes(reported, asking, rules)[0]
            starts, left = held.topics(held.set_of[users])
            states.count_users(homes[users], np.diff(starts), left, -1)
            states.count_users(chosen, asking.sizes, asking.wanted, 1)
            homes[users], held.set_of[users], after[places] = chosen, sets, chosen
    return UserHomes(first, after)


def user_steps(
    changes: UserChanges,
    homes: UserHomes,
    hops: Positions,
    exchange_messages: int = 0,
    update_h: float = 1.0,
    step_h: float = 1.0,
    duration_h: float | None = None,
) -> Iterator[UserStep]:
    """Yield the steps; the first one ends at 0 h and holds the start.

    ``hops`` (brokers, topics): hops of a request to the topic's root (:func:`hops_to_roots`). ``exchange_messages``:
    messages of one exchange of states (``UserClusters.messages_per_exchange``), 0 without clusters. Exchanges are at 0,
    ``update_h``, 2 ``update_h`` and so on.
    """
    began_h = 0.0
    for step in interest_steps(changes, len(hops), homes.first, homes.after, step_h, duration_h):
        tree_messages = int(hops[step.changed_brokers, step.changed_topics].sum())
        exchanges = _exchanges_before(step.end_h, update_h) - _exchanges_before(began_h, update_h)
        yield UserStep(step, tree_messages, exchanges * exchange_messages)
        began_h = step.end_h


def total_steps(steps: Iterable[UserStep]) -> UserTotals:
    """Return the sums over all steps but the start. Raises ValueError if there is no other step."""
    counts, stds, variations = np.zeros(4, dtype=np.int64), [], []
    for step in steps:
        if step.interests.end_h > 0:
            counts += [step.subscription_changes, step.interests.handovers, step.tree_messages, step.exchange_messages]
            stds.append(step.loads.std())
            variations.append(stds[-1] / max(step.loads.mean(), 1e-9))
    if not stds:
        raise ValueError("there is no step after the start: duration_h must be above 0")
    changed, handovers, tree, exchange = counts.tolist()
    return UserTotals(changed, handovers, tree, exchange, float(np.mean(stds)), float(np.mean(variations)))


def hops_to_roots(configuration: RingConfiguration, topics: tuple[str, ...]) -> Ints:
    """Return the hops from each broker to each topic's rendezvous, shape (brokers, topics)."""
    positions = np.array([configuration.position_of[broker] for broker in configuration.brokers])
    return np.asarray(configuration.ring.depths[np.ix_(positions, topic_roots(configuration, topics))])


class _HeldTopics:
    """All sets of topics that users ever have, by number, and the number of each user's present set (``set_of``)."""

    def __init__(self, changes: UserChanges) -> None:
        self._topic_count = changes.topic_count
        self._every = np.concatenate([changes.wanted, changes.new_wanted])
        self._starts = np.concatenate([changes.starts[:-1], changes.new_starts[:-1] + len(changes.wanted)])
        self._sizes = np.concatenate([np.diff(changes.starts), np.diff(changes.new_starts)])
        self.set_of = np.arange(changes.user_count)

    def sets_after(self, places: Positions) -> NDArray[np.int64]:
        """Return the numbers of the sets after these changes."""
        return np.asarray(places + len(self.set_of))

    def topics(self, sets: Positions) -> tuple[NDArray[np.int64], Ints]:
        """Return where each set starts, and the topics of all sets concatenated."""
        sizes = self._sizes[sets]
        starts = np.concatenate([[0], np.cumsum(sizes)])
        return starts, self._every[np.arange(starts[-1]) + np.repeat(self._starts[sets] - starts[:-1], sizes)]

    def part_of(self, homes: Positions, reported_sets: Positions, sets: Positions) -> OwnPart:
        """Return the share of the asking users in the reported states.

        They are reported at ``homes`` with ``reported_sets``, and now want ``sets``.
        """
        reported_keys, keys = self._keys(reported_sets), self._keys(sets)
        places = np.minimum(np.searchsorted(reported_keys, keys), len(reported_keys) - 1)
        counted = reported_keys[places] == keys if len(reported_keys) else np.zeros(len(keys), dtype=np.bool_)
        return OwnPart(homes, self._sizes[reported_sets], counted)

    def _keys(self, sets: Positions) -> NDArray[np.int64]:
        """Return a number for each pair of a row and a topic of its set, ascending."""
        starts, topics = self.topics(sets)
        return np.repeat(np.arange(len(sets)), np.diff(starts)) * self._topic_count + topics


def _turns(users: Ints) -> Iterator[NDArray[np.int64]]:
    """Yield the indices of the first changes of all users, then those of the second ones, and so on."""
    order = np.argsort(users, kind="stable")
    ranks = np.empty(len(users), dtype=np.int64)
    ranks[order] = np.arange(len(users)) - np.searchsorted(users[order], users[order])
    for rank in range(int(ranks.max(initial=-1)) + 1):
        yield np.flatnonzero(ranks == rank)


def _windows(changes: UserChanges, update_h: float) -> Iterator[slice]:
    """Yield the changes between consecutive exchanges; a change at the moment of an exchange comes after it."""
    if not update_h > 0:
        raise ValueError(f"update_h is {update_h}: must be above 0")
    if not changes.change_count:
        return
    exchanges = _exchanges_before(float(changes.times_h[-1]), update_h)
    bounds = np.searchsorted(changes.times_h, update_h * np.arange(exchanges + 1)).tolist()
    for first, end in pairwise([*bounds, changes.change_count]):
        if end > first:
            yield slice(first, end)


def _exchanges_before(time_h: float, update_h: float) -> int:
    """Return the number of exchanges in [0, time)."""
    return int(np.ceil(time_h / update_h - ROUNDING))
