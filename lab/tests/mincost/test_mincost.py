"""The evaluation of Zhao11: properties of networks, results of tasks, verdicts."""

import math
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from rich.console import Console

from regraft.api.programs import Figure
from regraft_lab.claim_evidence import Measured, Verdict
from regraft_lab.mincost.draw_mincost import draw_mincost
from regraft_lab.mincost.migrate_users import migrate_users
from regraft_lab.mincost.mincost_claims import (
    OUR_CLAIMS,
    PAPER_CLAIMS,
    by_users,
    claims_document,
    judge_never_more_expensive,
    judge_order,
    judge_times,
)
from regraft_lab.mincost.mincost_tasks import FULL, QUICK, MincostTask, all_tasks, mean_figures, run_task
from regraft_lab.mincost.mincost_workload import (
    INTERESTS,
    PRICES,
    WONDERPROXY,
    WONDERPROXY_FILE,
    Setting,
    draw_instance,
)
from regraft_lab.reproductions.reproduce_mincost import MincostOptions, reproduce_mincost
from regraft_lab.reproductions.reproduce_parts import ReproduceError
from regraft_lab.yardsticks.pack_users import pack_random
from regraft_lab.yardsticks.packed_users import PackingCosts

SMALL = Setting(60, 6)


@pytest.mark.parametrize("prices", PRICES)
@pytest.mark.parametrize("interests", INTERESTS)
def test_networks_are_as_in_the_paper(prices: str, interests: str) -> None:
    """Brokers have equal room, for twice the traffic; core prices keep the triangle inequality; all want something."""
    instance = draw_instance(Setting(60, 6, prices, 2.0, interests), np.random.default_rng(1))
    room, core = instance.room_per_s, instance.core_price
    assert room == pytest.approx(np.full(6, max(2 * instance.demand_per_s.sum() / 6, instance.demand_per_s.max())))
    assert (core[:, :, None] <= core[:, None, :] + core.T[None, :, :] + 1e-9).all()
    assert instance.wants.any(axis=1).all()
    assert (instance.rates >= 0).all()


def test_narrow_interests_are_a_twentieth_of_the_content() -> None:
    """They touch at most two sub-channels of 20."""
    wants = draw_instance(Setting(200, 4, interests="narrow"), np.random.default_rng(2)).wants
    assert set(wants.sum(axis=1).tolist()) <= {1, 2}


def test_equal_tasks_are_equal_figures_but_for_times() -> None:
    """And random packing is 1 by definition."""
    task = MincostTask(3, 0, SMALL)
    one, other = ([sample for sample in run_task(task).samples if sample.name != "seconds"] for _ in range(2))
    assert one == other
    ratios = {str(each.where["algorithm"]): each.value for each in one if each.name == "crr"}
    assert ratios["random"] == 1.0
    assert ratios["drop"] >= max(ratios.values()) - 1e-9


def test_sizes_hold_each_setting_once() -> None:
    """In full size 100 networks per point, as in the paper."""
    for size in (FULL, QUICK):
        tasks = all_tasks(size, 1)
        assert len({task.label for task in tasks}) == len(tasks)
        assert len(tasks) == size.draws * len({msgspec.json.encode(task.setting) for task in tasks})
    assert FULL.draws == 100


def test_redirecting_users_lowers_the_cost_within_the_room() -> None:
    """From random homes; users that decline stay, and are counted separately from those that moved."""
    instance = draw_instance(SMALL, np.random.default_rng(4))
    homes = pack_random(instance, np.random.default_rng(5))
    before_per_s = PackingCosts(instance, homes).cost_per_s
    willing = migrate_users(instance, homes, np.random.default_rng(6))
    assert willing.costs.cost_per_s < before_per_s
    assert instance.is_packed(willing.costs.homes)
    assert (willing.declined, willing.moves > 10, willing.messages >= 7 * willing.moves) == (0, True, True)
    nobody = migrate_users(instance, homes, np.random.default_rng(6), 1.0)
    assert (nobody.moves, nobody.messages) == (0, 2 * nobody.declined)
    assert nobody.costs.homes.tolist() == homes.tolist()


def crr(algorithm: str, value: float) -> list[Figure]:
    where = {**msgspec.to_builtins(Setting(1_000, 10)), "algorithm": algorithm}
    return [Figure("crr", where, value, "1"), Figure("crr_ci95", where, 0.1, "1")]


