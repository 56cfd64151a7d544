"""Queues of a node's links: what is on its way over a long link is none, what waits for a slow or cut one is."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as some

from regraft.overlay.link_congestion import PRODUCT, WINDOW_MS, QueueWindow
from regraft.producers.nodes.links.meter_links import LEAST_KEPT_S, SLACK_MS, LeastLately, LinkMeter, LinkStanding

WINDOW_S = WINDOW_MS / 1_000


class Link:
    """A link with a round trip of some windows, and a limit of frames per window."""

    def __init__(self, rtt_windows: int, per_window_max: float = float("inf")) -> None:
        self.rtt_windows, self.per_window_max = rtt_windows, per_window_max
        self.pair = ("1", "1")
        self.put = self.passed = self.over = 0
        self._passed = deque([0] * rtt_windows)

    def standing(self, _peer: str) -> LinkStanding:
        return LinkStanding(self.pair, self.put, self.over, self.rtt_windows * WINDOW_MS)

    def run(self, meter: LinkMeter, puts: list[int]) -> Iterator[QueueWindow]:
        """Put these numbers of frames, window by window; yield what the meter says after each."""
        for number, count in enumerate(puts):
            self.put += count
            self.passed = int(min(self.passed + self.per_window_max, self.put))
            self._passed.append(self.passed)
            self.over = self._passed.popleft()
            yield meter.windows(["b02"], number * WINDOW_S)["b02"]


@given(some.integers(1, 40), some.lists(some.integers(0, 500), min_size=1, max_size=80))
def test_what_is_on_its_way_is_no_queue(rtt_windows: int, puts: list[int]) -> None:
    """However long an idle link is and however traffic changes, it is never congested."""
    link = Link(rtt_windows)
    windows = list(link.run(LinkMeter(link.standing), puts))
    assert all(window.queued == 0 for window in windows)
    assert sum(window.entered for window in windows) == sum(puts[1:])
    assert sum(window.left for window in windows) == link.over


@given(some.integers(1, 20), some.integers(1, 20))
def test_what_a_slow_link_does_not_pass_is_a_queue(rtt_windows: int, per_window: int) -> None:
    """The queue is found within the round trip, the slack and two windows; when all has passed, it is gone."""
    link = Link(rtt_windows, per_window)
    meter = LinkMeter(link.standing)
    waited = rtt_windows + int(SLACK_MS / WINDOW_MS) + 2
    flood = list(link.run(meter, [3 * per_window + 10] * (waited + 10)))
    assert PRODUCT.congested(flood[-1])
    assert flood[-1].queued <= link.put - link.over
    pause = -(-(link.put - link.passed) // per_window) + rtt_windows
    quiet = list(link.run(LinkMeter(link.standing), [0] * (pause + waited)))
    assert quiet[-1] == QueueWindow()


def test_a_link_that_is_cut_is_congested_and_a_new_incarnation_begins_without_a_queue() -> None:
    """What was put for the former incarnation does not count."""
    link = Link(1, 0)
    meter = LinkMeter(link.standing)
    cut = list(link.run(meter, [5] * 20))
    assert PRODUCT.congested(cut[-1])
    link.pair, link.put, link.over = ("1", "2"), 4, 0
    assert meter.windows(["b02"], 2.0)["b02"] == QueueWindow()
    assert meter.windows([], 2.0) == {}


@pytest.mark.parametrize("wait_s", [1.0, LEAST_KEPT_S + 1])
def test_a_round_trip_that_grows_for_good_is_accepted_after_a_while(wait_s: float) -> None:
    """Until then the least one counts, so that a queue does not pass for a longer link."""
    least = LeastLately()
    assert least.least is None
    for now_s, rtt_ms in ((0.0, 30.0), (0.5, 10.0), (0.6, 20.0), (wait_s, 90.0)):
        least.note(now_s, rtt_ms)
    assert least.least == (10.0 if wait_s == 1.0 else 90.0)
