"""Planners compared with the optimum of small overlays, and the instances that are used."""

import json
import random
from pathlib import Path

import numpy as np
import pytest

from regraft.api.planning import ClosedWindow, TreeContext, TreeState
from regraft.api.records import Proposal
from regraft.api.trees import TreeConfiguration
from regraft_lab.psoop import compare_optimum
from regraft_lab.psoop.compare_optimum import (
    LINK_PLANNERS,
    PASSES_MAX,
    optimum_figures,
    optimum_table,
    ratios_to_optimum,
    settled_tree,
)
from regraft_lab.psoop.exact_optimum import TooManyTreesError
from regraft_lab.psoop.small_instances import SMALL_SETTINGS, SmallSetting, small_instance
from tests.overlay.small_overlays import brokers_named, inventory_of, line_of, sets_of

YARDSTICKS = {"random_tree", "minimum_spanning_tree", "maximum_interest_tree"}
FIG_2_COSTS = {("B1", "B2"): 2.0, ("B1", "B3"): 5.0, ("B2", "B3"): 6.0}


def fig_2(wanted: list[set[str]]) -> TreeState:
    """Return Jaeger07, Fig. 2, tree (a): B2 - B1 - B3."""
    tree = TreeConfiguration.of(0, ("B1", "B2", "B3"), [("B1", "B2"), ("B1", "B3")])
    return TreeState(tree, inventory_of(tree, FIG_2_COSTS), (ClosedWindow(0, 1000, sets_of(tree.brokers, wanted)),))


def exchange(removed: tuple[str, str], added: tuple[str, str]) -> Proposal:
    return Proposal("test", (removed,), (added,), 0.0, 0.0, 0.0, "")


def test_fig_2_ratios() -> None:
    """B1 wants nothing: (a), start and minimum spanning tree, costs 100; the optimum is 80, which CI reaches."""
    ratios = ratios_to_optimum(fig_2([{"B2", "B3"}] * 10), seed=0, order="arrival")
    assert set(ratios) == YARDSTICKS | set(LINK_PLANNERS)
    assert ratios["random_tree"] == ratios["minimum_spanning_tree"] == ratios["swap_links_lmst"] == 100 / 80
    assert ratios["swap_links_ci"] == 1


def test_fig_2_ratios_when_b1_wants_nine() -> None:
    """B1 wants nine of ten: (a) is optimal with 100; lMIT makes it more expensive, wherever it attaches B1."""
    ratios = ratios_to_optimum(fig_2([{"B2", "B3"}] + [{"B1", "B2", "B3"}] * 9), seed=0)
    assert ratios["random_tree"] == ratios["minimum_spanning_tree"] == 1
    assert ratios["swap_links_lmit"] in (1.07, 1.34)


def test_proposals_of_a_call_are_executed_in_order() -> None:
    """The second proposal may remove the link that the first has added."""
    tree = line_of(4)
    state = TreeState(tree, inventory_of(tree, {}), (ClosedWindow(0, 1000, sets_of(tree.brokers, [{"b00"}])),))
    first, second = exchange(("b02", "b03"), ("b00", "b03")), exchange(("b00", "b03"), ("b01", "b03"))
    calls = iter([[first, second], []])
    settled = settled_tree(state, lambda *_: next(calls), TreeContext(), random.Random(0))
    assert settled == TreeConfiguration.of(2, tree.brokers, [("b00", "b01"), ("b01", "b02"), ("b01", "b03")])


def test_a_planner_that_cycles_is_stopped() -> None:
    """A planner that swaps to and fro forever is measured when it is back for the first time."""
    tree = line_of(3)
    state = TreeState(tree, inventory_of(tree, {}), (ClosedWindow(0, 1000, sets_of(tree.brokers, [{"b00"}])),))
    calls = 0

    def to_and_fro(state: TreeState, context: TreeContext, rng: random.Random) -> list[Proposal]:
        nonlocal calls
        calls += 1
        pairs = [("b01", "b02"), ("b00", "b02")]
        removed, added = pairs if pairs[0] in state.configuration.links else pairs[::-1]
        return [exchange(removed, added)]

    assert settled_tree(state, to_and_fro, TreeContext(), random.Random(0)).links == tree.links
    assert calls == 2 < PASSES_MAX


@pytest.mark.parametrize("setting", SMALL_SETTINGS, ids=str)
def test_an_instance_follows_its_setting(setting: SmallSetting) -> None:
    """Costs are in the paper's range, flows have a publisher and this many brokers, and all depends on the seed."""
    state = small_instance(setting, 6, seed=3)
    inventory, sets = state.inventory, state.sets
    assert 0 <= inventory.processing_cost.min() <= inventory.processing_cost.max() <= 10
    assert 0 < inventory.link_cost[~np.eye(6, dtype=bool)].min() <= inventory.link_cost.max() <= 10 * 2**0.5
    assert len({publisher for publisher, _ in sets.columns}) == setting.flow_count
    brokers_of_flow = (sets.words != 0).sum(axis=0)
    assert {*brokers_of_flow.tolist()} == {setting.subscriber_count, setting.subscriber_count + 1}
    again, other = small_instance(setting, 6, seed=3), small_instance(setting, 6, seed=4)
    assert np.array_equal(again.sets.words, sets.words)
    assert again.configuration == state.configuration
    assert not np.array_equal(other.inventory.link_cost, inventory.link_cost)


