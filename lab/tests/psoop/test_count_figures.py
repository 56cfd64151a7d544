import numpy as np
import pytest

from lab.tests.psoop.small_evaluation import changed
from regraft.api.programs import Figure
from regraft_lab.mean_figures import mean_half_width
from regraft_lab.psoop.count_figures import evaluation_figures, group_results
from regraft_lab.psoop.evaluation_tasks import Task
from regraft_lab.psoop.run_task import Curve, TaskResult


def flat(variant: str, cost: float, step: float = 0.0, **parts: float) -> Curve:
    """Return five samples of equal cost, and of equal cost of messages."""
    messages = {name: [parts.get(name, 0.0)] * 5 for name in ("broadcast", "request", "exchange")}
    return Curve(variant, step, [cost] * 5, **messages, exchanges=[2] * 5, degree_max=[3, 9, 4, 4, 5])


def value(figures: list[Figure], name: str, **where: str | float) -> float:
    """Return the only figure of this name in a setting."""
    found = [figure.value for figure in figures if figure.name == name and where.items() <= figure.where.items()]
    assert len(found) == 1, (name, where, found)
    return found[0]


@pytest.fixture
def two_networks() -> list[tuple[Task, TaskResult]]:
    """Return two networks: the random tree costs 100 and 200, CI half, with messages 0.6 and 0.7 of it."""
    results = []
    for topology, scale in enumerate((1.0, 2.0)):
        ci = flat(
            "swap_links_ci", 50 * scale, broadcast=5 * scale, request=2 * scale, exchange=(3 + 10 * topology) * scale
        )
        curves = [flat("random_tree", 100 * scale), ci, flat("swap_links_cost", 30 * scale)]
        results.append((changed(topology=topology, regime_ticks=5_000), TaskResult(curves, 50.0)))
    return results


def test_costs_are_relative_to_the_random_tree_of_the_same_network(two_networks: list[tuple[Task, TaskResult]]) -> None:
    """The mean of 0.6 and 0.7 with Student's interval for two values: 12.706 * 0.05."""
    figures = evaluation_figures(two_networks)
    where = {"figure": "fig4", "planner": "swap_links_ci", "period": "all"}
    assert value(figures, "forwarding_vs_random", **where) == pytest.approx(0.5)
    assert value(figures, "cost_vs_random", **where) == pytest.approx(0.65)
    assert value(figures, "cost_vs_random_ci95", **where) == pytest.approx(12.706 * 0.05)
    assert value(figures, "cost_above_ci", planner="swap_links_cost", period="all") == pytest.approx(0.3 - 0.65)


def test_messages_are_shares_of_the_adapted_cost(two_networks: list[tuple[Task, TaskResult]]) -> None:
    """5 of 50 for broadcasts; exchanges are the mean of 3 and 13 of 50."""
    figures = evaluation_figures(two_networks)
    assert value(figures, "broadcast_cost_share", planner="swap_links_ci") == pytest.approx(0.1)
    assert value(figures, "broadcast_vs_random", planner="swap_links_ci") == pytest.approx(0.05)
    assert value(figures, "execution_cost_share", planner="swap_links_ci") == pytest.approx(0.16)
    assert value(figures, "exchanges_per_1000_ticks", planner="swap_links_ci") == pytest.approx(2)


def test_links_are_counted_when_settled(two_networks: list[tuple[Task, TaskResult]]) -> None:
    """The last 40 % of a regime: two of five samples, so the 9 of the second does not count."""
    figures = evaluation_figures(two_networks)
    assert value(figures, "links_at_one_broker_max", planner="swap_links_ci") == 5


def test_one_network_has_no_interval(two_networks: list[tuple[Task, TaskResult]]) -> None:
    """One network has no spread."""
    figures = evaluation_figures(two_networks[:1])
    assert not [figure for figure in figures if figure.name.endswith("_ci95")]


def test_recovery_is_counted_from_the_change() -> None:
    """From 0.9 back to 0.5: a tenth of the excess is left in the third sample, 2,000 ticks after the change."""
    saved = [1.0, 0.5, 0.5, 0.5, 0.5, 0.9, 0.6, 0.52, 0.5, 0.5]
    zeros = [0.0] * 10
    curves = [
        Curve(name, 0.0, costs, zeros, zeros, zeros, [0] * 10, [3] * 10)
        for name, costs in (("random_tree", [1.0] * 10), ("swap_links_ci", saved))
    ]
    figures = evaluation_figures([(changed(regime_ticks=5_000, regimes=2), TaskResult(curves, 50.0))])
    assert value(figures, "recovery_ticks", planner="swap_links_ci", change_ticks=0) == 1_000
    assert value(figures, "recovery_ticks", planner="swap_links_ci", change_ticks=5_000) == 2_000
    assert value(figures, "cost_jump", planner="swap_links_ci", change_ticks=5_000) == pytest.approx(0.4)


def test_eta_is_compared_with_the_default() -> None:
    """One random tree serves all values of eta."""
    curves = [
        flat("random_tree", 100, 1),
        flat("swap_links_ci", 100, 1),
        flat("swap_links_ci", 40, 4),
        flat("swap_links_ci", 50, 8),
    ]
    task = changed(
        experiment="fig5", variants=("random_tree", "swap_links_ci"), steps=(1.0, 4.0, 8.0), regime_ticks=5_000
    )
    figures = evaluation_figures([(task, TaskResult(curves, 50.0))])
    assert value(figures, "cost_vs_random", eta=4.0, period="all") == pytest.approx(0.4)
    assert value(figures, "cost_above_default_eta", eta=8.0, period="all") == pytest.approx(0.1)
    assert list(group_results([(task, TaskResult(curves))])) == [("fig5", "uniform", "cache")]


def test_the_interval_is_students() -> None:
    """Of 25 values 2.064 standard errors, as for the paper's 25 topologies."""
    values = np.random.default_rng(1).normal(size=25)
    mean, half = mean_half_width(values)
    assert mean == pytest.approx(values.mean())
    assert half == pytest.approx(2.064 * values.std(ddof=1) / 5)
