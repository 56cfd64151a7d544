"""Judge Zhao13's claims on the location model (Fig. 6), and those "in general".

In: figures. Out: a verdict with its evidence over the readings of the model: grid, the broker that users ask, w_l.
Verdicts depend only on the figures.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise

from regraft_lab.claim_evidence import Judgement, Measured, Value, undecided, verdict
from regraft_lab.dynatops.dynatops_tasks import CLUSTER, LOCATION_PERIOD_H
from regraft_lab.dynatops.judge_poisson import cuts_by_pattern, management_cuts
from regraft_lab.dynatops.judge_readings import (
    BASES,
    GRIDS,
    LOCATION,
    STRICTLY,
    Readings,
    least_of,
    location_readings,
    over_readings,
    placements,
    size_over_readings,
)
from regraft_lab.judge_size import Size

BAYEUX_HOMES = (("", "static"), ("", "located"), ("_pns", "located"))
LARGE_CLUSTER = 50
GREATLY = 0.5  # "greatly improved": at most this share remains.
SMALL_STEP = 0.05  # The largest step against a trend that is ignored.


def judge_management(size: Size) -> Callable[[Measured], Judgement]:
    """Return the judge of "less subscription management than every other system", in both models, at c = 10."""

    def judge(measured: Measured) -> Judgement:
        return size_over_readings(_management_cuts(measured) | management_cuts(measured), size)

    return judge


def judge_location_management(measured: Measured) -> Judgement:
    """Judge: placement reduces subscription management below that of all other systems, at c = 10."""
    return over_readings(_management_cuts(measured), STRICTLY)


def _management_cuts(measured: Measured) -> Readings:
    def cut(where: dict[str, Value], base: int) -> float | None:
        others = [(f"bayeux{base}", "static"), (f"bayeux{base}", "located"), ("geops", "located")]
        return least_of(
            [
                measured.value(
                    "user_management_per_h_cut", **where, cluster_brokers=CLUSTER, against=system, against_homes=homes
                )
                for system, homes in others
            ]
        )

    readings: Readings = {}
    for base in BASES:
        by_reading = location_readings(partial(cut, base=base))
        readings |= {f"{name}, Bayeux base {base}": value for name, value in by_reading.items()}
    return readings


def judge_u_shape(measured: Measured) -> Judgement:
    """Judge: the overhead first falls with c, and has risen again at c = 50."""
    readings: dict[str, list[tuple[float, float]]] = {}
    for name, where in placements():
        steps = measured.steps("user_management_per_h", "cluster_brokers", **where)
        values = [(c, measured.value("user_management_per_h", **where, cluster_brokers=round(c))) for c in steps]
        if len(values) > 2:
            readings[name] = [(c, value) for c, value in values if value is not None]
    if not readings:
        return undecided()
    best = {name: min(values, key=lambda each: each[1])[0] for name, values in readings.items()}
    shaped = [name for name, values in readings.items() if values[0][0] < best[name] < values[-1][0]]
    by_size = ", ".join(f"{c:g}: {value:.0f}" for c, value in readings[next(iter(readings))])
    evidence = (
        f"least at c = {min(best.values()):g} to {max(best.values()):g}; holds in {len(shaped)} of {len(readings)} "
        f"readings; messages an hour by c ({next(iter(readings))}): {by_size}"
    )
    return verdict(len(shaped) == len(readings), not shaped, evidence)


def judge_imbalance(measured: Measured) -> Judgement:
    """Judge: with w_l = 0 loads vary more than without placement, most so in large clusters."""
    readings: Readings = {}
    for name, where in placements():
        if where["load_weight"] == 0:
            small, large = (_load_std(measured, where, c) for c in (CLUSTER, LARGE_CLUSTER))
            without = measured.value("load_std", model="location", grid=where["grid"], homes="located")
            if small and large and without:
                readings[name] = min(large / small, small / without)
    return over_readings(readings, 1.0, as_share=False)


def judge_load_weight(measured: Measured) -> Judgement:
    """Judge: weighting loads (w_l > 0) greatly reduces this variation."""
    readings: Readings = {}
    for name, where in placements():
        if where["load_weight"] == 0:
            without, weighed = (
                _load_std(measured, {**where, "load_weight": weight}, LARGE_CLUSTER) for weight in (0.0, 1.0)
            )
            if without and weighed:
                readings[name] = 1 - weighed / without
    return over_readings(readings, 1 - GREATLY)


def _load_std(measured: Measured, where: dict[str, Value], cluster: int) -> float | None:
    return measured.value("load_std", **where, cluster_brokers=cluster)


def judge_handovers(measured: Measured) -> Judgement:
    """Judge: users change their broker 80 % less often than with GeoPS."""
    return size_over_readings(
        location_readings(lambda where: measured.value("handovers_cut", **where, cluster_brokers=CLUSTER)),
        Size(0.8, is_least=True),
    )


def judge_both_help(metric: str) -> Callable[[Measured], Judgement]:
    """Return the judge of "both user placement and broker network reconfiguration can improve ...", each alone."""

    def judge(measured: Measured) -> Judgement:
        readings = {
            f"placement, {name}": value
            for name, value in location_readings(
                lambda where: _cut(
                    measured, metric, {**where, "system": "chord", "cluster_brokers": CLUSTER}, "chord", "located"
                )
            ).items()
        }
        for grid in GRIDS:
            value = _cut(measured, metric, {"grid": grid, "system": "ssbr", "homes": "located"}, "chord", "located")
            if value is not None:
                readings[f"reconfiguration, {grid}"] = value
        return over_readings(readings, STRICTLY)

    return judge


def judge_against_bayeux(metric: str, size: Size) -> Callable[[Measured], Judgement]:
    """Return the judge of DYNATOPS against the best of Bayeux(static), Bayeux(loc) and Bayeux(loc+PNS)."""

    def judge(measured: Measured) -> Judgement:
        return size_over_readings(bayeux_cuts(measured, metric), size)

    return judge


def bayeux_cuts(measured: Measured, metric: str) -> Readings:
    """Return the saving of DYNATOPS over the best variant of Bayeux, by reading and base."""
    readings: Readings = {}
    for base in BASES:

        def cut(where: dict[str, Value], base: int = base) -> float | None:
            setting: dict[str, Value] = {**where, "system": "ssbr", "cluster_brokers": CLUSTER}
            return least_of(
                [_cut(measured, metric, setting, f"bayeux{base}{suffix}", homes) for suffix, homes in BAYEUX_HOMES]
            )

        readings |= {f"{name}, Bayeux base {base}": value for name, value in location_readings(cut).items()}
    return readings


def judge_against_geops(metric: str, size: Size) -> Callable[[Measured], Judgement]:
    """Return the judge of DYNATOPS against GeoPS."""

    def judge(measured: Measured) -> Judgement:
        return size_over_readings(geops_cuts(measured, metric), size)

    return judge


def geops_cuts(measured: Measured, metric: str) -> Readings:
    """Return the saving of DYNATOPS over GeoPS, by reading, on grids with a power of two on both sides."""
    return location_readings(
        lambda where: _cut(
            measured, metric, {**where, "system": "ssbr", "cluster_brokers": CLUSTER}, "geops", "located"
        )
    )


def judge_larger_clusters(metric: str) -> Callable[[Measured], Judgement]:
    """Return the judge of "the improvement increases as the increase of the cluster size": against Bayeux(loc)."""

    def judge(measured: Measured) -> Judgement:
        readings: Readings = {}
        savings = ""
        for name, where in placements():
            setting: dict[str, Value] = {**LOCATION, **where, "system": "ssbr"}
            against: dict[str, Value] = {"against": f"bayeux{BASES[0]}", "against_homes": "located"}
            steps = measured.steps(f"{metric}_cut", "cluster_brokers", **setting, **against)
            values = [measured.value(f"{metric}_cut", **setting, **against, cluster_brokers=round(c)) for c in steps]
            cuts = [value for value in values if value is not None]
            if len(cuts) > 2:
                falls = [after - before for before, after in pairwise(cuts) if after - before < -SMALL_STEP]
                readings[name] = min([cuts[-1] - cuts[0], *falls])
                savings = savings or f"; saved of Bayeux(loc), {name}, by c " + ", ".join(
                    f"{c:g}: {cut:.0%}" for c, cut in zip(steps, cuts, strict=True)
                )
        judged = over_readings(readings, SMALL_STEP)
        return Judgement(judged.verdict, judged.evidence + savings)

    return judge


def judge_in_general(metric: str, size: Size) -> Callable[[Measured], Judgement]:
    """Return the judge of "30 % less ... in general": the mean over all comparisons in both models."""

    def judge(measured: Measured) -> Judgement:
        parts = {
            "Poisson": cuts_by_pattern(measured, metric),
            "location against Bayeux": bayeux_cuts(measured, metric),
            "location against GeoPS": geops_cuts(measured, metric),
        }
        means = {name: sum(cuts.values()) / len(cuts) for name, cuts in parts.items() if cuts}
        if len(means) < len(parts):
            return undecided()
        mean = sum(means.values()) / len(means)
        evidence = f"{mean:.0%}: " + ", ".join(f"{name} {each:.0%}" for name, each in means.items())
        return Judgement(size.judge(mean), evidence)

    return judge


def _cut(measured: Measured, metric: str, where: dict[str, Value], system: str, homes: str) -> float | None:
    setting = {**LOCATION, **where, "period_h": LOCATION_PERIOD_H}
    return measured.value(f"{metric}_cut", **setting, against=system, against_homes=homes)
