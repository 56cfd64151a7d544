"""Which routes a reassignment of ring IDs keeps, for all pairs at once as for each pair separately."""

from __future__ import annotations

import random

import pytest

from regraft.overlay.ring.chord_configuration import RingConfiguration


@pytest.mark.parametrize("seed", range(12))
def test_the_matrix_agrees_with_the_two_routes_of_each_pair(seed: int) -> None:
    """From every broker to every other one, on rings of 1 to 24 brokers with some IDs exchanged."""
    rng = random.Random(seed)
    names = [f"b{number:02d}" for number in range(rng.randint(1, 24))]
    ids = rng.sample(range(1 << 8), len(names))
    before = RingConfiguration.of(0, 8, dict(zip(names, ids, strict=True)))
    moved = rng.sample(names, rng.randint(0, len(names)))
    given = rng.sample([before.id_of[name] for name in moved], len(moved))
    after = RingConfiguration.of(1, 8, before.id_of | dict(zip(moved, given, strict=True)))
    same = after.same_routes_since(before)
    for a in names:
        for b in names:
            assert same[before.place_of[a], before.place_of[b]] == (before.route(a, b) == after.route(a, b))


@pytest.mark.parametrize("seed", range(24))
def test_a_route_is_not_the_same_if_one_of_its_brokers_joins_leaves_or_is_lost(seed: int) -> None:
    """All other routes stay the same; a lost broker may be on both rings."""
    rng = random.Random(seed)
    names = [f"b{number:02d}" for number in range(16)]
    ids = dict(zip(names, rng.sample(range(1 << 8), len(names)), strict=True))
    before = RingConfiguration.of(0, 8, {name: ids[name] for name in rng.sample(names, rng.randint(1, 16))})
    after = RingConfiguration.of(1, 8, {name: ids[name] for name in rng.sample(names, rng.randint(1, 16))})
    lost = frozenset(rng.sample(before.brokers, rng.randint(0, min(2, len(before.brokers)))))
    same = after.same_routes_since(before, lost)
    in_both = (set(before.brokers) & set(after.brokers)) - lost
    for a in after.brokers:
        for b in after.brokers:
            is_same = {a, b} <= in_both and before.route(a, b) == after.route(a, b) and not lost & {*after.route(a, b)}
            assert same[after.place_of[a], after.place_of[b]] == is_same
