"""POP by messages (Cheung09, sections 3.1 and 3.2): the example of Fig. 1, tagging, trace results, the walk."""

import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.tests.pop_grape.traced_overlays import PUBLISHER, Traced, fig_1, random_traced, state_of
from regraft.api.brokers import LOCAL, Notification
from regraft.api.planning import TreeContext
from regraft.api.trees import RootedTree
from regraft_lab.message_tally import notifications_on_links
from regraft_lab.planners.relocate_publisher_pop import (
    NEWEST_SHARE,
    TraceSettings,
    probe_walk,
    relocate_publisher_pop,
)
from regraft_lab.pop_grape.distributed_pop import PopBroker, PopSettings, Profile, ProfileTable
from regraft_lab.pop_grape.distributed_traces import (
    TRACE_HEADER,
    MessageKind,
    RelocationAnswer,
    RelocationRequest,
    TraceResult,
)

NO_LIMIT = 1_000_000_000
PROFILES = st.sampled_from(Profile)


def table(traced: Traced, broker: str) -> dict[str, float]:
    """Return p's PPTable at one broker."""
    tracer = traced.overlay.tracers[broker]
    assert isinstance(tracer, PopBroker)
    return dict(tracer.table(PUBLISHER))


def all_traced(threshold: int, profile: Profile) -> PopSettings:
    """Return settings with which every notification is traced until the walk."""
    return PopSettings(traced_max=NO_LIMIT, threshold=threshold, profile=profile)


def notification(sequence: int) -> Notification:
    """Return a notification of p, as its home gets it."""
    return Notification(PUBLISHER, sequence, 0.0, "b", 0, {"topic": "x"}, 100)


@pytest.mark.parametrize("profile", Profile)
def test_fig_1_by_messages(profile: Profile) -> None:
    """B1 has 15 > 6 + 3 + 1 behind B5, asks it with 10 and [B1]; B5 adds itself; B6 is the closest and answers."""
    traced = fig_1(all_traced(2, profile))
    traced.publish([0.0])
    assert table(traced, "B1") == {"B2": 6, "B4": 3, "B5": 15, LOCAL: 1}
    assert table(traced, "B5") == {"B6": 15, LOCAL: 0}
    assert table(traced, "B6") == {"B7": 4, "B8": 6, LOCAL: 5}
    assert table(traced, "B2") == {"B3": 4, LOCAL: 2}
    traced.publish([0.0])
    twice = 2 if profile is Profile.ROUND_SUM else 1
    assert traced.messages(RelocationRequest) == [
        ("B1", "B5", RelocationRequest(PUBLISHER, 10 * twice, ("B1",), 1)),
        ("B5", "B6", RelocationRequest(PUBLISHER, 10 * twice, ("B5", "B1"), 1)),
    ]
    answer = RelocationAnswer(PUBLISHER, ("B6", "B5", "B1"))
    assert traced.messages(RelocationAnswer) == [("B6", "B5", answer), ("B5", "B1", answer)]
    account = traced.end()
    assert account.is_clean
    assert traced.overlay.homes == {PUBLISHER: "B6"}
    homewards = {
        core.broker: core.routing.interests.advertisements[PUBLISHER].home
        for core in traced.overlay.virtual.cores.values()
    }
    assert set(homewards.values()) == {"B6"}
    # Brokers on the migration path have cleared their tables, the others have not.
    assert [table(traced, broker) for broker in ("B1", "B5", "B6")] == [{}, {}, {}]
    assert table(traced, "B2") == {"B3": 4 * twice, LOCAL: 2 * twice}


def test_fig_1_by_migration() -> None:
    """The paper's migration takes M - 1 MUM and MCM, and forwards B5's 10 remaining subscriptions over both links."""
    traced = fig_1(PopSettings(traced_max=NO_LIMIT, threshold=1))
    traced.publish([0.0])
    traced.end()
    tally = traced.overlay.tally.messages
    assert tally[MessageKind.MIGRATION_UPDATE] == tally[MessageKind.MIGRATION_COMPLETE] == 2
    assert tally[MessageKind.FORWARDED_SUBSCRIPTION] == 20
    assert tally[MessageKind.CLIENT_CONTROL] == 4
    # Links cost 10 ms: 20 there and 20 back, and 10 from the publisher's machine at B1 to B6 and 10 back.
    assert traced.overlay.moves.paper_waits_ms == [60.0]


