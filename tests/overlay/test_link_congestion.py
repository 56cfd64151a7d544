from dataclasses import replace

import pytest

from regraft.overlay.link_congestion import LENGTH, ONSET, PRODUCT, RULES, SUM, CongestionRule, QueueWindow


@pytest.mark.parametrize(("rule", "value"), [(PRODUCT, 15.0), (SUM, 8.0), (ONSET, 20.0), (LENGTH, 3.0)])
def test_readings_differ_at_a_fast_onset(rule: CongestionRule, value: float) -> None:
    """Five messages enter for each one that leaves, and three wait."""
    window = QueueWindow(entered=5, left=1, queued=3)
    assert rule.measure(window) == value
    assert rule.congested(window) == (value > 10)


@pytest.mark.parametrize("rule", RULES.values(), ids=list(RULES))
def test_a_queue_in_balance_is_not_congested(rule: CongestionRule) -> None:
    """As many messages leave as enter, or no message does either, and none waits."""
    assert not rule.congested(QueueWindow())
    assert not rule.congested(QueueWindow(entered=40, left=40))


def test_a_queue_that_nothing_leaves_counts_as_if_one_message_had_left() -> None:
    """Otherwise a hung link would have no congestion element: a division by zero."""
    assert QueueWindow(entered=7, queued=7).congestion_element == 7
    assert PRODUCT.congested(QueueWindow(queued=11))


def test_a_congested_queue_stays_congested_until_it_is_half_as_long() -> None:
    """Otherwise a queue around the threshold would make routes oscillate."""
    lengths = [4, 9, 11, 9, 6, 5, 9, 10, 11]
    states, was = [], False
    for length in lengths:
        was = LENGTH.congested(QueueWindow(queued=length), was=was)
        states.append(was)
    assert states == [False, False, True, True, True, False, False, False, True]
    assert not replace(LENGTH, release_share=1.0).congested(QueueWindow(queued=9), was=True)
