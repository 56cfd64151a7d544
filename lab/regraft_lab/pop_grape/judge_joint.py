"""Judge our own claims: our planner against POP and GRAPE, and the cause of the paper's split."""

from __future__ import annotations

from regraft_lab.claim_evidence import Claim, Judgement, Measured, Value, undecided, verdict
from regraft_lab.pop_grape.judge_brokers import judge_shorter_wait
from regraft_lab.pop_grape.judge_relocation import COUNTED, VIRTUALLY
from regraft_lab.pop_grape.relocation_figures import SPREAD

COST_EXCESS_MAX = 1e-9  # Of the baseline's cost, for rounding.
SPLIT_MIN = 0.1  # A split: load100 and delay100 differ by more than this share of the baseline's message rate.


def judge_never_more_expensive(measured: Measured) -> Judgement:
    """Judge: no way of the paper ever finds a cheaper placement, on the traffic decided on."""
    where = [
        (testbed, workload, predicates)
        for testbed in ("planetlab", "cluster", "hops")
        for workload in ("clustered", "random")
        for predicates in ("shared", "independent")
    ]
    readings = {
        key: [
            value
            for x in measured.steps("cost_above_best_of_paper_max", "x", **_at(*key))
            if (value := measured.value("cost_above_best_of_paper_max", **_at(*key), x=round(x))) is not None
        ]
        for key in where
    }
    known = {key: max(values) for key, values in readings.items() if values}
    if not known:
        return undecided()
    worst = max(known, key=lambda key: known[key])
    draws = sum(len(values) for values in readings.values())
    evidence = f"at most {known[worst]:+.3f} of the baseline's ({', '.join(worst)}; {draws} settings)"
    return verdict(known[worst] <= COST_EXCESS_MAX, known[worst] > COST_EXCESS_MAX, evidence)


def _at(testbed: str, workload: str, predicates: str) -> dict[str, Value]:
    return {"testbed": testbed, "workload": workload, "predicates": predicates}


def judge_split(measured: Measured) -> Judgement:
    """Judge: load100 and delay100 are far apart with shared predicates, but not with independent ones."""
    readings = {
        predicates: measured.interval(
            "message_rate_above_load100",
            **{**COUNTED, "predicates": predicates},
            workload="clustered",
            **SPREAD,
            way="delay100",
        )
        for predicates in ("shared", "independent")
    }
    shared, independent = readings["shared"], readings["independent"]
    if shared is None or independent is None:
        return undecided()
    evidence = f"delay100's message rate above load100's: {shared} shared, {independent} independent"
    return verdict(
        shared.low > SPLIT_MIN and abs(independent.mean) <= VIRTUALLY,
        shared.high < SPLIT_MIN or abs(independent.mean) > VIRTUALLY,
        evidence,
    )


def judge_same_choice(measured: Measured) -> Judgement:
    """Judge: the linear selection makes the same choices as the paper's; the evidence is the times of both."""
    sizes = measured.steps("identical_share", "brokers")
    if not sizes:
        return undecided()
    shares = [measured.value("identical_share", brokers=round(size)) for size in sizes]
    times = []
    for size in sizes:
        paper, linear = (measured.value(f"{way}_ms_p50", brokers=round(size)) for way in ("grape_quadratic", "grape"))
        times.append(f"{size:.0f} brokers {paper:.1f} -> {linear:.1f} ms")
    alike = all(share == 1.0 for share in shares)
    return verdict(alike, not alike, ", ".join(times))


OUR_CLAIMS = (
    Claim(
        "4.2",
        "in the one cost Regraft's placement is never more expensive than POP's or GRAPE's",
        "every draw, every X, workload and testbed, on the traffic that was decided on",
        judge_never_more_expensive,
    ),
    Claim(
        "5.1",
        "load100 and delay100 differ only where low-rated subscriptions share their predicates",
        f"clustered, exact count, X > 1: message rates more than {SPLIT_MIN:g} apart, and within {VIRTUALLY:g}",
        judge_split,
    ),
    Claim(
        "4.2",
        "a selection in O(brokers) chooses the same broker as the paper's in O(brokers^2)",
        "every instance; median times",
        judge_same_choice,
    ),
    Claim(
        "3.3",
        "a publisher waits less in Regraft's transition than in the paper's migration",
        "PlanetLab, mean at every number of hops from 1 to 10",
        judge_shorter_wait,
    ),
)
