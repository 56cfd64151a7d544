"""Measured links: measurements replace the inventory's costs, and what comes and goes does not."""

import itertools

import pytest

from regraft.controller.controller_settings import LinkSettings
from regraft.controller.state.closed_window import ClosedWindow
from regraft.controller.windows.measure_links import MEASURED_MS_MAX, LinkMeter, counted_drift
from regraft.overlay.inventory import Inventory
from regraft.schemas.state import LinkRtt
from tests.controller.published_windows import queue_of, window_of
from tests.overlay.small_overlays import inventory_of, line_of, sets_of

COST = 10.0  # Of every link, as the inventory tells it: a round trip of 20 ms.
PAIR = ("b00", "b01")


def inventory(brokers: int = 6) -> Inventory:
    """Brokers on a line."""
    return inventory_of(line_of(brokers), {})


def window_with(number: int, rtts_ms: dict[tuple[str, str], float], queues: tuple[object, ...] = ()) -> ClosedWindow:
    """Window ``number`` in which somebody measured these round trips."""
    rtts = tuple(LinkRtt(broker, peer, rtt_ms, rtt_ms) for (broker, peer), rtt_ms in rtts_ms.items())
    return window_of(number, sets_of(inventory().brokers, [{"b00"}]), {}, queues=queues, rtts=rtts)  # type: ignore[arg-type]


def costs_along(rtts_ms: list[float], settings: LinkSettings | None = None) -> list[float | None]:
    """The cost in use of a link after each window with one of these round trips, None while the inventory's holds."""
    meter, found = LinkMeter(settings or LinkSettings()), []
    for number, rtt_ms in enumerate(rtts_ms):
        meter.add(window_with(number, {PAIR: rtt_ms}), inventory())
        found.append(meter.costs.get(PAIR))
    return found


def test_a_link_that_takes_ten_times_as_long_costs_that_with_the_second_window() -> None:
    """One window may be odd, two are not; and back again in the same time."""
    assert costs_along([20, 20, 20, 200, 200, 200]) == [None, None, None, None, 100.0, 100.0]
    assert costs_along([200, 200, 200, 20, 20, 20]) == [None, 100.0, 100.0, 100.0, None, None]


def test_a_single_odd_window_changes_nothing() -> None:
    """Neither up nor down, wherever it comes once there is something to hold it against."""
    assert costs_along([20, 20, 400, 20, 20, 1, 20]) == [None] * 7


def test_costs_do_not_flicker() -> None:
    """A link around the limit changes its cost once at most, and one that swings never does."""
    assert len(set(costs_along([24, 26, 24, 26, 24, 26, 24, 26])[4:])) == 1
    assert len(set(costs_along([20, 60] * 10)[2:])) == 1
    slow = [cost for cost in costs_along([100, 104, 96, 110, 90, 112, 100]) if cost is not None]
    assert len(set(slow)) == 1


def test_the_unit_is_a_setting_and_nothing_turns_it_off() -> None:
    """A ms may cost anything; with 0 links cost what the inventory says, whatever is measured."""
    assert costs_along([200, 200], LinkSettings(cost_per_ms=0.5)) == [None, 50.0]
    assert costs_along([200, 200], LinkSettings(cost_per_ms=0.0)) == [None, None]


def test_both_ends_measure_one_link() -> None:
    """The least of what the two tell counts: the other one has waited somewhere."""
    meter = LinkMeter(LinkSettings())
    for number in range(2):
        changed = meter.add(window_with(number, {("b00", "b01"): 90.0, ("b01", "b00"): 80.0}), inventory())
    assert changed == {PAIR: (COST, 40.0)}


def test_costs_in_another_unit_are_left_alone() -> None:
    """Where all links are off by as much, it is the unit: nothing is corrected, until most fit again."""
    meter = LinkMeter(LinkSettings())
    pairs = list(itertools.combinations(inventory().brokers, 2))
    for number in range(3):
        assert meter.add(window_with(number, dict.fromkeys(pairs, 2_000.0)), inventory()) == {}
    assert not meter.is_usable
    assert meter.unit_factor == pytest.approx(100.0)
    for number in range(3, 6):
        changed = meter.add(window_with(number, dict.fromkeys(pairs, 20.0) | {PAIR: 200.0}), inventory())
    assert meter.is_usable
    assert meter.costs == {PAIR: 100.0}
    assert changed.keys() <= set(pairs)


def test_what_nobody_measures_any_more_is_forgotten() -> None:
    """After half an hour a link costs again what the inventory says."""
    meter = LinkMeter(LinkSettings())
    for number in range(2):
        meter.add(window_with(number, {PAIR: 200.0}), inventory())
    window_ms = window_with(0, {}).end_ms
    changed = meter.add(window_with(2 + MEASURED_MS_MAX // window_ms, {}), inventory())
    assert changed == {PAIR: (100.0, COST)}
    assert meter.costs == {}


def test_drift_is_what_counted_messages_cost_at_measured_delays() -> None:
    """A link that takes 20 % longer is not corrected, and yet counted; without probes only counts tell."""
    meter = LinkMeter(LinkSettings())
    queues = (queue_of("b00", "b01", per_s=5.0), queue_of("b00", "", per_s=5.0))
    window = window_with(0, {PAIR: 24.0}, queues)
    assert counted_drift(meter, window, {PAIR: COST}, 110.0, 100.0) == pytest.approx(0.1)
    for number in range(2):
        meter.add(window_with(number, {PAIR: 24.0}), inventory())
    assert meter.costs == {}
    assert counted_drift(meter, window, {PAIR: COST}, 100.0, 100.0) == pytest.approx(5.0 * 2.0 / 100.0)
    assert meter.refit([PAIR])
    assert meter.costs == {PAIR: 12.0}
