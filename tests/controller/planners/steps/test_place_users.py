"""Placement of users: worked examples, and the same answers as a plain loop over users, brokers and topics."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regraft.controller.planners.ring.steps import place_users
from regraft.controller.planners.ring.steps.place_users import (
    NO_HOME,
    AskingUsers,
    BrokerStates,
    OwnPart,
    PlacementRules,
    choose_homes,
    place_in_turn,
)
from regraft.overlay.ring.user_clusters import UserClusters


@dataclass
class PlainBrokers:
    """Users at brokers as sets: the reference for the vectorised code."""

    groups: list[list[int]]
    users: dict[int, tuple[int, frozenset[int]]] = field(default_factory=dict)

    def answer(
        self, user: int, topics: frozenset[int], asked: int, home: int, rules: PlacementRules, *, leaves_out: bool
    ) -> tuple[int, Fraction]:
        """Return the user's new home and what it gains, by the definition."""
        group = next(one for one in self.groups if asked in one)
        mean = Fraction(sum(self.load(broker, None) for broker in group), len(group))
        own = user if leaves_out else None
        worth = {broker: self.utility(broker, topics, own, mean, rules) if topics else Fraction(0) for broker in group}
        allowed = [
            broker for broker in group if mean == 0 or self.load(broker, None) <= Fraction(rules.load_max) * mean
        ]
        best = max(worth[broker] for broker in allowed)
        if home in group and best - worth[home] <= Fraction(str(rules.utility_min)):
            return home, Fraction(0)
        behind = group.index(asked)
        ring = group[behind:] + group[:behind]
        chosen = next(broker for broker in ring if broker in allowed and worth[broker] == best)
        return chosen, best - (worth[home] if home in group else 0)

    def utility(
        self, broker: int, topics: frozenset[int], own: int | None, mean: Fraction, rules: PlacementRules
    ) -> Fraction:
        wanted = self.wanted(broker, own)
        share = Fraction(len(wanted & topics), len(topics))
        return share - (Fraction(str(rules.load_weight)) * self.load(broker, own) / mean if mean else 0)

    def wanted(self, broker: int, own: int | None) -> set[int]:
        """Return S_b, without the user ``own``."""
        return {one for user, (home, topics) in self.users.items() if home == broker and user != own for one in topics}

    def load(self, broker: int, own: int | None) -> int:
        return sum(len(topics) for user, (home, topics) in self.users.items() if home == broker and user != own)

    def subscriptions(self) -> int:
        return len({(home, topic) for home, topics in self.users.values() for topic in topics})


def flat(sets: list[frozenset[int]]) -> tuple[np.ndarray, np.ndarray]:
    starts = np.cumsum([0, *map(len, sets)])
    return starts, np.array([topic for one in sets for topic in sorted(one)], dtype=np.int32)


TOPICS = 9
topic_sets = st.frozensets(st.integers(0, TOPICS - 1), max_size=5)
all_rules = st.builds(
    PlacementRules,
    load_weight=st.sampled_from([0.0, 0.3, 1.0, 2.0]),
    load_max=st.sampled_from([1.0, 1.5, float("1e9")]),
    utility_min=st.sampled_from([0.0, 0.2, 0.35]),
)


@st.composite
def instances(draw: st.DrawFn) -> tuple[UserClusters, list[frozenset[int]], list[int]]:
    """Draw clusters, users' topics and a broker for each user."""
    brokers, size = draw(st.integers(1, 9)), draw(st.integers(1, 5))
    clusters = UserClusters.at_random(brokers, size, np.random.default_rng(draw(st.integers(0, 99))))
    sets = draw(st.lists(topic_sets, min_size=1, max_size=25))
    return clusters, sets, draw(st.lists(st.integers(0, brokers - 1), min_size=len(sets), max_size=len(sets)))


def groups_of(clusters: UserClusters) -> list[list[int]]:
    return [row[:size].tolist() for row, size in zip(clusters.members, clusters.sizes, strict=True)]


def test_utility_of_zhao13_by_hand() -> None:
    """Broker 0 has 3 of 4 topics and 6 of the 8 subscriptions, broker 1 two topics and 2: the mean load is 4.

    With w_l = 0 the user joins broker 0 (3/4 against 2/4); with w_l = 1 it would lose 6/4 there and 2/4 at broker 1.
    """
    clusters = UserClusters.in_order(2, 2)
    starts, wanted = flat([frozenset({0, 1, 2}), frozenset({0, 1, 2}), frozenset({2, 3})])
    states = BrokerStates.with_users(clusters, 5, np.array([0, 0, 1]), starts, wanted)
    joins = AskingUsers.joining(*flat([frozenset({0, 1, 2, 3})]), np.array([1]))
    homes, gains = choose_homes(states, joins, PlacementRules(load_weight=0.0))
    assert (homes.tolist(), gains.tolist()) == ([0], pytest.approx([3 / 4]))
    homes, gains = choose_homes(states, joins, PlacementRules(load_weight=1.0))
    assert (homes.tolist(), gains.tolist()) == ([1], pytest.approx([2 / 4 - 2 / 4]))


