"""Brokers that decide by themselves: messages, decisions by hand, crossing requests, whole runs with a clean ledger."""

import random
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regraft.api.brokers import Notification
from regraft.api.overlays import Inventory, link
from regraft.api.trees import TreeConfiguration, overlay_cost, paths_within, random_tree
from regraft_lab.planners.swap_links_ci_paper import InterestSettings
from regraft_lab.psoop.distributed_agreement import AgreementMeter, brokers_decision, cycle_of, exact_decision
from regraft_lab.psoop.distributed_broker import BUSY, NOT_EXECUTED
from regraft_lab.psoop.distributed_central import cached_state
from regraft_lab.psoop.distributed_exchanges import exchanged_links, independent_exchanges
from regraft_lab.psoop.distributed_messages import Exchange, MessageKind
from regraft_lab.psoop.distributed_overlay import DistributedOverlay
from regraft_lab.psoop.distributed_settings import CommonInterest, DistributedSettings, FilterContent
from regraft_lab.psoop.distributed_variants import Scene
from tests.overlay.small_overlays import brokers_named, inventory_of, line_of

EXACT = DistributedSettings(filter_bits=4_000_000)  # so wide that no test sees a false positive
# Fig. 2 with p = 1: the text's figures imply these link costs.
FIG_2_COSTS = {("B1", "B2"): 2.0, ("B1", "B3"): 5.0, ("B2", "B3"): 6.0}
FIG_2A = TreeConfiguration.of(0, ("B1", "B2", "B3"), [("B2", "B1"), ("B1", "B3")])


def remember(overlay: DistributedOverlay, wanted: list[set[str]]) -> None:
    """Put one notification for each set of brokers into their caches, as if it had been delivered."""
    for sequence, brokers in enumerate(wanted):
        notification = Notification("x", sequence, overlay.virtual.now_ms, min(brokers), 0, {}, 100)
        for broker in brokers:
            overlay.virtual.overlay.brokers[broker].cells.note_delivered(notification, 1)


def broadcast_all(overlay: DistributedOverlay, wait_ms: float = 1_000.0) -> None:
    """Make every broker broadcast once, and wait."""
    for broker in overlay.inventory.brokers:
        overlay.broadcast(broker)
    overlay.virtual.run_for(wait_ms)


def broadcast_each(overlay: DistributedOverlay) -> None:
    """Make one broker after the other broadcast, so that no two evaluate at the same time."""
    for broker in overlay.inventory.brokers:
        overlay.broadcast(broker)
        overlay.virtual.run_for(100.0)


def random_inventory(count: int, rng: random.Random) -> Inventory:
    """Return an inventory with uniform costs and a random tree."""
    names = brokers_named(count)
    drawn = np.triu(np.array([[rng.uniform(0, 10) for _ in names] for _ in names]), 1)
    processing = np.array([rng.uniform(0, 10) for _ in names])
    return Inventory(names, processing, drawn + drawn.T, count, random_tree(names, count, rng))


def random_wants(inventory: Inventory, rng: random.Random, count: int = 150) -> list[set[str]]:
    """Return notifications of a few kinds, so that brokers have common interests."""
    kinds = [set(rng.sample(inventory.brokers, min(3, len(inventory.brokers)))) for _ in range(6)]
    return [rng.choice(kinds) for _ in range(count)]


@given(st.integers(0, 2**32), st.integers(2, 14), st.integers(2, 5))
@settings(max_examples=25, deadline=None)
def test_a_round_of_broadcasts_takes_a_message_for_each_broker_in_range(seed: int, count: int, hops: int) -> None:
    """On a tree every broadcast reaches each broker within eta hops once: the sum of their numbers over all brokers."""
    inventory = random_inventory(count, random.Random(seed))
    overlay = DistributedOverlay(inventory, None, 1, DistributedSettings(horizon_hops=hops))
    broadcast_all(overlay)
    pairs = sum(len(paths) for paths in paths_within(inventory.bootstrap, hops).values())
    assert overlay.tally.messages[MessageKind.BROADCAST] == pairs
    assert overlay.tally.bytes[MessageKind.BROADCAST] >= 12_500 * pairs
    for broker in inventory.brokers:
        assert len(overlay.brokers[broker].received) == sum(
            1 < len(inventory.bootstrap.path(broker, peer)) <= hops + 1 for peer in inventory.brokers
        )


