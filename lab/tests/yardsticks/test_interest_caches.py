"""Caches of brokers: what they still hold, and the interest that brokers compute from each other's filters."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regraft.api.overlays import DeliverySets
from regraft_lab.yardsticks.bloom_filters import FilterShape, false_positive_share
from regraft_lab.yardsticks.interest_caches import InterestCaches, bloom_interest, newest_ids
from tests.overlay.small_overlays import brokers_named

HUGE = FilterShape(1 << 22, 8)


def sets_by_sequence(brokers: tuple[str, ...], wanted: dict[tuple[str, int], set[str]]) -> DeliverySets:
    """Return one window's sets from the brokers that want each notification (publisher, sequence number)."""
    masks: dict[tuple[str, str, int], int] = {}
    for (publisher, sequence), places in wanted.items():
        for broker in places:
            key = (broker, publisher, sequence // 64)
            masks[key] = masks.get(key, 0) | 1 << sequence % 64
    return DeliverySets.of(brokers, masks, 1.0)


def held(sets: DeliverySets, broker: str) -> set[tuple[str, int]]:
    """Return the notifications in a broker's row, as (publisher, sequence number)."""
    row = sets.words[sets.brokers.index(broker)].tolist()
    return {
        (publisher, block * 64 + bit)
        for (publisher, block), word in zip(sets.columns, row, strict=True)
        for bit in range(64)
        if word >> bit & 1
    }


def random_sets(seed: int, brokers: int = 12, notifications: int = 900) -> DeliverySets:
    rng = random.Random(seed)
    names = brokers_named(brokers)
    wanted = {(f"p{n % 7}", n // 7): set(rng.sample(names, rng.randrange(1, 5))) for n in range(notifications)}
    return sets_by_sequence(names, wanted)


@st.composite
def windows(draw: st.DrawFn) -> list[DeliverySets]:
    """Draw up to five windows whose boundaries fall inside blocks of 64."""
    rng = random.Random(draw(st.integers(0, 2**32)))
    names = brokers_named(4)
    found, at = [], {"p": 0, "q": 0}
    for _ in range(rng.randrange(1, 6)):
        wanted = {}
        for publisher in at:
            for _ in range(rng.randrange(0, 60)):
                wanted[publisher, at[publisher]] = set(rng.sample(names, rng.randrange(1, 4)))
                at[publisher] += 1
        found.append(sets_by_sequence(names, wanted))
    return found


@given(windows(), st.integers(1, 120))
def test_a_cache_holds_only_the_newest_identifiers(spans: list[DeliverySets], ids_max: int) -> None:
    """A broker keeps min(ids_max, what it had) identifiers, and none older than one it dropped."""
    whole, kept = DeliverySets.joined(spans), newest_ids(spans, ids_max)
    assert kept.columns == whole.columns
    for broker in whole.brokers:
        had, has = held(whole, broker), held(kept, broker)
        assert has <= had
        assert len(has) == min(ids_max, len(had))
        by_window = [held(span, broker) for span in spans]
        oldest_kept = min((age for age, ids in enumerate(by_window) if ids & has), default=0)
        assert all(ids <= has for ids in by_window[oldest_kept + 1 :])


def test_a_window_that_is_cut_keeps_the_newest_of_each_publisher() -> None:
    """p sent 100 and q sent 10 in the window; the newest 55 of 110 are the later half of each."""
    names = brokers_named(2)
    wanted = {("p", 1000 + n): {"b00"} for n in range(100)} | {("q", n): {"b00"} for n in range(10)}
    kept = held(newest_ids([sets_by_sequence(names, wanted)], 55), "b00")
    assert kept == {("p", 1000 + n) for n in range(50, 100)} | {("q", n) for n in range(5, 10)}


def test_a_cache_larger_than_the_traffic_changes_nothing() -> None:
    """A cache of 8,192 identifiers holds all that there are."""
    sets = random_sets(1)
    kept = newest_ids([sets], 8192)
    assert np.array_equal(kept.words, sets.words)
    assert kept.span_s == sets.span_s


def test_a_cache_without_room_is_refused() -> None:
    """A cache holds at least one identifier."""
    with pytest.raises(ValueError, match="ids_max is 0: a cache holds at least 1"):
        newest_ids([random_sets(1)], 0)


@given(st.integers(0, 2**32))
def test_masks_and_huge_filters_give_the_exact_interest(seed: int) -> None:
    """With almost no false positives, filters give the same counts as masks, for pairs and for triples."""
    sets = random_sets(seed, notifications=300)
    masks, filters = InterestCaches.of_masks(sets), InterestCaches.of_filters(sets, HUGE)
    assert np.array_equal(masks.interest, sets.interest())
    assert np.array_equal(filters.interest, sets.interest())
    i, k, j = (place.reshape(-1) for place in np.mgrid[0:12:3, 0:12:2, 0:12:5])
    exact = [
        int(np.bitwise_count(sets.words[a] & sets.words[b] & sets.words[c]).sum())
        for a, b, c in zip(i, k, j, strict=True)
    ]
    assert masks.common(i, k, j).tolist() == exact
    assert filters.common(i, k, j).tolist() == exact


def test_small_filters_overestimate_differently_at_each_broker() -> None:
    """False positives only add, about as many as the formula predicts, and I_ij no longer equals I_ji."""
    sets = random_sets(5, notifications=3000)
    exact, seen = sets.interest(), bloom_interest(sets, 1000, 2)
    assert (seen >= exact).all()
    assert np.array_equal(seen.diagonal(), exact.diagonal())
    assert not np.array_equal(seen, seen.T)
    sizes = exact.diagonal()
    shares = np.array([false_positive_share(size, FilterShape(1000, 2)) for size in sizes])
    expected = exact + (sizes[:, None] - exact) * shares[None, :]
    assert seen.sum() == pytest.approx(expected.sum(), rel=0.02)


def test_the_conjunction_of_filters_is_between_the_true_and_the_lesser_pair() -> None:
    """I_ikj from filters is at least the exact count, and at most I_ij and I_ik as estimated by the same broker."""
    sets = random_sets(6, notifications=3000)
    filters = InterestCaches.of_filters(sets, FilterShape(2000, 3))
    seen = filters.interest
    i, k, j = (place.reshape(-1) for place in np.mgrid[0:12, 0:12, 0:12])
    common = filters.common(i, k, j)
    assert (common >= InterestCaches.of_masks(sets).common(i, k, j)).all()
    assert (common <= np.minimum(seen[i, k], seen[i, j])).all()


def test_an_idle_overlay_has_no_interest() -> None:
    """Without notifications every count is 0."""
    idle = DeliverySets.of(brokers_named(3), {}, 1.0)
    assert not bloom_interest(idle, 1000, 3).any()
    assert not newest_ids([idle], 10).columns
