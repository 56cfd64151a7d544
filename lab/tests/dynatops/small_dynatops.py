"""Zhao13's evaluation at a size that runs in seconds: few users, one coarse grid, short times."""

from regraft_lab.dynatops.dynatops_tasks import Size

SMALL_SIZE = Size(
    name="small",
    draws={"poisson": 1, "periods": 1, "clusters": 1, "location": 1, "patterns": 1, "protocol": 1},
    rates=(0.05, 0.1),
    duration_h=20.0,
    connected_h=1.0,
    other_events=(),
    periods_h=(5.0, 10.0),
    periods_duration_h=20.0,
    location_periods_h=(168.0, 336.0),
    clusters=(1, 5, 50),
    cluster_weights=(0.0, 1.0),
    clusters_h=2.0,
    grids=((8, 8),),
    pattern_sizes=((10, 100), (100, 100)),
    timed_sizes=((10, 100),),
    scratch_values_max=100_000,
    protocol_sizes=((8, 10),),
    user_count=300,
)
