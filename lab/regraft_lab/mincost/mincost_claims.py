"""The claims of Zhao11's evaluation and ours, and their table.

In: figures. Out: a verdict with its evidence for each claim, Markdown. Running the evaluation does not belong here.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from regraft.api.programs import Figure
from regraft_lab.claim_evidence import Claim, Interval, Judgement, Measured, Value, undecided, verdict
from regraft_lab.claims_block import claim_rows, put_claims, summary_rows
from regraft_lab.mincost.mincost_tasks import CORE_SCALES, MIGRATED_FROM, OURS, PAPERS, USERS_PER_BROKER

PROGRAM = "regraft_lab.mincost.mincost_claims"
PLAIN: dict[str, Value] = {"prices": "euclidean", "interests": "wide"}
READING = "reading: euclidean prices, wide interests"
FLAT_SHARE = 0.1
NEAR_SHARE = 0.95
TABLE_USERS = 10_000
LIMITS_S = {"greedy": 5.0, "clustering": 20.0, "mixing": 60.0}
ORDER = ("random", *PAPERS)


def by_users(measured: Measured, name: str, algorithm: str) -> dict[float, Interval]:
    """Return a figure by users, at 100 users per broker and with equal prices for all kinds of links."""
    where: dict[str, Value] = {**PLAIN, "core_scale": 1.0, "algorithm": algorithm}
    intervals = {}
    for users in measured.steps(name, "users", **where):
        one = measured.interval(name, users=int(users), brokers=int(users) // USERS_PER_BROKER, **where)
        if one is not None:
            intervals[users] = one
    return intervals


def by_scale(measured: Measured, algorithm: str) -> dict[float, Interval]:
    """Return the cost reduction ratio by the price of links between brokers, at the size run with all price scales."""
    where: dict[str, Value] = {**PLAIN, "algorithm": algorithm}
    users = [int(one) for one in measured.steps("crr", "users", core_scale=CORE_SCALES[0], **where)]
    intervals = {}
    for scale in CORE_SCALES if users else ():
        one = measured.interval("crr", core_scale=scale, users=users[0], **where)
        if one is not None:
            intervals[scale] = one
    return intervals


def judge_order(measured: Measured) -> Judgement:
    """Judge: mixing saves more than clustering, and clustering more than greedy packing, at each size."""
    readings = {name: by_users(measured, "crr", name) for name in PAPERS}
    if not readings["greedy"]:
        return undecided()
    worst_to_best = [readings[name] for name in PAPERS]
    holds = all(
        less[users].high < more[users].low for less, more in pairwise(worst_to_best) for users in readings["greedy"]
    )
    fails = any(
        less[users].low > more[users].high for less, more in pairwise(worst_to_best) for users in readings["greedy"]
    )
    text = "; ".join(
        f"{users:g} users: " + ", ".join(f"{name} {readings[name][users]}" for name in PAPERS)
        for users in readings["greedy"]
    )
    return verdict(holds, fails, text)


def judge_flat(measured: Measured) -> Judgement:
    """Judge: the saving by mixing hardly depends on the price of links between brokers."""
    readings = by_scale(measured, "mixing")
    if not readings:
        return undecided()
    means = [one.mean for one in readings.values()]
    spread = max(means) / min(means) - 1
    return verdict(spread <= FLAT_SHARE, spread > FLAT_SHARE, f"{_listed(readings)}: apart by {spread:.0%}")


def judge_convergence(measured: Measured) -> Judgement:
    """Judge: if links between brokers cost next to nothing, greedy, clustering and mixing save about the same."""
    readings = {name: by_scale(measured, name) for name in PAPERS}
    if not readings["greedy"]:
        return undecided()
    ends = {name: one[CORE_SCALES[0]].mean for name, one in readings.items()}
    spread = max(ends.values()) / min(ends.values()) - 1
    text = ", ".join(f"{name} {mean:.2f}" for name, mean in ends.items())
    return verdict(spread <= FLAT_SHARE, spread > FLAT_SHARE, f"at {CORE_SCALES[0]:g} times the price {text}")


def judge_linear(measured: Measured) -> Judgement:
    """Judge: the cost of random packing is proportional to the number of users."""
    where: dict[str, Value] = {**PLAIN, "core_scale": 1.0}
    cost = {
        users: measured.value("random_cost", users=int(users), brokers=int(users) // USERS_PER_BROKER, **where)
        for users in measured.steps("random_cost", "users", **where)
    }
    points = [(users, value) for users, value in cost.items() if value]
    if len(points) < 2:
        return undecided()
    (few, low), (many, high) = points[0], points[-1]
    power = math.log(high / low) / math.log(many / few)
    return verdict(abs(power - 1) <= 0.2, abs(power - 1) > 0.2, f"as users to the power of {power:.2f}")


def judge_times(measured: Measured) -> Judgement:
    """Judge: greedy, clustering and mixing take increasing time, in this order; random packing is start-up alone."""
    readings = {name: by_users(measured, "seconds", name) for name in ORDER}
    users = max(readings["greedy"], default=0.0)
    if not users:
        return undecided()
    times_s = [readings[name][users].mean for name in ORDER]
    text = ", ".join(f"{name} {one:.2f} s" for name, one in zip(ORDER, times_s, strict=True))
    counted_s = times_s[1:]
    holds = counted_s == sorted(counted_s)
    return verdict(holds, not holds, f"{users:g} users: {text}")


def judge_never_more_expensive(measured: Measured) -> Judgement:
    """Judge: ours is not more expensive than the best of the others in any network."""
    worst = measured.value("ours_against_best_max")
    if worst is None:
        return undecided()
    return verdict(worst <= 1 + 1e-9, worst > 1 + 1e-9, f"in the worst network {worst:.6f} of the best of them")


def judge_gap(measured: Measured) -> Judgement:
    """Judge: ours stays within 10 % of the bound at 100 users per broker."""
    readings = by_users(measured, "bound_gap", OURS)
    if not readings:
        return undecided()
    text = ", ".join(f"{users:g} users: {one.mean:.1%}" for users, one in readings.items())
    return verdict(
        all(one.high <= 0.1 for one in readings.values()), any(one.low > 0.1 for one in readings.values()), text
    )


def judge_distributed(measured: Measured) -> Judgement:
    """Judge: brokers that redirect users by themselves come close to the central packing, from any start."""
    readings = {}
    for start in MIGRATED_FROM:
        where: dict[str, Value] = {"start": start, "decline_share": 0.0}
        every = measured.all("distributed_of_central", **where)
        if every:
            readings[start] = min(every)
    if not readings:
        return undecided()
    near = all(share >= NEAR_SHARE for share in readings.values())
    text = ", ".join(f"from {start} {share:.1%} " for start, share in readings.items())
    return verdict(near, not near, f"central cost over theirs, least over the settings: {text}")


def judge_limits(measured: Measured) -> Judgement:
    """Judge: at 10,000 users greedy, clustering and mixing stay within their time limits."""
    readings = {name: by_users(measured, "seconds", name).get(TABLE_USERS) for name in LIMITS_S}
    times_s = {name: one.mean for name, one in readings.items() if one is not None}
    if len(times_s) < len(LIMITS_S):
        return undecided("10,000 users are run in full only")
    within = all(times_s[name] <= limit_s for name, limit_s in LIMITS_S.items())
    return verdict(within, not within, ", ".join(f"{name} {one:.2f} s" for name, one in times_s.items()))


def _listed(intervals: dict[float, Interval]) -> str:
    return ", ".join(f"{step:g}: {one.mean:.2f}" for step, one in intervals.items())


PAPER_CLAIMS = (
    Claim("VI.B, Fig. 9", "Mixing saves more than clustering, clustering more than greedy packing",
          f"{READING}; disjoint intervals in this order at each number of users", judge_order),
    Claim("VI.B, Fig. 10", "What mixing saves hardly depends on the price of links between brokers",
          f"{READING}; means over all prices at most 10 % apart", judge_flat),
    Claim("VI.B, Fig. 10", "The others converge to mixing as links between brokers get cheap",
          f"{READING}; means at the lowest price at most 10 % apart", judge_convergence),
    Claim("VI.B", "Random packing costs linearly in the number of users", "power 0.8 to 1.2", judge_linear),
    Claim("VI.C, Table I", "Random, greedy, clustering, mixing take longer in this order",
          "means at the largest size; random packing, whose time is start-up, does not count", judge_times),
)  # fmt: skip
OUR_CLAIMS = (
    Claim("ours", "Never more expensive than the best of the three, nor than greedy packing with brokers closed",
          "the worst of all networks", judge_never_more_expensive),
    Claim("ours", "Within 10 % of what no packing can cost less than, at 100 users a broker",
          "interval of the gap at each number of users", judge_gap),
    Claim("IV.C, and ours", "Brokers that redirect users by themselves come near the central packing",
          "mean cost of the central one at least 95 % of theirs in each setting", judge_distributed),
    Claim("ours", "10,000 users at 100 brokers: greedy 5 s, clustering 20 s, mixing 60 s at most",
          "means of processor time (paper: 91, 100, 180 s)", judge_limits),
)  # fmt: skip


def claims_document(run: dict[str, Any], figures: Sequence[Figure]) -> str:
    """Return the tables of claims, of all settings and of users that brokers move, as Markdown."""
    claims = claim_rows((*PAPER_CLAIMS, *OUR_CLAIMS), Measured(figures))
    return "\n".join([_head(run), "", *claims, "", *_setting_rows(figures), "", *_migration_rows(figures), ""])


def readme_document(run: dict[str, Any], figures: Sequence[Figure]) -> str:
    """Return the summary of the claims."""
    claims = {"Claims of the paper": PAPER_CLAIMS, "Ours": OUR_CLAIMS}
    return "\n".join([_head(run), "", *summary_rows(claims, Measured(figures)), ""])


def _head(run: dict[str, Any]) -> str:
    return f"Size {run['settings']['size']}, seed {run['seed']}."


def _setting_rows(figures: Sequence[Figure]) -> list[str]:
    """Return a row for each setting: the saving of each algorithm, by tree and by unicast, and the gap of ours."""
    names = (*PAPERS, OURS)
    rows: dict[tuple[Value, ...], dict[tuple[str, str], float]] = {}
    for each in figures:
        if "algorithm" in each.where:
            where = {**each.where}
            algorithm = str(where.pop("algorithm"))
            rows.setdefault(tuple(where.values()), {})[each.name, algorithm] = each.value
    lines = [
        "| users | brokers | prices | core price x | interests | CRR " + ", ".join(names)
        + " | CRR by unicast | gap of ours to the bound |",
        "|---|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    for (users, brokers, prices, scale, interests), numbers in rows.items():
        cuts = [", ".join(f"{numbers[name, one]:.2f}" for one in names) for name in ("crr", "crr_unicast")]
        gap = f"{numbers['bound_gap', OURS]:.1%}"
        lines.append(f"| {users} | {brokers} | {prices} | {scale:g} | {interests} | {cuts[0]} | {cuts[1]} | {gap} |")
    return lines


def _migration_rows(figures: Sequence[Figure]) -> list[str]:
    """Return a row for each setting, start and share of declining users."""
    rows: dict[tuple[Value, ...], dict[str, float]] = {}
    for each in figures:
        if "decline_share" in each.where:
            rows.setdefault(tuple(each.where.values()), {})[each.name] = each.value
    lines = [
        "| users | brokers | prices | core price x | interests | start | decline | central cost over theirs | rounds "
        "| messages a user |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for (users, brokers, prices, scale, interests, start, decline), numbers in rows.items():
        values = [numbers[f"distributed_{name}"] for name in ("of_central", "rounds", "messages")]
        lines.append(
            f"| {users} | {brokers} | {prices} | {scale:g} | {interests} | {start} | {decline:.0%} | {values[0]:.1%} "
            f"| {values[1]:.0f} | {values[2]:.1f} |"
        )
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables of a file of figures, or replace those in a README; exit with 2 if a file is unusable."""
    return put_claims(PROGRAM, "regraft-lab mincost", claims_document, readme_document, arguments)


if __name__ == "__main__":
    sys.exit(main())
