"""A structured cyclic overlay over named brokers: its links, its paths, and invalid shapes."""

from itertools import pairwise

import pytest

from regraft.overlay.scot.scot_configuration import ScotConfiguration
from regraft.overlay.scot.structured_cyclic import OverlayShapeError
from tests.overlay.small_overlays import brokers_named

NAMES = brokers_named(9)
# Three regions in a line, of three brokers each: b00, b03 and b06 are cluster 0.
SCOT = ScotConfiguration(0, (NAMES[0:3], NAMES[3:6], NAMES[6:9]), ((0, 1), (1, 2)))


def test_links_are_those_of_the_product() -> None:
    """Two links in each of three clusters, three in each of three regions."""
    assert len(SCOT.links) == 3 * 2 + 3 * 3
    assert SCOT.neighbours["b03"] == ("b00", "b04", "b05", "b06")
    assert SCOT.cluster_neighbours("b03") == ("b00", "b06")
    assert SCOT.region_of("b04") == ("b03", "b04", "b05")
    assert SCOT.degree_max == 4


@pytest.mark.parametrize("source", NAMES)
def test_static_paths_cross_regions_in_the_cluster_of_their_end(source: str) -> None:
    """A path follows links; it changes clusters at its first step or never."""
    for target in NAMES:
        route = SCOT.static_route(source, target)
        assert (route[0], route[-1]) == (source, target)
        assert all(tuple(sorted(pair)) in SCOT.links for pair in pairwise(route))
        assert len({SCOT.slot_of[broker][1] for broker in route[1:]}) <= 1


def test_it_is_restored_from_an_inventory() -> None:
    """An inventory of another kind holds none; a broker without a region is refused."""
    assert ScotConfiguration.of_fields(NAMES, SCOT.overlay_fields()) == SCOT
    assert ScotConfiguration.of_fields(NAMES, {"links": []}) is None
    with pytest.raises(OverlayShapeError, match="regions hold 9 brokers, the inventory 10"):
        ScotConfiguration.of_fields(brokers_named(10), SCOT.overlay_fields())


@pytest.mark.parametrize(
    ("regions", "region_links", "reason"),
    [
        ((("a", "b"), ("c",)), ((0, 1),), "each needs one of every cluster"),
        ((("a", "b"), ("c", "a")), ((0, 1),), "a broker is in one"),
        ((("a",), ("b",), ("a",)), ((0, 1), (1, 2)), "regions that it joins must be linked"),
        ((("a",), ("b",), ("c",)), ((0, 1),), "join 2 regions, but there are 3"),
        ((("a",), ("b",), ("c",)), ((0, 1), (1, 2), (0, 2)), "1 links too many"),
    ],
)
def test_invalid_shapes_are_refused(
    regions: tuple[tuple[str, ...], ...], region_links: tuple[tuple[int, int], ...], reason: str
) -> None:
    """The message says what is wrong."""
    with pytest.raises(OverlayShapeError, match=reason):
        ScotConfiguration(0, regions, region_links)


def test_homes_are_brokers_and_not_part_of_the_digest() -> None:
    """This is the same on other kinds of overlay."""
    assert SCOT.with_homes({"p": "b00"}).digest == SCOT.digest != SCOT.at_epoch(1).digest
    with pytest.raises(ValueError, match="not in the overlay: b99"):
        SCOT.with_homes({"p": "b99"})