def test_fig_2a_is_exchanged_when_b1_wants_nothing() -> None:
    """C_23 = (10 - 0) / 10 * (2 + 1) + 5 = 8 > 6; the cycle costs 20 * 6 without a path link and 20 * 8 as it is."""
    inventory = inventory_of(FIG_2A, FIG_2_COSTS)
    agreed: list[Exchange] = []
    overlay = DistributedOverlay(inventory, None, 1, EXACT, on_agreed=agreed.append)
    remember(overlay, [{"B2", "B3"}] * 10)
    broadcast_each(overlay)
    assert overlay.brokers["B2"].common_with("B3") == 10
    assert overlay.brokers["B2"].shared_with("B1", "B3") == 0
    (exchange,) = agreed
    assert exchange.cycle.link_added == ("B2", "B3")
    # Both path links cost the same on the cycle, so the one at the requesting broker is removed.
    asked = exchange.cycle.brokers[0]
    assert exchange.link_removed == link("B1", asked)
    account = overlay.finish()
    assert account.is_clean
    assert overlay.present.links == tuple(sorted([("B2", "B3"), link("B1", ({"B2", "B3"} - {asked}).pop())]))
    assert all(broker.cycle is None or broker.cycle == exchange.cycle for broker in overlay.brokers.values())


def test_fig_2a_stays_when_b1_wants_nine_of_ten() -> None:
    """C_23 = (10 - 9) / 10 * (2 + 1) + 5 = 5.3 and C_32 = (10 - 9) / 10 * (5 + 1) + 2 = 2.6: neither wants the link."""
    overlay = DistributedOverlay(inventory_of(FIG_2A, FIG_2_COSTS), None, 1, EXACT)
    remember(overlay, [{"B2", "B3"}] + [{"B1", "B2", "B3"}] * 9)
    for _ in range(2):  # In the first round the first broadcasts arrive before brokers know all others.
        broadcast_all(overlay)
    assert overlay.brokers["B2"].mean_common == 9.5
    assert overlay.brokers["B2"].shared_with("B1", "B3") == 9
    assert overlay.tally.messages[MessageKind.REQUEST] == 0
    assert overlay.present == FIG_2A


def test_the_conjunction_of_filters_counts_what_three_have_in_common() -> None:
    """With wide filters I_ikj is exact, 0; the paper's estimate is min(phi, I_ij, I_ik) = min(5, 8, 2)."""
    inventory = inventory_of(line_of(3), {})
    wanted = [{"b00", "b01"}] * 2 + [{"b00", "b02"}] * 8
    for how, shared in ((CommonInterest.CONJUNCTION, 0), (CommonInterest.MEAN, 2)):
        rules = DistributedSettings(filter_bits=4_000_000, common_interest=how)
        overlay = DistributedOverlay(inventory, None, 1, rules)
        remember(overlay, wanted)
        broadcast_all(overlay)
        assert overlay.brokers["b00"].shared_with("b01", "b02") == shared


@given(st.integers(0, 2**32), st.sampled_from(CommonInterest))
@settings(max_examples=15, deadline=None)
def test_with_exact_filters_brokers_decide_as_the_central_rule(seed: int, how: CommonInterest) -> None:
    """If all brokers know all others of their neighbourhood, both give the same answer for each path."""
    rng = random.Random(seed)
    inventory = random_inventory(9, rng)
    rules = DistributedSettings(filter_bits=4_000_000, common_interest=how, request_ms_max=1.0, broadcast_ms=1e9)
    overlay = DistributedOverlay(inventory, None, 1, rules, message_delay_ms=lambda *_: 2.0)  # Every request is late.
    remember(overlay, random_wants(inventory, rng))
    broadcast_all(overlay)
    assert overlay.present == inventory.bootstrap
    central = InterestSettings(
        horizon_hops=4, path_interest="conjunction" if how is CommonInterest.CONJUNCTION else "estimate"
    )
    state = cached_state(overlay)
    for hops in (2, 3, 4):
        for places in paths_within(inventory.bootstrap, hops)[hops].tolist():
            path = tuple(inventory.brokers[place] for place in places)
            is_wanted, removed = exact_decision(state, central, path)
            there, back = (brokers_decision(overlay, walk) for walk in (path, path[::-1]))
            assert there is not None
            assert back is not None
            assert {*there, *back} == (set(removed) if is_wanted else set())


