"""Judge claims that allow several readings of the paper by all of these readings at once.

A claim is reproduced if it holds in every reading that was run, refuted if it holds in none, and otherwise not
decidable from the text. Sizes: :mod:`experiments.judge_size`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from regraft_lab.claim_evidence import Judgement, Measured, Value, undecided, verdict
from regraft_lab.dynatops.dynatops_tasks import (
    ASKS,
    CLAIM_WEIGHTS,
    CLUSTER,
    HEADLINE_RATE,
    LOCATION_PERIOD_H,
    PERIOD_H,
)
from regraft_lab.judge_size import Size

STRICTLY = 1e-9  # "Less" without a number: by more than rounding.
POISSON: dict[str, Value] = {
    "model": "poisson",
    "changes_per_user_h": HEADLINE_RATE,
    "cluster_brokers": CLUSTER,
    "period_h": PERIOD_H,
    "events_per_user_h": 1.0,
}
MULTIMODAL: dict[str, Value] = {**POISSON, "pattern": "multimodal"}
LOCATION: dict[str, Value] = {"model": "location", "period_h": LOCATION_PERIOD_H, "events_per_user_h": 1.0}
DYNATOPS: dict[str, Value] = {"system": "ssbr", "homes": "placed"}
BNR: dict[str, Value] = {"system": "ssbr", "homes": "static"}
TCO: dict[str, Value] = {"system": "tco", "homes": "static"}
BASES = (16, 4)
GRIDS = ("16x16", "8x8", "32x32", "20x60")

Readings = dict[str, float]


def over_readings(readings: Mapping[str, float], least: float, *, as_share: bool = True) -> Judgement:
    """Return "reproduced" if all values are at least ``least``, "refuted" if none is, else "not decidable"."""
    if not readings:
        return undecided()
    worst, best = min(readings, key=lambda key: readings[key]), max(readings, key=lambda key: readings[key])

    def described(key: str) -> str:
        return f"{readings[key]:.0%} ({key})" if as_share else f"{readings[key]:.2f} ({key})"

    held = sum(value >= least for value in readings.values())
    if worst == best:
        return verdict(held > 0, held == 0, described(worst))
    evidence = f"{described(worst)} to {described(best)}; holds in {held} of {len(readings)} readings"
    return verdict(held == len(readings), held == 0, evidence)


def size_over_readings(readings: Mapping[str, float], size: Size) -> Judgement:
    """Return the verdict on a claim of a size over all readings, with the worst and the best as evidence."""
    described = over_readings(readings, size.claimed - size.within)
    return Judgement(size.judge_readings(readings.values()), described.evidence)


def poisson_cut(
    measured: Measured, metric: str, subject: Mapping[str, Value], against: Mapping[str, Value], **where: Value
) -> float | None:
    """Return the saving of one system over another in the Poisson model, as a share; None if a figure is missing."""
    setting = {**MULTIMODAL, **where, **subject, "against": against["system"], "against_homes": against["homes"]}
    return measured.value(f"{metric}_cut", **setting)


def bayeux(base: int, homes: str = "static") -> dict[str, Value]:
    """Return the setting of Bayeux with digits of a base."""
    return {"system": f"bayeux{base}", "homes": homes}


def rates(measured: Measured) -> list[float]:
    """Return the change rates of Fig. 7 that were run, ascending."""
    return measured.steps("delay", "changes_per_user_h", **{**_without_rate(), **DYNATOPS})


def _without_rate() -> dict[str, Value]:
    return {key: value for key, value in MULTIMODAL.items() if key != "changes_per_user_h"}


def placements() -> Iterator[tuple[str, dict[str, Value]]]:
    """Yield the readings of the location model (grid, the broker that users ask, w_l) at the paper's cluster size."""
    for grid in GRIDS:
        for asks in ASKS:
            for weight in CLAIM_WEIGHTS:
                where: dict[str, Value] = {
                    "model": "location",
                    "grid": grid,
                    "homes": f"asks_{asks}",
                    "load_weight": weight,
                }
                yield f"{grid}, asks {asks}, w_l = {weight:g}", where


def location_readings(value_at: Callable[[dict[str, Value]], float | None]) -> Readings:
    """Return a value for each reading of the location model that has one."""
    readings = {name: value_at(where) for name, where in placements()}
    return {name: value for name, value in readings.items() if value is not None}


def least_of(values: list[float | None]) -> float | None:
    """Return the smallest known value, None if all are None."""
    known = [value for value in values if value is not None]
    return min(known) if known else None
