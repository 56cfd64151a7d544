"""Judge our own claims: our planner against the paper's, and how long brokers should remember."""

from __future__ import annotations

from regraft_lab.claim_evidence import Claim, Interval, Judgement, Measured, Value, undecided, verdict
from regraft_lab.psoop.claim_words import NAMES

NETWORKS = {"transit_stub": "transit-stub", "uniform": "uniform", "planetlab": "PlanetLab", "zoo": "Zoo"}
LIFETIMES_SHORT, LIFETIMES_LONG = 1.0, 4.0
LINKS_MAX = 8


def judge_ours_beats_ci(measured: Measured) -> Judgement:
    """Judge: our planner's overlay is cheaper than CI's on every kind of network."""
    above = {
        network: measured.interval(
            "cost_above_ci", figure="fig4", memory="cache", costs=network, planner="swap_links_cost", period="settled"
        )
        for network in NETWORKS
    }
    known = {network: each for network, each in above.items() if each is not None}
    if not known:
        return undecided()
    parts = []
    for network, each in known.items():
        ours, ci = (
            measured.value(
                "cost_vs_random", figure="fig4", memory="cache", costs=network, planner=name, period="settled"
            )
            for name in ("swap_links_cost", "swap_links_ci")
        )
        parts.append(f"{NETWORKS[network]} {ours:.3f} against {ci:.3f} ({each})")
    return verdict(
        all(each.high < 0 for each in known.values()), any(each.low > 0 for each in known.values()), ", ".join(parts)
    )


def judge_ours_bounded(measured: Measured) -> Judgement:
    """Judge: our planner keeps its cap on links; CI without a cap ends near it."""
    links = {
        name: measured.value(
            "links_at_one_broker_max", figure="fig4", memory="cache", costs="transit_stub", planner=name
        )
        for name in ("swap_links_cost", "swap_links_ci")
    }
    ours, ci = links["swap_links_cost"], links["swap_links_ci"]
    if ours is None or ci is None:
        return undecided()
    return verdict(ours <= LINKS_MAX, ours > LINKS_MAX, f"Regraft {ours:.0f}, CI {ci:.0f} links at the busiest broker")


def judge_lmit_by_memory(measured: Measured) -> Judgement:
    """Judge: lMIT is cheaper if brokers compare one interval than if they compare caches of equal size."""
    where: dict[str, Value] = {
        "figure": "fig4",
        "costs": "transit_stub",
        "planner": "swap_links_lmit",
        "period": "settled",
    }
    cache, interval = (
        measured.interval("forwarding_vs_random", **where, memory=memory) for memory in ("cache", "interval")
    )
    if cache is None or interval is None:
        return undecided()
    evidence = f"caches {cache}, last interval {interval}"
    return verdict(interval.high < cache.low, interval.low > cache.high, evidence)


def judge_short_memory(measured: Measured) -> Judgement:
    """Judge: CI is the worst of the three if brokers remember one lifetime."""
    return _judge_memory(measured, LIFETIMES_SHORT, ci_best=False)


def judge_long_memory(measured: Measured) -> Judgement:
    """Judge: CI is the best of the three if brokers remember four lifetimes or more."""
    return _judge_memory(measured, LIFETIMES_LONG, ci_best=True)


def _judge_memory(measured: Measured, lifetimes: float, ci_best: bool) -> Judgement:
    where: dict[str, Value] = {"figure": "figh", "period": "settled"}
    above: dict[tuple[str, str, float], Interval] = {}
    for network in NETWORKS:
        for other in ("swap_links_lmst", "swap_links_lmit"):
            steps = measured.steps("forwarding_above_ci", "lifetimes", **where, costs=network, planner=other)
            for step in steps:
                readings = measured.interval(
                    "forwarding_above_ci", **where, costs=network, planner=other, lifetimes=step
                )
                if readings is not None and (step >= lifetimes if ci_best else step == lifetimes):
                    above[network, other, step] = readings
    if not above:
        return undecided()
    evidence = ", ".join(
        f"{NETWORKS[network]} {step:g}: {NAMES[other]} {each} more than CI"
        for (network, other, step), each in above.items()
    )
    if ci_best:
        return verdict(
            all(each.low > 0 for each in above.values()), any(each.high < 0 for each in above.values()), evidence
        )
    return verdict(
        all(each.high < 0 for each in above.values()), any(each.low > 0 for each in above.values()), evidence
    )


OUR_CLAIMS = (
    Claim(
        "Fig. 4",
        "Regraft's overlay is cheaper than CI's",
        "settled, messages included, every network",
        judge_ours_beats_ci,
    ),
    Claim(
        "Fig. 4",
        f"with at most {LINKS_MAX} links at a broker",
        "the busiest broker of any settled sample",
        judge_ours_bounded,
    ),
    Claim(
        "4, 4.3.1",
        "lMIT is cheaper when brokers compare the last interval instead of their caches",
        "notifications alone, settled: caches of one size reach back for different times",
        judge_lmit_by_memory,
    ),
    Claim(
        "Fig. H",
        "with one lifetime of memory CI is the worst of the paper's three",
        "notifications alone, settled, both networks",
        judge_short_memory,
    ),
    Claim(
        "Fig. H",
        "with four lifetimes or more CI is the best of the paper's three",
        "the same",
        judge_long_memory,
    ),
)
