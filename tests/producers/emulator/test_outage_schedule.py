"""Outages as settings give them and as they are drawn, and how they are played."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import takewhile

import numpy as np
import pytest

from regraft.producers.emulator.outage_schedule import (
    EMULATED_KINDS,
    Chaos,
    Outage,
    OutageKind,
    outage_of,
    random_outages,
    site_of,
    with_names,
)
from regraft.producers.emulator.place_overlay import place_overlay, place_ring
from regraft.producers.emulator_settings import EmulatorSettings
from regraft.producers.virtual_overlay import VirtualOverlay, VirtualSettings
from regraft.producers.workloads.checkin_settings import CheckinSettings
from regraft.producers.workloads.stock_settings import WorkloadSettings
from tests.producers.test_run_emulator import settings

CHAOS = Chaos(every_s=3.0, for_s=6.0, down_share_max=0.3)


@pytest.mark.parametrize(
    ("text", "outage"),
    [
        ("death b03,b07 at 60 for 90", Outage(OutageKind.DEATH, ("b03", "b07"), 60.0, 90.0)),
        ("slow b1,b2 at 1.5 for 2 by 20", Outage(OutageKind.SLOW, ("b1", "b2"), 1.5, 2.0, 20.0)),
        ("suspension site:4 at 0 for 5", Outage(OutageKind.SUSPENSION, ("site:4",), 0.0, 5.0)),
    ],
)
def test_a_text_gives_kind_target_time_and_duration(text: str, outage: Outage) -> None:
    assert outage_of(text) == outage


@pytest.mark.parametrize(
    "text", ["fire b1 at 2 for 3", "death b1 at 2", "cut b1 at 2 for 3", "cut b1,b1 at 2 for 3", ""]
)
def test_invalid_outages_are_refused_with_the_expected_form(text: str, tmp_path: object) -> None:
    """The message gives the expected form, settings list it among their errors, and without outages there are none."""
    with pytest.raises(ValueError, match=r"KIND TARGETS at SECONDS|two ends"):
        outage_of(text)
    without_outages: EmulatorSettings = settings(tmp_path)  # type: ignore[arg-type]
    assert not without_outages.errors()
    (error,) = replace(without_outages, outages=(text,)).errors()
    assert text in error


def test_a_site_is_the_tightest_group_of_brokers() -> None:
    """No other broker is closer, in total, to its nearest ones."""
    inventory = place_overlay(30, 8, random.Random(2))
    site = site_of(inventory, 4)
    sums = np.sort(inventory.link_cost, axis=1)[:, :4].sum(axis=1)
    places = [inventory.index[name] for name in site]
    assert min(float(inventory.link_cost[place, places].sum()) for place in places) == pytest.approx(float(sums.min()))
    assert with_names(Outage(OutageKind.DEATH, ("site:4",), 0.0, 1.0), inventory).targets == site


def test_an_outage_of_an_unknown_broker_is_refused() -> None:
    inventory = place_overlay(5, 4, random.Random(2))
    with pytest.raises(ValueError, match="b77"):
        with_names(Outage(OutageKind.DEATH, ("b77",), 0.0, 1.0), inventory)


def test_equal_seeds_draw_equal_chaos() -> None:
    """Outages of each kind, in order of time, at the configured rate."""
    names, links = ("a", "b", "c"), (("a", "b"), ("b", "c"))
    first, second = (
        list(takewhile(lambda one: one.at_s < 600, random_outages(CHAOS, names, links, random.Random(4))))
        for _ in range(2)
    )
    assert first == second
    assert 150 < len(first) < 250
    assert {one.kind for one in first} == set(EMULATED_KINDS)
    assert [one.at_s for one in first] == sorted(one.at_s for one in first)


def test_chaos_with_an_end_draws_the_same_until_then() -> None:
    """No outage begins at the end or later."""
    names, links = ("a", "b", "c"), (("a", "b"), ("b", "c"))
    endless = takewhile(lambda one: one.at_s < 60, random_outages(CHAOS, names, links, random.Random(4)))
    assert list(random_outages(replace(CHAOS, until_s=60.0), names, links, random.Random(4))) == list(endless)


@pytest.mark.parametrize("seed", range(5))
def test_chaos_on_a_tree_costs_only_what_deaths_excuse(seed: int) -> None:
    """Nothing is repaired: what crosses dead brokers is lost with a reason, the rest is delivered once and in order."""
    inventory = place_overlay(16, 4, random.Random(seed))
    virtual = VirtualOverlay(
        inventory, WorkloadSettings(publisher_count=10), VirtualSettings(seed=seed, chaos=CHAOS, notice_ms=500.0)
    )
    virtual.run_for(60_000.0)
    account = virtual.finish()
    assert account.final
    assert account.is_clean, account
    assert account.lost > 0
    assert set(virtual.outages.counts) == set(EMULATED_KINDS)


@pytest.mark.parametrize("seed", range(5))
def test_chaos_on_a_ring_costs_only_what_deaths_excuse(seed: int) -> None:
    """Users come and go meanwhile."""
    inventory = place_ring(16, random.Random(seed))
    virtual = VirtualOverlay(
        inventory, CheckinSettings(user_count=100), VirtualSettings(seed=seed, chaos=CHAOS, notice_ms=500.0)
    )
    virtual.run_for(60_000.0)
    account = virtual.finish()
    assert account.final
    assert account.is_clean, account
    assert account.lost > 0
