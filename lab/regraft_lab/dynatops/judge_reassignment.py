"""Judge Zhao13's claims on reassignments themselves: T_free, Fig. 10, Table 1 and the protocol.

In: figures. Out: a verdict with its evidence. Verdicts depend only on the figures.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

from regraft_lab.claim_evidence import Judgement, Measured, Value, undecided, verdict
from regraft_lab.dynatops.cut_patterns import PATTERNS
from regraft_lab.dynatops.dynatops_tasks import ASKS, CLAIM_WEIGHTS, CLUSTER, PERIODS_CLUSTER, PERIODS_RATE
from regraft_lab.dynatops.judge_readings import GRIDS, STRICTLY, Readings, over_readings
from regraft_lab.dynatops.time_reassignment import PAPER_MS, TIMED_PATTERNS

SLIGHTLY = 0.05  # "degrades slightly": by at most this share.
SKEWED = (("5 topics of one mode", "uniform 5%"), ("10 topics of one mode", "uniform 10%"))  # Equally many topics.
PERIODS: dict[str, dict[str, Value]] = {
    "Poisson": {
        "model": "poisson",
        "pattern": "multimodal",
        "changes_per_user_h": PERIODS_RATE,
        "cluster_brokers": PERIODS_CLUSTER,
        "homes": "placed",
        "system": "ssbr",
    },
    "location": {
        "model": "location",
        "cluster_brokers": CLUSTER,
        "homes": f"asks_{ASKS[0]}",
        "load_weight": CLAIM_WEIGHTS[0],
        "grid": GRIDS[0],
        "system": "ssbr",
    },
}


def judge_longer_periods(name: str) -> Callable[[Measured], Judgement]:
    """Return the judge of "... decreases" with T_free: lower at the longest than at the shortest period."""

    def judge(measured: Measured) -> Judgement:
        readings: Readings = {}
        for model, values in _by_period(measured, name).items():
            shortest, longest = values[min(values)], values[max(values)]
            if shortest > 0:
                readings[f"{model}: {_listed(values)}"] = 1 - longest / shortest
        judged = over_readings(readings, STRICTLY)
        return Judgement(judged.verdict, f"saved {judged.evidence}") if readings else judged

    return judge


def judge_degradation(measured: Measured) -> Judgement:
    """Judge: delay and overhead grow only slightly with T_free."""
    readings: Readings = {}
    for name in ("delay", "messages_per_notification"):
        for model, values in _by_period(measured, name).items():
            grown = values[max(values)] / values[min(values)] - 1
            readings[f"{name.partition('_')[0]}, {model}"] = -grown
    judged = over_readings(readings, -SLIGHTLY)
    changes = ", ".join(f"{name} {-value:+.1%}" for name, value in readings.items())
    return Judgement(judged.verdict, f"from the shortest to the longest T_free: {changes}") if readings else judged


def _by_period(measured: Measured, name: str) -> dict[str, dict[float, float]]:
    readings: dict[str, dict[float, float]] = {}
    for model, where in PERIODS.items():
        values = {
            step: measured.value(name, **where, period_h=step) for step in measured.steps(name, "period_h", **where)
        }
        known = {step: value for step, value in values.items() if value is not None}
        if len(known) > 1:
            readings[model] = known
    return readings


def _listed(values: dict[float, float]) -> str:
    return ", ".join(f"{step:g} h {value:.3g}" for step, value in values.items())


def judge_always_improves(measured: Measured) -> Judgement:
    """Judge: DYNATOPS's configuration is better than consistent hashing at every size."""
    return over_readings(cuts_of(measured, "cut_ssbr"), STRICTLY)


def judge_more_when_skewed(measured: Measured) -> Judgement:
    """Judge: the improvement is larger under skewed patterns than under uniform ones."""
    readings: Readings = {}
    for (brokers, topics), (skewed, uniform) in product(pattern_sizes(measured), SKEWED):
        cuts = [
            measured.value("cut_ssbr", brokers=brokers, topics=topics, pattern=pattern) for pattern in (skewed, uniform)
        ]
        # Uniform patterns want a share of all topics, which equals the number wanted of a mode only for 100 topics.
        if topics == 100 and None not in cuts:
            readings[f"{brokers} brokers, {skewed} over {uniform}"] = (cuts[0] or 0.0) - (cuts[1] or 0.0)
    return over_readings(readings, STRICTLY)