def test_a_publisher_at_the_closest_broker_stays_and_is_traced_again() -> None:
    """If no link dominates no broker is asked, and after as many traces the home decides again."""
    traced = fig_1(PopSettings(traced_max=NO_LIMIT, threshold=1))
    traced.publish([0.0])
    traced.overlay.virtual.run_for(20_000.0)
    traced.publish([0.0] * 3)
    decided = [(decision.home, decision.target) for decision in traced.overlay.decisions]
    assert decided == [("B1", "B6"), *[("B6", "B6")] * 3]
    assert len(traced.messages(RelocationRequest)) == 2
    assert len(traced.overlay.moves.executed) == 1
    assert traced.end().is_clean


def test_the_running_average_of_4_and_8_is_5() -> None:
    """3.1: the newest value weighs 0.25, the previous average 0.75; a neighbour that got nothing counts 0."""
    found = ProfileTable(Profile.OWN_AVERAGE)
    found.note({"B2": 4}, 0)
    assert found.averages == {"B2": 4}
    found.note({"B2": 8}, 1)
    assert found.averages == {"B2": 5}
    found.note({"B3": 4}, 2)
    assert found.averages == {"B2": 3.75, "B3": 1}


@given(st.lists(st.integers(0, 9), min_size=1, max_size=12), st.randoms(use_true_random=False))
def test_the_shared_average_does_not_depend_on_the_order_of_results(counts: list[int], rng: random.Random) -> None:
    """Results may overtake each other; the average is that of the traces in their own order, with zeros in between."""
    expected = float(counts[0])
    for count in counts[1:]:
        expected = NEWEST_SHARE * count + (1 - NEWEST_SHARE) * expected
    noted = [(count, trace) for trace, count in enumerate(counts) if count]
    rng.shuffle(noted)
    found = ProfileTable(Profile.SHARED_AVERAGE)
    for count, trace in noted:
        found.note({"B2": count}, trace)
    closest = found.closest(None, 0.0, len(counts) - 1)
    # Everything known is behind B2, and nothing is on this side.
    assert (closest is not None) == (expected > 0)
    assert closest is None or closest == ("B2", pytest.approx(0.0))
    mine = found.closest("B9", expected * 0.99, len(counts) - 1)
    assert (mine is not None) == (expected > 0)
    assert found.closest("B9", expected * 1.01, len(counts) - 1) is None


@given(st.integers(1, 40), st.integers(0, 120), st.integers(0, 2**32))
def test_at_most_N_are_tagged_in_a_window_and_at_least_one(limit: int, count: int, seed: int) -> None:
    """P_trace = 1 - T / N: the first of each window is always tagged, any after N tagged ones never."""
    broker = PopBroker("b", PopSettings(traced_max=limit, window_s=60.0, threshold=NO_LIMIT), random.Random(seed))
    for window in range(2):
        tagged = [
            TRACE_HEADER in broker.mark(notification(place), 60_000.0 * window + place).content
            for place in range(count + 1)
        ]
        assert tagged[0]
        assert sum(tagged) <= limit


def test_the_share_that_is_tagged_follows_from_the_rate() -> None:
    """Of n notifications in a window N (1 - exp(-n / N)) are tagged: 32 % of 150 with N = 50, as the paper reports."""
    broker = PopBroker("b", PopSettings(threshold=NO_LIMIT), random.Random(1))
    windows, per_window = 200, 150
    tagged = sum(
        TRACE_HEADER in broker.mark(notification(0), (window + place / per_window) * 60_000.0).content
        for window in range(windows)
        for place in range(per_window)
    )
    expected = 50 * (1 - math.exp(-per_window / 50))
    assert tagged / windows == pytest.approx(expected, rel=0.02)
    assert expected / per_window == pytest.approx(0.32, abs=0.01)


