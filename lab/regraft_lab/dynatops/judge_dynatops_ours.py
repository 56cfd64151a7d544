"""Judge our own claims: placement, our assignment next to SSBR, the messages of a transition.

In: figures. Out: a verdict with its evidence for each claim. The paper's claims do not belong here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product

from regraft_lab.claim_evidence import Claim, Judgement, Measured, Value, undecided, verdict
from regraft_lab.dynatops.count_protocol import TOPICS_PER_USER
from regraft_lab.dynatops.cut_patterns import EVENTS
from regraft_lab.dynatops.cut_patterns import PATTERNS as CUT_PATTERNS
from regraft_lab.dynatops.dynatops_tasks import CLUSTER
from regraft_lab.dynatops.judge_readings import (
    DYNATOPS,
    LOCATION,
    STRICTLY,
    Readings,
    bayeux,
    location_readings,
    over_readings,
    poisson_cut,
)
from regraft_lab.dynatops.judge_reassignment import at_most, cuts_of, judge_step_bound, slowest_ms, within_bound
from regraft_lab.dynatops.poisson_workload import PATTERNS
from regraft_lab.dynatops.time_reassignment import TIMED_PATTERNS

CUT_RATIO_MIN = 1.5
CHANGES_CUT_MIN, CLUSTER_MIN = 0.8, 5
LOAD_CV_MAX = 0.2
LOAD_WEIGHT = 1.0
PASS_MS_MAX = 1_000.0
SSBR_MS_MAX = {(100, 100): 10.0, (1000, 100): 1_000.0, (100, 500): 50.0, (100, 5000): 500.0}
ASSIGNMENT_MS_MAX = {(100, 100): 10.0, (1000, 100): 300.0}
MOST_SHARE = 0.9  # "nearly all": at least this share.
OURS: dict[str, Value] = {"system": "assignment", "homes": "placed"}
UP: dict[str, Value] = {"system": "chord", "homes": "placed"}


def judge_changes_cut(pattern: str) -> Callable[[Measured], Judgement]:
    """Return the judge of "fewer subscription changes of brokers", in clusters of at least five."""

    def judge(measured: Measured) -> Judgement:
        return over_readings(_by_cluster(measured, "subscription_changes_cut", pattern), CHANGES_CUT_MIN)

    return judge


def judge_all_patterns_alike(measured: Measured) -> Judgement:
    """Judge: placement saves as much if users' topics have no modes."""
    readings: Readings = {}
    for pattern in PATTERNS:
        if pattern != "multimodal":
            values = _by_cluster(measured, "subscription_changes_cut", pattern)
            readings |= {f"{pattern}, {name}": value for name, value in values.items()}
    return over_readings(readings, CHANGES_CUT_MIN)


def judge_load_cv(measured: Measured) -> Judgement:
    """Judge: the loads of brokers are even."""
    readings: Readings = {}
    for pattern in PATTERNS:
        values = _by_cluster(measured, "load_cv", pattern)
        readings |= {f"{pattern}, {name}": value for name, value in values.items()}
    return at_most(readings, LOAD_CV_MAX, "")


def _by_cluster(measured: Measured, name: str, pattern: str) -> Readings:
    where: dict[str, Value] = {"model": "poisson", "pattern": pattern, "load_weight": LOAD_WEIGHT}
    readings = {
        f"c = {step:g}": measured.value(name, **where, cluster_brokers=round(step))
        for step in measured.steps(name, "cluster_brokers", **where)
        if step >= CLUSTER_MIN
    }
    return {key: value for key, value in readings.items() if value is not None}


def judge_cut_ratio(measured: Measured) -> Judgement:
    """Judge: ours cuts the notification cost by more than SSBR-Greedy."""
    ssbr, ours = cuts_of(measured, "cut_ssbr"), cuts_of(measured, "cut_assignment")
    large = {name: ours[name] / ssbr[name] for name in ssbr if _is_claimed(name) and ssbr[name] > 0 and name in ours}
    if not large:
        return undecided()
    worst = min(large, key=lambda key: large[key])
    cuts = ", ".join(f"{name}: {ours[name]:.2f} against {ssbr[name]:.2f}" for name in large)
    evidence = f"least {large[worst]:.2f} times ({worst}); {cuts}"
    return verdict(large[worst] >= CUT_RATIO_MIN, large[worst] < CUT_RATIO_MIN, evidence)