def test_two_mixed_kinds_of_users_are_separated() -> None:
    """Six users at two brokers: the broker with two of a kind gets the third one, and no other user moves."""
    kinds = [frozenset({0, 1}), frozenset({2, 3})]
    sets = [kinds[0], kinds[0], kinds[1], kinds[1], kinds[1], kinds[0]]
    homes = np.array([0, 0, 0, 1, 1, 1])
    starts, wanted = flat(sets)
    states = BrokerStates.with_users(UserClusters.in_order(2, 2), 4, homes, starts, wanted)
    found, gains = place_in_turn(states, AskingUsers.unchanged(starts, wanted, homes), PlacementRules())
    assert found.tolist() == [0, 0, 1, 1, 1, 0]
    assert (states.user_counts[:, 0] > 0).sum(axis=0).tolist() == [2, 2]
    assert states.loads.tolist() == [[6, 6]]
    # The first to move leaves a home where no other user wants its topics for a perfect one, but adds to its load.
    assert gains.tolist() == pytest.approx([0, 0, 1 - (6 - 4) / 6, 0, 0, 1 - (4 - 6) / 6])


@settings(max_examples=300)
@given(instances(), all_rules, st.booleans(), st.data())
def test_answers_are_those_of_the_definition(
    instance: tuple[UserClusters, list[frozenset[int]], list[int]],
    rules: PlacementRules,
    leaves_out: bool,
    data: st.DataObject,
) -> None:
    """Users with homes change topics and ask any broker, others join: exact fractions and sets against arrays."""
    clusters, sets, homes = instance
    plain = PlainBrokers(groups_of(clusters), {user: (homes[user], sets[user]) for user in range(len(sets))})
    wants = [data.draw(topic_sets) for _ in sets]
    asks = [data.draw(st.integers(0, clusters.broker_count - 1)) for _ in sets]
    joins = [data.draw(st.booleans()) for _ in sets]
    for user in np.flatnonzero(joins).tolist():
        del plain.users[user]
    present = [NO_HOME if joined else home for joined, home in zip(joins, homes, strict=True)]
    kept = [user for user in range(len(sets)) if not joins[user]]
    states = BrokerStates.with_users(
        clusters, TOPICS, np.array([homes[user] for user in kept], int), *flat([sets[user] for user in kept])
    )
    starts, wanted = flat(wants)
    counted = np.array([topic in sets[user] for user, one in enumerate(wants) for topic in sorted(one)], dtype=bool)
    own = OwnPart(np.array(present), np.array([len(one) for one in sets]), counted) if leaves_out else None
    asking = AskingUsers(starts, wanted, np.array(asks), np.array(present), own)
    found, gains = choose_homes(states, asking, rules)
    for user in range(len(sets)):
        home, gain = plain.answer(user, wants[user], asks[user], present[user], rules, leaves_out=leaves_out)
        assert (found[user], gains[user]) == (home, pytest.approx(float(gain)))


@settings(max_examples=300)
@given(instances(), all_rules, st.integers(1, 4), st.booleans())
def test_placing_all_in_turn_equals_placing_one_by_one(
    instance: tuple[UserClusters, list[frozenset[int]], list[int]], rules: PlacementRules, at_once: int, is_join: bool
) -> None:
    """A loop over users: the broker states are refreshed once this many users have asked in a cluster."""
    clusters, sets, brokers = instance
    starts, wanted = flat(sets)
    plain = PlainBrokers(groups_of(clusters))
    if is_join:
        states = BrokerStates.without_users(clusters, TOPICS)
        asking = AskingUsers.joining(starts, wanted, np.array(brokers))
    else:
        plain.users = {user: (brokers[user], sets[user]) for user in range(len(sets))}
        states = BrokerStates.with_users(clusters, TOPICS, np.array(brokers), starts, wanted)
        asking = AskingUsers.unchanged(starts, wanted, np.array(brokers))
    found, gains = place_in_turn(states, asking, rules, at_once)

    exchanged = {cluster: copy.deepcopy(plain) for cluster in range(clusters.count)}
    asked_since = dict.fromkeys(exchanged, 0)
    for user, topics in enumerate(sets):
        cluster = int(clusters.cluster_of[brokers[user]])
        if asked_since[cluster] == at_once:
            exchanged[cluster], asked_since[cluster] = copy.deepcopy(plain), 0
        present = NO_HOME if is_join else brokers[user]
        home, gain = exchanged[cluster].answer(user, topics, brokers[user], present, rules, leaves_out=True)
        assert (found[user], gains[user]) == (home, pytest.approx(float(gain)))
        plain.users[user] = (home, topics)
        asked_since[cluster] += 1
    for broker in range(clusters.broker_count):
        place = clusters.cluster_of[broker], clusters.place_of[broker]
        assert set(np.flatnonzero(states.user_counts[:, *place]).tolist()) == plain.wanted(broker, None)
        assert states.loads[place] == plain.load(broker, None)


