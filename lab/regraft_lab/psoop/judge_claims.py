"""Judge each claim of Jaeger07's evaluation: reproduced, refuted or not decidable.

In: figures. Out: a verdict with its evidence for each claim. Verdicts depend only on the figures. If the paper gives no
number ("fast", "reasonably well"), the claim states the number used. Our own claims do not belong here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from regraft_lab.claim_evidence import Interval, Judgement, Measured, Value, listed, undecided, verdict
from regraft_lab.psoop.claim_words import NAMES, PaperClaim
from regraft_lab.psoop.evaluation_tasks import Memory

FIG4: dict[str, Value] = {
    "figure": "fig4",
    "costs": "transit_stub",
    "memory": "cache",
}  # The paper's networks and caches.
HEURISTICS = ("swap_links_lmst", "swap_links_lmit", "swap_links_ci")
RECOVERY_TICKS_MAX = 5_000  # Two mean lifetimes of a subscription, a fifth of the time between two changes.
EXECUTION_SHARE_MAX = 0.03
INTERVAL_SHARE_MAX = 0.06
NEGLIGIBLE_SHARE_MAX = 0.05
TOPOLOGIES_MIN = 20  # The paper has 25; with far fewer, the width of an interval is meaningless.
NOTIFICATIONS_PER_SUBSCRIPTION = (40, 60)
FLAT_SPREAD_MAX = 0.1
EQUAL_WITHIN = 0.02  # Equal: more expensive than the other by at most this share of the random tree's cost.


def judge_workload(measured: Measured) -> Judgement:
    """Judge: there are approximately 50 notifications for each issued subscription."""
    readings = measured.interval("notifications_per_subscription", figure="fig4")
    if readings is None:
        return undecided()
    low, high = NOTIFICATIONS_PER_SUBSCRIPTION
    return verdict(low <= readings.mean <= high, not low <= readings.mean <= high, f"{readings.mean:.1f}")


def judge_all_reduce(memory: Memory) -> Callable[[Measured], Judgement]:
    """Return the judge of "all three heuristics reduce the costs", in one reading of what brokers compare."""

    def judge(measured: Measured) -> Judgement:
        known = _settled_costs(measured, memory)
        if len(known) < len(HEURISTICS):
            return undecided()
        evidence = ", ".join(f"{NAMES[name]} {interval}" for name, interval in known.items())
        return verdict(
            all(interval.high < 1 for interval in known.values()),
            any(interval.low > 1 for interval in known.values()),
            evidence,
        )

    return judge


def _settled_costs(measured: Measured, memory: Memory) -> dict[str, Interval]:
    where: dict[str, Value] = {**FIG4, "memory": memory, "period": "settled"}
    intervals = {name: measured.interval("cost_vs_random", **where, planner=name) for name in HEURISTICS}
    return {name: interval for name, interval in intervals.items() if interval is not None}


def judge_jumps(measured: Measured) -> Judgement:
    """Judge: when everything changes, costs rise for the heuristics that had adapted."""
    changes = [
        change for change in measured.steps("cost_jump", "change_ticks", **FIG4, planner="swap_links_ci") if change > 0
    ]
    jumps = {
        (name, change): measured.value("cost_jump", **FIG4, planner=name, change_ticks=round(change))
        for name in HEURISTICS
        for change in changes
    }
    if not jumps or None in jumps.values():
        return undecided()
    evidence = ", ".join(f"{NAMES[name]} at {change:,.0f}: {jump:+.3f}" for (name, change), jump in jumps.items())
    rising = [jump is not None and jump > 0 for jump in jumps.values()]
    return verdict(all(rising), not all(rising), evidence)


def judge_recovery(measured: Measured) -> Judgement:
    """Judge: the heuristics recover fast. The rise of one that does not reduce the cost is noise and does not count."""
    ticks: dict[tuple[str, float], float] = {}
    for name in HEURISTICS:
        where: dict[str, Value] = {**FIG4, "planner": name}
        for change in measured.steps("recovery_ticks", "change_ticks", **where):
            ticks[name, change] = measured.value("recovery_ticks", **where, change_ticks=round(change)) or 0.0
    if not ticks:
        return undecided()
    idle = {name for name, cost in _settled_costs(measured, "cache").items() if cost.high >= 1}
    slowest = {name: max((value for (who, _), value in ticks.items() if who == name), default=0) for name in HEURISTICS}
    evidence = ", ".join(
        f"{NAMES[name]} at most {value:,.0f} ticks" + (" (not counted: saves nothing)" if name in idle else "")
        for name, value in slowest.items()
    )
    counted = [value for name, value in slowest.items() if name not in idle]
    if not counted:
        return undecided(evidence)
    fast = max(counted) <= RECOVERY_TICKS_MAX
    return verdict(fast, not fast, evidence)


def _above_ci(measured: Measured, name: str, **where: Value) -> dict[str, Interval] | None:
    intervals = {
        other: measured.interval(name, planner=other, **where) for other in ("swap_links_lmst", "swap_links_lmit")
    }
    return (
        None if None in intervals.values() else {other: each for other, each in intervals.items() if each is not None}
    )


def judge_ci_best(measured: Measured) -> Judgement:
    """Judge: CI performs better than the other two."""
    above = _above_ci(measured, "cost_above_ci", **FIG4, period="all")
    if above is None:
        return undecided()
    evidence = ", ".join(f"{NAMES[name]} costs {each} more" for name, each in above.items())
    return verdict(
        all(each.low > 0 for each in above.values()), any(each.high < 0 for each in above.values()), evidence
    )


def judge_intervals(measured: Measured) -> Judgement:
    """Judge: the 95 % intervals are below 6 % on average."""
    widths = {
        name: measured.value("cost_interval_share", **FIG4, planner=name) for name in ("random_tree", *HEURISTICS)
    }
    known = [width for width in widths.values() if width is not None]
    topologies = measured.steps("cost_vs_random", "topologies", **FIG4)
    if len(known) < len(widths) or not topologies:
        return undecided()
    mean = sum(known) / len(known)
    evidence = f"{mean:.1%} on average, {max(known):.1%} at most, {topologies[-1]:.0f} networks"
    if topologies[-1] < TOPOLOGIES_MIN:
        return undecided(evidence)
    return verdict(mean < INTERVAL_SHARE_MAX, mean >= INTERVAL_SHARE_MAX, evidence)


def _by_eta(measured: Measured, name: str, etas: Sequence[float], **where: Value) -> dict[float, Interval]:
    intervals = {eta: measured.interval(name, figure="fig5", planner="swap_links_ci", eta=eta, **where) for eta in etas}
    return {eta: each for eta, each in intervals.items() if each is not None}


def judge_eta_four(measured: Measured) -> Judgement:
    """Judge: the largest saving is at eta = 4."""
    others = measured.steps("cost_above_default_eta", "eta", figure="fig5", planner="swap_links_ci", period="all")
    above = _by_eta(measured, "cost_above_default_eta", others, period="all")
    if not above:
        return undecided()
    evidence = f"cost above that of eta = 4 by eta: {listed(above)}"
    return verdict(
        all(each.low > 0 for each in above.values()), any(each.high < 0 for each in above.values()), evidence
    )


def judge_bigger_eta(measured: Measured) -> Judgement:
    """Judge: above eta = 4 the gain decreases although brokers know more."""
    others = measured.steps("cost_above_default_eta", "eta", figure="fig5", planner="swap_links_ci", period="all")
    above = _by_eta(measured, "cost_above_default_eta", [eta for eta in others if eta > 4], period="all")
    if not above:
        return undecided()
    evidence = f"cost above that of eta = 4 by eta: {listed(above)}"
    rises = all(earlier.mean <= later.mean for earlier, later in pairwise(above.values()))
    certain = above[max(above)].low > 0
    return verdict(rises and certain, any(each.high < 0 for each in above.values()), evidence)


def judge_broadcasts(measured: Measured) -> Judgement:
    """Judge: broadcasts cost more with a larger neighbourhood."""
    etas = measured.steps("broadcast_vs_random", "eta", figure="fig5", planner="swap_links_ci")
    costs = _by_eta(measured, "broadcast_vs_random", etas)
    if len(costs) < 2:
        return undecided()
    means = [costs[eta].mean for eta in sorted(costs)]
    grows = all(earlier < later for earlier, later in pairwise(means))
    return verdict(grows, not grows, f"share of the random tree's cost by eta: {listed(costs, share=True)}")


def judge_execution(measured: Measured) -> Judgement:
    """Judge: executing reconfigurations costs less than 3 % of the adapted network, for every eta."""
    etas = measured.steps("execution_cost_share", "eta", figure="fig5", planner="swap_links_ci")
    shares = _by_eta(measured, "execution_cost_share", etas)
    if not shares:
        return undecided()
    evidence = f"by eta: {listed(shares, share=True)}"
    return verdict(
        all(each.mean < EXECUTION_SHARE_MAX for each in shares.values()),
        any(each.low >= EXECUTION_SHARE_MAX for each in shares.values()),
        evidence,
    )


def judge_overhead(measured: Measured) -> Judgement:
    """Judge: at eta = 4 the cost of all messages together is negligible."""
    where: dict[str, Value] = {**FIG4, "planner": "swap_links_ci"}
    parts = {part: measured.interval(f"{part}_cost_share", **where) for part in ("broadcast", "request", "execution")}
    known = {part: each for part, each in parts.items() if each is not None}
    if len(known) < len(parts):
        return undecided()
    total = sum(each.mean for each in known.values())
    evidence = f"{total:.1%}: " + ", ".join(f"{part} {each.mean:.1%}" for part, each in known.items())
    return verdict(total < NEGLIGIBLE_SHARE_MAX, total >= NEGLIGIBLE_SHARE_MAX, evidence)


def _by_alpha(measured: Measured, name: str, planner: str) -> dict[float, Interval]:
    where: dict[str, Value] = {"figure": "fig6", "planner": planner, "period": "all"}
    intervals = {
        alpha: measured.interval(name, **where, alpha=alpha) for alpha in measured.steps(name, "alpha", **where)
    }
    return {alpha: each for alpha, each in intervals.items() if each is not None}


def judge_lmst_by_alpha(measured: Measured) -> Judgement:
    """Judge: lMST worsens as processing weighs more."""
    costs = _by_alpha(measured, "cost_vs_random", "swap_links_lmst")
    if len(costs) < 2:
        return undecided()
    alphas = sorted(costs)
    means = [costs[alpha].mean for alpha in alphas]
    first, last = costs[alphas[0]], costs[alphas[-1]]
    rises = all(earlier <= later for earlier, later in pairwise(means))
    evidence = listed(costs)
    return verdict(rises and last.low > first.high, last.high < first.low, evidence)


def judge_lmit_good(measured: Measured) -> Judgement:
    """Judge: lMIT does reasonably well if communication costs outweigh processing."""
    costs = {
        alpha: each for alpha, each in _by_alpha(measured, "cost_vs_random", "swap_links_lmit").items() if alpha < 0.5
    }
    if not costs:
        return undecided()
    evidence = listed(costs)
    return verdict(
        all(each.high < 1 for each in costs.values()), any(each.low > 1 for each in costs.values()), evidence
    )


def judge_lmit_flat(measured: Measured) -> Judgement:
    """Judge: lMIT does not change as processing weighs more."""
    costs = _by_alpha(measured, "cost_vs_random", "swap_links_lmit")
    if len(costs) < 2:
        return undecided()
    means = [each.mean for each in costs.values()]
    spread = max(means) - min(means)
    evidence = f"between {min(means):.3f} and {max(means):.3f}"
    return verdict(spread <= FLAT_SPREAD_MAX, spread > FLAT_SPREAD_MAX, evidence)


def judge_ci_every_alpha(measured: Measured) -> Judgement:
    """Judge: CI is equal to or better than both others for every alpha."""
    above = {
        (name, alpha): each
        for name in ("swap_links_lmst", "swap_links_lmit")
        for alpha, each in _by_alpha(measured, "cost_above_ci", name).items()
    }
    if not above:
        return undecided()
    better = [f"{NAMES[name]} at {alpha:g} ({each})" for (name, alpha), each in above.items() if each.high < 0]
    closest = min(above, key=lambda key: above[key].mean)
    evidence = f"above CI, the closest is {NAMES[closest[0]]} at {closest[1]:g}: {above[closest]}"
    if better:
        evidence = f"below CI: {', '.join(better)}"
    return verdict(all(each.low > -EQUAL_WITHIN for each in above.values()), bool(better), evidence)


PAPER_CLAIMS = (
    PaperClaim(
        "5.1",
        "about 50 notifications for each issued subscription",
        "40 to 60; the rates give 2500 / 5 / 9 = 55.6",
        judge_workload,
    ),
    PaperClaim(
        "5.1, Fig. 4",
        "all heuristics reduce the costs",
        "reading: brokers compare their whole caches; settled, messages included, below the random tree",
        judge_all_reduce("cache"),
        full_length_of="fig4",
    ),
    PaperClaim(
        "5.1, Fig. 4",
        "all heuristics reduce the costs",
        "reading: brokers compare the last interval; the same",
        judge_all_reduce("interval"),
        full_length_of="fig4",
    ),
    PaperClaim(
        "5.1, Fig. 4",
        "costs rise when everything changes",
        "first 1,000 ticks above the settled level before",
        judge_jumps,
    ),
    PaperClaim(
        "5.1, Fig. 4",
        "the heuristics react very fast",
        f"a tenth of the rise is left after at most {RECOVERY_TICKS_MAX:,} ticks, of those that reduce the cost",
        judge_recovery,
        full_length_of="fig4",
    ),
    PaperClaim(
        "5.1, Fig. 4",
        "CI performs better than the other two",
        "accumulated cost, messages included",
        judge_ci_best,
        "fig4",
    ),
    PaperClaim(
        "Fig. 4",
        "95 % intervals are below 6 % on average",
        f"half width over mean, {TOPOLOGIES_MIN} networks or more",
        judge_intervals,
    ),
    PaperClaim(
        "5.2, Fig. 5",
        "the biggest advantage is at eta = 4",
        "accumulated cost, messages included",
        judge_eta_four,
        "fig5",
    ),
    PaperClaim(
        "5.2, Fig. 5",
        "for bigger eta the gain decreases",
        "rises from eta to eta, certainly at the last",
        judge_bigger_eta,
        "fig5",
    ),
    PaperClaim(
        "5.2, Fig. 5", "broadcasts cost more the larger eta is", "rises from each eta to the next", judge_broadcasts
    ),
    PaperClaim(
        "5.2, Fig. 5",
        "executing reconfigurations costs less than 3 % of the adapted network",
        "for every eta; requests counted separately",
        judge_execution,
        full_length_of="fig5",
    ),
    PaperClaim(
        "7",
        "the additional costs are negligibly small with a reasonable neighbourhood",
        f"eta = 4: broadcasts, requests and exchanges below {NEGLIGIBLE_SHARE_MAX:.0%} together",
        judge_overhead,
        full_length_of="fig4",
    ),
    PaperClaim(
        "5.3, Fig. 6",
        "lMST performs worse with growing alpha",
        "rises from each alpha to the next",
        judge_lmst_by_alpha,
    ),
    PaperClaim(
        "5.3, Fig. 6",
        "lMIT performs reasonably well when communication outweighs processing",
        "certainly below the random tree for alpha < 0.5",
        judge_lmit_good,
    ),
    PaperClaim(
        "5.3, Fig. 6",
        "lMIT does not change when processing costs become more relevant",
        f"its means over alpha are within {FLAT_SPREAD_MAX:g} of the random tree's cost",
        judge_lmit_flat,
    ),
    PaperClaim(
        "5.3, Fig. 6",
        "CI is equal or better for all alpha",
        f"none cheaper than CI by more than {EQUAL_WITHIN:g} of the random tree's cost",
        judge_ci_every_alpha,
        full_length_of="fig6",
    ),
)