def _is_claimed(name: str) -> bool:
    return name.startswith(("100 brokers, 100 topics", "1000 brokers, 100 topics"))


def judge_net_benefit(measured: Measured) -> Judgement:
    """Judge: ours never has a lower net benefit than DYNATOPS-Greedy."""
    readings: dict[str, tuple[float, float]] = {}
    for pattern, events in product(CUT_PATTERNS, EVENTS):
        ssbr, ours = (
            measured.value(f"net_benefit_{way}", pattern=pattern.name, events=events) for way in ("ssbr", "assignment")
        )
        if ssbr is not None and ours is not None:
            readings[f"{pattern.name}, {events:g} events"] = (ssbr, ours)
    if not readings:
        return undecided()
    worst = min(readings, key=lambda key: readings[key][1] - readings[key][0])
    paying = ", ".join(f"{name}: {ours:.3f} against {ssbr:.3f}" for name, (ssbr, ours) in readings.items() if ours > 0)
    holds = all(ours >= ssbr for ssbr, ours in readings.values())
    return verdict(holds, not holds, f"closest {worst}; (Bft - Cst) / C where it pays: {paying}")


def judge_limits(name: str, limits: dict[tuple[int, int], float]) -> Callable[[Measured], Judgement]:
    """Return the judge of time limits by size, which the slowest pattern must keep."""

    def judge(measured: Measured) -> Judgement:
        readings = {size: slowest_ms(measured, name, size) for size in limits}
        known = {size: value for size, value in readings.items() if value is not None}
        if not known:
            return undecided()
        times = ", ".join(f"{brokers}/{topics}: {value:.1f} ms" for (brokers, topics), value in known.items())
        in_time = all(value <= limits[size] for size, value in known.items())
        return verdict(in_time, not in_time, f"brokers/topics {times}")

    return judge


def judge_same_path(measured: Measured) -> Judgement:
    """Judge: incremental prices lead to the same swaps as prices from scratch. A run fails where they differ."""
    sizes = [
        (round(brokers), round(topics))
        for brokers in measured.steps("identical_steps", "brokers")
        for topics in measured.steps("identical_steps", "topics", brokers=round(brokers))
    ]
    steps_by_size = []
    for brokers, topics in sizes:
        where: dict[str, Value] = {"brokers": brokers, "topics": topics}
        steps = measured.value("identical_steps", **where) or 0.0
        fast, slow = (measured.value(f"{way}_step_ms", **where) or 0.0 for way in ("ssbr", "scratch"))
        steps_by_size.append(f"{brokers}/{topics}: {steps:.0f} steps, {fast:.2f} ms a step against {slow:.1f} ms")
    return verdict(True, False, f"brokers/topics {', '.join(steps_by_size)}") if steps_by_size else undecided()


def judge_pass(measured: Measured) -> Judgement:
    """Judge: all users are placed within a second."""
    readings = {pattern: measured.value("placement_pass_ms", pattern=pattern) for pattern in PATTERNS}
    return at_most({name: value for name, value in readings.items() if value is not None}, PASS_MS_MAX, " ms")


def judge_ours_in_use(metric: str) -> Callable[[Measured], Judgement]:
    """Return the judge of our assignment in place of SSBR, with placed users, in both models."""

    def judge(measured: Measured) -> Judgement:
        readings: Readings = {}
        for pattern in PATTERNS:
            value = poisson_cut(measured, metric, OURS, DYNATOPS, pattern=pattern)
            if value is not None:
                readings[pattern] = value

        def cut(where: dict[str, Value]) -> float | None:
            setting: dict[str, Value] = {**LOCATION, **where, "system": "assignment", "cluster_brokers": CLUSTER}
            return measured.value(f"{metric}_cut", **setting, against="ssbr", against_homes=where["homes"])

        return over_readings(readings | location_readings(cut), STRICTLY)

    return judge


def judge_placement_does_it(measured: Measured) -> Judgement:
    """Judge: a ring with placed users and random IDs saves nearly all messages that DYNATOPS saves over Bayeux."""
    readings: Readings = {}
    for base in (16, 4):
        for pattern in PATTERNS:
            both, alone = (
                poisson_cut(measured, "messages", system, bayeux(base), pattern=pattern) for system in (DYNATOPS, UP)
            )
            if both and alone is not None and both > 0:
                readings[f"{pattern}, Bayeux base {base}"] = alone / both
    return over_readings(readings, MOST_SHARE)


