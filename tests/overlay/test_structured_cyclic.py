import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regraft.overlay.scot.structured_cyclic import (
    OverlayShapeError,
    ScotBroker,
    StructuredCyclicOverlay,
    scot_overlay,
)
from regraft.producers.brokers.scot_routing import as_text, clusters_of, vector_of, without
from regraft_lab.octopia.overlay_links import a_links, i_links, primary_neighbours, secondary_neighbours


def caterpillar() -> list[tuple[str, str]]:
    """Return a tree with the counts of the evaluation's: 4 inner brokers and 10 at the edge."""
    leaves = {"f": "abc", "g": "de", "h": "jk", "i": "lmn"}
    return [("f", "g"), ("g", "h"), ("h", "i"), *((inner, leaf) for inner in leaves for leaf in leaves[inner])]


def test_the_evaluations_overlay_has_the_counts_of_the_paper() -> None:
    """14 x K5: 70 brokers, 65 links within clusters and 140 between them, 20 inner and 50 edge brokers."""
    overlay = scot_overlay(caterpillar(), 5)
    brokers = overlay.brokers()
    assert len(brokers) == len(set(brokers)) == 70
    assert len(list(a_links(overlay))) == 65
    assert len(list(i_links(overlay))) == 140
    assert sum(len(primary_neighbours(overlay, broker)) == 1 for broker in brokers) == 50


@given(tree_seed=st.integers(0, 2**32 - 1), regions=st.integers(2, 12), clusters=st.integers(1, 6))
def test_the_overlay_is_the_cartesian_product(tree_seed: int, regions: int, clusters: int) -> None:
    """Its links are those of networkx's product of the tree and a complete graph."""
    tree = nx.random_labeled_tree(regions, seed=tree_seed)
    overlay = scot_overlay([(f"r{one}", f"r{other}") for one, other in tree.edges], clusters)
    product = nx.cartesian_product(overlay.tree, nx.complete_graph(clusters))
    links = [*a_links(overlay), *i_links(overlay)]
    assert {frozenset(link) for link in links} == {
        frozenset(ScotBroker(*broker) for broker in link) for link in product.edges
    }
    for broker in overlay.brokers():
        around = primary_neighbours(overlay, broker) + secondary_neighbours(overlay, broker)
        assert set(around) == {ScotBroker(*each) for each in product.neighbors(broker)}


@pytest.mark.parametrize(
    ("links", "clusters", "reason"),
    [
        ([("a", "b")], 0, "0 clusters are too few for an overlay"),
        ([], 3, "a tree without brokers"),
        ([("a", "b"), ("c", "d")], 3, "in 2 parts"),
        ([("a", "b"), ("b", "c"), ("c", "a")], 3, "1 links too many for 3 regions"),
        ([("a", "a")], 3, "1 links too many for 1 regions"),
        ([("a", "b"), ("b", "a")], 3, "link b-a is given twice"),
    ],
)
def test_invalid_overlays_are_refused(links: list[tuple[str, str]], clusters: int, reason: str) -> None:
    """The error says what is wrong."""
    with pytest.raises(OverlayShapeError, match=reason):
        scot_overlay(links, clusters)


def test_a_region_alone_is_an_overlay() -> None:
    """A tree of one node has no links; its region is a complete graph."""
    tree: nx.Graph[str] = nx.Graph()
    tree.add_node("a")
    overlay = StructuredCyclicOverlay(tree, 3)
    assert len(list(i_links(overlay))) == 3


def test_vectors_are_written_as_in_the_paper() -> None:
    """Fig. 7b forwards 011: clusters 0 and 1, counted from the right."""
    assert as_text(vector_of([0, 1]), 3) == "011"
    assert clusters_of(0b101) == [0, 2]
    assert without(0b111, 1) == without(0b101, 1) == 0b101
