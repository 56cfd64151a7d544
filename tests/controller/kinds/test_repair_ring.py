"""A ring over other brokers: arcs are taken over, IDs kept, and users of dead brokers get other homes."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regraft.controller.kinds.repair import RepairTask
from regraft.overlay.overlay_configuration import BrokerChange
from regraft.overlay.ring.chord_configuration import RingConfiguration
from regraft.overlay.ring.chord_ring import RingError
from regraft.overlay.ring.ring_costs import overlay_ring_cost
from regraft.schemas.plan import OFF_RING, ClientMove, IdMove
from tests.controller.kinds.drawn_repairs import drawn_change
from tests.controller.scripted_ring import FIG_2_USERS, RING, TOPIC, ring_inventory, ring_window
from tests.controller.small_kinds import ring_kind

KIND = ring_kind(ring_inventory())
WIDE = RingConfiguration.of(3, 16, {broker: number * 7000 for number, broker in enumerate(RING.brokers)})
WINDOW = ring_window(FIG_2_USERS, {TOPIC: 10})


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32))
def test_any_change_of_brokers_leads_to_a_ring_over_exactly_the_target_brokers(seed: int) -> None:
    """Brokers that stay or return keep their ID; users are at present brokers; the plan names old and new homes."""
    rng = random.Random(seed)
    brokers = tuple(sorted(rng.sample(RING.brokers, rng.randint(2, 8))))
    present = RingConfiguration.of(3, 16, {broker: WIDE.id_of[broker] for broker in brokers})
    change = drawn_change(brokers, RING.brokers, rng)
    users = {f"u{number}": (rng.choice(brokers), [TOPIC]) for number in range(rng.randint(0, 9))}
    windows = [ring_window(users, {TOPIC: 10}, in_force=present)] * rng.randint(0, 2)
    repair = KIND.repaired(present, RepairTask(change, ring_inventory(), windows))
    target = repair.target
    assert isinstance(target, RingConfiguration)
    assert target.brokers == tuple(sorted(change.of(brokers)))
    assert all(target.id_of[broker] == present.id_of[broker] for broker in set(brokers) & set(target.brokers))
    staying = set(brokers) - change.lost - change.left
    if windows and staying:
        emptied = set(brokers) - set(target.brokers)
        assert {move.client for move in repair.moves} == {user for user, (home, _) in users.items() if home in emptied}
    assert all(move.home_to in staying for move in repair.moves)
    plan = repair.plan(present, 9, 2000)
    assert present.target_of(plan) == target.at_epoch(9).with_homes({})
    assert target.origin_of(plan, {}) == present


def test_a_dead_brokers_place_is_vacated_and_its_users_move_where_their_topics_are_wanted() -> None:
    """b00, b04 and b06 already want what u2 wants; b03 takes over the arc."""
    repair = KIND.repaired(RING, RepairTask(BrokerChange(lost=frozenset({"b02"})), ring_inventory(), (WINDOW,)))
    assert repair.moves == (ClientMove("u2", "b02", "b00"),)
    assert repair.reason == "b02 lost; b03 takes over the arc of b02; 1 user moves"
    assert repair.plan(RING, 5, 0).id_moves == (IdMove("b02", 2, OFF_RING),)


def test_a_repair_moves_no_more_users_than_the_limit_of_a_plan() -> None:
    """A user that is not moved has no home on the new ring: it waits for its broker."""
    change = BrokerChange(lost=frozenset({"b02", "b04"}))
    for moves_max, moved in ((0, 0), (1, 1), (9, 2)):
        task = RepairTask(change, ring_inventory(), (WINDOW,), moves_max=moves_max)
        repair = KIND.repaired(RING, task)
        assert len(repair.moves) == moved
        assert not {"b02", "b04"} & set(repair.target.home_of.values())


def test_a_new_broker_takes_the_cheapest_of_its_candidate_ids() -> None:
    """No other of the candidate IDs would have cost less."""
    without = RingConfiguration.of(0, 16, {broker: WIDE.id_of[broker] for broker in RING.brokers[:7]})
    window = ring_window(FIG_2_USERS, {TOPIC: 10}, in_force=without)
    task = RepairTask(BrokerChange(joined=frozenset({"b07"})), ring_inventory(), (window,))
    repair = KIND.repaired(without, task)
    hashed = KIND.repaired(without, RepairTask(task.change, task.fleet)).target
    assert window.interests is not None
    interests = window.interests.over(RING.brokers)
    rates = [10.0] * len(interests.topics)
    assert isinstance(hashed, RingConfiguration)
    at_hash = overlay_ring_cost(hashed, interests, rates)  # type: ignore[arg-type]
    assert repair.cost_after_per_s <= at_hash.total_per_s()


def test_no_broker_joins_a_ring_without_a_free_id() -> None:
    """All eight IDs of three bits are taken."""
    fleet = ring_inventory(RingConfiguration.hashed(0, 16, [*RING.brokers, "b08"]))
    with pytest.raises(RingError, match="all 8 IDs of a ring of 3 bits are taken: b08 cannot join"):
        ring_kind(fleet).repaired(RING, RepairTask(BrokerChange(joined=frozenset({"b08"})), fleet))
