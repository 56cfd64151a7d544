"""place_users_dynatops on a ring: who moves, the cost it reports, and its limits."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

from regraft.controller.kinds.ring.ring_state import RingContext, RingState, RingTraffic
from regraft.controller.planners.ring.place_users_dynatops import PLANNER, PlacementSettings, place_users_dynatops
from regraft.controller.state.closed_window import ClosedWindow
from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.ring.ring_configuration import RingConfiguration
from regraft.overlay.ring.user_interests import UserInterests
from regraft.overlay.sets.delivery_sets import DeliverySets
from regraft.schemas.plan import ClientMove, Proposal

Users = Mapping[str, tuple[str, Sequence[str]]]


def state_of(brokers: Sequence[str], users: Users, rates: Mapping[str, float] | None = None) -> RingState:
    """Return a ring with these users at their homes; a topic without a rate is published once a second."""
    homes = {user: home for user, (home, _) in users.items()}
    configuration = RingConfiguration.of(0, 32, RingConfiguration.hashed(0, 32, brokers).id_of, homes)
    interests = UserInterests.of(brokers, users)
    per_s = np.array([[(rates or {}).get(topic, 1.0) for topic in interests.topics]])
    ring = RingTraffic(configuration, interests, per_s, np.ones(1))
    count = len(configuration.brokers)
    inventory = Inventory(configuration.brokers, np.ones(count), 1.0 - np.eye(count), count, configuration)
    window = ClosedWindow(0, 1000, DeliverySets.of(configuration.brokers, {}, 1.0), epoch_min=0, epoch_max=0)
    return RingState(configuration, inventory, (window,), ring)


def drawn_state(seed: int, brokers: int = 24, users: int = 400, topics: int = 60) -> RingState:
    """Return users at random homes, each with a few topics of one of six kinds."""
    rng = random.Random(seed)
    names = [f"b{number:02d}" for number in range(brokers)]
    kind = topics // 6
    drawn = {}
    for number in range(users):
        first = rng.randrange(6) * kind
        wanted = rng.sample(range(first, first + kind), rng.randint(1, 5))
        drawn[f"u{number:03d}"] = (rng.choice(names), [f"t{topic:02d}" for topic in wanted])
    return state_of(names, drawn, {f"t{topic:02d}": rng.expovariate(1.0) for topic in range(topics)})


CONTEXT = RingContext(proposals_max=16, delay_weight=1.0, user_load_max=2.0)


def propose(state: RingState, context: RingContext = CONTEXT, **settings: float) -> list[Proposal]:
    chosen = replace(PlacementSettings(), **settings)
    return place_users_dynatops(state, chosen, context, random.Random(1))


def cost_per_s(state: RingState, moves: Sequence[ClientMove], delay_weight: float = 1.0) -> float:
    """Return what the ring costs with these users moved to their new homes, starting from the configuration."""
    assert state.traffic is not None
    before = state.traffic.configuration
    moved = before.replaced(1, (), {move.client: move.home_to for move in moves})
    return state.traffic.with_configuration(moved).cost.total_per_s(delay_weight)


MIXED: Users = {
    "ann": ("b0", ["goals"]),
    "bob": ("b0", ["goals"]),
    "cat": ("b0", ["rain"]),
    "dan": ("b1", ["rain"]),
    "eve": ("b1", ["rain"]),
    "fay": ("b1", ["goals"]),
}


def test_two_users_at_the_wrong_brokers_are_exchanged() -> None:
    """cat wants rain as dan and eve do, fay goals as ann and bob do: two topics at two brokers become one at each."""
    (proposal,) = propose(state_of(["b0", "b1"], MIXED))
    assert proposal.planner == PLANNER
    assert sorted(proposal.moves) == [ClientMove("cat", "b0", "b1"), ClientMove("fay", "b1", "b0")]
    assert (proposal.links_removed, proposal.links_added, proposal.id_moves) == ((), (), ())
    assert proposal.gain_per_s > 0
    assert "2 users" in proposal.reason
    assert "subscriptions 4 -> 2" in proposal.reason
    assert "load variation 0 -> 0" in proposal.reason


@pytest.mark.parametrize("seed", range(4))
def test_costs_are_those_of_the_ring_with_the_users_moved(seed: int) -> None:
    """Proposals are a sequence: each is costed on what the earlier ones leave, with the delay weight of the context."""
    state = drawn_state(seed)
    proposals = propose(state, replace(CONTEXT, delay_weight=0.3), user_cluster_brokers=5)
    assert len(proposals) == 5  # 24 brokers in clusters of 5 at most
    moves: list[ClientMove] = []
    for proposal in proposals:
        assert proposal.cost_before_per_s == pytest.approx(cost_per_s(state, moves, 0.3))
        moves += proposal.moves
        assert proposal.cost_after_per_s == pytest.approx(cost_per_s(state, moves, 0.3))
    assert cost_per_s(state, moves) < 0.8 * cost_per_s(state, [])
    assert state.traffic is not None
    homes = state.traffic.configuration.home_of
    assert all(homes[move.client] == move.home_from != move.home_to for move in moves)
    assert len({move.client for move in moves}) == len(moves)


@pytest.mark.parametrize("seed", range(4))
def test_users_stay_in_their_cluster_and_each_cluster_is_one_proposal(seed: int) -> None:
    """Clusters are brokers adjacent by name: 24 in clusters of at most 7 are four of 6."""
    state = drawn_state(seed)
    names = state.configuration.brokers
    cluster_of = {name: place // 6 for place, name in enumerate(names)}
    used = []
    for proposal in propose(state, user_cluster_brokers=7):
        touched = {cluster_of[home] for move in proposal.moves for home in (move.home_from, move.home_to)}
        assert len(touched) == 1
        used += touched
    assert sorted(used) == [0, 1, 2, 3]
    assert propose(state, user_cluster_brokers=1) == []  # A broker by itself has no other to send users to.


def test_the_bound_limits_moves_and_keeps_the_first_ones() -> None:
    """The users that gain most ask first; a higher bound adds moves and changes none."""
    state = drawn_state(7)
    earlier: set[ClientMove] = set()
    for bound in (1, 5, 30, 100, 1_000):
        moves = {move for proposal in propose(state, users_moved_max=bound) for move in proposal.moves}
        assert earlier < moves
        assert len(moves) == bound or bound == 1_000
        earlier = moves
    assert 100 < len(earlier) < 400
    capped = propose(state, replace(CONTEXT, moves_max=30), users_moved_max=100)
    assert capped == propose(state, users_moved_max=30)


def test_the_best_move_comes_first() -> None:
    """cat has none of its topics at b0 and all at b1, abe half of them and all: one may move, or both."""
    users: Users = {
        "ann": ("b0", ["goals"]),
        "cat": ("b0", ["rain", "hail"]),
        "abe": ("b0", ["goals", "wind"]),
        "dan": ("b1", ["rain", "hail"]),
        "eve": ("b1", ["goals", "wind"]),
        "hal": ("b1", ["goals", "wind"]),
    }
    state = state_of(["b0", "b1"], users)
    for bound, movers in ((1, ["cat"]), (2, ["cat", "abe"])):
        (proposal,) = propose(state, replace(CONTEXT, user_load_max=3.0), users_moved_max=bound, user_load_weight=0.0)
        assert [move.client for move in proposal.moves] == movers


def test_a_move_must_exceed_the_minimum_utility() -> None:
    """cat and fay each gain a similarity of 1: at home nobody else wants the same, elsewhere somebody does."""
    state = state_of(["b0", "b1"], MIXED)
    assert len(propose(state, user_load_weight=0.0, user_utility_min=0.99)[0].moves) == 2
    assert propose(state, user_load_weight=0.0, user_utility_min=1.0) == []


def test_the_cluster_that_gains_most_comes_first() -> None:
    """Two clusters of two brokers: in the first one user is at the wrong broker, in the second two are."""
    first: Users = {
        "abe": ("b0", ["wind"]),
        "kim": ("b0", ["snow"]),
        "lea": ("b0", ["snow"]),
        "max": ("b1", ["wind"]),
        "ned": ("b1", ["wind"]),
    }
    second = {user: ({"b0": "b2", "b1": "b3"}[home], topics) for user, (home, topics) in MIXED.items()}
    state = state_of(["b0", "b1", "b2", "b3"], first | second)
    proposals = propose(state, user_cluster_brokers=2, user_load_weight=0.0)
    assert [[move.client for move in proposal.moves] for proposal in proposals] == [["cat", "fay"], ["abe"]]


def test_proposals_are_bounded_and_reproducible() -> None:
    """Nothing is random: the generator is unchanged. The clusters whose users gain most come first."""
    state, rng = drawn_state(3), random.Random(5)
    before = rng.getstate()
    proposals = place_users_dynatops(state, PlacementSettings(user_cluster_brokers=4), CONTEXT, rng)
    assert rng.getstate() == before
    assert proposals == place_users_dynatops(
        state, PlacementSettings(user_cluster_brokers=4), CONTEXT, random.Random(99)
    )
    assert len(proposals) == 6
    first = propose(state, replace(CONTEXT, proposals_max=2), user_cluster_brokers=4)
    assert first == proposals[:2]


def test_users_that_are_well_placed_stay() -> None:
    """After some calls nobody gains more than the minimum; at w_l = 0 each call lowers what brokers want."""
    state = drawn_state(2)
    assert state.traffic is not None
    wanted = [int(state.traffic.wanted.sum())]
    for _ in range(20):
        proposals = propose(state, user_load_weight=0.0, user_utility_min=0.1)
        if not proposals:
            break
        homes = {move.client: move.home_to for proposal in proposals for move in proposal.moves}
        ring = state.traffic.with_configuration(state.traffic.configuration.replaced(len(wanted), (), homes))
        state = replace(state, traffic=ring, configuration=ring.configuration)
        assert state.traffic is not None
        wanted.append(int(state.traffic.wanted.sum()))
    assert propose(state, user_load_weight=0.0, user_utility_min=0.1) == []
    assert wanted == sorted(set(wanted), reverse=True)
    assert wanted[-1] < wanted[0] / 2


def test_the_weight_of_load_balances_brokers() -> None:
    """With all users moved: the coefficient of variation of loads, w_l = 1 against 0."""
    variations = []
    for weight in (1.0, 0.0):
        state = drawn_state(11, users=1_200)
        assert state.traffic is not None
        homes = {
            move.client: move.home_to
            for proposal in propose(
                state, replace(CONTEXT, user_load_max=10.0), user_load_weight=weight, users_moved_max=10_000
            )
            for move in proposal.moves
        }
        loads = state.traffic.interests.at_homes(homes).loads
        variations.append(loads.std() / loads.mean())
    assert variations[0] < 0.2 < variations[1]


def test_without_known_users_or_topics_nothing_is_proposed() -> None:
    """What users want may be unknown; users may have no topics yet."""
    state = state_of(["b0", "b1"], MIXED)
    assert propose(replace(state, traffic=None)) == []
    assert propose(state_of(["b0", "b1"], {})) == []
    assert propose(state_of(["b0", "b1"], {"ann": ("b0", [])})) == []
