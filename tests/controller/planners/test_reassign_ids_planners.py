"""Planners of ring IDs: what they consider, when they do nothing, and that the new ring costs what they predict."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from regraft.controller.kinds.ring.ring_state import RingContext, RingState, RingTraffic
from regraft.controller.planners.ring.reassign_ids_assignment import reassign_ids_assignment
from regraft.controller.planners.ring.reassign_ids_ssbr import reassign_ids_ssbr
from regraft.controller.planners.shared_settings import ReassignmentSettings
from regraft.overlay.ring.chord_configuration import RingConfiguration
from regraft.schemas.plan import Proposal
from tests.controller.scripted_ring import BROKERS, OTHER, RING, TOPIC, ring_state, ring_window
from tests.overlay.drawn_ring_problems import FIG_2_AFTER, FIG_2_BEFORE

Planner = Callable[[RingState, ReassignmentSettings, RingContext, random.Random], list[Proposal]]

USERS = {
    f"u{number}": (broker, [TOPIC if number in FIG_2_BEFORE[0] else OTHER]) for number, broker in enumerate(BROKERS)
}
DEFAULTS = ReassignmentSettings()
CONTEXT = RingContext(delay_weight=1.0)
planners = pytest.mark.parametrize("planner", [reassign_ids_ssbr, reassign_ids_assignment])


def fig_2_state(rate_per_s: int = 50, ring: RingConfiguration = RING) -> RingState:
    """Zhao13, Fig. 2: a user at each broker, and both topics published at this rate."""
    return ring_state(ring, ring_window(USERS, {TOPIC: rate_per_s, OTHER: rate_per_s}))


def planned(
    planner: Planner, state: RingState, settings: ReassignmentSettings = DEFAULTS, context: RingContext = CONTEXT
) -> list[Proposal]:
    return planner(state, settings, context, random.Random(0))


def ring_of(state: RingState) -> RingTraffic:
    assert state.traffic is not None
    return state.traffic


@planners
def test_figure_2_is_reassigned_in_one_proposal(planner: Planner) -> None:
    """The subscribers of t1 end at IDs 1, 2, 3 and 5. Costs are those of the rings before and after, all messages."""
    state = fig_2_state()
    (proposal,) = planned(planner, state)
    after = RING.replaced(1, proposal.id_moves)
    assert {after.id_of[BROKERS[number]] for number in FIG_2_BEFORE[0]} == FIG_2_AFTER
    assert proposal.id_moves == tuple(sorted(proposal.id_moves))
    assert (proposal.links_added, proposal.links_removed, proposal.moves) == ((), (), ())
    # 8 deliveries, 22 relays and hops before; after, both roots subscribe themselves: 6 and 7. Each 50 times a second.
    assert (proposal.cost_before_per_s, proposal.cost_after_per_s) == (50 * 30, 50 * 13)
    assert ring_of(state).with_configuration(after).cost.total_per_s() == proposal.cost_after_per_s
    assert proposal.planner == planner.__name__
    assert "over 600 s saves 450,000 messages and hops, and takes 98 messages to give 6 of 8 brokers" in proposal.reason


@planners
def test_nothing_is_proposed_that_would_not_pay(planner: Planner) -> None:
    """98 messages for six brokers, 38 for two; 15 are saved per publication on both topics, 8 with two brokers."""
    state = fig_2_state(rate_per_s=1)
    assert planned(planner, state, ReassignmentSettings(ring_free_s=4.7)) == []
    (proposal,) = planned(planner, state, ReassignmentSettings(ring_free_s=4.8))
    assert len(proposal.id_moves) == 2


@planners
def test_nothing_is_computed_if_the_reconfigurability_test_fails(planner: Planner) -> None:
    """The most expensive reassignment is 8 + 8 * 15 = 128 messages, the notifications of 10 s cost 220."""
    state = fig_2_state(rate_per_s=1)
    assert planned(planner, state, ReassignmentSettings(ring_free_s=10, ring_demand_share_min=220 / 128)) == []
    assert planned(planner, state, ReassignmentSettings(ring_free_s=10, ring_demand_share_min=219 / 128))


@planners
def test_a_reassigned_ring_stays(planner: Planner) -> None:
    """Run again on the ring that it led to, it finds nothing better."""
    (proposal,) = planned(planner, fig_2_state())
    assert planned(planner, fig_2_state(ring=RING.replaced(1, proposal.id_moves))) == []


@planners
def test_the_delay_weight_of_the_settings_counts(planner: Planner) -> None:
    """With w_d = 0 only relays are saved: three of t1 and four of t2."""
    (proposal,) = planned(planner, fig_2_state(), context=RingContext(delay_weight=0.0))
    after = ring_of(fig_2_state()).with_configuration(RING.replaced(1, proposal.id_moves)).cost
    assert after.relay_per_s == 0
    assert proposal.cost_after_per_s == after.total_per_s(0.0)
    assert "messages and hops" in proposal.reason


@planners
def test_nothing_is_proposed_without_known_users_or_traffic(planner: Planner) -> None:
    """On a ring whose users' subscriptions are unknown, or without publications."""
    state = fig_2_state()
    assert planned(planner, replace(state, traffic=None)) == []
    silent = replace(ring_of(state), window_rates_per_s=ring_of(state).window_rates_per_s * 0)
    assert planned(planner, replace(state, traffic=silent), ReassignmentSettings(ring_demand_share_min=0.0)) == []


@planners
def test_the_same_state_gives_the_same_proposal(planner: Planner) -> None:
    """Nothing is random."""
    assert planned(planner, fig_2_state()) == planner(fig_2_state(), DEFAULTS, CONTEXT, random.Random(99))
