"""Measured links: measurements replace the inventory's costs, and fluctuations do not."""

import itertools
import random
from dataclasses import replace

import numpy as np
import pytest

from regraft.controller.settings.controller_settings import LinkSettings
from regraft.controller.state.closed_window import ClosedWindow
from regraft.controller.windows.measure_links import (
    ESTIMATED_EVERY,
    MEASURED_MS_MAX,
    VALUES_MIN,
    LinkMeter,
    counted_drift,
)
from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.inventory.members import FleetView
from regraft.overlay.overlay_configuration import Link, link
from regraft.overlay.tree.build_tree import bootstrap_tree
from regraft.producers.emulator.place_overlay import place_overlay
from regraft.schemas.state import LinkRtt
from tests.controller.published_windows import queue_of, window_of
from tests.overlay.small_overlays import inventory_of, line_of, sets_of

COST = 10.0  # of every link in the inventory: a round trip of 20 ms
PAIR = ("b00", "b01")


def inventory(brokers: int = 6) -> Inventory:
    """Return brokers on a line."""
    return inventory_of(line_of(brokers), {})


def window_with(number: int, rtts_ms: dict[tuple[str, str], float], queues: tuple[object, ...] = ()) -> ClosedWindow:
    """Return window ``number``, in which these round trips were measured."""
    rtts = tuple(LinkRtt(broker, peer, rtt_ms, rtt_ms) for (broker, peer), rtt_ms in rtts_ms.items())
    return window_of(number, sets_of(inventory().brokers, [{"b00"}]), {}, queues=queues, rtts=rtts)  # type: ignore[arg-type]


def costs_along(rtts_ms: list[float], settings: LinkSettings | None = None) -> list[float | None]:
    """Return a link's cost after each window with one of these round trips, or None while the inventory's applies."""
    meter, found = LinkMeter(settings or LinkSettings()), []
    for number, rtt_ms in enumerate(rtts_ms):
        meter.add(window_with(number, {PAIR: rtt_ms}), inventory())
        found.append(meter.costs.get(PAIR))
    return found


def test_a_link_that_takes_ten_times_as_long_costs_that_from_the_second_window_on() -> None:
    """A single window may be an outlier, two are not; the way back takes as long."""
    assert costs_along([20, 20, 20, 200, 200, 200]) == [None, None, None, None, 100.0, 100.0]
    assert costs_along([200, 200, 200, 20, 20, 20]) == [None, 100.0, 100.0, 100.0, None, None]


def test_a_single_outlier_changes_nothing() -> None:
    """Neither up nor down, at any position once there is something to compare it with."""
    assert costs_along([20, 20, 400, 20, 20, 1, 20]) == [None] * 7


def test_costs_do_not_flicker() -> None:
    """A link near the limit changes its cost at most once, and an oscillating one never does."""
    assert len(set(costs_along([24, 26, 24, 26, 24, 26, 24, 26])[4:])) == 1
    assert len(set(costs_along([20, 60] * 10)[2:])) == 1
    slow = [cost for cost in costs_along([100, 104, 96, 110, 90, 112, 100]) if cost is not None]
    assert len(set(slow)) == 1


def test_the_unit_is_a_setting_and_zero_turns_measurements_off() -> None:
    """A millisecond may have any cost; with 0 links keep the inventory's costs, whatever is measured."""
    assert costs_along([200, 200], LinkSettings(cost_per_ms=0.5)) == [None, 50.0]
    assert costs_along([200, 200], LinkSettings(cost_per_ms=0.0)) == [None, None]


def test_both_ends_measure_one_link() -> None:
    """The smaller value of both ends counts: the other includes a wait."""
    meter = LinkMeter(LinkSettings())
    for number in range(2):
        changed = meter.add(window_with(number, {("b00", "b01"): 90.0, ("b01", "b00"): 80.0}), inventory())
    assert changed == {PAIR: (COST, 40.0)}


def test_costs_in_another_unit_are_left_alone() -> None:
    """If all links differ by the same factor, it is the unit: nothing is corrected until most fit again."""
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