def test_the_order_is_reproduced_only_if_intervals_do_not_overlap() -> None:
    """Greedy below clustering below mixing."""
    ordered = Measured([*crr("greedy", 1.0), *crr("clustering", 2.0), *crr("mixing", 3.0)])
    touching = Measured([*crr("greedy", 1.0), *crr("clustering", 1.1), *crr("mixing", 3.0)])
    against = Measured([*crr("greedy", 3.0), *crr("clustering", 2.0), *crr("mixing", 3.0)])
    found = [judge_order(one).verdict for one in (ordered, touching, against)]
    assert found == [Verdict.REPRODUCED, Verdict.UNDECIDED, Verdict.REFUTED]


@pytest.mark.parametrize(("greedy_s", "expected"), [(0.03, Verdict.REPRODUCED), (2.0, Verdict.REFUTED)])
def test_the_start_up_of_random_packing_does_not_decide_the_order(greedy_s: float, expected: Verdict) -> None:
    """Random takes longer than greedy here."""
    times_s = {"random": 0.07, "greedy": greedy_s, "clustering": 1.1, "mixing": 2.4}
    where = msgspec.to_builtins(Setting(1_000, 10))
    figures = [Figure("seconds", {**where, "algorithm": name}, value, "s") for name, value in times_s.items()]
    assert judge_times(Measured(figures)).verdict is expected


def test_one_more_expensive_network_refutes_ours() -> None:
    """However good the mean."""
    found = [
        judge_never_more_expensive(Measured([Figure("ours_against_best_max", {}, worst, "1")]))
        for worst in (1.0, 1.001)
    ]
    assert [one.verdict for one in found] == [Verdict.REPRODUCED, Verdict.REFUTED]


def test_a_run_gives_tables_and_drawings() -> None:
    """With a row for each setting, and a verdict on each claim."""
    settings = [Setting(200, 2), Setting(400, 4), Setting(400, 4, core_scale=0.01), SMALL]
    figures = mean_figures([run_task(MincostTask(1, draw, setting)) for setting in settings for draw in range(2)])
    assert list(by_users(Measured(figures), "crr", "greedy")) == [200.0, 400.0]
    document = claims_document({"settings": {"size": "quick"}, "seed": 1}, figures)
    assert document.count("| 200 | 2 |") == 1 + 4  # and four migrations
    assert document.count("**") == 2 * len((*PAPER_CLAIMS, *OUR_CLAIMS))
    assert not any(math.isnan(one.value) for one in figures)
    drawn = draw_mincost(figures)
    assert all("Regraft" in drawing for drawing in drawn.values())
    assert drawn == draw_mincost(figures)


def test_round_trips_that_are_not_shipped_come_from_a_folder(tmp_path: Path) -> None:
    """The mean of both directions; tasks with them exist only with a folder."""
    rtt_us = np.arange(64.0).reshape(8, 8) * 1000
    np.savez(tmp_path / WONDERPROXY_FILE, avg_us=rtt_us)
    instance = draw_instance(Setting(20, 4, WONDERPROXY), np.random.default_rng(1), tmp_path)
    assert (instance.core_price.diagonal() == 0).all()
    assert set(instance.access_price.ravel()) <= {(a * 9 + b * 9) / 2 for a in range(8) for b in range(8)} | {0.0}
    with pytest.raises(FileNotFoundError):
        draw_instance(Setting(20, 4, WONDERPROXY), np.random.default_rng(1), tmp_path / "nowhere")
    without, with_data = all_tasks(QUICK, 1), all_tasks(QUICK, 1, tmp_path)
    more = [task for task in with_data if task not in without]
    assert {(task.setting.prices, task.data) for task in more} == {(WONDERPROXY, str(tmp_path))}
    assert len(more) == 2 * QUICK.draws


@pytest.mark.parametrize(
    ("options", "says"), [({"draws": 0}, "--draws is 0"), ({"data": Path("nowhere")}, "holds no wonderproxy_rtt.npz")]
)
def test_an_impossible_run_is_reported_before_it_begins(tmp_path: Path, options: dict[str, Any], says: str) -> None:
    """With what to do."""
    with pytest.raises(ReproduceError, match=says):
        reproduce_mincost(MincostOptions(tmp_path, **options), Console(quiet=True))
