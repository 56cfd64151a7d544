"""The ring that proposals lead to costs what it costs when built from scratch, whatever their order and kind."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regraft.controller.kinds.overlay_kind import HomeError, RingIdError
from regraft.controller.kinds.ring.reached_ring import ReachedRing
from regraft.controller.kinds.ring.ring_state import RingState
from regraft.overlay.overlay_configuration import LinkError
from regraft.overlay.ring.chord_configuration import RingConfiguration
from regraft.overlay.ring.ring_costs import overlay_ring_cost
from regraft.schemas.plan import ClientMove, IdMove, Proposal
from tests.controller.scripted_ring import (
    BROKERS,
    FIG_2_MOVES,
    FIG_2_USERS,
    OTHER,
    RING,
    TOPIC,
    placing,
    reassigning,
    ring_inventory,
    ring_state,
    ring_window,
)
from tests.controller.scripted_windows import closed_window
from tests.controller.small_kinds import ring_kind, tree_kind
from tests.overlay.small_overlays import inventory_of, line_of


def fig_2_state(count: int = 10) -> RingState:
    return ring_state(RING, *(ring_window(FIG_2_USERS, {TOPIC: count}, 1000 * at) for at in range(3)))


def test_figure_2_before_and_after_the_reassignment() -> None:
    """Ten notifications/s of 4 + 3 + 8, then of 3 + 0 + 3."""
    before = ReachedRing(fig_2_state(), 1.0)
    after = before.after(reassigning(*FIG_2_MOVES))
    assert (before.cost_per_s, after.cost_per_s) == (150.0, 60.0)
    assert after.costs_per_s.tolist() == [60.0] * 3
    assert ReachedRing(fig_2_state(), 0.5).cost_per_s == 110.0
    assert after.configuration.id_of["b04"] == 3
    assert after.state.traffic is not None
    assert after.state.traffic.cost.total_per_s() == 60.0


def random_ring_state(rng: random.Random) -> RingState:
    ids = rng.sample(range(32), len(BROKERS))
    ring = RingConfiguration.of(0, 5, dict(zip(BROKERS, ids, strict=True)))
    topics = [f"t{number}" for number in range(6)]
    users = {
        f"u{number}": (rng.choice(BROKERS), rng.sample(topics, rng.randrange(1, 4)))
        for number in range(rng.randrange(1, 15))
    }
    windows = [
        ring_window(users, {topic: rng.randrange(1, 30) for topic in rng.sample(topics, 4)}, 1000 * at, in_force=ring)
        for at in range(rng.randrange(1, 4))
    ]
    return ring_state(ring, *windows)


def random_change(reached: ReachedRing, rng: random.Random) -> Proposal:
    ring, state = reached.configuration, reached.state.traffic
    assert state is not None
    some = rng.sample(ring.brokers, rng.randrange(2, 5))
    turned = [ring.id_of[broker] for broker in some[1:] + some[:1]]
    if rng.random() < 0.3:
        turned[0] = next(number for number in range(32) if number not in ring.ids)
    id_moves = [IdMove(one, ring.id_of[one], to) for one, to in zip(some, turned, strict=True)]
    users = [name for name in state.interests.users if rng.random() < 0.4]
    position_of, homes = state.interests.position_of, state.interests.homes
    moves = [ClientMove(name, ring.brokers[homes[position_of[name]]], rng.choice(ring.brokers)) for name in users]
    kind = rng.randrange(3)
    return Proposal(
        "p", (), (), 0.0, 0.0, 0.0, "because",
        moves=() if kind == 0 else (*moves, ClientMove("has left", "b00", "b01")),
        id_moves=() if kind == 1 else tuple(id_moves),
    )  # fmt: skip


@given(seed=st.integers(0, 2**32), weight=st.sampled_from([0.0, 0.5, 1.0]))
@settings(max_examples=100)
def test_reached_costs_and_loads_equal_those_from_scratch(seed: int, weight: float) -> None:
    """After any reassignments and moves, each window's cost and each broker's load equal those from scratch."""
    rng = random.Random(seed)
    start = random_ring_state(rng)
    reached = ReachedRing(start, weight)
    for _ in range(4):
        reached = reached.after(random_change(reached, rng))
        ring, state = reached.configuration, start.traffic
        assert state is not None
        interests = state.interests.at_homes(ring.home_of)
        expected = [overlay_ring_cost(ring, interests, rates) for rates in state.window_rates_per_s]
        assert reached.costs_per_s == pytest.approx([one.total_per_s(weight) for one in expected])
        filtered = overlay_ring_cost(ring, interests, state.rates_per_s)
        assert reached.cost_per_s == pytest.approx(filtered.total_per_s(weight))
        assert reached.loads == pytest.approx(interests.loads)
        assert reached.state.traffic is not None
        assert reached.state.traffic.cost.total_per_s(weight) == pytest.approx(reached.cost_per_s)
        assert reached.costs_per_s == pytest.approx(
            [ring_kind(ring_inventory(), weight).cost_per_s(ring, window) for window in start.windows]
        )
        assert ring.epoch == 0


def test_a_proposal_leaves_the_overlay_before_it_unchanged() -> None:
    """Two proposals may be tried on the same ring, in any order."""
    start = ReachedRing(fig_2_state(), 1.0)
    moved = start.after(placing(("u6", "b06", "b02")))
    start.after(reassigning(*FIG_2_MOVES))
    assert start.cost_per_s == 150.0
    assert start.loads.tolist() == [0.25, 0, 0.25, 0, 0.25, 0, 0.25, 0]
    assert moved.loads.tolist() == [0.25, 0, 0.5, 0, 0.25, 0, 0, 0]
    both = moved.after(placing(("u6", "b02", "b06")))
    assert both.costs_per_s == pytest.approx(start.costs_per_s)


@pytest.mark.parametrize(
    ("proposal", "error", "text"),
    [
        (reassigning(("b00", 3, 1)), RingIdError, "b00 must give up ring ID 3, but has 0"),
        (reassigning(("b99", 3, 1)), RingIdError, "b99 must give up ring ID 3, but is not in the overlay"),
        (reassigning(("b00", 0, 1)), RingIdError, "ring ID 1 is that of more than one broker"),
        (reassigning(("b00", 0, 8)), RingIdError, "do not fit on a ring of 3 bits"),
        (placing(("u0", "b01", "b02")), HomeError, "user u0 would leave b01, but its home is b00"),
        (placing(("u0", "b00", "b99")), HomeError, "user u0 would move to b99, which is not in the overlay"),
        (
            Proposal("p", (("b00", "b01"),), (("b00", "b02"),), 0.0, 0.0, 0.0, ""),
            LinkError,
            "links of a ring follow from its IDs",
        ),
    ],
)
def test_a_proposal_that_does_not_fit_is_refused_by_name(proposal: Proposal, error: type[Exception], text: str) -> None:
    """IDs that are taken or not as claimed, users elsewhere, absent brokers."""
    with pytest.raises(error, match=text):
        ReachedRing(fig_2_state(), 1.0).after(proposal)


def test_a_user_that_has_left_is_ignored() -> None:
    """It is ignored, and the rest of the proposal counts."""
    start = ReachedRing(fig_2_state(), 1.0)
    after = start.after(placing(("u6", "b06", "b02"), ("nobody", "b03", "b02")))
    assert "nobody" not in after.configuration.home_of
    assert after.cost_per_s < start.cost_per_s


def test_changes_of_another_kind_and_unknown_users_are_refused() -> None:
    """A tree has no ring IDs, and a ring without interests cannot be costed."""
    tree = line_of(3)
    window = closed_window(tree.brokers, [{"b00", "b02"}] * 5)
    kind = tree_kind(inventory_of(tree, {}))
    with pytest.raises(RingIdError, match="the overlay is a tree"):
        kind.reached(kind.state_of(tree, [window])).after(reassigning(("b00", 0, 1)))
    blind = RingState.of(RING, ring_inventory(), [window])
    with pytest.raises(ValueError, match="the users of the ring are unknown"):
        ring_kind(ring_inventory()).reached(blind)


def test_topics_without_users_cost_nothing() -> None:
    """An older window may have more topics than the newest has users for."""
    state = ring_state(
        RING, ring_window(FIG_2_USERS, {TOPIC: 10, OTHER: 60}), ring_window(FIG_2_USERS, {TOPIC: 20}, 1000)
    )
    reached = ReachedRing(state, 1.0)
    assert reached.costs_per_s.tolist() == [150.0, 300.0]
    assert reached.cost_per_s == pytest.approx(0.7 * 150 + 0.3 * 300)
    assert np.isclose(ring_kind(ring_inventory()).cost_per_s(RING, state.windows[0]), 150.0)
