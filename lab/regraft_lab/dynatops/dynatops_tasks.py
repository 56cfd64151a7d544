"""The tasks of the evaluation of Zhao13, which are independent of each other, in two sizes.

In: a size, a seed, optionally a folder of recorded check-ins. Out: tasks. Running them and using the results do not
belong here.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from regraft_lab.dynatops.count_protocol import ProtocolTask
from regraft_lab.dynatops.location_setting import Placement
from regraft_lab.dynatops.poisson_workload import PATTERNS, Pattern
from regraft_lab.dynatops.run_clusters import ClusterTask
from regraft_lab.dynatops.run_dynatops import Task
from regraft_lab.dynatops.run_location import LocationTask
from regraft_lab.dynatops.run_location_users import LocationUsersTask
from regraft_lab.dynatops.run_patterns import PatternTask
from regraft_lab.dynatops.run_poisson import PoissonTask

PERIOD_H = 10.0  # T_free of Figs. 7 and 8.
HEADLINE_RATE = 0.1  # Of Fig. 8.
CLUSTER = 10  # "a small cluster size (e.g. 10 brokers in a cluster) is good enough".
PERIODS_RATE, PERIODS_CLUSTER = 0.025, 5  # Of Fig. 9.
LOCATION_PERIOD_H = 168.0
ASKS = ("home", "near")
CLAIM_WEIGHTS = (0.0, 0.05)  # Values of w_l for which claims of the location model are judged.
LOAD_WEIGHTS = (0.0, 0.05, 1.0)


class Size(msgspec.Struct, frozen=True):
    """The extent of a run.

    ``draws``: by kind of task. ``rates``: changes per user and hour of Fig. 7, over ``duration_h``, with TCO for
    ``connected_h`` of it. ``other_events``: events per user and hour, besides 1. ``periods_h``: T_free of Fig. 9, over
    ``periods_duration_h``; ``location_periods_h``: the same in the location model. ``clusters``: values of c, with
    values ``cluster_weights`` of w_l in the Poisson model, over ``clusters_h``. ``grids``: (rows, columns) of the
    location model; the first one is that of Figs. 6f and 9. ``pattern_sizes``: (brokers, topics) of Fig. 10;
    ``timed_sizes``: those of Table 1, with at most ``scratch_values_max`` values priced from scratch.
    ``protocol_sizes``: (brokers, topics) of the rings whose messages are counted.
    """

    name: str
    draws: dict[str, int]
    rates: tuple[float, ...]
    duration_h: float
    connected_h: float
    other_events: tuple[float, ...]
    periods_h: tuple[float, ...]
    periods_duration_h: float
    location_periods_h: tuple[float, ...]
    clusters: tuple[int, ...]
    cluster_weights: tuple[float, ...]
    clusters_h: float
    grids: tuple[tuple[int, int], ...]
    pattern_sizes: tuple[tuple[int, int], ...]
    timed_sizes: tuple[tuple[int, int], ...]
    scratch_values_max: int
    protocol_sizes: tuple[tuple[int, int], ...]
    user_count: int = 50_000


FULL = Size(
    name="full",
    draws={"poisson": 5, "periods": 5, "clusters": 3, "location": 8, "patterns": 16, "protocol": 3},
    rates=(0.025, 0.05, 0.1, 0.2),
    duration_h=100.0,
    connected_h=10.0,
    other_events=(0.1, 10.0),
    periods_h=(2.0, 5.0, 10.0, 20.0, 50.0),
    periods_duration_h=150.0,
    location_periods_h=(24.0, 72.0, 168.0, 336.0),
    clusters=(1, 2, 5, 10, 20, 50),
    cluster_weights=(0.0, 0.1, 1.0),
    clusters_h=50.0,
    grids=((16, 16), (8, 8), (32, 32), (20, 60)),
    pattern_sizes=((10, 100), (100, 100), (1000, 100), (100, 50), (100, 500), (100, 5000)),
    timed_sizes=((10, 100), (100, 50), (100, 100), (100, 500), (100, 5000), (1000, 100)),
    scratch_values_max=100_000_000,
    protocol_sizes=((16, 20), (32, 20), (64, 20), (128, 20), (16, 100), (64, 100)),
)
QUICK = Size(
    name="quick",
    draws={"poisson": 1, "periods": 1, "clusters": 1, "location": 2, "patterns": 3, "protocol": 1},
    rates=(0.025, 0.1),
    duration_h=40.0,
    connected_h=3.0,
    other_events=(),
    periods_h=(5.0, 20.0),
    periods_duration_h=60.0,
    location_periods_h=(72.0, 336.0),
    clusters=(1, 2, 5, 10, 50),
    cluster_weights=(0.0, 1.0),
    clusters_h=10.0,
    grids=((16, 16), (8, 8)),
    pattern_sizes=((10, 100), (100, 100), (100, 500)),
    timed_sizes=((10, 100), (100, 50), (100, 100), (100, 500), (1000, 100)),
    scratch_values_max=2_000_000,
    protocol_sizes=((16, 20), (32, 20), (32, 100)),
)


def all_tasks(size: Size, seed: int, data: str = "") -> list[Task]:
    """Return the tasks of one run, longest first, so that the last ones to finish are short.

    ``data`` is the folder of recorded check-ins; empty for the shipped cut.
    """
    tasks: list[Task] = [
        *_poisson_tasks(size, seed),
        *_period_tasks(size, seed),
        *_location_tasks(size, seed, data),
    ]
    tasks += [
        ClusterTask(
            seed, draw, pattern, size.clusters, size.cluster_weights, HEADLINE_RATE, size.clusters_h, size.user_count
        )
        for pattern in PATTERNS
        for draw in range(size.draws["clusters"])
    ]
    tasks += [
        PatternTask(seed, draw, brokers, topics, has_prices=(brokers, topics) == (100, 100))
        for brokers, topics in size.pattern_sizes
        for draw in range(size.draws["patterns"])
    ]
    tasks += [
        ProtocolTask(seed, draw, brokers, topics)
        for brokers, topics in size.protocol_sizes
        for draw in range(size.draws["protocol"])
    ]
    return sorted(tasks, key=lambda each: -each.work_count)


def _poisson_tasks(size: Size, seed: int) -> Iterator[Task]:
    """Yield Fig. 7 (all rates, multimodal), Fig. 8 (all patterns at one rate), and other rates of events."""
    settings: list[tuple[Pattern, float, float]] = [
        *(("multimodal", rate, 1.0) for rate in size.rates),
        *((pattern, HEADLINE_RATE, 1.0) for pattern in PATTERNS if pattern != "multimodal"),
        *(("multimodal", HEADLINE_RATE, events) for events in size.other_events),
    ]
    for pattern, rate, events in settings:
        for draw in range(size.draws["poisson"]):
            yield PoissonTask(
                seed, draw, pattern, rate, CLUSTER, PERIOD_H, size.duration_h, PERIOD_H,
                size.connected_h if events == 1.0 else 0.0, events, size.user_count,
            )  # fmt: skip


def _period_tasks(size: Size, seed: int) -> Iterator[Task]:
    """Yield Fig. 9 in the Poisson model; all tasks are measured from the end of the longest period on."""
    for period_h in size.periods_h:
        for draw in range(size.draws["periods"]):
            yield PoissonTask(
                seed, draw, "multimodal", PERIODS_RATE, PERIODS_CLUSTER, period_h, size.periods_duration_h,
                max(size.periods_h), user_count=size.user_count,
            )  # fmt: skip


def _location_tasks(size: Size, seed: int, data: str) -> Iterator[Task]:
    """Yield Figs. 6a to 6f on all grids, and Fig. 9 on the first one."""
    at_cluster = tuple(Placement(asks, weight, CLUSTER) for asks in ASKS for weight in CLAIM_WEIGHTS)
    by_cluster = tuple(
        Placement("home", weight, cluster)
        for weight in CLAIM_WEIGHTS
        for cluster in size.clusters
        if cluster != CLUSTER
    )
    users = tuple(
        Placement(asks, weight, cluster) for asks in ASKS for weight in LOAD_WEIGHTS for cluster in size.clusters
    )
    for draw in range(size.draws["location"]):
        for grid in size.grids:
            rows, columns = grid
            placements = at_cluster + (by_cluster if grid == size.grids[0] else ())
            yield LocationTask(
                seed, draw, rows, columns, placements, True, LOCATION_PERIOD_H, LOCATION_PERIOD_H,
                data=data,
            )  # fmt: skip
            yield LocationUsersTask(seed, draw, rows, columns, users, data)
        rows, columns = size.grids[0]
        for period_h in size.location_periods_h:
            yield LocationTask(
                seed, draw, rows, columns, at_cluster[:1], False, period_h, max(size.location_periods_h),
                data=data,
            )  # fmt: skip
