"""Whole tasks on small testbeds: results that every method must reach, and reproducibility."""

import random
from types import MappingProxyType

import pytest

import regraft_lab.pop_grape.run_relocation
from regraft.api.overlays import Inventory
from regraft_lab.pop_grape.choose_homes import settle_homes
from regraft_lab.pop_grape.count_window import WorkloadCounter
from regraft_lab.pop_grape.observe_placement import DECIDE_WINDOWS, observe_placement
from regraft_lab.pop_grape.placement_measures import counted
from regraft_lab.pop_grape.quote_workload import QuoteSettings, draw_workload
from regraft_lab.pop_grape.relocation_outcome import Outcome, TaskResult
from regraft_lab.pop_grape.relocation_tasks import (
    COUNTED_WAYS,
    EMULATED_WAYS,
    QUICK,
    SESSION_WAYS,
    Task,
    all_tasks,
)
from regraft_lab.pop_grape.run_relocation import run_task
from regraft_lab.pop_grape.testbeds import planetlab_testbed


def small_planetlab(rng: random.Random) -> Inventory:
    """Return seven brokers on PlanetLab."""
    return planetlab_testbed(rng, 7)


@pytest.fixture
def seven_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    testbeds = MappingProxyType({"planetlab": small_planetlab, "cluster": small_planetlab})
    monkeypatch.setattr(regraft_lab.pop_grape.run_relocation, "TESTBEDS", testbeds)


def emulated(x: int) -> Task:
    """Return a task with two publishers on seven brokers."""
    return Task("emulated", "planetlab", "clustered", "shared", x, 3, 0, EMULATED_WAYS, 2, subscribers_per_publisher=20)


def outcomes(result: TaskResult) -> dict[str, Outcome]:
    """Return the outcomes of a task with one draw, by method."""
    [draw] = result.draws
    return {each.way: each for each in draw.outcomes}


@pytest.mark.usefixtures("seven_brokers")
def test_with_one_interested_broker_all_publishers_move_there() -> None:
    """X = 1: every method moves every publisher to the broker of all its subscribers, and no link is crossed."""
    result = run_task(emulated(1))
    subscribers_at = result.draws[0].subscribers_at
    for way, outcome in outcomes(result).items():
        if way != "baseline":
            assert {name: [home] for name, home in outcome.homes.items()} == subscribers_at
            assert outcome.measures.hops == 0


@pytest.mark.usefixtures("seven_brokers")
def test_a_task_is_reproducible() -> None:
    """Runs on the virtual clock depend only on the task; the baseline moves nothing, no method costs less than ours."""
    found, again = run_task(emulated(2)), run_task(emulated(2))
    assert found == again
    by_way = outcomes(found)
    assert by_way["baseline"].moved == by_way["baseline"].rounds == 0
    assert by_way["ours"].cost_decided_per_s <= min(each.cost_decided_per_s for each in by_way.values()) + 1e-9


def test_exact_count_and_telemetry_agree() -> None:
    """Brokers' reports of later windows are close to the count on earlier ones: quotes differ, and little waits."""
    inventory = planetlab_testbed(random.Random(4), 7)
    workload = draw_workload(inventory.brokers, QuoteSettings(publisher_count=2), random.Random(4))
    seen = observe_placement(inventory, workload, workload.homes)
    assert len(seen.windows) == DECIDE_WINDOWS
    assert all(window.is_complete and window.homes == workload.homes for window in seen.windows)
    begun = sum(int(window.sets.notification_count) for window in seen.windows)
    assert begun == pytest.approx(2 * 8.0 * 5.0 * DECIDE_WINDOWS, rel=0.2)
    found = counted(seen.windows, inventory.bootstrap, inventory, workload.homes)
    assert seen.measures.message_rate_per_s == pytest.approx(found.message_rate_per_s, rel=0.25)
    assert seen.measures.delay_ms == pytest.approx(found.delay_ms, rel=0.15)
    assert seen.measures.hops == pytest.approx(found.hops, rel=0.15)


def test_a_counted_window_is_what_the_workload_publishes() -> None:
    """Counted by the ledger's own rule: each subscription gets each notification that its filter matches."""
    inventory = planetlab_testbed(random.Random(5), 15)
    settings = QuoteSettings("random", "independent", 4, publisher_count=2)
    workload = draw_workload(inventory.brokers, settings, random.Random(5))
    counter = WorkloadCounter(inventory, workload, 300)
    whole = counter.window(workload.homes, 0, 300)
    parts = [counter.window(workload.homes, first, 100) for first in (0, 100, 200)]
    assert sum(part.sets.notification_count for part in parts) == whole.sets.notification_count == 600
    for pair, deliveries in whole.local_deliveries.items():
        assert sum(part.local_deliveries.get(pair, 0) for part in parts) == deliveries
    in_parts, at_once = (counted(windows, inventory.bootstrap, inventory) for windows in (parts, [whole]))
    assert in_parts.cost_per_s == pytest.approx(at_once.cost_per_s)
    assert in_parts.hops == pytest.approx(at_once.hops)


def test_all_draws_are_counted_at_x_one() -> None:
    """On equal brokers X = 1 saves all hops in every draw that does not start there."""
    result = run_task(Task("counted", "hops", "random", "shared", 1, 1, 0, COUNTED_WAYS, 1, draws=3))
    assert len(result.draws) == 3
    for draw in result.draws:
        assert all(each.measures.hops == 0 for each in draw.outcomes if each.way != "baseline")


@pytest.mark.usefixtures("seven_brokers")
def test_short_sessions_need_more_control_messages() -> None:
    """TIR and TIA are sent once per session, so sessions of 10 notifications need more of them than sessions of 50."""
    task = Task(
        "sessions", "cluster", "clustered", "shared", 3, 1, 0, SESSION_WAYS, 1, steps=(10, 50), publications=200
    )  # fmt: skip
    [draw] = run_task(task).draws
    found = {(each.way, each.step): each for each in draw.outcomes}
    assert found["baseline", 10].overhead_per_s == found["baseline", 10].moved == 0
    assert found["delay100", 10].overhead_per_s > 3 * found["delay100", 50].overhead_per_s
    assert found["load100", 10].rounds == 15  # those after the first 50 publications


def test_settling_stops_when_nothing_moves_or_after_the_last_round() -> None:
    """A method that oscillates is stopped; one that stays needs no further round."""
    there_and_back = {"a": "b", "b": "a"}
    assert settle_homes({"p": "a"}, lambda homes: {"p": there_and_back[homes["p"]]}, 3) == ({"p": "b"}, 3)
    assert settle_homes({"p": "a"}, lambda homes: {"p": "c"}, 3) == ({"p": "c"}, 1)
    assert settle_homes({"p": "a"}, lambda homes: homes, 3) == ({"p": "a"}, 0)


def test_the_quick_size_has_what_the_claims_need() -> None:
    """PlanetLab with shared predicates, X = 1 and more, both workloads; labels are file names."""
    tasks = all_tasks(QUICK, 1)
    emulated_tasks = [task for task in tasks if task.kind == "emulated"]
    assert {task.interested_brokers for task in emulated_tasks} == {1, 2, 8, 32}
    assert {task.distribution for task in emulated_tasks} == {"clustered", "random"}
    assert len(set(tasks)) == len(tasks)
    assert all("/" not in task.label and task.work_count > 0 for task in tasks)
