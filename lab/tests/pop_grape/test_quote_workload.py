"""The workload of section 5.1: who sinks how much, where subscribers are, what is published when."""

import random
from itertools import islice, pairwise

import pytest

from regraft.api.emulation import VirtualOverlay
from regraft_lab.pop_grape.quote_workload import (
    SINK_SHARES,
    QuoteSettings,
    QuoteTraffic,
    Rating,
    draw_workload,
    enriched_quotes,
    ratings,
    sampled_filter,
    shared_filter,
    sink_share,
    tradable_stocks,
)
from regraft_lab.pop_grape.testbeds import planetlab_testbed

BROKERS = [f"b{place:02d}" for place in range(63)]


@pytest.mark.parametrize(("rating", "tolerance"), [("low", 0.005), ("medium", 0.025), ("high", 0.0)])
def test_shared_subscriptions_sink_their_share_of_every_stock(rating: Rating, tolerance: float) -> None:
    """Low-rated ones sink 10 % of the real quotes, medium-rated ones 50 %, high-rated ones all."""
    shares = [sink_share(stock, shared_filter(stock, rating)) for stock in tradable_stocks()]
    assert all(abs(share - SINK_SHARES[rating]) <= tolerance for share in shares)
    assert len(shares) == 46  # Three of the 49 are hardly traded: no two thresholds halve their quotes.


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_sampled_subscriptions_sink_their_share_and_differ(share: float) -> None:
    """A band holds its share of the quotes; ties at its ends may add some."""
    rng = random.Random(5)
    for stock in tradable_stocks()[::9]:
        filters = [sampled_filter(stock, share, rng) for _ in range(20)]
        shares = [sink_share(stock, each) for each in filters]
        assert all(share <= each <= share + 0.25 for each in shares)
        assert sum(shares) / len(shares) == pytest.approx(share, abs=0.05)
        assert len(set(filters)) > 15


def test_derived_attributes_are_those_of_the_papers_example() -> None:
    """(high - low) / low, as (18.62 - 18.37) / 18.37 = 0.014 in the paper; close equal to low or high as texts."""
    for quote in enriched_quotes()["AAPL"][:50]:
        content = quote.content
        high, low, close, open_ = (float(content[name]) for name in ("high", "low", "close", "open"))
        assert content["highLow%Diff"] == pytest.approx((high - low) / low, abs=1e-6)
        assert content["openClose%Diff"] == pytest.approx(abs(close - open_) / open_, abs=1e-6)
        assert content["closeEqualsLow"] == ("true" if close == low else "false")
        assert content["closeEqualsHigh"] == ("true" if close == high else "false")


def test_ratings_are_mixed_as_in_the_paper() -> None:
    """Random: 70, 25 and 5 %; clustered: 95 and 5 %; even among few, one sinks all."""
    random_mix, clustered = ratings("random", 60), ratings("clustered", 60)
    assert [random_mix.count(rating) for rating in ("low", "medium", "high")] == [42, 15, 3]
    assert [clustered.count(rating) for rating in ("low", "medium", "high")] == [57, 0, 3]
    assert ratings("clustered", 1) == ["high"]


@pytest.mark.parametrize("x", [1, 2, 8, 64])
def test_clustered_subscribers_have_a_main_office(x: int) -> None:
    """All that sink everything are at one broker, the others at the X - 1 other ones."""
    workload = draw_workload(BROKERS, QuoteSettings("clustered", "shared", x), random.Random(x))
    for publisher in workload.publishers:
        mine = [each for each in workload.subscriptions if each.publisher == publisher.name]
        main = {each.home for each in mine if each.rating == "high"}
        branches = {each.home for each in mine if each.rating == "low"}
        assert len(mine) == 60
        assert len(main) == 1
        assert len(branches) <= max(x - 1, 1)
        assert main == branches if x == 1 else main.isdisjoint(branches)


@pytest.mark.parametrize("x", [1, 4, 64])
def test_random_subscribers_are_at_x_brokers(x: int) -> None:
    """Each publisher has its own X brokers; an X above their number means all."""
    workload = draw_workload(BROKERS, QuoteSettings("random", "independent", x), random.Random(x))
    homes = {
        publisher.name: {each.home for each in workload.subscriptions if each.publisher == publisher.name}
        for publisher in workload.publishers
    }
    assert all(len(brokers) <= min(x, len(BROKERS)) for brokers in homes.values())
    assert len(set.union(*homes.values())) > x or x == 64


def test_what_is_published_does_not_depend_on_where() -> None:
    """Moved publishers publish the same quotes at the same times; quotes are in the order of their dates."""
    workload = draw_workload(BROKERS, QuoteSettings(publisher_count=3), random.Random(7))
    moved = workload.at_homes({workload.publishers[0].name: "b00"})
    assert moved.publishers[0].home == "b00"
    assert moved.publishers[1:] == workload.publishers[1:]
    first, again = (list(islice(each.publishers[0].publications(), 500)) for each in (workload, moved))
    assert first == again
    dates = [str(quote.content["date"]) for _, quote in first]
    assert sum(later < earlier for earlier, later in pairwise(dates)) <= 2  # 400 quotes, then again


def test_publishing_before_all_know_the_publisher_is_refused() -> None:
    """Brokers that are 60 ms apart do not know a publisher after 1 ms."""
    inventory = planetlab_testbed(random.Random(1), 7)
    workload = draw_workload(inventory.brokers, QuoteSettings(publisher_count=1), random.Random(1))
    virtual = VirtualOverlay(inventory)
    QuoteTraffic(virtual.overlay, workload, virtual.now_ms + 1.0).start()
    with pytest.raises(RuntimeError, match="start later"):
        virtual.run_for(5_000.0)


def test_more_publishers_than_stocks_are_refused() -> None:
    """The message has both numbers."""
    with pytest.raises(ValueError, match=r"publisher_count is 47: must be from 1 to the 46"):
        draw_workload(BROKERS, QuoteSettings(publisher_count=47), random.Random(1))
