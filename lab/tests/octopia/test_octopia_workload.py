"""Random publishers and subscribers: notifications of ten attributes, matched by content as brokers match them."""

from __future__ import annotations

import random
from functools import cache

import numpy as np
import pytest

from regraft.api.brokers import intersects, matches
from regraft_lab.octopia.octopia_workload import (
    SELECTIVITY,
    SUBSCRIBER_COUNT,
    StockWorkload,
    draw_workload,
    paper_overlay,
)

OVERLAY = paper_overlay()


@cache
def drawn(seed: int) -> StockWorkload:
    """Return the publishers and subscribers of a seed, including three bursting publishers."""
    return draw_workload(OVERLAY, random.Random(seed), bursting=3)


def test_a_notification_is_wanted_by_subscribers_whose_filter_matches_it() -> None:
    """All ten attributes are in each notification and in each filter."""
    workload = drawn(1)
    filters = [workload.subscriptions.filter_of(number) for number in range(SUBSCRIBER_COUNT)]
    for publisher in [*workload.bursting, *workload.publishers[:5]]:
        content = publisher.content_of(17)
        assert len(content) == 10
        assert {predicate.attribute for predicate in filters[0]} == set(content)
        wanted = [number for number, filter_ in enumerate(filters) if matches(filter_, content)]
        assert publisher.matched(17).tolist() == wanted
        assert publisher.targets_of(17) == {workload.subscriptions.at[number] for number in wanted}
        assert matches(publisher.advertisement, content)
        met = [intersects(publisher.advertisement, filter_) for filter_ in filters]
        assert publisher.interested.tolist() == met


def test_subscriptions_want_two_percent_and_no_two_quotes_of_a_stock_the_same() -> None:
    """Each matches 2 % of the notifications; successive quotes of a stock interest different subscribers."""
    workload = drawn(1)
    quotes = [(publisher, number) for publisher in workload.publishers for number in range(0, 100, 10)]
    share = np.mean([len(publisher.matched(number)) for publisher, number in quotes]) / SUBSCRIBER_COUNT
    assert share == pytest.approx(SELECTIVITY, rel=0.05)
    assert len({workload.bursting[0].targets_of(number) for number in range(100)}) > 10


@pytest.mark.parametrize("seed", range(3))
def test_bursting_publishers_are_as_in_the_paper(seed: int) -> None:
    """2 % of the subscribers want what they publish, in all clusters but at none of the publishers' brokers."""
    for publisher in drawn(seed).bursting:
        assert publisher.wanted_share == pytest.approx(SELECTIVITY, rel=0.25)
        assert publisher.host not in publisher.subscribed
        for number in range(0, 100, 7):
            assert {broker.cluster for broker in publisher.targets_of(number)} == set(range(5))


def test_a_draw_is_reproducible() -> None:
    """Another seed gives others."""
    again = draw_workload(OVERLAY, random.Random(2), bursting=3)
    for one, other in zip(again.publishers, drawn(2).publishers, strict=True):
        assert (one.host, one.quotes.tolist()) == (other.host, other.quotes.tolist())
    assert again.publishers[0].quotes.tolist() != drawn(1).publishers[0].quotes.tolist()
