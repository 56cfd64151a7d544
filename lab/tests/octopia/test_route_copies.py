from collections.abc import Collection

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regraft.api.cyclic import ScotBroker, StructuredCyclicOverlay, as_text, scot_overlay
from regraft_lab.octopia.count_routing import (
    Delivery,
    advertise,
    bind_subscription,
    broadcast_subscription,
    cib_set_messages,
    deliver,
    flood_advertisement,
)
from regraft_lab.octopia.overlay_links import a_links, i_links
from regraft_lab.octopia.route_copies import ScotRouter

THRESHOLD = 10.0
Link = tuple[ScotBroker, ScotBroker]
FIG_7 = scot_overlay([("a", "b"), ("b", "c")], 3)
TREE = [("f", "g"), ("g", "h"), ("h", "i"), *(("fghi"[n % 4], f"leaf{n}") for n in range(10))]


def broker(name: str) -> ScotBroker:
    return ScotBroker(name[0], int(name[1]))


def link(name: str) -> Link:
    return broker(name[:2]), broker(name[2:])


def routed(router: ScotRouter, overloaded: Collection[Link]) -> tuple[Delivery, Delivery]:
    """Return what static and dynamic routing do when these links have a load above the threshold."""

    def load(one: ScotBroker, other: ScotBroker) -> float:
        return 2 * THRESHOLD if (one, other) in overloaded else 0.0

    return deliver(router, router.static_copies), deliver(
        router, lambda at, came_from, vector: router.dynamic_copies(at, came_from, vector, load, THRESHOLD)
    )


@pytest.mark.parametrize(
    ("targets", "overloaded", "messages"),
    [
        ("c0 c1 c2 a2", "b2b0", (6, 6)),
        # The text prints 4 messages and 4 brokers for IDR; each broker but the first takes one message: 3 and 4.
        ("c0 c1 c2", "b2b0 b2b1", (5, 3)),
        ("c0 c1 c2 a2", "b2b0 b1b0 c1c0", (6, 5)),
        ("c0 c1 c2", "b2b0 b2b1 b2c2", (5, 5)),
    ],
)
def test_figure_7_has_the_messages_of_the_paper(targets: str, overloaded: str, messages: tuple[int, int]) -> None:
    """The publisher is at B(b, 2) of a-b-c x K3; brokers visited are one more than messages."""
    router = ScotRouter(FIG_7, broker("b2"), [broker(each) for each in targets.split()])
    found = routed(router, [link(each) for each in overloaded.split()])
    assert tuple(len(each.links) for each in found) == messages
    assert tuple(len(set(each.reached)) for each in found) == (messages[0] + 1, messages[1] + 1)


def test_figure_8_has_the_vectors_and_copies_of_the_paper() -> None:
    """P2 on B(a, 1) has 101 and sends just two copies, to (a, 0) and (a, 2): for S1 and S4, where the text has S3."""
    overlay = scot_overlay([("a", "b"), ("b", "c"), ("b", "d"), ("d", "e"), ("d", "f")], 3)
    p2 = ScotRouter(overlay, broker("a1"), [broker("c0"), broker("f2")])
    assert as_text(p2.vector, 3) == "101"
    assert [copy.to for copy in p2.static_copies(p2.host, None, p2.vector)] == [broker("a0"), broker("a2")]
    p1 = ScotRouter(overlay, broker("a2"), [broker("f2")])
    # The text's "P1 100" has the host's own bit set; without it, no other cluster is left.
    assert p1.vector == 0
    p3 = ScotRouter(overlay, broker("e1"), [broker("c0"), broker("b0"), broker("f1"), broker("f2")])
    copies = [copy.to for copy in p3.static_copies(p3.host, None, p3.vector)]
    assert copies == [broker("d1"), broker("e0"), broker("e2")]


def test_the_evaluations_overlay_needs_the_messages_of_the_paper() -> None:
    """14 x K5: 4 messages for an advertisement against 2 * 205 - 69 = 341, 13 for a subscription, 5 of 70 tables."""
    overlay = scot_overlay(TREE, 5)
    for host in overlay.brokers():
        sent = advertise(overlay, host)
        messages, last_hop = flood_advertisement(overlay, host)
        assert (len(sent), messages) == (4, 341)
        assert (len({to for _, to in sent} | {host}), len(last_hop) + 1) == (5, 70)
        carried = broadcast_subscription(overlay, host)
        assert len(carried) == 13
        assert len({to for _, to in carried} | {host}) == 14
        assert len(cib_set_messages(overlay, host, overlay.brokers())) == 4


def test_a_subscription_is_bound_to_trees_by_shortest_paths() -> None:
    """Two advertisements of one broker share every link; one at the broker itself needs none."""
    overlay = scot_overlay(TREE, 5)
    _, tree = flood_advertisement(overlay, ScotBroker("f", 0))
    assert len(bind_subscription([tree, tree], ScotBroker("i", 3))) == 4
    assert bind_subscription([tree], ScotBroker("f", 0)) == []


@st.composite
def overloads(draw: st.DrawFn) -> tuple[StructuredCyclicOverlay, ScotRouter, set[Link]]:
    """Return a small overlay, a publisher, targets, and any overloaded links, in either direction."""
    regions = draw(st.integers(2, 6))
    tree = [(f"r{draw(st.integers(0, each - 1))}", f"r{each}") for each in range(1, regions)]
    overlay = scot_overlay(tree, draw(st.integers(1, 5)))
    brokers = st.sampled_from(overlay.brokers())
    both = [*a_links(overlay), *i_links(overlay)]
    links = both + [(other, one) for one, other in both]
    if draw(st.booleans()):
        found = set(links)
    else:
        found = draw(st.sets(st.sampled_from(links)))
    return overlay, ScotRouter(overlay, draw(brokers), draw(st.sets(brokers))), found


@given(overloads())
def test_each_target_is_reached_once_whatever_is_overloaded(
    drawn: tuple[StructuredCyclicOverlay, ScotRouter, set[Link]],
) -> None:
    """No broker is visited twice, so there are no loops, and all copies use links of the overlay."""
    overlay, router, overloaded = drawn
    links = {frozenset(each) for each in (*a_links(overlay), *i_links(overlay))}
    for delivery in routed(router, overloaded):
        assert len(delivery.reached) == len(set(delivery.reached))
        assert router.targets <= set(delivery.reached)
        assert {frozenset(each) for each in delivery.links} <= links


@given(overloads())
def test_dynamic_routing_sends_no_more_copies_from_the_host(
    drawn: tuple[StructuredCyclicOverlay, ScotRouter, set[Link]],
) -> None:
    """Elsewhere it may send more: this only holds for the host broker. Without overload both do the same."""
    _, router, overloaded = drawn
    static, dynamic = (sum(one == router.host for one, _ in each.links) for each in routed(router, overloaded))
    assert dynamic <= static
    one, other = routed(router, ())
    assert one.links == other.links