@given(instances())
def test_without_load_gains_in_utility_equal_subscriptions_ended(
    instance: tuple[UserClusters, list[frozenset[int]], list[int]],
) -> None:
    """For users that ask again, the gains times |s_u| add up to the number of subscriptions that brokers end."""
    clusters, sets, homes = instance
    starts, wanted = flat(sets)
    states = BrokerStates.with_users(clusters, TOPICS, np.array(homes), starts, wanted)
    before = int((states.user_counts > 0).sum())
    _, gains = place_in_turn(states, AskingUsers.unchanged(starts, wanted, np.array(homes)), PlacementRules(0.0))
    assert before - int((states.user_counts > 0).sum()) == pytest.approx(float(gains @ np.diff(starts)))


@given(instances(), st.data())
def test_without_load_a_change_of_topics_begins_as_few_subscriptions_as_it_can(
    instance: tuple[UserClusters, list[frozenset[int]], list[int]], data: st.DataObject
) -> None:
    """The states still contain the user's old topics: its home counts like others, by what it would begin."""
    clusters, sets, homes = instance
    plain = PlainBrokers(groups_of(clusters), {user: (homes[user], sets[user]) for user in range(len(sets))})
    wants = data.draw(topic_sets.filter(bool))
    states = BrokerStates.with_users(clusters, TOPICS, np.array(homes), *flat(sets))
    asking = AskingUsers(*flat([wants]), np.array(homes[:1]), np.array(homes[:1]))
    home = int(choose_homes(states, asking, PlacementRules(0.0))[0][0])
    begun = {broker: len(wants - plain.wanted(broker, None)) for broker in range(clusters.broker_count)}
    group = next(one for one in plain.groups if homes[0] in one)
    assert begun[home] == min(begun[broker] for broker in group)
    assert home == homes[0] or begun[home] < begun[homes[0]]


def test_a_full_broker_accepts_no_user_but_keeps_its_own() -> None:
    """Broker 0 has 3 of 4 subscriptions, 1.5 times the mean: closed at a cap of 1.4, open at 1.5."""
    sets = [frozenset({0})] * 3 + [frozenset({1})]
    homes = np.array([0, 0, 0, 1])
    starts, wanted = flat(sets)
    clusters = UserClusters.in_order(2, 2)
    states = BrokerStates.with_users(clusters, 2, homes, starts, wanted)
    joins = AskingUsers.joining(*flat([frozenset({0})]), np.array([0]))
    assert choose_homes(states, joins, PlacementRules(0.0, load_max=1.5))[0].tolist() == [0]
    assert choose_homes(states, joins, PlacementRules(0.0, load_max=1.4))[0].tolist() == [1]
    again = AskingUsers.unchanged(starts, wanted, homes)
    assert choose_homes(states, again, PlacementRules(0.0, load_max=1.4))[0].tolist() == homes.tolist()


def test_ties_go_to_the_asked_broker_and_those_after_it() -> None:
    """No broker has users, so all brokers of the second cluster are equal; closed or busier ones are skipped."""
    clusters = UserClusters.of([[0, 1], [2, 3, 4]])
    states = BrokerStates.without_users(clusters, 2)
    joins = AskingUsers.joining(*flat([frozenset({0})] * 4), np.array([3, 3, 3, 3]))
    assert place_in_turn(states, joins, PlacementRules(2.0))[0].tolist() == [3, 4, 2, 3]


def test_gathering_in_parts_gives_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded by processing some users at a time."""
    rng = np.random.default_rng(1)
    sets = [frozenset(rng.choice(40, rng.integers(0, 6), replace=False).tolist()) for _ in range(300)]
    homes = rng.integers(7, size=300)
    starts, wanted = flat(sets)
    states = BrokerStates.with_users(UserClusters.in_order(7, 4), 40, homes, starts, wanted)
    asking = AskingUsers.unchanged(starts, wanted, homes)
    whole = choose_homes(states, asking, PlacementRules())
    monkeypatch.setattr(place_users, "GATHERED_MAX", 16)
    parts = choose_homes(states, asking, PlacementRules())
    assert [one.tolist() for one in whole] == [one.tolist() for one in parts]
    assert (whole[0] != homes).any()


def test_a_cap_below_the_mean_is_refused() -> None:
    """No cluster could accept anybody."""
    with pytest.raises(ValueError, match=r"load_max is 0\.9: must be at least 1"):
        PlacementRules(load_max=0.9)