def cuts_of(measured: Measured, name: str) -> Readings:
    """Return the cut of this name by size and pattern."""
    readings = {
        f"{brokers} brokers, {topics} topics, {pattern.name}": measured.value(
            name, brokers=brokers, topics=topics, pattern=pattern.name
        )
        for (brokers, topics), pattern in product(pattern_sizes(measured), PATTERNS)
    }
    return {name: value for name, value in readings.items() if value is not None}


def pattern_sizes(measured: Measured) -> list[tuple[int, int]]:
    """Return the (brokers, topics) for which there are cuts."""
    return [
        (round(brokers), round(topics))
        for brokers in measured.steps("cut_ssbr", "brokers")
        for topics in measured.steps("cut_ssbr", "topics", brokers=round(brokers))
    ]


def judge_times(measured: Measured) -> Judgement:
    """Judge: the greedy algorithm takes no longer than in Table 1."""
    slowest = {size: slowest_ms(measured, "ssbr_ms", size) for size in PAPER_MS}
    known = {size: value for size, value in slowest.items() if value is not None}
    if not known:
        return undecided()
    times = ", ".join(
        f"{brokers}/{topics}: {value:.1f} ms against {PAPER_MS[brokers, topics]:g} ms "
        f"({PAPER_MS[brokers, topics] / value:.0f} times)"
        for (brokers, topics), value in known.items()
    )
    in_time = [value <= PAPER_MS[size] for size, value in known.items()]
    return verdict(all(in_time), not all(in_time), f"brokers/topics {times}")


def slowest_ms(measured: Measured, name: str, size: tuple[int, int]) -> float | None:
    """Return the longest time of a size over the patterns, None if it was not timed."""
    brokers, topics = size
    times_ms = [
        measured.value(name, brokers=brokers, topics=topics, pattern=pattern.name) for pattern in TIMED_PATTERNS
    ]
    known = [value for value in times_ms if value is not None]
    return max(known) if known else None


def judge_step_bound(step: str, name: str = "paper_step_messages") -> Callable[[Measured], Judgement]:
    """Return the judge of the bound of one step of the protocol, without a hidden constant."""

    def judge(measured: Measured) -> Judgement:
        return within_bound(measured, name, "step_bound", {"protocol_step": step})

    return judge


def within_bound(measured: Measured, name: str, bound: str, where: dict[str, Value]) -> Judgement:
    """Return "reproduced" if a count never exceeds its bound, "refuted" if it does."""
    shares: dict[str, float] = {}
    for brokers in measured.steps(name, "brokers", **where):
        for topics in measured.steps(name, "topics", **where, brokers=round(brokers)):
            ring: dict[str, Value] = {**where, "brokers": round(brokers), "topics": round(topics)}
            for moved in measured.steps(name, "moved", **ring):
                value, limit = (measured.value(each, **ring, moved=round(moved)) for each in (name, bound))
                if value is not None and limit:
                    shares[f"{brokers:g} brokers, {topics:g} topics, {moved:g} moved"] = value / limit
    if not shares:
        return undecided()
    least, most = min(shares, key=lambda key: shares[key]), max(shares, key=lambda key: shares[key])
    evidence = f"{shares[least]:.2f} ({least}) to {shares[most]:.2f} ({most}) of the bound"
    return verdict(shares[most] <= 1, shares[most] > 1, evidence)


def judge_commands(measured: Measured) -> Judgement:
    """Judge: steps 1 and 4 take O(V) messages, a constant number per broker."""
    readings: Readings = {}
    for brokers in measured.steps("paper_step_messages", "brokers", protocol_step="commands"):
        for moved in measured.steps("paper_step_messages", "moved", protocol_step="commands", brokers=round(brokers)):
            ring: dict[str, Value] = {"brokers": round(brokers), "moved": round(moved)}
            value = measured.value("paper_step_messages", protocol_step="commands", **ring)
            if value is not None:
                readings[f"{brokers:g} brokers, {moved:g} moved"] = value / brokers
    if not readings:
        return undecided()
    most = max(readings.values())
    # A command and an answer for three steps, and for a fourth if the broker moves: at most 8.
    return verdict(most <= 8, most > 8, f"{min(readings.values()):.1f} to {most:.1f} messages for each broker")


def at_most(readings: Readings, limit: float, unit: str) -> Judgement:
    """Return "reproduced" if all values are at most a limit, else "refuted", with the extremes as evidence."""
    if not readings:
        return undecided()
    worst = max(readings, key=lambda key: readings[key])
    evidence = f"at most {readings[worst]:.3g}{unit} ({worst}), least {min(readings.values()):.3g}"
    return verdict(readings[worst] <= limit, readings[worst] > limit, evidence)