def judge_protocol_total(measured: Measured) -> Judgement:
    """Judge: Regraft's transition stays within Eq. 7, however few brokers move."""
    return within_bound(measured, "protocol_messages", "protocol_bound", {})


def judge_moved_users(measured: Measured) -> Judgement:
    """Judge: a moved user costs at most a round trip to the roots of its topics, at log2(brokers) hops each way."""
    readings: Readings = {}
    for brokers in measured.steps("moved_user_messages", "brokers"):
        for topics in measured.steps("moved_user_messages", "topics", brokers=round(brokers)):
            where: dict[str, Value] = {"brokers": round(brokers), "topics": round(topics)}
            value, idle = (measured.value(name, **where) for name in ("moved_user_messages", "idle_plan_messages"))
            if value is not None and idle is not None:
                setting = f"{value:.1f} messages, {brokers:g} brokers, {topics:g} topics; {idle:.0f} when nothing moves"
                readings[setting] = value / (2 * TOPICS_PER_USER * math.log2(brokers))
    return at_most(readings, 1.0, " of it")


OUR_CLAIMS = (
    Claim(
        "4",
        f"multimodal: brokers' subscription changes fall by {CHANGES_CUT_MIN:.0%} or more in clusters of 5 and more",
        "w_l = 1, every c from 5",
        judge_changes_cut("multimodal"),
    ),
    Claim(
        "4",
        "they fall as much under the uniform and Zipf patterns",
        "the same",
        judge_all_patterns_alike,
    ),
    Claim(
        "4",
        f"the variation coefficient of brokers' loads is at most {LOAD_CV_MAX:g}",
        "w_l = 1, every pattern, every c from 5",
        judge_load_cv,
    ),
    Claim(
        "4",
        f"50,000 users are placed in at most {PASS_MS_MAX / 1000:g} s",
        "one after the other, clusters of ten, slowest pattern",
        judge_pass,
    ),
    Claim(
        "5.1.1",
        f"Regraft's assignment cuts the notification cost at least {CUT_RATIO_MIN:g} times as much as SSBR-Greedy",
        "mean over draws, 100 topics, 100 and 1,000 brokers, every pattern",
        judge_cut_ratio,
    ),
    Claim(
        "5.1.1",
        "its benefit less its price is never below DYNATOPS-Greedy's",
        "100 brokers, 100 topics, every pattern and number of events",
        judge_net_benefit,
    ),
    Claim(
        "Table 1",
        "it takes at most 10 ms for 100 brokers and 0.3 s for 1,000, with 100 topics",
        f"the slower of {' and '.join(pattern.name for pattern in TIMED_PATTERNS)}",
        judge_limits("assignment_ms", ASSIGNMENT_MS_MAX),
    ),
    Claim(
        "Table 1",
        "DYNATOPS-Greedy with prices kept up takes at most 10 ms, 1 s, 50 ms and 0.5 s",
        "100/100, 1000/100, 100/500, 100/5000 brokers/topics, the slower pattern",
        judge_limits("ssbr_ms", SSBR_MS_MAX),
    ),
    Claim(
        "5.1.1",
        "and makes the same swaps as with prices from scratch",
        "every step that was compared; the run ends at the first that differs",
        judge_same_path,
    ),
    Claim(
        "6.3.1",
        "with Regraft's assignment instead of SSBR delays are shorter",
        "users placed, every pattern and every reading of the location model, mean",
        judge_ours_in_use("delay"),
    ),
    Claim("6.3.1", "and messages fewer", "the same", judge_ours_in_use("messages")),
    Claim(
        "Fig. 7c, 8b",
        "what DYNATOPS saves of Bayeux's messages comes from placing users, nearly all of it",
        f"a ring with random IDs and placed users saves at least {MOST_SHARE:.0%} of it, every pattern",
        judge_placement_does_it,
    ),
    Claim(
        "5.1.2",
        "Regraft's transition stays within Eq. 7, commands included",
        "message by message, every ring, 2 brokers to all of them moved",
        judge_protocol_total,
    ),
    Claim(
        "5.1.2",
        "its third step stays within (P + 1) log V messages for each broker that moves",
        "the same",
        judge_step_bound("pubsub", "step_messages"),
    ),
    Claim(
        "5.1.2",
        "a user that moves costs at most 2 log V messages between brokers for each of its topics",
        "a plan that moves users against one that moves nothing; every ring",
        judge_moved_users,
    ),
)
