import numpy as np
import pytest

from lab.tests.psoop.small_evaluation import SMALL, changed
from regraft_lab.psoop.evaluation_tasks import QUICK, all_tasks
from regraft_lab.psoop.run_task import Curve, TaskResult, run_task


@pytest.fixture(scope="module")
def small_result() -> TaskResult:
    return run_task(changed(regimes=2))


def curve(result: TaskResult, variant: str, step: float = 0.0) -> Curve:
    """Return the curve of one overlay."""
    return next(each for each in result.curves if (each.variant, each.step) == (variant, step))


def test_the_same_task_gives_the_same_curves() -> None:
    """Decisions and costs depend only on the task."""
    assert run_task(SMALL) == run_task(SMALL)


def test_all_overlays_start_from_one_tree(small_result: TaskResult) -> None:
    """In the first round there are no decisions yet, so the first sample differs by at most three rounds."""
    single = run_task(changed(regime_ticks=250))
    first = {each.variant: each.forwarding[0] for each in single.curves}
    assert len(set(first.values())) == 1
    assert len(curve(small_result, "swap_links_ci").forwarding) == 4


def test_a_static_tree_sends_no_messages(small_result: TaskResult) -> None:
    """The random tree and the yardsticks with global knowledge are charged for notifications only."""
    for variant in ("random_tree", "minimum_spanning_tree", "maximum_interest_tree"):
        found = curve(small_result, variant)
        assert not any(found.broadcast + found.request + found.exchange)
    assert not any(curve(small_result, "random_tree").exchanges)


def test_planners_change_the_tree_and_pay_for_it(small_result: TaskResult) -> None:
    """Variants that exchange links pay for it, and for their information."""
    for variant in ("swap_links_lmst", "swap_links_lmit", "swap_links_ci", "swap_links_cost"):
        found = curve(small_result, variant)
        assert sum(found.exchanges) > 0
        assert sum(found.exchange) > 0
        assert all(cost > 0 for cost in found.broadcast)


def test_true_cost_saves_on_traffic_to_come(small_result: TaskResult) -> None:
    """Our planner decides on the past; its tree is cheaper than the random one for notifications after the decision."""
    ours, static = (np.array(curve(small_result, name).forwarding) for name in ("swap_links_cost", "random_tree"))
    assert ours[-1] < 0.9 * static[-1]


def test_with_eta_one_no_link_can_be_added() -> None:
    """A horizon of one hop only contains adjacent brokers: broadcasts, but no exchange."""
    result = run_task(changed(experiment="fig5", variants=("random_tree", "swap_links_ci"), steps=(1.0, 4.0)))
    alone, default = curve(result, "swap_links_ci", 1.0), curve(result, "swap_links_ci", 4.0)
    assert alone.forwarding == curve(result, "random_tree", 1.0).forwarding
    assert not any(alone.exchanges)
    assert sum(default.exchanges) > 0
    assert 0 < sum(alone.broadcast) < sum(default.broadcast)


def test_without_link_costs_lmst_has_nothing_to_do() -> None:
    """At alpha = 1 all links cost nothing, so none is cheaper than another."""
    result = run_task(
        changed(
            experiment="fig6",
            variants=("random_tree", "swap_links_lmst", "swap_links_lmit", "swap_links_ci", "swap_links_cost"),
            steps=(1.0,),
        )
    )
    assert curve(result, "swap_links_lmst", 1.0).forwarding == curve(result, "random_tree", 1.0).forwarding
    assert sum(curve(result, "swap_links_cost", 1.0).exchanges) > 0


def test_memory_is_what_differs_between_lifetimes() -> None:
    """The same traffic and the same first tree: a static tree costs the same, one that adapts by memory does not."""
    task = changed(experiment="figh", variants=("random_tree", "swap_links_ci"), steps=(0.1, 4.0), warmup_ticks=10_000)
    result = run_task(task)
    assert curve(result, "random_tree", 0.1).forwarding == curve(result, "random_tree", 4.0).forwarding
    assert curve(result, "swap_links_ci", 0.1).forwarding != curve(result, "swap_links_ci", 4.0).forwarding


def test_brokers_may_compare_only_the_last_interval() -> None:
    """Section 4.3.1 against section 4: other identifiers, other decisions, the same traffic."""
    caches, interval = (
        run_task(changed(variants=("random_tree", "swap_links_lmit"), memory=each)) for each in ("cache", "interval")
    )
    assert curve(caches, "random_tree").forwarding == curve(interval, "random_tree").forwarding
    assert curve(caches, "swap_links_lmit").forwarding != curve(interval, "swap_links_lmit").forwarding


def test_the_zoo_needs_its_folder() -> None:
    """The message names the missing option."""
    with pytest.raises(ValueError, match="--data"):
        run_task(changed(network="zoo"))


def test_the_zoo_is_run_only_with_data() -> None:
    """Without the recorded networks PlanetLab's shipped cut remains."""
    without, given = ({task.network for task in all_tasks(QUICK, 1, data)} for data in ("", "somewhere"))
    assert without == {"transit_stub", "uniform", "planetlab", "small"}
    assert given == without | {"zoo"}
