"""How often a worthless change passes on the emulator's traffic instead of a model of its noise, in time and across.

The difference of a change's savings in two windows far apart has mean zero and the memory of the traffic: subscriptions
that persist. A change that is worthless in the long run although it saves a little in most windows, and costs much in a
few, is another matter: docs/decisions.md.
"""

from __future__ import annotations

import random
import statistics

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from regraft.controller.decide.gain_noise import gain_across, mean_gain
from regraft.controller.settings.controller_settings import AssemblyLimits
from regraft.controller.state.closed_window import ClosedWindow
from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.overlay_configuration import link
from regraft.overlay.tree.overlay_cost import overlay_cost
from regraft.overlay.tree.publisher_costs import PublisherCosts
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.producers.emulator.place_overlay import place_overlay
from regraft.producers.virtual_overlay import VirtualOverlay, VirtualSettings
from regraft.producers.workloads.stock_settings import WorkloadSettings
from regraft.run_records.collect_run import assemble_windows
from regraft.streaming.reference_aggregator import ReferenceAggregator
from tests.controller.decide.test_gain_noise import NOMINAL

SEED, WINDOW_MS, RUNNING_MS, LIFETIME_S = 1, 5_000, 600_000, 18.0
CHANGES = 60
WORKLOAD = WorkloadSettings(
    publisher_count=12, notifications_per_s=1.0, interested_broker_count=4, lifetime_s_mean=LIFETIME_S
)


def recorded_windows(inventory: Inventory) -> list[ClosedWindow]:
    """Return ten minutes of windows; deliveries are the same on any tree."""
    virtual = VirtualOverlay(inventory, WORKLOAD, VirtualSettings(seed=SEED, flush_ms=1_000.0))
    virtual.run_for(RUNNING_MS)
    aggregator = ReferenceAggregator(WINDOW_MS, 2_000)
    for batch in virtual.telemetry.batches:
        aggregator.take(msgspec.to_builtins(batch))
    records = [record for window in aggregator.advance() for record in (*window.rows, window.marker)]
    windows = assemble_windows(records, inventory, AssemblyLimits())
    return [window for window in windows if window.is_complete][2:]


def a_change(
    inventory: Inventory, windows: list[ClosedWindow], rng: random.Random
) -> tuple[TreeConfiguration, dict[str, str]]:
    """Return a tree with a random link, or a random home of a publisher."""
    tree = inventory.bootstrap
    while True:
        if rng.random() < 0.5:
            return tree, {rng.choice(sorted(windows[0].homes)): rng.choice(inventory.brokers)}
        a, b = rng.sample(inventory.brokers, 2)
        try:
            return tree.replaced(1, [rng.choice(tree.links)], [link(a, b)]), {}
        except ValueError:  # not a tree, or a link that already exists
            continue


def gains_of_a_change(inventory: Inventory, windows: list[ClosedWindow], rng: random.Random) -> NDArray[np.float64]:
    """Return what a random link or a random home of a publisher saves in each window, as a share of the cost."""
    tree = inventory.bootstrap
    while True:
        overlay, homes = a_change(inventory, windows, rng)
        before = np.array([overlay_cost(tree, inventory, window.sets).total_per_s for window in windows])
        placed = overlay.with_homes(homes)
        after = np.array([overlay_cost(placed, inventory, window.sets_at(homes)).total_per_s for window in windows])
        if not np.allclose(before, after):
            return np.asarray((before - after) / before)


@pytest.fixture(scope="module")
def worthless() -> NDArray[np.float64]:
    """Return worthless gains of all changes, shape (changes, windows of half the time), and their opposites."""
    inventory = place_overlay(12, 6, random.Random(SEED))
    windows, rng = recorded_windows(inventory), random.Random(SEED)
    gains = np.array([gains_of_a_change(inventory, windows, rng) for _ in range(CHANGES)])
    half = len(windows) // 2
    paired = gains[:, :half] - gains[:, half : 2 * half]
    return np.concatenate([paired, -paired])


@pytest.mark.parametrize("count", [2, 4, 8])
def test_on_the_emulators_traffic_worthless_changes_pass_at_most_at_the_nominal_rate(
    worthless: NDArray[np.float64], count: int
) -> None:
    """At two sigma at most one in 44; with the sample deviation it would be at least five times as many."""
    spans = [(at * WINDOW_MS / 1000, (at + 1) * WINDOW_MS / 1000) for at in range(count)]
    looks = [row[at : at + count] for row in worthless for at in range(0, len(row) - count + 1, count)]
    found = [mean_gain(look, spans, LIFETIME_S) for look in looks]
    passed = sum(one.mean > one.limit(2.0) for one in found) / len(found)
    naive = [statistics.fmean(look) > 2 * statistics.stdev(look) / count**0.5 for look in map(list, looks)]
    assert passed < NOMINAL
    assert sum(naive) / len(naive) > 5 * NOMINAL


def costs_by_publisher(
    tree: TreeConfiguration, homes: dict[str, str], inventory: Inventory, windows: list[ClosedWindow]
) -> dict[str, float]:
    """Return what each publisher's notifications cost in windows, with publishers not in ``homes`` where they are."""
    priced = PublisherCosts(tree, inventory, [window.sets for window in windows])
    at = {name: home for window in windows for name, home in window.homes.items()} | homes
    return {name: priced.cost_per_s(name, at[name]) for name in priced.publishers}


def worthless_costs(
    tree: TreeConfiguration, homes: dict[str, str], inventory: Inventory, pair: tuple[list[ClosedWindow], ...]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return each publisher's costs in the earlier windows, and how much more a change saves there than later."""
    here, there = (costs_by_publisher(inventory.bootstrap, {}, inventory, windows) for windows in pair)
    names = sorted(here.keys() & there.keys())
    saved = np.zeros(len(names))
    for sign, windows, before in zip((1, -1), pair, (here, there), strict=True):
        after = costs_by_publisher(tree, homes, inventory, windows)
        saved += sign * np.array([before[name] - after.get(name, before[name]) for name in names])
    return np.array([here[name] for name in names]), saved


@pytest.mark.parametrize("count", [1, 4, 12])
def test_in_time_or_across_publishers_worthless_changes_pass_at_most_at_the_nominal_rate(count: int) -> None:
    """On one window, which shows nothing in time, on one mean lifetime, and on three; changes come in fours."""
    inventory = place_overlay(12, 6, random.Random(SEED))
    windows, rng = recorded_windows(inventory), random.Random(SEED)
    half = len(windows) // 2
    spans = [(at * WINDOW_MS / 1000, (at + 1) * WINDOW_MS / 1000) for at in range(count)]
    passed = judged = 0
    for _ in range(CHANGES // 3):
        changes = [a_change(inventory, windows, rng) for _ in range(4)]
        tree = next((tree for tree, homes in changes if not homes), inventory.bootstrap)
        homes = {name: home for _, moved in changes for name, home in moved.items()}
        for at in range(0, half - count + 1, max(count, 4)):
            pair = windows[at : at + count], windows[at + half : at + half + count]
            costs, saved = worthless_costs(tree, homes, inventory, pair)
            each = [worthless_costs(tree, homes, inventory, ([a], [b])) for a, b in zip(*pair, strict=True)]
            shares = [one.sum() / cost.sum() for cost, one in each]
            for sign in (1, -1):
                looks = gain_across(costs, costs - sign * saved), mean_gain(sign * np.array(shares), spans, LIFETIME_S)
                judged += 1
                passed += any(gain.mean > gain.limit(2.0) for gain in looks)
    assert judged >= 160
    assert passed / judged < NOMINAL