def test_two_requests_that_cross_agree_on_one_exchange_at_most() -> None:
    """Both ends of a line request at the same time; a broker is in one cycle only, so they refuse each other."""
    inventory = inventory_of(line_of(5), {("b00", "b04"): 1.0})
    agreed: list[Exchange] = []
    overlay = DistributedOverlay(inventory, None, 1, EXACT, on_agreed=agreed.append)
    remember(overlay, [{"b00", "b04"}] * 10 + [{"b01"}, {"b02"}, {"b03"}])
    for broker in ("b01", "b02", "b03"):
        overlay.broadcast(broker)
    overlay.virtual.run_for(100.0)
    overlay.broadcast("b00")
    overlay.broadcast("b04")
    overlay.virtual.run_for(1_000.0)
    assert agreed == []
    assert overlay.tally.messages[MessageKind.REQUEST] >= 2
    assert overlay.outcomes[BUSY] == 2
    assert all(broker.cycle is None for broker in overlay.brokers.values())
    broadcast_each(overlay)  # Alone, the same request succeeds.
    overlay.finish()
    assert [exchange.cycle.link_added for exchange in agreed] == [("b00", "b04")]
    assert ("b00", "b04") in overlay.present.links


@given(st.integers(0, 2**32))
@settings(max_examples=12, deadline=None)
def test_requests_that_cross_never_break_the_tree(seed: int) -> None:
    """Whatever the delays, even beyond the time-outs: always a tree, equal at all brokers, and no exchange is lost."""
    rng = random.Random(seed)
    inventory = random_inventory(10, rng)
    is_patient = rng.random() < 0.5
    request_ms_max, agreed_ms_max, waiting_max = (60_000.0, 120_000.0, 8) if is_patient else (150.0, 300.0, 1)
    rules = DistributedSettings(
        broadcast_ms=400.0,
        filter_bits=4_000,
        request_ms_max=request_ms_max,
        agreed_ms_max=agreed_ms_max,
        gather_ms=rng.choice([0.0, 300.0]),
        exchanges_waiting_max=waiting_max,
    )
    agreed: list[Exchange] = []
    overlay = DistributedOverlay(
        inventory,
        None,
        seed,
        rules,
        on_agreed=agreed.append,
        message_delay_ms=lambda *_: rng.expovariate(1 / 30),
    )
    overlay.start()
    for _ in range(6):
        remember_more(overlay, rng)
        overlay.virtual.run_for(500.0)
    account = overlay.finish()
    assert account.is_clean
    driver = overlay.queue.driver
    assert {broker.core.epoch for broker in overlay.virtual.overlay.brokers.values()} == {driver.present.epoch}
    assert overlay.present == driver.present  # A Configuration is always a tree.
    assert driver.aborted == 0
    assert len(overlay.queue.executed) + overlay.queue.rejected == len(agreed)
    if is_patient:  # Cycles agreed at the same time then share no broker, so that each exchange still fits.
        assert overlay.queue.rejected == 0
    links = set(inventory.bootstrap.links)
    for exchange in overlay.queue.executed:
        links.remove(exchange.link_removed)
        links.add(exchange.cycle.link_added)
    assert links == set(overlay.present.links)


def remember_more(overlay: DistributedOverlay, rng: random.Random) -> None:
    """Deliver some more notifications, with their own sequence numbers."""
    start = int(overlay.virtual.now_ms)
    for place, brokers in enumerate(random_wants(overlay.inventory, rng, 40)):
        notification = Notification("x", start + place, overlay.virtual.now_ms, min(brokers), 0, {}, 100)
        for broker in brokers:
            overlay.virtual.overlay.brokers[broker].cells.note_delivered(notification, 1)


@given(st.integers(0, 2**32))
@settings(max_examples=40, deadline=None)
def test_exchanges_of_one_transition_leave_a_tree_in_any_order(seed: int) -> None:
    """The chosen exchanges share no broker; any subset of them, in any order, leaves a tree."""
    rng = random.Random(seed)
    inventory = random_inventory(16, rng)
    tree = inventory.bootstrap
    waiting = []
    for _ in range(12):
        path = tree.path(*rng.sample(inventory.brokers, 2))
        if len(path) > 2:
            cycle = cycle_of(inventory, path)
            waiting.append(Exchange(cycle, rng.choice(cycle.path_links)))
    chosen, kept, misfits = independent_exchanges(tree, waiting)
    assert misfits == []
    assert len(chosen) + len(kept) == len(waiting)
    for order in list(permutations(chosen))[:24]:
        for count in range(1, len(order) + 1):
            TreeConfiguration.of(1, tree.brokers, exchanged_links(tree, order[:count]))
    if chosen:
        after = TreeConfiguration.of(1, tree.brokers, exchanged_links(tree, chosen))
        assert independent_exchanges(after, chosen)[2] == chosen  # Their paths are gone: none fits a second time.


