"""Trace sessions cut from windows, and the delays that the windows' queues show."""

import numpy as np

from regraft.controller.planners.tree.steps.trace_publishers import hop_delays, subscribers_mean, trace_sessions
from regraft.overlay.tree.configuration import TreeConfiguration
from regraft.overlay.tree.link_sides import RootedTree
from regraft.schemas.state import LinkRtt
from tests.controller.published_windows import queue_of, window_of
from tests.overlay.published_overlays import Published, spans_of
from tests.overlay.small_overlays import inventory_of, line_of

LINE = line_of(3)
HOMES = {"p": "b00", "q": "b01"}
EVERYWHERE = frozenset(LINE.brokers)


def windows_of(notifications: list[Published], spans: int, **more: object) -> list:  # type: ignore[type-arg]
    sets = spans_of(LINE.brokers, notifications, HOMES, [1.0] * spans)
    return [window_of(number, each, HOMES, **more) for number, each in enumerate(sets)]  # type: ignore[arg-type]


def test_the_newest_notifications_make_the_session() -> None:
    """Of 150 notifications over two windows and three blocks, the newest 100 are traced and the oldest 50 are not."""
    wanted = [frozenset({"b00"})] * 50 + [frozenset({"b01"})] * 30 + [frozenset({"b02"})] * 70
    notifications = [Published("p", int(place >= 90), where) for place, where in enumerate(wanted)]
    sessions = trace_sessions(windows_of(notifications, 2), 100, 100)
    assert sessions.publishers == ("p",)
    assert sessions.lengths.tolist() == [100]
    assert np.bitwise_count(sessions.words).sum(axis=1).tolist() == [0, 30, 70]
    assert sessions.deliveries.tolist() == [[0.0, 30.0, 70.0]]


def test_publishers_with_too_few_notifications_have_no_session() -> None:
    """A session has its full length or does not exist; without a bound all notifications make one."""
    notifications = [Published("p", 0, EVERYWHERE)] * 99 + [Published("q", 0, EVERYWHERE)] * 100
    windows = windows_of(notifications, 1)
    assert trace_sessions(windows, 100, 100).publishers == ("q",)
    whole = trace_sessions(windows, 1, None)
    assert whole.publishers == ("p", "q")
    assert whole.lengths.tolist() == [99, 100]
    assert trace_sessions(windows, 200, 200).words.shape == (3, 0)


def test_subscribers_are_counted_in_proportion() -> None:
    """Of 10 notifications handed to 30 subscribers in a window, the 4 that are traced were handed to 12."""
    notifications = [Published("p", 0, frozenset({"b02"}))] * 10
    (window,) = windows_of(notifications, 1, local_deliveries={("p", "b02"): 30})
    assert trace_sessions([window], 4, 4).deliveries.tolist() == [[0.0, 0.0, 12.0]]
    delivered = window.sets.delivered
    assert subscribers_mean(window, "p", delivered).tolist() == [0.0, 0.0, 3.0]


def test_a_delivered_notification_counts_at_least_one_subscriber() -> None:
    """If hand-overs were lost or never counted, each delivered notification counts as one."""
    notifications = [Published("p", 0, frozenset({"b01", "b02"}))] * 10
    for known in ({("p", "b02"): 3}, {}):
        (window,) = windows_of(notifications, 1, local_deliveries=known)
        assert trace_sessions([window], 1, None).deliveries.tolist() == [[0.0, 10.0, 10.0]]


def test_delays_are_waits_and_matching_along_the_path() -> None:
    """A hop takes the wait for service and the matching at the broker that it leaves, and the wait for the link."""
    queues = (
        queue_of("b00", "", wait_ms=1.0, service_ms=2.0),
        queue_of("b01", "", wait_ms=4.0, service_ms=8.0),
        queue_of("b01", "b00", wait_ms=16.0),
        queue_of("b01", "b02", wait_ms=32.0),
    )
    (window,) = windows_of([Published("p", 0, EVERYWHERE)], 1, queues=queues)
    inventory = inventory_of(LINE, {("b00", "b01"): 100.0, ("b01", "b02"): 200.0})
    tree = RootedTree.of(LINE)
    delays = hop_delays(LINE, inventory, [window], tree, link_delays=False)
    # Nothing was served at b02: its matching is assumed to take the mean of the others, 5 ms.
    assert delays.local.tolist() == [3.0, 12.0, 5.0]
    assert delays.outward.tolist() == [0.0, 3.0, 44.0]
    assert delays.inward.tolist() == [0.0, 28.0, 5.0]
    with_links = hop_delays(LINE, inventory, [window], tree, link_delays=True)
    assert (with_links.outward - delays.outward).tolist() == [0.0, 100.0, 200.0]
    assert (with_links.inward - delays.inward).tolist() == [0.0, 100.0, 200.0]


def test_measured_round_trips_take_precedence_over_the_inventory() -> None:
    """A link's delay is half the smallest round trip of either end, or the inventory's cost if there is none."""
    rtts = (LinkRtt("b00", "b01", 30.0, 50.0), LinkRtt("b01", "b00", 28.0, 70.0))
    (window,) = windows_of([Published("p", 0, EVERYWHERE)], 1, rtts=rtts)
    inventory = inventory_of(LINE, {("b00", "b01"): 100.0, ("b01", "b02"): 200.0})
    delays = hop_delays(LINE, inventory, [window], RootedTree.of(LINE), link_delays=True)
    assert delays.outward.tolist() == [0.0, 14.0, 200.0]


def test_means_are_weighted_by_what_passed() -> None:
    """A window with three times the traffic has three times the weight."""
    windows = [
        windows_of([Published("p", 0, EVERYWHERE)], 1, queues=(queue_of("b00", "", wait_ms=wait, per_s=per_s),))[0]
        for wait, per_s in ((4.0, 1.0), (8.0, 3.0))
    ]
    configuration = TreeConfiguration.of(0, LINE.brokers, LINE.links)
    delays = hop_delays(configuration, inventory_of(LINE, {}), windows, RootedTree.of(LINE), link_delays=False)
    assert delays.local.tolist() == [7.0, 0.0, 0.0]