def test_euclidean_costs_keep_the_triangle_inequality() -> None:
    """A detour in the plane is never shorter; with independent costs it often is."""

    def detours(costs: str) -> int:
        c = small_instance(SmallSetting(costs, 10, 2), 7, seed=0).inventory.link_cost
        return int((c[:, None, :] > c[:, :, None] + c[None, :, :] + 1e-9).sum())

    assert detours("euclidean") == 0 < detours("uniform")


def test_more_subscribers_than_brokers_are_refused() -> None:
    """Three subscribers at different brokers need three brokers."""
    with pytest.raises(ValueError, match="subscribers at 3 of 2 brokers"):
        small_instance(SmallSetting("uniform", 50, 3), 2, seed=0)


def test_figures_are_means_and_worsts_over_the_instances(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each setting has mean, worst and share found of each yardstick and planner, equal to its instances' results."""
    monkeypatch.setattr(compare_optimum, "SMALL_SETTINGS", SMALL_SETTINGS[:2])
    reported: list[tuple[str, int]] = []
    figures = optimum_figures(3, (5,), lambda what, done: reported.append((what, done)))
    assert [done for _, done in reported] == list(range(1, 7))
    assert reported[-1][0] == "uniform 50 x 1, 5 brokers"
    by = {(one.name, one.where["planner"], one.where["flows"]): one for one in figures}
    assert len(by) == len(figures) == 2 * 3 * (len(YARDSTICKS) + len(LINK_PLANNERS))
    states = [small_instance(SMALL_SETTINGS[0], 5, seed) for seed in range(3)]
    random_ratios = [ratios_to_optimum(state, 0)["random_tree"] for state in states]
    assert by["optimum_ratio_mean", "random_tree", 10].value == pytest.approx(sum(random_ratios) / 3)
    assert by["optimum_ratio_worst", "random_tree", 10].value == max(random_ratios)
    assert by["optimum_ratio_worst", "random_tree", 10].where == {
        "planner": "random_tree",
        "brokers": 5,
        "costs": "uniform",
        "flows": 10,
        "subscribers": 2,
        "instances": 3,
    }
    for one in figures:
        low = 0 if one.name == "optimum_found_share" else 1 - 1e-9
        assert one.value >= low
        assert (one.value <= 1) or one.name != "optimum_found_share"
    table = optimum_table(figures, 5)
    assert table.row_count == len(YARDSTICKS) + len(LINK_PLANNERS)
    assert len(table.columns) == 1 + 2


def test_a_capped_planner_is_compared_with_the_capped_optimum() -> None:
    """Under a cap, a tree that keeps it costs at least the capped optimum; the star that breaks it may cost less."""
    hub = {("b00", name): 1.0 for name in brokers_named(5)[1:]}
    tree = line_of(5)
    wanted = [set(tree.brokers)]
    state = TreeState(tree, inventory_of(tree, hub), (ClosedWindow(0, 1000, sets_of(tree.brokers, wanted)),))
    capped = ratios_to_optimum(state, seed=0, degree_max=2)
    assert all(capped[name] >= 1 for name in LINK_PLANNERS)
    # The star costs 4 + 5, the best line 1 + 1 + 10 + 10 + 5.
    assert capped["minimum_spanning_tree"] == 9 / 27


def test_overlays_beyond_the_optimum_are_refused() -> None:
    """Nine brokers have too many trees, and are refused before hours go by."""
    with pytest.raises(TooManyTreesError, match="9 brokers"):
        optimum_figures(1, (9,))


def test_the_command_prints_a_table_and_writes_the_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One instance of one setting: a column in the table, and the same figures in the file."""
    monkeypatch.setattr(compare_optimum, "SMALL_SETTINGS", SMALL_SETTINGS[:1])
    file = tmp_path / "figures.json"
    compare_optimum.main(["--instances", "1", "--brokers", "5", "--json", str(file)])
    printed = capsys.readouterr().out
    assert "5 brokers" in printed
    assert "uniform 10 x 2" in printed
    document = json.loads(file.read_text())
    assert document["run"]["settings"] == {"instances": 1, "brokers": [5]}
    mean = next(one["value"] for one in document["figures"] if one["name"] == "optimum_ratio_mean")
    assert f"{mean:.3f}" in printed


def test_no_instances_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """Zero instances give a message, not a division by zero."""
    with pytest.raises(SystemExit):
        compare_optimum.main(["--instances", "0"])
    assert "0 instances give no figures: at least 1" in capsys.readouterr().err
