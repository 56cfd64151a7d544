"""Judge Zhao13's claims on the Poisson model: Figs. 7 and 8, and the abstract.

In: figures. Out: a verdict with its evidence. Verdicts depend only on the figures. If the paper gives no number
("dramatically"), the claim states the number used. The claims are in :mod:`experiments.dynatops.dynatops_claims`.
"""

from __future__ import annotations

from collections.abc import Callable

from regraft_lab.claim_evidence import Judgement, Measured, Value, undecided, verdict
from regraft_lab.dynatops.judge_readings import (
    BASES,
    BNR,
    DYNATOPS,
    MULTIMODAL,
    STRICTLY,
    TCO,
    Readings,
    bayeux,
    least_of,
    over_readings,
    poisson_cut,
    rates,
    size_over_readings,
)
from regraft_lab.dynatops.poisson_workload import PATTERNS
from regraft_lab.judge_size import Size

SIGNIFICANT = 0.1  # "significantly less": by at least this share.
DRAMATIC = 0.5  # "increases dramatically": by at least this factor times that of the rate.
LOW_SHARE = 0.75  # "a low delay under zipf": at most this share of that under other patterns.


def judge_changes(measured: Measured) -> Judgement:
    """Judge: placement reduces brokers' subscription changes by 80 %."""
    readings = {
        f"rate {rate:g}": measured.value("changes_cut_by_rate", **{**MULTIMODAL, "changes_per_user_h": rate})
        for rate in rates(measured)
    }
    return size_over_readings({name: value for name, value in readings.items() if value is not None}, Size(0.8))


def judge_less_management(measured: Measured) -> Judgement:
    """Judge: so there is significantly less subscription management."""
    return over_readings(management_cuts(measured), SIGNIFICANT)


def management_cuts(measured: Measured) -> Readings:
    """Return the saving of DYNATOPS over Bayeux in subscription management, by base and rate."""
    readings = {
        f"rate {rate:g}, Bayeux base {base}": poisson_cut(
            measured, "management_per_h", DYNATOPS, bayeux(base), changes_per_user_h=rate
        )
        for base in BASES
        for rate in rates(measured)
    }
    return {name: value for name, value in readings.items() if value is not None}


def judge_saved(metric: str, size: Size) -> Callable[[Measured], Judgement]:
    """Return the judge of "... improvement against the compared systems": against the better of Bayeux and TCO."""

    def judge(measured: Measured) -> Judgement:
        return size_over_readings(cuts_by_rate(measured, metric), size)

    return judge


def cuts_by_rate(measured: Measured, metric: str) -> Readings:
    """Return the saving of DYNATOPS over the better of Bayeux and TCO, by Bayeux's base and rate."""
    readings = {
        f"rate {rate:g}, Bayeux base {base}": least_of(
            [poisson_cut(measured, metric, DYNATOPS, other, changes_per_user_h=rate) for other in (bayeux(base), TCO)]
        )
        for base in BASES
        for rate in rates(measured)
    }
    return {name: value for name, value in readings.items() if value is not None}


def judge_connected_overhead(measured: Measured) -> Judgement:
    """Judge: TCO sends fewer messages than Bayeux and DYNATOPS(BNR)."""
    return _connected_against_others(measured, "messages_per_notification", is_better=True)


def judge_connected_delay(measured: Measured) -> Judgement:
    """Judge: TCO's delay is worse than that of Bayeux and DYNATOPS(BNR)."""
    return _connected_against_others(measured, "delay", is_better=False)


def _connected_against_others(measured: Measured, name: str, *, is_better: bool) -> Judgement:
    readings: Readings = {}
    for rate in rates(measured):
        where: dict[str, Value] = {**MULTIMODAL, "changes_per_user_h": rate}
        connected = measured.value(name, **where, **TCO)
        for base in BASES:
            others = [measured.value(name, **where, **other) for other in (bayeux(base), BNR)]
            known = [value for value in others if value is not None]
            if connected and len(known) == len(others):
                least = min(1 - connected / other if is_better else 1 - other / connected for other in known)
                readings[f"rate {rate:g}, Bayeux base {base}"] = least
    return over_readings(readings, STRICTLY)


def judge_connected_grows(measured: Measured) -> Judgement:
    """Judge: TCO's reconfiguration overhead increases dramatically with the rate."""
    growth, steps = _growth(measured, TCO), rates(measured)
    if growth is None:
        return undecided()
    ratio, by_rate = growth
    least = DRAMATIC * steps[-1] / steps[0]
    return verdict(ratio >= least, ratio < least, f"links changed an hour {by_rate}: {ratio:.1f} times")


