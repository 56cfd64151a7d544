"""Configurations and operations on trees."""

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regraft.controller.planners.tree.swap_links_ci import paths_within
from regraft.overlay.overlay_configuration import link
from regraft.overlay.tree.build_tree import cycle_links, random_tree
from regraft.overlay.tree.tree_configuration import NotATreeError, TreeConfiguration
from tests.overlay.small_overlays import brokers_named, line_of


def test_equal_overlays_are_equal_values() -> None:
    """The order of brokers and links does not matter, nor does the direction of a link."""
    first = TreeConfiguration.of(1, ["c", "a", "b"], [("b", "a"), ("c", "b")])
    second = TreeConfiguration.of(1, ["a", "b", "c"], [("b", "c"), ("a", "b")])
    assert first == second
    assert first.digest == second.digest


def test_the_digest_depends_on_the_epoch() -> None:
    """The same links in another epoch are another configuration."""
    assert line_of(3, epoch=1).digest != line_of(3, epoch=2).digest


@pytest.mark.parametrize(
    ("links", "why"),
    [
        ([("a", "b"), ("b", "c")], "2 links over 4 brokers"),
        ([("a", "b"), ("b", "c"), ("a", "c")], "not connected: d"),
        ([("a", "b"), ("b", "c"), ("c", "x")], "not in the overlay: x"),
        ([("a", "b"), ("b", "a"), ("c", "d")], "listed twice"),
    ],
)
def test_links_that_form_no_tree_are_refused(links: list[tuple[str, str]], why: str) -> None:
    """The message names too few links, a cycle, an unknown broker or a repeated link."""
    with pytest.raises(NotATreeError, match=why):
        TreeConfiguration.of(0, "abcd", links)


def test_link_of_a_broker_to_itself_is_refused() -> None:
    """A link joins two different brokers."""
    with pytest.raises(ValueError, match="two brokers"):
        link("a", "a")


@pytest.mark.parametrize(
    ("epoch", "removed", "added", "why"),
    [
        (0, ("b00", "b01"), ("b00", "b02"), "does not follow"),
        (1, ("b00", "b02"), ("b00", "b03"), "cannot be removed"),
        (1, ("b00", "b01"), ("b01", "b02"), "cannot be added"),
        (1, ("b00", "b01"), ("b01", "b03"), "not connected"),
    ],
)
def test_impossible_replacement_is_refused(
    epoch: int, removed: tuple[str, str], added: tuple[str, str], why: str
) -> None:
    """The message names an epoch that does not grow, an absent link, a present link or a cut tree."""
    with pytest.raises(ValueError, match=why):
        line_of(4).replaced(epoch, [removed], [added])


@given(st.integers(2, 30), st.integers(2, 5), st.integers(0, 2**32))
def test_random_tree_is_a_tree_under_the_cap(count: int, degree_max: int, seed: int) -> None:
    """A random tree spans all brokers, keeps the degree cap and depends only on the seed."""
    tree = random_tree(brokers_named(count), degree_max, random.Random(seed))
    assert tree.degree_max <= degree_max
    assert tree == random_tree(brokers_named(count)[::-1], degree_max, random.Random(seed))


def test_random_tree_without_room_is_refused() -> None:
    """Three brokers with at most one link each cannot form a tree."""
    with pytest.raises(ValueError, match="needs at least 2"):
        random_tree(brokers_named(3), 1, random.Random(0))


@given(st.integers(2, 20), st.integers(0, 2**32))
def test_paths_next_hops_and_parents_agree(count: int, seed: int) -> None:
    """The path between two brokers starts with the next hop and follows the parents; a direct link closes a cycle."""
    rng = random.Random(seed)
    tree = random_tree(brokers_named(count), count, rng)
    source, target = rng.sample(tree.brokers, 2)
    path = tree.path(source, target)
    assert (path[0], path[-1]) == (source, target)
    assert tree.next_hops_from(source)[target] == path[1]
    assert tree.parents_from(source)[target] == path[-2]
    assert cycle_links(tree, (source, target)) == tuple(link(a, b) for a, b in itertools.pairwise(path))


@given(st.integers(2, 20), st.integers(1, 6), st.integers(0, 2**32))
def test_horizon_holds_exactly_the_paths_up_to_its_hops(count: int, hops_max: int, seed: int) -> None:
    """It has the only path of every pair of brokers within that distance, and of no other pair."""
    tree = random_tree(brokers_named(count), count, random.Random(seed))
    found = {
        tuple(tree.brokers[position] for position in row)
        for paths in paths_within(tree, hops_max).values()
        for row in paths
    }
    all_paths = {tree.path(a, b) for a in tree.brokers for b in tree.brokers if a != b}
    assert found == {path for path in all_paths if len(path) - 1 <= hops_max}


def test_a_horizon_of_zero_hops_is_refused() -> None:
    """A horizon has at least one hop."""
    with pytest.raises(ValueError, match="hops_max is 0"):
        paths_within(line_of(3), 0)


def test_a_reshaped_tree_leaves_out_dead_brokers() -> None:
    """While a broker is dead, a shadow planner's overlay is a tree of the living brokers."""
    line = line_of(4)
    links = line.links[:-1]
    assert line.reshaped({"links": links}).brokers == line.brokers[:-1]
    assert line.reshaped({"links": line.links}).links == line.links
