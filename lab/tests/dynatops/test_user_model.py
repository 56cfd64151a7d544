"""The simulated brokers and users: equal to a loop over changes, and the paper's statements at a small size."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regraft.api.planners import PlacementRules
from regraft.api.rings import RingConfiguration, UserClusters
from regraft_lab.dynatops.poisson_workload import PoissonSettings, draw_poisson_changes
from regraft_lab.dynatops.user_changes import UserChanges
from regraft_lab.dynatops.user_model import (
    UserHomes,
    UserTotals,
    hops_to_roots,
    place_by_utility,
    total_steps,
    user_steps,
)

TOPICS = 8


def changes_of(initial: list[list[int]], changes: list[tuple[float, int, list[int]]]) -> UserChanges:
    def flat(sets: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
        return np.cumsum([0, *map(len, sets)]), np.array([one for each in sets for one in sorted(each)], dtype=np.int32)

    times_h = np.array([time_h for time_h, _, _ in changes], dtype=float)
    users = np.array([user for _, user, _ in changes], dtype=np.int32)
    return UserChanges(TOPICS, *flat(initial), times_h, users, *flat([topics for _, _, topics in changes]))


@dataclass
class PlainUsers:
    """Users one by one, each using copies of what every user wanted at the last exchange."""

    clusters: UserClusters
    rules: PlacementRules
    now: dict[int, tuple[int, set[int]]] = field(default_factory=dict)
    exchanged: dict[int, tuple[int, set[int]]] = field(default_factory=dict)

    def exchange(self) -> None:
        self.exchanged = {user: (home, set(topics)) for user, (home, topics) in self.now.items()}

    def ask(self, user: int, topics: set[int], asked: int, *, leaves_out: bool = False) -> int:
        cluster = int(self.clusters.cluster_of[asked])
        group = self.clusters.members[cluster, : self.clusters.sizes[cluster]].tolist()
        others = [one for name, one in self.exchanged.items() if not (leaves_out and name == user)]
        loads = {broker: sum(len(wanted) for home, wanted in others if home == broker) for broker in group}
        mean = sum(len(wanted) for home, wanted in self.exchanged.values() if home in group) / len(group)
        worth = {}
        for broker in group:
            known = {one for home, wanted in others if home == broker for one in wanted}
            lost = self.rules.load_weight * loads[broker] / mean if mean else 0.0
            worth[broker] = len(known & topics) / len(topics) - lost
        best = max(worth.values())
        present = self.now[user][0] if user in self.now else None
        if present in worth and best - worth[present] <= self.rules.utility_min + 1e-9:
            chosen = present
        else:
            first = group.index(asked)
            chosen = next(one for one in group[first:] + group[:first] if worth[one] > best - 1e-9)
        self.now[user] = (chosen, topics)
        return chosen


sets = st.sets(st.integers(0, TOPICS - 1), min_size=1, max_size=4).map(list)


@st.composite
def workloads(draw: st.DrawFn) -> tuple[UserChanges, list[list[int]], list[tuple[float, int, list[int]]]]:
    initial = draw(st.lists(sets, min_size=1, max_size=8))
    moments = sorted(draw(st.lists(st.integers(0, 40), max_size=40)))
    changes = [(moment / 8, draw(st.integers(0, len(initial) - 1)), draw(sets)) for moment in moments]
    return changes_of(initial, changes), initial, changes


@settings(max_examples=200)
@given(
    workloads(),
    st.integers(1, 6),
    st.integers(1, 4),
    st.sampled_from([0.0, 0.7, 1.0]),
    st.sampled_from([0.0, 0.25]),
    st.sampled_from([0.5, 1.0, 9.0]),
    st.booleans(),
    st.booleans(),
    st.integers(0, 999),
)
def test_homes_are_those_of_a_loop_over_changes(
    workload: tuple[UserChanges, list[list[int]], list[tuple[float, int, list[int]]]],
    brokers: int,
    size: int,
    weight: float,
    utility_min: float,
    update_h: float,
    leaves_out: bool,
    asks_anywhere: bool,
    seed: int,
) -> None:
    """Users join one after the other, and are later answered by what brokers last exchanged."""
    changes, initial, listed = workload
    rng = np.random.default_rng(seed)
    clusters = UserClusters.at_random(brokers, size, rng)
    rules = PlacementRules(weight, utility_min=utility_min)
    asked = rng.integers(brokers, size=len(initial))
    asked_after = rng.integers(brokers, size=len(listed)) if asks_anywhere else None
    found = place_by_utility(changes, clusters, rules, asked, asked_after, update_h, leaves_out)

    plain = PlainUsers(clusters, rules)
    for user, topics in enumerate(initial):
        plain.exchange()
        assert found.first[user] == plain.ask(user, set(topics), int(asked[user]))
    plain.exchange()
    exchanged = 0
    assert found.after is not None
    for place, (time_h, user, topics) in enumerate(listed):
        due = int(time_h / update_h)  # A change at the time of an exchange comes after it.
        if due > exchanged:
            plain.exchange()
            exchanged = due
        asks = plain.now[user][0] if asked_after is None else int(asked_after[place])
        assert found.after[place] == plain.ask(user, set(topics), asks, leaves_out=leaves_out)


@settings(max_examples=100)
@given(workloads(), st.integers(1, 5), st.integers(0, 999))
def test_every_joined_and_left_tree_is_counted(
    workload: tuple[UserChanges, list[list[int]], list[tuple[float, int, list[int]]]], brokers: int, seed: int
) -> None:
    """One change after the other: what each broker wants before and after it."""
    changes, initial, listed = workload
    rng = np.random.default_rng(seed)
    homes = UserHomes(rng.integers(brokers, size=len(initial)), rng.integers(brokers, size=len(listed)))
    hops = rng.integers(5, size=(brokers, TOPICS))
    steps = list(user_steps(changes, homes, hops, exchange_messages=7, update_h=0.5, step_h=1.0, duration_h=6.0))
    total = total_steps(steps)

    def wanted() -> set[tuple[int, int]]:
        return {(home, topic) for home, topics in now.values() for topic in topics}

    now = {user: (int(homes.first[user]), topics) for user, topics in enumerate(initial)}
    assert homes.after is not None
    changed, handovers, messages = 0, 0, 0
    for place, (_, user, topics) in enumerate(listed):
        before, home = wanted(), int(homes.after[place])
        handovers += home != now[user][0]
        now[user] = (home, topics)
        toggled = before ^ wanted()
        changed += len(toggled)
        messages += sum(int(hops[pair]) for pair in toggled)
    assert (total.subscription_changes, total.handovers) == (changed, handovers)
    assert (total.tree_messages, total.exchange_messages) == (messages, 7 * 12)
    assert total.management_messages == messages + 84
    loads = [sum(len(topics) for home, topics in now.values() if home == broker) for broker in range(brokers)]
    assert steps[-1].loads.tolist() == loads
    assert len(steps) == 7


def quick_totals(settings: PoissonSettings, cluster_brokers: int | None, **rules: float) -> UserTotals:
    """Return the totals of a seeded run; without clusters users stay at random homes."""
    changes = draw_poisson_changes(settings, np.random.default_rng(1))
    asked = np.random.default_rng(2).integers(settings.broker_count, size=settings.user_count)
    hops = np.full((settings.broker_count, settings.topic_count), 3)
    homes, messages = UserHomes(asked), 0
    if cluster_brokers is not None:
        clusters = UserClusters.at_random(settings.broker_count, cluster_brokers, np.random.default_rng(3))
        homes = place_by_utility(changes, clusters, PlacementRules(**rules), asked)
        messages = clusters.messages_per_exchange
    return total_steps(user_steps(changes, homes, hops, messages, duration_h=settings.duration_h))


@pytest.mark.parametrize("redraws_mode", [False, True])
@pytest.mark.parametrize(("cluster_brokers", "cut"), [(5, 0.8), (10, 0.95)])
def test_clusters_save_four_fifths_of_brokers_subscription_changes(
    cluster_brokers: int, cut: float, redraws_mode: bool
) -> None:
    """Zhao13, Fig. 7a (multimodal): 80 % less, with loads that vary by at most a fifth at w_l = 1."""
    made = PoissonSettings(user_count=10_000, duration_h=4.0, redraws_mode=redraws_mode)
    static, placed = quick_totals(made, None), quick_totals(made, cluster_brokers)
    assert placed.subscription_changes < (1 - cut) * static.subscription_changes
    assert placed.load_cv < 0.2
    assert placed.exchange_messages == 4 * 100 * (cluster_brokers - 1)


def test_without_weight_loads_become_unequal() -> None:
    """w_l = 0, clusters of 20."""
    made = PoissonSettings(user_count=5_000, duration_h=1.0)
    assert quick_totals(made, 20).load_cv < 0.2 < 0.4 < quick_totals(made, 20, load_weight=0.0).load_cv


def test_a_cluster_of_one_is_a_static_home() -> None:
    """Its only broker answers each user."""
    made = PoissonSettings(pattern="zipf", user_count=500, duration_h=5.0)
    assert quick_totals(made, 1) == quick_totals(made, None)


def test_requests_to_the_root_take_the_hops_of_the_route() -> None:
    """From each broker over its fingers to the rendezvous; none from the rendezvous itself."""
    ring = RingConfiguration.hashed(0, 32, [f"b{number:02d}" for number in range(12)])
    topics = ("goals", "rain", "wind")
    hops = hops_to_roots(ring, topics)
    for row, broker in enumerate(ring.brokers):
        for column, topic in enumerate(topics):
            assert hops[row, column] == len(ring.route(broker, ring.rendezvous(topic))) - 1


def test_wrong_times_are_refused() -> None:
    """With what is wrong in the message."""
    changes = changes_of([[0]], [(0.5, 0, [1])])
    clusters = UserClusters.in_order(2, 2)
    with pytest.raises(ValueError, match=r"update_h is 0\.0"):
        place_by_utility(changes, clusters, PlacementRules(), np.array([0]), update_h=0.0)
    with pytest.raises(ValueError, match="no step after the start"):
        total_steps(user_steps(changes, UserHomes(np.array([0])), np.ones((2, TOPICS), int), duration_h=0.0))
