"""Chord rings: finger tables, greedy inclusive lookup, and the trees that routes from one node form."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regraft.overlay.ring.chord_configuration import RingConfiguration, id_moves_between
from regraft.overlay.ring.chord_ring import ChordRing, RingError, hashed_ids, ring_key
from regraft.schemas.plan import IdMove

rings = st.integers(3, 10).flatmap(
    lambda bits: st.sets(st.integers(0, (1 << bits) - 1), min_size=1, max_size=40).map(
        lambda ids: ChordRing(bits, tuple(sorted(ids)))
    )
)


def test_fingers_are_the_first_nodes_at_or_after_powers_of_two() -> None:
    """The example of the Chord paper: m = 6, node 8 of the ring in its Fig. 4."""
    ring = ChordRing(6, (1, 8, 14, 21, 32, 38, 42, 48, 51, 56))
    assert [ring.ids[at] for at in ring.fingers[1]] == [14, 14, 14, 21, 32, 42]
    assert [ring.ids[at] for at in ring.route(1, ring.owner(54))] == [8, 42, 51, 56]


def test_the_depths_of_zhao13_figure_2() -> None:
    """Eight brokers on a 3-bit ring, t1 at ID 1: only ID 0 is three hops away."""
    ring = ChordRing(3, tuple(range(8)))
    assert ring.depths[1].tolist() == [3, 0, 1, 1, 2, 1, 2, 2]


@given(rings)
def test_routes_go_forward_over_fingers_and_share_their_beginnings(ring: ChordRing) -> None:
    """Every hop is a finger that comes closer without passing the target, so the routes from one node form a tree."""
    size = 1 << ring.bits
    for start in range(ring.node_count):
        for target in range(ring.node_count):
            route = ring.route(start, target)
            assert len(route) - 1 == ring.depths[start, target] <= ring.bits
            distances = [(ring.ids[target] - ring.ids[at]) % size for at in route]
            assert distances == sorted(distances, reverse=True)
            assert all(b in ring.fingers[a] for a, b in itertools.pairwise(route))
            if start != target:
                parent = route[-2]
                assert ring.parents[start, target] == parent
                assert ring.route(start, parent) == route[:-1]
            else:
                assert ring.parents[start, target] == -1


@given(rings, st.integers(0, 2**12))
def test_the_owner_of_a_key_is_the_first_node_at_or_after_it(ring: ChordRing, key: int) -> None:
    """If no node follows, it is the first node of the ring."""
    wanted = key % (1 << ring.bits)
    after = [number for number in ring.ids if number >= wanted]
    assert ring.ids[ring.owner(key)] == (after or ring.ids)[0]


def test_invalid_rings_are_refused() -> None:
    """The message says what is wrong."""
    with pytest.raises(RingError, match="unique and ascending"):
        ChordRing(3, (1, 1))
    with pytest.raises(RingError, match="do not fit"):
        ChordRing(3, (1, 8))
    with pytest.raises(RingError, match="from 1 to"):
        ChordRing(0, (0,))
    with pytest.raises(RingError, match="do not fit"):
        hashed_ids("abc", 1)


def test_hashed_ids_are_distinct_and_stable() -> None:
    """Names whose keys collide get neighbouring IDs."""
    names = [f"b{number}" for number in range(8)]
    assert sorted(hashed_ids(names, 3)) == list(range(8))
    assert hashed_ids(names, 32) == tuple(ring_key(name, 32) for name in names)


def test_a_reassignment_is_the_difference_of_two_configurations() -> None:
    """Ring positions stay, brokers exchange them, and links follow the brokers."""
    before = RingConfiguration.hashed(0, 16, [f"b{number}" for number in range(9)])
    ids = dict(before.id_of)
    ids["b1"], ids["b5"] = ids["b5"], ids["b1"]
    after = RingConfiguration.of(3, 16, ids, {"u1": "b2"})
    moves = id_moves_between(before, after)
    assert [move.broker for move in moves] == ["b1", "b5"]
    assert before.replaced(3, moves, {"u1": "b2"}) == after
    assert after.ring is before.ring
    assert after.position_of["b1"] == before.position_of["b5"]
    assert after.digest != before.digest
    with pytest.raises(ValueError, match="does not follow"):
        before.replaced(0, moves)
    with pytest.raises(ValueError, match="must give up"):
        before.replaced(1, [IdMove("b1", ids["b1"], 7)])
    with pytest.raises(RingError, match="more than one broker"):
        before.replaced(1, [IdMove("b1", before.id_of["b1"], before.id_of["b2"])])
    with pytest.raises(ValueError, match="not in the overlay"):
        RingConfiguration.of(0, 16, ids, {"u1": "b99"})


def test_messages_go_only_between_neighbours() -> None:
    """Every hop of every route, and every parent, is a neighbour; being neighbours is mutual."""
    ring = RingConfiguration.hashed(0, 32, [f"b{number:02d}" for number in range(23)])
    for broker in ring.brokers:
        for target in ring.brokers:
            route = ring.route(broker, target)
            assert all(peer in ring.neighbours[one] for one, peer in itertools.pairwise(route))
            if target != broker:
                assert ring.parent(broker, target) == route[-2]
                assert ring.next_hop(broker, target) == route[1]
    assert all(one in ring.neighbours[peer] for one, peers in ring.neighbours.items() for peer in peers)
    assert len(ring.links) == sum(map(len, ring.neighbours.values())) // 2
    assert ring.rendezvous("t") == ring.broker_at[ring.ring.owner(ring_key("t", 32))]
    assert int(np.max(ring.ring.depths)) <= 32