@given(st.integers(0, 2**32), PROFILES)
@settings(max_examples=20, deadline=None)
def test_a_traced_notification_takes_one_result_for_each_link_it_crossed(seed: int, profile: Profile) -> None:
    """So POP's overhead is the share of notifications that it traces; afterwards nothing stays open."""
    rng = random.Random(seed)
    traced = random_traced(rng, all_traced(NO_LIMIT, profile))
    traced.publish([rng.random() for _ in range(8)], pause_ms=rng.choice([3.0, 30.0]))
    assert traced.end().is_clean
    assert (
        traced.overlay.tally.messages[MessageKind.TRACE_RESULT]
        == notifications_on_links(traced.overlay.virtual.overlay)[0]
    )
    assert len(traced.messages(TraceResult)) == notifications_on_links(traced.overlay.virtual.overlay)[0]
    for broker, tracer in traced.overlay.tracers.items():
        rows = len(table(traced, broker))
        assert tracer.memory.bytes_now == (10 + 18 * rows if rows else 0)


def subscribers_of(traced: Traced, profile: Profile) -> np.ndarray:
    """Return what the central walk uses: the running average, or the sum, of each broker's subscribers."""
    counts = [np.array([*traced.got_by(value).values()], dtype=np.float64) for value in traced.values]
    if profile is Profile.ROUND_SUM:
        return np.sum(counts, axis=0)
    average = counts[0]
    for newest in counts[1:]:
        average = NEWEST_SHARE * newest + (1 - NEWEST_SHARE) * average
    return average


@given(st.integers(0, 2**32), st.sampled_from([Profile.SHARED_AVERAGE, Profile.ROUND_SUM]))
@settings(max_examples=40, deadline=None)
def test_brokers_walk_as_the_central_planner_does(seed: int, profile: Profile) -> None:
    """With one scale at all brokers the request follows the path of the planner's probe, on the same traces."""
    rng = random.Random(seed)
    count = rng.randrange(1, 9)
    traced = random_traced(rng, all_traced(count, profile))
    home = traced.overlay.homes[PUBLISHER]
    traced.publish([rng.random() for _ in range(count)], pause_ms=rng.choice([3.0, 30.0]))
    traced.overlay.virtual.run_for(2_000.0)
    tree, index = traced.overlay.inventory.bootstrap, traced.overlay.inventory.index
    walk = probe_walk(tree, RootedTree.of(tree), subscribers_of(traced, profile), index[home])
    assert [decision.target for decision in traced.overlay.decisions] == [tree.brokers[walk.path[-1]]]
    assert len(traced.messages(RelocationRequest)) == len(walk.path) - 1


@given(st.integers(0, 2**32))
@settings(max_examples=25, deadline=None)
def test_brokers_move_a_publisher_where_the_planner_does(seed: int) -> None:
    """The same through the planner itself: windows of telemetry instead of trace results."""
    rng = random.Random(seed)
    count = rng.randrange(1, 9)
    traced = random_traced(rng, all_traced(count, Profile.SHARED_AVERAGE), same_at_a_broker=True)
    home = traced.overlay.homes[PUBLISHER]
    traced.publish([rng.random() for _ in range(count)])
    state = state_of(traced, home)
    wanted = TraceSettings(pop_traces_min=count, pop_traces_max=NO_LIMIT)
    moves = [move for proposal in relocate_publisher_pop(state, wanted, TreeContext(), rng) for move in proposal.moves]
    target = moves[0].home_to if moves else home
    assert [decision.target for decision in traced.overlay.decisions] == [target]


def test_rare_notifications_weigh_more_at_the_brokers_they_reach() -> None:
    """As in the paper, each broker averages over what reaches it: a walk may continue where one scale would end it."""
    rng = random.Random(5)
    longer = 0
    for _ in range(60):
        seed, values = rng.randrange(1 << 30), [rng.random() for _ in range(6)]
        hops = []
        for profile in (Profile.OWN_AVERAGE, Profile.SHARED_AVERAGE):
            traced = random_traced(random.Random(seed), all_traced(len(values), profile))
            traced.publish(values, pause_ms=40.0)
            traced.overlay.virtual.run_for(1_000.0)
            (decision,) = traced.overlay.decisions
            hops.append(len(traced.overlay.inventory.bootstrap.path(decision.home, decision.target)))
        assert hops[0] >= hops[1]
        longer += hops[0] > hops[1]
    assert longer > 0


def test_settings_that_trace_nothing_are_refused() -> None:
    """Each error has the value and the reason."""
    assert PopSettings().errors() == []
    assert "threshold is 0: must be at least 1" in PopSettings(threshold=0).errors()[0]
    with pytest.raises(ValueError, match="traced_max is 0"):
        fig_1(PopSettings(traced_max=0))
