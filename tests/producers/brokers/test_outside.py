"""A broker outside the overlay holds its epoch, and has no neighbours."""

from __future__ import annotations

import pytest

from overlay.chord_configuration import ChordConfiguration
from overlay.configuration import Configuration
from overlay.overlay_configuration import OverlayConfiguration
from producers.brokers.broker_cores import core_of
from producers.brokers.chord_tables import ChordTables
from producers.brokers.tree_tables import RoutingTables

TREE = Configuration.of(3, "abc", [("a", "b"), ("b", "c")])
RING = ChordConfiguration.of(3, 8, {"a": 10, "b": 70, "c": 130})


@pytest.mark.parametrize("overlay", [TREE, RING], ids=["tree", "ring"])
def test_a_broker_that_the_overlay_lacks_has_no_neighbours(overlay: OverlayConfiguration) -> None:
    """It holds the epoch all the same."""
    core = core_of("new", overlay, 0)
    assert (core.epoch, core.live_neighbours) == (3, ())


@pytest.mark.parametrize("overlay", [TREE, RING], ids=["tree", "ring"])
def test_a_broker_may_begin_outside_an_overlay_that_has_it(overlay: OverlayConfiguration) -> None:
    """The overlay means its earlier life."""
    assert core_of("b", overlay, 0).live_neighbours == ("a", "c")
    assert core_of("b", overlay, 0, is_outside=True).live_neighbours == ()


def test_no_way_over_a_lost_broker_is_kept_on_a_tree() -> None:
    """Its links are new, also where they join the same two."""
    later = TREE.at_epoch(4)
    kept, cut = (RoutingTables("a", later, TREE, lost=lost) for lost in (frozenset(), frozenset("b")))
    assert (kept.same_way, kept.shared) == ({"a", "b", "c"}, {"b"})
    assert (cut.same_way, cut.shared) == ({"a"}, frozenset())


def test_no_way_over_a_lost_broker_is_kept_on_a_ring() -> None:
    """Nor one to a broker that one of the rings lacks."""
    older, later = ChordTables("a", RING), RING.at_epoch(4)
    kept, cut = (ChordTables("a", later, lost=lost) for lost in (frozenset(), frozenset("b")))
    assert [kept.same_route(older, "a", broker) for broker in "abcd"] == [True, True, True, False]
    assert [cut.same_route(older, "a", broker) for broker in "abc"] == [True, False, "b" not in RING.route("a", "c")]
