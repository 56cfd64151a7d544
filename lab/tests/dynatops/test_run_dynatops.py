"""Whole tasks at a small size: reproducible, with the invariants of all tasks, and means over draws."""

import pytest

from lab.tests.dynatops.small_dynatops import SMALL_SIZE
from regraft.api.programs import Figure
from regraft_lab.claim_evidence import Measured
from regraft_lab.dynatops.count_protocol import ProtocolTask
from regraft_lab.dynatops.dynatops_figures import mean_figures
from regraft_lab.dynatops.dynatops_tasks import FULL, QUICK, all_tasks
from regraft_lab.dynatops.location_setting import Placement
from regraft_lab.dynatops.run_clusters import ClusterTask
from regraft_lab.dynatops.run_dynatops import Task, TaskResult, run_task
from regraft_lab.dynatops.run_location import LocationTask
from regraft_lab.dynatops.run_location_users import LocationUsersTask
from regraft_lab.dynatops.run_patterns import PatternTask
from regraft_lab.dynatops.run_poisson import PoissonTask

POISSON = PoissonTask(1, 0, "multimodal", 0.1, 10, 5.0, 10.0, 5.0, 1.0, 50.0, 600, 20)
PLACEMENTS = tuple(
    Placement(asks, weight, cluster) for asks in ("home", "near") for weight, cluster in ((0.0, 5), (1.0, 5))
)
LOCATION = LocationTask(1, 0, 4, 4, PLACEMENTS, True, 168.0, 168.0)
USERS = LocationUsersTask(1, 0, 4, 4, (*PLACEMENTS, Placement("near", 0.0, 1), Placement("home", 0.0, 1)))
CLUSTERS = ClusterTask(1, 0, "multimodal", (1, 5, 10), (0.0, 1.0), 0.1, 10.0, 2_000, 50)


@pytest.mark.parametrize(
    "task", [POISSON, LOCATION, USERS, CLUSTERS, ProtocolTask(1, 0, 8, 10), PatternTask(1, 0, 10, 50, True)]
)
def test_a_task_is_reproducible_and_reports_all_its_work(task: Task) -> None:
    """Samples depend only on the task."""
    reported: list[int] = []
    found = run_task(task, reported.append)
    assert found == run_task(task)
    assert sum(reported) == task.work_count
    assert "/" not in task.label


def test_placed_users_change_brokers_subscriptions_less() -> None:
    """Multimodal, in clusters of ten; users at random homes never move, and TCO has no relays."""
    found = Measured(run_task(POISSON).samples)
    cut = found.value("changes_cut_by_rate")
    assert cut is not None
    assert cut > 0.5
    assert found.value("handovers_per_h", homes="static") == 0
    assert found.value("relays_per_notification", system="tco") == 0
    for system in ("chord", "ssbr", "assignment"):
        placed, static = (
            found.value("messages_per_notification", system=system, homes=homes) for homes in ("placed", "static")
        )
        assert placed is not None
        assert static is not None
        assert placed < static


def test_clusters_of_one_change_nothing() -> None:
    """A broker by itself exchanges nothing; larger clusters save more."""
    found = Measured(run_task(CLUSTERS).samples)
    for weight in (0.0, 1.0):
        assert found.value("subscription_changes_cut", cluster_brokers=1, load_weight=weight) == 0
    static = found.value("random_homes_management_per_h")
    assert found.value("management_per_h", cluster_brokers=1, load_weight=1.0) == static
    small, large = (found.value("subscription_changes_cut", cluster_brokers=c, load_weight=0.0) for c in (5, 10))
    assert small is not None
    assert large is not None
    assert 0 < small <= large


def test_a_user_that_asks_nearby_in_clusters_of_one_is_located() -> None:
    """It gets the broker that it asks: as many handovers as by location; one that asks its home never moves."""
    found = Measured(run_task(USERS).samples)
    assert found.value("handovers_cut", homes="asks_near", cluster_brokers=1) == 0
    assert found.value("handovers_cut", homes="asks_home", cluster_brokers=1) == 1
    located = found.value("subscription_changes_per_h", homes="located")
    assert found.value("subscription_changes_per_h", homes="asks_near", cluster_brokers=1) == located


def test_proximity_and_places_shorten_delays() -> None:
    """Neighbours chosen by nearness are nearer than random ones, and GeoPS routes directly."""
    found = Measured(run_task(LOCATION).samples)
    delays = [found.value("delay", system=system, homes="located") for system in ("geops", "bayeux16_pns", "bayeux16")]
    assert None not in delays
    assert delays == sorted(delays, key=lambda delay: delay or 0.0)
    hops = [found.value("hops", system=system, homes="located") for system in ("bayeux16", "bayeux4")]
    assert hops == sorted(hops, key=lambda count: count or 0.0)


def test_means_are_over_draws_of_the_same_setting() -> None:
    """1 and 3 give 2 on average; a single draw has no interval."""
    results = [
        TaskResult([Figure("delay", {"system": "tco"}, 1.0, "hops"), Figure("delay", {"system": "ssbr"}, 5.0, "hops")]),
        TaskResult([Figure("delay", {"system": "tco"}, 3.0, "hops")]),
    ]
    found = Measured(mean_figures(results))
    mean = found.interval("delay", system="tco", draws=2)
    assert mean is not None
    assert mean.mean == 2.0
    assert mean.half == pytest.approx(12.706)
    single = found.interval("delay", system="ssbr", draws=1)
    assert single is not None
    assert single.half is None


@pytest.mark.parametrize("size", [QUICK, FULL, SMALL_SIZE], ids=lambda size: size.name)
def test_sizes_have_what_the_claims_need(size: object) -> None:
    """All three patterns, two rates, clusters below and above ten; labels are file names; all tasks are different."""
    tasks = all_tasks(size, 1)  # type: ignore[arg-type]
    assert len(set(tasks)) == len(tasks)
    assert all("/" not in task.label and task.work_count > 0 for task in tasks)
    poisson = [task for task in tasks if isinstance(task, PoissonTask)]
    assert {task.pattern for task in poisson} == {"uniform", "zipf", "multimodal"}
    assert all(task.settle_h <= task.duration_h for task in poisson)
    assert len({task.changes_per_user_h for task in poisson if task.connected_h}) >= 2
    counts = [task.work_count for task in tasks]
    assert counts == sorted(counts, reverse=True)
