"""GeoPS: cells, neighbours, long links, the route to a cell."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regraft_lab.dynatops.dissemination import NO_PARENT, topic_measures
from regraft_lab.dynatops.geops import GeoOverlay, draw_geo_overlay


@st.composite
def overlays(draw: st.DrawFn) -> tuple[np.ndarray, GeoOverlay]:
    """Return brokers in some of the cells of a small grid."""
    side = draw(st.sampled_from([2, 4, 8]))
    cells = draw(st.lists(st.integers(0, side * side - 1), min_size=2, max_size=side * side, unique=True))
    seed = draw(st.integers(0, 2**32 - 1))
    return np.array(cells), draw_geo_overlay(np.array(cells), np.random.default_rng(seed), side)


@pytest.fixture(scope="module")
def full() -> GeoOverlay:
    """Return one broker in each of 32 x 32 cells, as in Zhao13."""
    return draw_geo_overlay(np.arange(1_024), np.random.default_rng(1))


@given(overlays())
def test_every_cell_belongs_to_the_nearest_broker(drawn: tuple[np.ndarray, GeoOverlay]) -> None:
    """A broker owns its cell, and no broker is nearer to a cell than its owner."""
    cells, overlay = drawn
    assert overlay.owners[cells].tolist() == list(range(len(cells)))
    for cell, owner in enumerate(overlay.owners.tolist()):
        away = [(cell // overlay.side - one // overlay.side) ** 2 + (cell % overlay.side - one % overlay.side) ** 2
                for one in cells.tolist()]  # fmt: skip
        assert away[owner] == min(away)


@given(overlays())
def test_a_geocast_reaches_the_cell_over_links(drawn: tuple[np.ndarray, GeoOverlay]) -> None:
    """Each hop uses a neighbour link or the own long link and gets closer; no route is longer than by neighbours."""
    _, overlay = drawn
    count = len(overlay.long_links)
    for start in range(count):
        for target in range(count):
            at, hops = start, 0
            while at != target:
                onward = int(overlay.next_hops[at, target])
                assert overlay.neighbours[at, onward] or overlay.long_links[at] == onward
                assert overlay.distances[onward, target] < overlay.distances[at, target]
                at, hops = onward, hops + 1
            assert hops <= overlay.distances[start, target]
            assert overlay.trees.depths[target, start] == hops


@given(overlays())
def test_notifications_follow_the_subscriptions_path_back(drawn: tuple[np.ndarray, GeoOverlay]) -> None:
    """A broker's parent in a tree is the first hop of its subscription."""
    _, overlay = drawn
    trees = overlay.trees
    for root in range(len(trees.parents)):
        for broker in range(len(trees.parents)):
            expected = NO_PARENT if root == broker else overlay.next_hops[broker, root]
            assert trees.parents[root, broker] == expected
    assert (trees.change_messages == trees.depths).all()


def test_distances_on_a_full_grid_are_manhattan(full: GeoOverlay) -> None:
    """Four neighbours, fewer at the border."""
    rows, columns = np.divmod(np.arange(1_024), 32)
    manhattan = abs(rows[:, None] - rows) + abs(columns[:, None] - columns)
    assert (full.distances == manhattan).all()
    assert full.neighbours.sum() == 2 * 2 * 32 * 31


def test_long_links_shorten_routes(full: GeoOverlay) -> None:
    """They may lead anywhere; with them the mean route is well below the mean Manhattan distance of 21."""
    assert len(np.unique(full.long_links)) > 500
    assert full.trees.depths.mean() < 0.6 * full.distances.mean()


def test_a_local_topic_costs_little(full: GeoOverlay) -> None:
    """Locality is preserved: subscribers around the cell are a hop away and need no relay."""
    middle = 16 * 32 + 16
    wanted = np.zeros((1_024, 1), dtype=bool)
    wanted[[middle, middle - 1, middle + 1, middle - 32, middle + 32]] = True
    found = topic_measures(full.trees, np.array([middle]), wanted)
    assert (found.subscriber.tolist(), found.relay.tolist(), found.delay.tolist()) == ([4], [0], [4])


@pytest.mark.parametrize(
    ("cells", "side", "words"),
    [([0, 1], 6, "power of two"), ([0, 0], 4, "different cells"), ([0, 16], 4, "0 to 15"), ([3], 4, "two brokers")],
)
def test_invalid_grids_report_why(cells: list[int], side: int, words: str) -> None:
    """The message has the value and what is required."""
    with pytest.raises(ValueError, match=words):
        draw_geo_overlay(np.array(cells), np.random.default_rng(0), side)
