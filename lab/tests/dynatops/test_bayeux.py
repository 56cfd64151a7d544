"""Bayeux on a Tapestry mesh: prefix routes, surrogates, trees."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regraft_lab.dynatops.bayeux import TapestryMesh, draw_mesh
from regraft_lab.dynatops.dissemination import NO_PARENT, topic_measures

MESHES = st.tuples(st.integers(1, 40), st.sampled_from([(16, 8), (4, 4), (2, 7)]), st.integers(0, 2**32 - 1))


def _drawn(shape: tuple[int, tuple[int, int], int], near: bool = False) -> TapestryMesh:
    brokers, (base, digits), seed = shape
    rng = np.random.default_rng(seed)
    return draw_mesh(brokers, rng, base, digits, rng.random((brokers, brokers)) if near else None)


def _shared(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    """Return the length of the common prefix."""
    return next((place for place, pair in enumerate(zip(one, other, strict=True)) if pair[0] != pair[1]), len(one))


@given(MESHES, st.booleans())
def test_each_hop_resolves_a_digit_at_least(shape: tuple[int, tuple[int, int], int], near: bool) -> None:
    """So a route takes no more hops than IDs have digits."""
    mesh = _drawn(shape, near)
    digits = [mesh.digits(int(one)) for one in mesh.ids]
    for start in range(len(digits)):
        for target in range(len(digits)):
            at = int(mesh.next_hops[start, target])
            if start == target:
                assert at == start
            else:
                assert _shared(digits[at], digits[target]) > _shared(digits[start], digits[target])
    assert mesh.trees.depth_max <= mesh.digit_count


@given(MESHES)
def test_a_node_has_one_entry_for_a_digit(shape: tuple[int, tuple[int, int], int]) -> None:
    """All IDs with the same digits up to the first that differs from the node's have the same next hop."""
    mesh = _drawn(shape)
    digits = [mesh.digits(int(one)) for one in mesh.ids]
    for start in range(len(digits)):
        entries: dict[tuple[int, ...], int] = {}
        for target in range(len(digits)):
            if target != start:
                group = digits[target][: _shared(digits[start], digits[target]) + 1]
                hop = int(mesh.next_hops[start, target])
                assert entries.setdefault(group, hop) == hop


@given(MESHES, st.integers(0, 2**32 - 1))
def test_surrogate_routing_ends_at_one_broker_from_everywhere(
    shape: tuple[int, tuple[int, int], int], key_seed: int
) -> None:
    """Simulated hop by hop as Tapestry defines it: if an entry is empty the next digit is tried, cyclically."""
    mesh = _drawn(shape)
    digits = [mesh.digits(int(one)) for one in mesh.ids]
    key = int(np.random.default_rng(key_seed).integers(mesh.base**mesh.digit_count))
    for start in range(len(digits)):
        assert _surrogate_walk(mesh, digits, mesh.digits(key), start) == mesh.surrogate(key)
    for place, one in enumerate(mesh.ids.tolist()):
        assert mesh.surrogate(one) == place


def _surrogate_walk(mesh: TapestryMesh, digits: list[tuple[int, ...]], key: tuple[int, ...], start: int) -> int:
    at, place = start, 0
    while place < mesh.digit_count:
        fitting = [one for one in range(len(digits)) if digits[one][:place] == digits[at][:place]]
        filled = {digits[one][place] for one in fitting}
        wanted = next(
            (key[place] + step) % mesh.base for step in range(mesh.base) if (key[place] + step) % mesh.base in filled
        )
        if digits[at][place] != wanted:
            at = next(one for one in fitting if digits[one][place] == wanted)
        place += 1
    return at


@given(MESHES)
def test_trees_split_where_digits_differ(shape: tuple[int, tuple[int, int], int]) -> None:
    """The predecessor of a broker on the route from the root shares more digits with it than the root does."""
    mesh = _drawn(shape)
    digits = [mesh.digits(int(one)) for one in mesh.ids]
    for root in range(len(digits)):
        for broker in range(len(digits)):
            route = [broker]
            while (above := int(mesh.trees.parents[root, route[-1]])) != NO_PARENT:
                route.append(above)
            assert route[-1] == root
            assert len(route) - 1 == mesh.trees.depths[root, broker]
            shared = [_shared(digits[one], digits[broker]) for one in reversed(route)]
            assert shared == sorted(set(shared))


def test_proximity_takes_the_nearest_that_fits() -> None:
    """First digits 0, 1, 1: broker 0 reaches 1 and 2 by whichever is nearer."""
    near = np.array([[0.0, 5.0, 1.0], [5.0, 0.0, 2.0], [1.0, 2.0, 0.0]])
    for seed in range(20):
        mesh = draw_mesh(3, np.random.default_rng(seed), base=2, digit_count=2, rtt_ms=near)
        first = [mesh.digits(int(one))[0] for one in mesh.ids]
        if first == [0, 1, 1]:
            assert mesh.next_hops[0].tolist() == [0, 2, 2]
            return
    raise AssertionError("no mesh of 20 has the first digits 0, 1, 1")


def test_proximity_shortens_delays_not_routes() -> None:
    """With 200 brokers on a plane the mean delay falls clearly, the mean number of hops hardly changes."""
    rng = np.random.default_rng(3)
    places = rng.random((200, 2))
    rtt = np.hypot(*(places[:, None] - places[None, :]).transpose(2, 0, 1))
    plain = draw_mesh(200, np.random.default_rng(4)).trees
    near = draw_mesh(200, np.random.default_rng(4), rtt_ms=rtt).trees
    assert near.delays(rtt).mean() < 0.85 * plain.delays(rtt).mean()
    assert near.depths.mean() == pytest.approx(plain.depths.mean(), rel=0.1)


def test_a_larger_base_takes_fewer_hops_and_relays() -> None:
    """A thousand topics at a hundred brokers."""
    rng = np.random.default_rng(5)
    wanted = rng.random((100, 1_000)) < 0.1
    topics = [f"t{place:04d}" for place in range(1_000)]
    wide, narrow = draw_mesh(100, rng), draw_mesh(100, rng, base=4, digit_count=16)
    found = [topic_measures(mesh.trees, mesh.topic_roots(topics), wanted) for mesh in (wide, narrow)]
    assert found[0].mean_delay() < found[1].mean_delay() < 4
    assert found[0].relay.sum() < found[1].relay.sum()


def test_roots_of_topics_spread_over_the_brokers() -> None:
    """Surrogates are uneven, but no broker has a tenth of a hundred topics."""
    mesh = draw_mesh(100, np.random.default_rng(6))
    roots = mesh.topic_roots([f"t{place:04d}" for place in range(1_000)])
    counts = np.bincount(roots, minlength=100)
    assert counts.max() < 100
    assert (counts > 0).sum() > 80


@pytest.mark.parametrize(("base", "digits", "words"), [(3, 8, "base is 3"), (2, 3, "distinguish 9 brokers")])
def test_invalid_ids_report_why(base: int, digits: int, words: str) -> None:
    """Digits are a whole number of bits, and there are enough of them."""
    with pytest.raises(ValueError, match=words):
        draw_mesh(9, np.random.default_rng(0), base, digits)
