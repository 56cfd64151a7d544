"""Delivery rows become sets, homes and hand-overs; rows that do not separate published from delivered give no home."""

import random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from regraft.controller.windows.gather_deliveries import WindowDeliveries, gather_deliveries
from regraft.overlay.sets.delivery_sets import DeliverySets
from regraft.schemas.state import Churn, PublisherDelivery, StateRow, WindowClosed
from tests.overlay.small_overlays import brokers_named
from tests.schemas.packed_rows import delivery_bodies, packed_window

BROKERS = brokers_named(4)
LONGS = st.integers(-(2**63), 2**63 - 1)


def row_of(publisher: str, broker: str, bits: dict[int, tuple[int, int]], local_deliveries: int = 0) -> StateRow:
    """Return the row for block -> (delivered, published)."""
    blocks = sorted(bits)
    delivery = PublisherDelivery(
        publisher,
        broker,
        0,
        local_deliveries,
        0,
        tuple(blocks),
        tuple(bits[block][0] for block in blocks),
        tuple(bits[block][1] for block in blocks),
    )
    return StateRow(0, 1000, "delivery", f"{publisher}|{broker}", delivery=delivery)


def gathered(*rows: StateRow) -> WindowDeliveries:
    return gather_deliveries(rows, BROKERS, 1.0)


@st.composite
def delivery_rows(draw: st.DrawFn) -> list[StateRow]:
    """Return at most one row of each publisher and broker, with up to four blocks."""
    pairs = draw(st.sets(st.tuples(st.sampled_from("pqr"), st.sampled_from(BROKERS))))
    blocks = st.dictionaries(st.sampled_from([0, 1, 7, 2**40]), st.tuples(LONGS, LONGS), min_size=1)
    return [row_of(*pair, draw(blocks), draw(st.integers(0, 3))) for pair in sorted(pairs)]


@given(delivery_rows(), st.randoms(use_true_random=False))
def test_rows_in_any_order_are_the_sets_of_their_masks(rows: list[StateRow], rng: random.Random) -> None:
    """Rows gathered one by one equal the DeliverySets of the same masks."""
    mixed = [*rows, StateRow(0, 1000, "churn", "b00", churn=Churn("b00", 1, 1))]
    rng.shuffle(mixed)
    found = gathered(*mixed)
    delivered: dict[tuple[str, str, int], int] = {}
    published: dict[tuple[str, str, int], int] = {}
    hand_overs = {}
    for row in rows:
        delivery = row.delivery
        assert delivery is not None
        for block, mask, own in zip(delivery.blocks, delivery.masks, delivery.published, strict=True):
            key = (delivery.broker, delivery.publisher, block)
            delivered[key], published[key] = mask, own
        if delivery.local_deliveries:
            hand_overs[delivery.publisher, delivery.broker] = delivery.local_deliveries
    expected = DeliverySets.of(BROKERS, delivered, 1.0, published=published)
    assert (found.sets.brokers, found.sets.columns, found.sets.span_s) == (BROKERS, expected.columns, 1.0)
    assert found.sets.words.tolist() == expected.words.tolist()
    assert found.sets.delivered.tolist() == expected.delivered.tolist()
    assert found.local_deliveries == hand_overs


@given(st.lists(st.tuples(st.sampled_from("pq"), st.sampled_from(BROKERS), st.integers(1, 150)), min_size=1))
def test_home_is_where_the_newest_notification_was_published(stays: list[tuple[str, str, int]]) -> None:
    """Publishers that move several times are at their last home, whatever bit and block their newest one has."""
    bits: dict[tuple[str, str], dict[int, tuple[int, int]]] = {}
    sequences, last = {"p": 0, "q": 0}, {}
    for publisher, broker, count in stays:
        for _ in range(count):
            block, bit = divmod(sequences[publisher], 64)
            blocks = bits.setdefault((publisher, broker), {})
            blocks[block] = (0, blocks.get(block, (0, 0))[1] | 1 << bit)
            sequences[publisher] += 1
        last[publisher] = broker
    signed = {
        pair: {block: (0, mask - (1 << 64) if mask >> 63 else mask) for block, (_, mask) in blocks.items()}
        for pair, blocks in bits.items()
    }
    rows = [row_of(*pair, blocks) for pair, blocks in signed.items()]
    assert gathered(*rows).homes == last
    assert gathered(*reversed(rows)).homes == last


