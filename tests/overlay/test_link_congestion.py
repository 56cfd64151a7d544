import pytest

from regraft.overlay.link_congestion import LENGTH, ONSET, PRODUCT, RULES, SUM, CongestionRule, QueueWindow


@pytest.mark.parametrize(("rule", "value"), [(PRODUCT, 15.0), (SUM, 8.0), (ONSET, 20.0), (LENGTH, 3.0)])
def test_readings_differ_at_a_fast_onset(rule: CongestionRule, value: float) -> None:
    """Five enter for each that leaves and three wait."""
    window = QueueWindow(entered=5, left=1, queued=3)
    assert rule.measure(window) == value
    assert rule.congested(window) == (value > 10)


@pytest.mark.parametrize("rule", RULES.values(), ids=list(RULES))
def test_a_queue_at_rest_is_not_congested(rule: CongestionRule) -> None:
    """As many leave as enter, or neither, and none wait."""
    assert not rule.congested(QueueWindow())
    assert not rule.congested(QueueWindow(entered=40, left=40))


def test_a_queue_that_none_leaves_counts_as_if_one_had() -> None:
    """Otherwise nothing could be said of a link that stands still."""
    assert QueueWindow(entered=7, queued=7).congestion_element == 7
    assert PRODUCT.congested(QueueWindow(queued=11))
