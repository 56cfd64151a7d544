from collections import deque

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from regraft_lab.psoop.broker_caches import CacheReader
from regraft_lab.psoop.paper_workload import Workload, WorkloadSettings, draw_workload

BROKERS = 12
NAMES = [f"b{number:02d}" for number in range(BROKERS)]


def small_workload(seed: int) -> Workload:
    """Return traffic over 12 brokers: 6 types, 3 subscribers, a change every few notifications."""
    shape = WorkloadSettings(
        broker_count=BROKERS,
        type_count=6,
        subscribers_per_type=3,
        subscriptions_ended_per_tick=0.01,
        duration_ticks=400,
        load_change_ticks=(200,),
    )
    return draw_workload(shape, np.random.default_rng(seed))


def naive_caches(workload: Workload, end_id: int, size_max: int) -> list[set[int]]:
    """Return every broker's newest ids, filled notification by notification."""
    caches: list[deque[int]] = [deque(maxlen=size_max) for _ in range(BROKERS)]
    for identifier in range(end_id):
        for broker in workload.members[workload.flow_of[identifier]]:
            caches[broker].append(identifier)
    return [set(cache) for cache in caches]


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 1_000), st.integers(1, 80), st.floats(0, 1))
def test_caches_hold_the_newest_identifiers_exactly(seed: int, size_max: int, part: float) -> None:
    """Common interest and every distinct set equal those of caches that are filled one notification after the other."""
    workload = small_workload(seed)
    end_id = round(part * workload.notification_count)
    naive = naive_caches(workload, end_id, size_max)
    caches = CacheReader(workload).newest(end_id, size_max)
    assert caches.interest.tolist() == [[len(one & other) for other in naive] for one in naive]
    expected: dict[frozenset[int], int] = {}
    for identifier in set().union(*naive):
        holders = frozenset(broker for broker in range(BROKERS) if identifier in naive[broker])
        expected[holders] = expected.get(holders, 0) + 1
    found: dict[frozenset[int], int] = {}
    for holds, count in zip(caches.holds, caches.counts, strict=True):
        holders = frozenset(np.flatnonzero(holds).tolist())
        found[holders] = found.get(holders, 0) + int(count)
    assert found == expected


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 1_000), st.floats(0, 1), st.floats(0, 1))
def test_caches_of_a_time_hold_all_of_it(seed: int, one: float, other: float) -> None:
    """A cache by time holds the delivery sets of that time."""
    workload = small_workload(seed)
    first, end = sorted(round(part * workload.notification_count) for part in (one, other))
    caches = CacheReader(workload).between(first, end)
    assert (caches.interest == workload.delivery_sets(NAMES, first, end, 1.0).interest()).all()


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 1_000), st.integers(1, 80))
def test_delivery_sets_of_caches_have_one_bit_for_each_identifier(seed: int, size_max: int) -> None:
    """Bits and distinct sets hold the same information, so a planner may read either."""
    workload = small_workload(seed)
    caches = CacheReader(workload).newest(workload.notification_count, size_max)
    sets = caches.delivery_sets(NAMES, 1.0)
    assert (sets.interest() == caches.interest).all()
    assert sets.notification_count == caches.counts.sum() == sets.distinct[1].sum()