def test_a_full_queue_refuses_and_frees_the_cycle() -> None:
    """The exchange beyond the bound is not executed, and its brokers are notified."""
    inventory = inventory_of(line_of(3), {("b00", "b02"): 1.0})
    rules = DistributedSettings(filter_bits=4_000_000, exchanges_waiting_max=1, gather_ms=5_000.0)
    overlay = DistributedOverlay(inventory, None, 1, rules)
    foreign = cycle_of(inventory, ("b00", "b01", "b02"))
    overlay.queue.hand_over(Exchange(foreign, ("b00", "b01")))
    remember(overlay, [{"b00", "b02"}] * 10)
    broadcast_each(overlay)
    assert overlay.agreed_count == 1
    assert (overlay.queue.rejected, overlay.outcomes[NOT_EXECUTED]) == (1, 1)
    assert all(broker.cycle is None for broker in overlay.brokers.values())


def busy_overlay(seed: int, rules: DistributedSettings) -> DistributedOverlay:
    """Return ten brokers of the comparison's network in a random tree, with quotes and churn."""
    scene = Scene.of(10, seed)
    workload = replace(scene.workload, notifications_per_s=10.0, interested_broker_count=3)
    return DistributedOverlay(scene.inventory, workload, seed, rules, scene.timing)


@pytest.mark.parametrize(
    "rules",
    [
        DistributedSettings(),
        DistributedSettings(false_positive_share=0.01, common_interest=CommonInterest.CONJUNCTION),
        DistributedSettings(filter_content=FilterContent.INTERVAL),
    ],
    ids=["paper", "fitted_conjunction", "interval"],
)
def test_a_run_ends_with_lower_cost_and_a_clean_ledger(rules: DistributedSettings) -> None:
    """Under traffic and churn brokers make a random tree at least a tenth cheaper, and nothing is lost."""
    overlay = busy_overlay(1, rules)
    meter = AgreementMeter(overlay)
    overlay.start()
    overlay.traffic.since_ms = overlay.virtual.now_ms + 15_000
    overlay.traffic.until_ms = overlay.virtual.now_ms + 25_000
    overlay.virtual.run_until(overlay.traffic.until_ms)
    meter.stop()
    account = overlay.finish()
    assert account.final
    assert account.is_clean
    assert account.delivered > 1_500
    sets, inventory = overlay.traffic.sets(overlay.ids), overlay.inventory
    cost_per_s = overlay_cost(overlay.present, inventory, sets).total_per_s
    assert cost_per_s < 0.9 * overlay_cost(inventory.bootstrap, inventory, sets).total_per_s
    assert overlay.agreed_count == meter.found.agreed == len(overlay.queue.executed) + overlay.queue.rejected
    assert meter.found.agreed_taken > 0.5 * meter.found.agreed
    assert overlay.tally.messages[MessageKind.MARKER] == 2 * 9 * overlay.queue.driver.executed


def test_fitted_filters_weigh_less_and_equal_seeds_repeat_a_run() -> None:
    """A filter fitted to a cache that is not full is smaller; equal seeds give equal messages and trees."""
    sizes, trees = [], []
    for share in (None, 0.01, 0.01):
        overlay = busy_overlay(1, DistributedSettings(false_positive_share=share))
        overlay.start()
        overlay.virtual.run_for(8_000)
        overlay.finish()
        sizes.append(overlay.tally.bytes[MessageKind.BROADCAST] / overlay.tally.messages[MessageKind.BROADCAST])
        trees.append((overlay.present, overlay.tally.messages))
    assert sizes[1] < 0.2 * sizes[0]
    assert trees[1] == trees[2]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"horizon_hops": 1}, "horizon_hops is 1: must be at least 2"),
        ({"false_positive_share": 1.0}, "false_positive_share is 1: must be above 0 and below 1"),
        ({"agreed_ms_max": 10.0}, "agreed_ms_max is 10: must be at least 5000"),
    ],
)
def test_settings_report_their_errors(change: dict[str, float], text: str) -> None:
    """An error has value and limit, and prevents the overlay from being created."""
    rules = DistributedSettings(**change)  # type: ignore[arg-type]
    assert any(text in error for error in rules.errors())
    with pytest.raises(ValueError, match=text.split(":")[0]):
        DistributedOverlay(inventory_of(line_of(3), {}), None, 1, rules)