def judge_less_sensitive(measured: Measured) -> Judgement:
    """Judge: DYNATOPS's reconfiguration overhead is less sensitive to the rate than TCO's."""
    ours, theirs = _growth(measured, DYNATOPS), _growth(measured, TCO)
    if ours is None or theirs is None:
        return undecided()
    evidence = f"DYNATOPS {ours[0]:.1f} times ({ours[1]}), TCO {theirs[0]:.1f} times ({theirs[1]})"
    return verdict(ours[0] < theirs[0], ours[0] >= theirs[0], evidence)


def judge_cheaper_reconfiguration(measured: Measured) -> Judgement:
    """Judge: at high rates DYNATOPS's reconfiguration overhead is over 80 % less than TCO's."""
    costs = {
        name: {
            rate: measured.value("reassignment_messages_per_h", **_at_rate(rate), **system) for rate in rates(measured)
        }
        for name, system in (("DYNATOPS", DYNATOPS), ("TCO", TCO))
    }
    known = [rate for rate in rates(measured) if None not in (costs["DYNATOPS"][rate], costs["TCO"][rate])]
    if not known or not costs["TCO"][known[-1]]:
        return undecided()
    ours, theirs = costs["DYNATOPS"][known[-1]] or 0.0, costs["TCO"][known[-1]] or 0.0
    cut = 1 - ours / theirs
    by_rate = ", ".join(
        f"rate {rate:g}: {costs['DYNATOPS'][rate]:.0f} against {costs['TCO'][rate]:.0f}" for rate in known
    )
    moved = measured.value("moved_per_h", **_at_rate(known[-1]), **DYNATOPS)
    evidence = (
        f"messages an hour by Eq. 7 against a message for each link: {by_rate}; "
        f"DYNATOPS moves {moved:.2f} brokers an hour"
    )
    return Judgement(Size(0.8, is_least=True).judge(cut), evidence)


def _at_rate(rate: float) -> dict[str, Value]:
    return {**MULTIMODAL, "changes_per_user_h": rate}


def _growth(measured: Measured, system: dict[str, Value]) -> tuple[float, str] | None:
    """Return the factor by which reconfiguration cost grows from lowest to highest rate, with both costs as text."""
    readings = {
        rate: measured.value("reassignment_messages_per_h", **_at_rate(rate), **system) for rate in rates(measured)
    }
    known = {rate: value for rate, value in readings.items() if value is not None}
    if len(known) < 2 or not known[min(known)]:
        return None
    low, high = min(known), max(known)
    return known[high] / known[low], f"{known[low]:.0f} at {low:g}, {known[high]:.0f} at {high:g}"


def judge_connected_patterns(measured: Measured) -> Judgement:
    """Judge: TCO has a low delay under Zipf, and a worse one under the other patterns."""
    delays = {pattern: measured.value("delay", **{**MULTIMODAL, "pattern": pattern}, **TCO) for pattern in PATTERNS}
    known = {pattern: delay for pattern, delay in delays.items() if delay is not None}
    if len(known) < len(PATTERNS):
        return undecided()
    share = known["zipf"] / min(delay for pattern, delay in known.items() if pattern != "zipf")
    evidence = ", ".join(f"{pattern} {delay:.2f} hops" for pattern, delay in known.items())
    return verdict(share <= LOW_SHARE, share > LOW_SHARE, evidence)


def judge_all_patterns(metric: str) -> Callable[[Measured], Judgement]:
    """Return the judge of "DYNATOPS outperforms other systems under all subscription patterns"."""

    def judge(measured: Measured) -> Judgement:
        return over_readings(cuts_by_pattern(measured, metric), STRICTLY)

    return judge


def cuts_by_pattern(measured: Measured, metric: str) -> Readings:
    """Return the saving of DYNATOPS over the better of Bayeux and TCO, by Bayeux's base and pattern."""
    readings = {
        f"{pattern}, Bayeux base {base}": least_of(
            [poisson_cut(measured, metric, DYNATOPS, other, pattern=pattern) for other in (bayeux(base), TCO)]
        )
        for base in BASES
        for pattern in PATTERNS
    }
    return {name: value for name, value in readings.items() if value is not None}
