"""Caches of ids, and delivery sets built from them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regraft.api.brokers import Notification
from regraft.api.overlays import DeliverySets
from regraft_lab.psoop.distributed_cache import CachingCells, NotificationCache, NotificationIds, TrafficRecord


def published(publisher: str, sequence: int, publish_ms: float = 0.0) -> Notification:
    return Notification(publisher, sequence, publish_ms, "b0", 0, {}, 10)


@given(st.lists(st.integers(0, 40), max_size=200), st.integers(1, 12))
def test_the_newest_ids_are_kept_each_once(noted: list[int], count_max: int) -> None:
    """An id that is already cached changes nothing; a new one replaces the oldest."""
    cache = NotificationCache(count_max)
    expected: list[int] = []
    total = 0
    for notification_id in noted:
        cache.note(notification_id)
        if notification_id not in expected:
            expected = [*expected, notification_id][-count_max:]
            total += 1
        assert cache.ids.tolist() == expected
    assert cache.noted_count == total
    assert cache.newest(3).tolist() == expected[-3:]


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from("xyz"), st.integers(0, 300)), min_size=1, max_size=60))
def test_delivery_sets_of_ids_are_those_of_masks(noted: list[tuple[int, str, int]]) -> None:
    """Ids give the same sets as the masks that telemetry would carry."""
    brokers = ("b0", "b1", "b2")
    ids = NotificationIds()
    caches = [NotificationCache(1000) for _ in brokers]
    masks: dict[tuple[str, str, int], int] = {}
    for broker, publisher, sequence in noted:
        caches[broker].note(ids.id_of(published(publisher, sequence)))
        key = (brokers[broker], publisher, sequence // 64)
        masks[key] = masks.get(key, 0) | 1 << sequence % 64
    found = ids.sets_of(brokers, [cache.ids for cache in caches], 2.0)
    expected = DeliverySets.of(brokers, masks, 2.0)
    assert (found.brokers, found.columns, found.span_s) == (expected.brokers, expected.columns, expected.span_s)
    assert np.array_equal(found.words, expected.words)


def test_the_record_holds_what_was_published_in_its_span() -> None:
    """Earlier or later publications are cached, but not recorded."""
    ids, cache = NotificationIds(), NotificationCache(10)
    record = TrafficRecord(("b0",), since_ms=100.0, until_ms=200.0)
    cells = CachingCells("b0", ids, cache, record)
    for sequence, publish_ms in enumerate((99.0, 100.0, 199.0, 200.0)):
        cells.note_delivered(published("x", sequence, publish_ms), 1)
    sets = record.sets(ids)
    assert len(cache.ids) == 4
    assert (sets.notification_count, sets.span_s) == (2, 0.1)
    with pytest.raises(ValueError, match="set both ends"):
        TrafficRecord(("b0",)).sets(ids)