def test_a_link_that_is_no_longer_measured_is_forgotten() -> None:
    """After half an hour a link has the inventory's cost again."""
    meter = LinkMeter(LinkSettings())
    for number in range(2):
        meter.add(window_with(number, {PAIR: 200.0}), inventory())
    window_ms = window_with(0, {}).end_ms
    changed = meter.add(window_with(2 + MEASURED_MS_MAX // window_ms, {}), inventory())
    assert changed == {PAIR: (100.0, COST)}
    assert meter.costs == {}


def test_drift_is_what_counted_messages_cost_at_measured_delays() -> None:
    """A link that takes 20 % longer is not corrected, but counted; without probes only message counts show drift."""
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


PLACEHOLDERS = LinkSettings(estimate_unmeasured=True)
FIRST_ESTIMATE = ESTIMATED_EVERY + VALUES_MIN


def measured_fleet(count: int = 30) -> tuple[Inventory, dict[Link, float]]:
    """Return brokers at measured hosts with an inventory of equal costs, and the true cost of each link."""
    true = place_overlay(count, 8, random.Random(1))
    costs = {link(a, b): true.cost_of_link(a, b) for a, b in itertools.combinations(true.brokers, 2)}
    return replace(true, link_cost=inventory_of(bootstrap_tree(true), {}).link_cost), costs


def window_of_costs(number: int, costs: dict[Link, float], given: Inventory) -> ClosedWindow:
    rtts = tuple(LinkRtt(*pair, 2 * cost, 2 * cost) for pair, cost in costs.items())
    return window_of(number, sets_of(given.brokers, [{"b00"}]), {}, rtts=rtts)  # type: ignore[arg-type]


def test_measurements_precede_estimates_and_estimates_precede_placeholders() -> None:
    """Half of the links are measured; each of the others has an estimate until it is measured, too."""
    given, costs = measured_fleet()
    measured = dict(random.Random(2).sample(sorted(costs.items()), len(costs) // 2))
    late = next(pair for pair in costs if pair not in measured)
    meter = LinkMeter(PLACEHOLDERS)
    for number in range(FIRST_ESTIMATE):
        meter.add(window_of_costs(number, measured, given), given)
    fleet = FleetView(given).with_measured(meter.costs, meter.estimated)
    assert meter.is_usable  # However much the placeholders differ: they are not taken for costs.
    assert meter.costs == pytest.approx(measured)
    for pair in costs:
        assert fleet.is_estimate(pair) == (pair not in measured)
        assert meter.estimated is not None
        expected = measured.get(pair, meter.estimated.cost_of_link(pair))
        assert fleet.inventory.cost_of_link(*pair) == pytest.approx(expected)
    estimate = fleet.inventory.cost_of_link(*late)
    for number in range(FIRST_ESTIMATE, FIRST_ESTIMATE + VALUES_MIN):
        changed = meter.add(window_of_costs(number, measured | {late: 1.05 * estimate}, given), given)
    assert changed == {
        late: pytest.approx((estimate, 1.05 * estimate))
    }  # A measured value counts, however close it is.
    fleet = fleet.with_measured(meter.costs, meter.estimated)
    assert not fleet.is_estimate(late)
    assert fleet.inventory.cost_of_link(*late) == pytest.approx(1.05 * estimate)


def test_estimates_change_only_when_the_network_does() -> None:
    """A stable network keeps one estimate, so that plans do not follow noise; a network that changes gets another."""
    given, costs = measured_fleet()
    measured = dict(random.Random(2).sample(sorted(costs.items()), len(costs) // 2))
    meter, found = LinkMeter(PLACEHOLDERS), []
    for number in range(6 * ESTIMATED_EVERY):
        factor = 1.0 if number < 4 * ESTIMATED_EVERY else 2.0
        meter.add(window_of_costs(number, {pair: factor * cost for pair, cost in measured.items()}, given), given)
        found.append(meter.estimated)
    first = found[ESTIMATED_EVERY - 2]  # Unmeasured links cost as much as the most expensive measured one.
    assert first is not None
    assert np.isnan(first.link_cost).all()
    assert first.unknown_cost == max(measured.values())
    calm = {id(one) for one in found[2 * ESTIMATED_EVERY : 4 * ESTIMATED_EVERY]}
    assert len(calm) == 1
    assert found[-1] is not found[4 * ESTIMATED_EVERY - 1]


def test_without_placeholders_nothing_is_estimated() -> None:
    given, costs = measured_fleet()
    meter = LinkMeter(LinkSettings())
    for number in range(FIRST_ESTIMATE):
        meter.add(window_of_costs(number, costs, given), given)
    assert meter.estimated is None