def test_a_publisher_that_published_nothing_has_no_home() -> None:
    """Rows with deliveries alone, as when the home's rows are lost, give no home."""
    found = gathered(row_of("p", "b01", {0: (0b11, 0)}, 2), row_of("q", "b02", {0: (0, 0b1)}))
    assert found.homes == {"q": "b02"}
    assert found.local_deliveries == {("p", "b01"): 2}


def test_a_lost_publication_hides_only_its_own_publishers_home() -> None:
    """If no broker reports what was published, the publisher's home is unknown; everything else is unchanged."""
    others = [row_of("q", "b01", {0: (0, 0b11)}), row_of("q", "b00", {0: (0b10, 0)}, 1)]
    rows = [row_of("p", "b00", {0: (0b001, 0b110)}, 1), row_of("p", "b01", {0: (0b011, 0)}, 2), *others]
    known = gathered(*rows)
    assert known.homes == {"p": "b00", "q": "b01"}
    assert known.homeless == frozenset()
    mixed = gathered(row_of("p", "b00", {0: (0b111, 0)}, 1), rows[1], *others)
    assert mixed.homes == {"q": "b01"}
    assert mixed.homeless == {"p"}
    assert mixed.sets.words.tolist() == known.sets.words.tolist()
    assert mixed.local_deliveries == known.local_deliveries
    [p, q] = (mixed.sets.columns.index((name, 0)) for name in "pq")
    assert mixed.sets.delivered[:, q].tolist() == known.sets.delivered[:, q].tolist()
    assert mixed.sets.delivered[:, p].tolist() == mixed.sets.words[:, p].tolist()


def test_a_publisher_whose_newest_publication_is_lost_has_no_home() -> None:
    """The newest notification decides: an outdated home is worse than none."""
    went = [row_of("p", "b00", {0: (0, 0b0011)}), row_of("p", "b01", {0: (0b1100, 0)})]
    assert (gathered(*went).homes, gathered(*went).homeless) == ({}, {"p"})
    came = [row_of("p", "b00", {0: (0, 0b1100)}), row_of("p", "b01", {0: (0b0011, 0)})]
    assert (gathered(*came).homes, gathered(*came).homeless) == ({"p": "b00"}, frozenset())


def test_no_rows_give_an_empty_window() -> None:
    """It is known that nothing was published and nothing delivered."""
    found = gathered()
    assert found.sets.words.shape == (4, 0)
    assert found.homes == {}


@given(delivery_bodies(BROKERS), st.sampled_from([1, 200, 1 << 18]), st.randoms(use_true_random=False))
def test_packed_rows_equal_single_ones(bodies: list[PublisherDelivery], bytes_max: int, rng: random.Random) -> None:
    """Whatever the records hold and in whatever order they come: the same sets, homes and hand-overs."""
    rows = [StateRow(0, 1000, "delivery", f"{body.publisher}|{body.broker}", delivery=body) for body in bodies]
    packed, _ = packed_window(rows, WindowClosed(0, 1000, 1, {}, (), 0), bytes_max)
    rng.shuffle(packed)
    for mixed in (packed, [*packed, *rows[:2]]):
        assert_same(gathered(*mixed), gathered(*rows))


def test_packed_rows_of_unknown_brokers_are_left_out() -> None:
    """They do not affect the window, and add no block to it."""
    known = PublisherDelivery("p", BROKERS[1], 1, 4, 5, (0,), (1,), (1,))
    strange = PublisherDelivery("p", "stranger", 1, 4, 5, (9,), (1,), (2,))
    rows, _ = packed_window(
        [StateRow(0, 1000, "delivery", body.broker, delivery=body) for body in (known, strange)],
        WindowClosed(0, 1000, 1, {}, (), 0),
    )
    found = gathered(*rows)
    assert (found.sets.columns, found.homes) == ((("p", 0),), {"p": BROKERS[1]})
    assert found.local_deliveries == {("p", BROKERS[1]): 4}


def assert_same(found: WindowDeliveries, expected: WindowDeliveries) -> None:
    """Assert that both are equal, bit by bit."""
    assert (found.sets.brokers, found.sets.columns) == (expected.sets.brokers, expected.sets.columns)
    assert np.array_equal(found.sets.words, expected.sets.words)
    assert np.array_equal(found.sets.delivered, expected.sets.delivered)
    assert (found.homes, found.homeless) == (expected.homes, expected.homeless)
    assert found.local_deliveries == expected.local_deliveries
