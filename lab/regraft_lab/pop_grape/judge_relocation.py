"""Judge each claim of Cheung09's evaluation: reproduced, refuted or not decidable.

In: figures. Out: a verdict with its evidence. Verdicts depend only on the figures. If the paper gives no number
("virtually", "almost"), the claim states the number used. The claims are in
:mod:`experiments.pop_grape.relocation_claims`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from regraft_lab.claim_evidence import Interval, Judgement, Measured, Value, listed, undecided, verdict
from regraft_lab.judge_size import Size
from regraft_lab.pop_grape.choose_homes import WEIGHTS
from regraft_lab.pop_grape.relocation_figures import SPREAD
from regraft_lab.pop_grape.time_selection import PAPER_MS_MAX

PLANETLAB: dict[str, Value] = {"measured": "clock", "testbed": "planetlab", "predicates": "shared"}
CLUSTERED: dict[str, Value] = {**PLANETLAB, "workload": "clustered"}
RANDOM: dict[str, Value] = {**PLANETLAB, "workload": "random"}
ON_CLUSTER: dict[str, Value] = {**CLUSTERED, "testbed": "cluster"}
COUNTED: dict[str, Value] = {"measured": "count", "testbed": "hops", "predicates": "shared"}

NAMES = {
    "load100": "load100",
    "delay100": "delay100",
    "delay100_links": "delay100 with links",
    "pop": "POP",
    "ours": "Regraft",
    "ours_both": "Regraft, cost and delay",
}
GRAPE_WAYS = ("load100", "delay100", "delay100_links")
VIRTUALLY = 0.05  # "virtually no visible differences", in a drawing: at most this share of the baseline.
MATCHES = 0.05  # "matches that of the baseline": at most this share of it saved.
ALMOST_ALL_BUT = 1  # "across almost all subscriber distributions": all X but this many.
OVERLOADED_MIN = 1.0
THRESHOLD_LOW = 10


def judge_best(metric: str, size: Size, ways: Sequence[str]) -> Callable[[Measured], Judgement]:
    """Return the judge of "up to ... less": by the best mean over X and workloads."""

    def judge(measured: Measured) -> Judgement:
        cuts = {
            (way, workload, x): each.mean
            for way in ways
            for workload in ("clustered", "random")
            for x, each in _by_x(measured, f"{metric}_cut", **{**PLANETLAB, "workload": workload}, way=way).items()
        }
        if not cuts:
            return undecided()
        best = max(cuts, key=lambda key: cuts[key])
        spread = {key: cut for key, cut in cuts.items() if key[2] > 1}
        cited = [best, *([max(spread, key=lambda key: spread[key])] if spread else [])]
        evidence = "; ".join(
            f"{cuts[key]:.2f} ({NAMES[key[0]]}, {key[1]}, X = {key[2]:g})" for key in dict.fromkeys(cited)
        )
        return Judgement(size.judge(cuts[best]), evidence)

    return judge


def judge_load_lowest(measured: Measured) -> Judgement:
    """Judge: load100 has the lowest message rate at every X but 1."""
    return _least(measured, "message_rate_above_load100", ("delay100", "delay100_links", "pop"), CLUSTERED, 0)


def judge_delay_lowest(measured: Measured) -> Judgement:
    """Judge: delay100 has the lowest delay at almost every X."""
    return _least(measured, "client_delay_above_delay100", ("load100", "pop"), CLUSTERED, ALMOST_ALL_BUT)


def _least(
    measured: Measured, name: str, others: Sequence[str], where: Mapping[str, Value], exceptions_max: int
) -> Judgement:
    above = {(way, x): each for way in others for x, each in _by_x(measured, name, **where, way=way).items() if x > 1}
    if not above:
        return undecided()
    not_least = {x for (_, x), each in above.items() if each.mean < 0}
    closest = min(above, key=lambda key: above[key].mean)
    evidence = f"closest {NAMES[closest[0]]} at X = {closest[1]:g}: {above[closest]} above"
    if not_least:
        evidence += f"; not the least at X = {', '.join(f'{x:g}' for x in sorted(not_least))}"
    holds = len(not_least) <= exceptions_max
    return verdict(holds, not holds, evidence)


def judge_all_at_one(measured: Measured) -> Judgement:
    """Judge: with all subscribers of a publisher at one broker, every way moves it there."""
    shares = {
        (way, workload): measured.value("at_subscribers_share", **PLANETLAB, workload=workload, x=1, way=way)
        for way in ("load100", "delay100", "pop")
        for workload in ("clustered", "random")
    }
    known = {key: share for key, share in shares.items() if share is not None}
    if not known:
        return undecided()
    worst = min(known, key=lambda key: known[key])
    evidence = f"least {known[worst]:.0%} of the publishers ({NAMES[worst[0]]}, {worst[1]})"
    return verdict(known[worst] == 1.0, known[worst] < 1.0, evidence)


def judge_delay_sacrificed(measured: Measured) -> Judgement:
    """Judge: load100 has more delay and more hops than delay100."""
    return _certainly_above(measured, ("client_delay_above_delay100", "hops_above_delay100"), "load100")


def judge_load_sacrificed(measured: Measured) -> Judgement:
    """Judge: delay100 has more messages and a higher input utilisation than load100."""
    return _certainly_above(measured, ("message_rate_above_load100", "load_above_load100"), "delay100")


def _certainly_above(measured: Measured, names: Sequence[str], way: str) -> Judgement:
    above = {name: measured.interval(name, **CLUSTERED, **SPREAD, way=way) for name in names}
    known = {name: each for name, each in above.items() if each is not None}
    if len(known) < len(names):
        return undecided()
    evidence = ", ".join(f"{name.partition('_above')[0].replace('_', ' ')} {each}" for name, each in known.items())
    return verdict(
        all(each.low > 0 for each in known.values()), any(each.high < 0 for each in known.values()), evidence
    )


def judge_worse_than_baseline(measured: Measured) -> Judgement:
    """Judge: on the cluster load100's delay is above the baseline's."""
    cuts = {x: each for x, each in _by_x(measured, "client_delay_cut", **ON_CLUSTER, way="load100").items() if x > 1}
    if not cuts:
        return undecided()
    return verdict(
        any(each.mean < 0 for each in cuts.values()),
        all(each.mean > 0 for each in cuts.values()),
        f"delay saved at X = {listed(cuts)}",
    )


def judge_pop_between(measured: Measured) -> Judgement:
    """Judge: POP's input utilisation, delay and hops are between load100's and delay100's."""
    outside, differences = [], []
    for metric in ("load", "client_delay", "hops"):
        pop, other = (
            measured.interval(f"{metric}_above_load100", **CLUSTERED, **SPREAD, way=way) for way in ("pop", "delay100")
        )
        if pop is None or other is None:
            return undecided()
        differences.append(f"{metric} {pop.mean:+.3f}, delay100 {other.mean:+.3f}")
        low, high = sorted((0.0, other.mean))
        outside.append(max(low - pop.mean, pop.mean - high))
    fits = all(each <= VIRTUALLY for each in outside)
    return verdict(fits, not fits, f"above load100: {'; '.join(differences)}")


def judge_more_output(measured: Measured) -> Judgement:
    """Judge: delay100 has a higher output utilisation than load100."""
    return _certainly_above(measured, ("output_above_load100",), "delay100")


def judge_random_output(measured: Measured) -> Judgement:
    """Judge: under the random workload GRAPE's output utilisation is above the baseline's."""
    cuts = {x: each for x, each in _by_x(measured, "output_cut", **RANDOM, way="load100").items() if x > 1}
    if not cuts:
        return undecided()
    above = all(each.mean < 0 for each in cuts.values())
    return verdict(above, not above, f"load100, saved at X = {listed(cuts)}")


def judge_random_alike(way: str, metrics: Sequence[str]) -> Callable[[Measured], Judgement]:
    """Return the judge of "under the random workload there is no difference" between load100 and another way."""

    def judge(measured: Measured) -> Judgement:
        return _alike(measured, way, metrics)

    return judge


def _alike(measured: Measured, way: str, metrics: Sequence[str]) -> Judgement:
    readings = {
        (metric, x): each
        for metric in metrics
        for x, each in _by_x(measured, f"{metric}_above_load100", **RANDOM, way=way).items()
    }
    if not readings:
        return undecided()
    most = max(readings, key=lambda key: abs(readings[key].mean))
    evidence = f"at most {readings[most].mean:+.3f} ({most[0].replace('_', ' ')}, X = {most[1]:g})"
    alike = abs(readings[most].mean) <= VIRTUALLY
    return verdict(alike, not alike, evidence)


def judge_random_like_baseline(measured: Measured) -> Judgement:
    """Judge: under the random workload GRAPE's message rate and input utilisation match the baseline's."""
    cuts = {
        (metric, x): each
        for metric in ("message_rate", "load")
        for x, each in _by_x(measured, f"{metric}_cut", **RANDOM, way="load100").items()
    }
    if not cuts:
        return undecided()
    evidence = ", ".join(
        f"X = {x:g}: {each.mean:.2f}" for (metric, x), each in cuts.items() if metric == "message_rate"
    )
    match = all(abs(each.mean) <= MATCHES for each in cuts.values())
    return verdict(match, not match, f"message rate saved {evidence}")


def judge_random_pop(measured: Measured) -> Judgement:
    """Judge: under the random workload POP's delay is below delay100's."""
    above = measured.interval("client_delay_above_delay100", **RANDOM, **SPREAD, way="pop")
    if above is None:
        return undecided()
    return verdict(above.high < 0, above.low > 0, f"{above} above delay100")


def judge_weight_ends(measured: Measured) -> Judgement:
    """Judge: load1 equals delay100, and delay1 equals load100."""
    where: dict[str, Value] = {**COUNTED, "workload": "clustered", **SPREAD}
    parts, most = [], 0.0
    for one, other in (("load1", "delay100"), ("delay1", "load100")):
        share = measured.value("same_home_share", **where, way=one, other=other)
        differences = [
            measured.value(f"{metric}_above_{other}", **where, way=one) for metric in ("message_rate", "delay", "hops")
        ]
        known = [each for each in differences if each is not None]
        if share is None or len(known) < len(differences):
            return undecided()
        most = max(most, *(abs(each) for each in known))
        parts.append(
            f"{one} above {other}: messages {known[0]:+.3f}, delay {known[1]:+.3f}, hops {known[2]:+.3f}, "
            f"{share:.0%} of the homes alike"
        )
    return verdict(most <= VIRTUALLY, most > VIRTUALLY, "; ".join(parts))


def judge_weights(measured: Measured) -> Judgement:
    """Judge: as the weight of load falls, delay falls and messages rise; the reverse for the weight of delay."""
    parts, broken = [], []
    for priority, own, other in (("load", "message_rate", "delay"), ("delay", "delay", "message_rate")):
        for metric, direction in ((own, 1), (other, -1)):
            ways = [f"{priority}{weight}" for weight in WEIGHTS]
            cuts = [_mean_cut(measured, metric, way) for way in ways]
            if None in cuts:
                return undecided()
            known = [cut for cut in cuts if cut is not None]
            listed_cuts = ", ".join(f"{each:.2f}" for each in known)
            parts.append(f"{priority}100 to {priority}1, {metric.replace('_', ' ')} saved: {listed_cuts}")
            broken += [pair for pair in pairwise(known) if direction * (pair[0] - pair[1]) < -VIRTUALLY]
    return verdict(not broken, bool(broken), "; ".join(parts))


def _mean_cut(measured: Measured, metric: str, way: str) -> float | None:
    where: dict[str, Value] = {**COUNTED, "workload": "clustered", "way": way}
    cuts = [each.mean for x, each in _by_x(measured, f"{metric}_cut", **where).items() if x > 1]
    return sum(cuts) / len(cuts) if cuts else None


def judge_random_weights(measured: Measured) -> Judgement:
    """Judge: under the random workload neither metric nor weight matters."""
    readings = {
        (way, metric, x): each.mean
        for way in (f"{priority}{weight}" for priority in ("load", "delay") for weight in WEIGHTS)
        for metric in ("message_rate", "delay", "hops")
        for x, each in _by_x(measured, f"{metric}_above_load100", **COUNTED, workload="random", way=way).items()
    }
    if not readings:
        return undecided()
    most = max(readings, key=lambda key: abs(readings[key]))
    evidence = f"at most {readings[most]:+.3f} ({most[0]}, {most[1].replace('_', ' ')}, X = {most[2]:g})"
    alike = abs(readings[most]) <= VIRTUALLY
    return verdict(alike, not alike, evidence)


def judge_short_sessions(measured: Measured) -> Judgement:
    """Judge: with G_threshold = 10 there are more messages than without GRAPE."""
    by_way = {
        way: measured.interval(
            "message_rate_with_own_vs_baseline", measured="sessions", notifications_min=THRESHOLD_LOW, way=way
        )
        for way in ("load100", "delay100")
    }
    known = {way: each for way, each in by_way.items() if each is not None}
    if not known:
        return undecided()
    evidence = ", ".join(f"{way} {each} of the baseline's" for way, each in known.items())
    return verdict(
        any(each.low > 1 for each in known.values()), all(each.high < 1 for each in known.values()), evidence
    )


def judge_session_hops(measured: Measured) -> Judgement:
    """Judge: with G_threshold = 10 there are more hops than with any longer session."""
    where: dict[str, Value] = {"measured": "sessions", "way": "delay100"}
    lengths = measured.steps("hops_vs_baseline", "notifications_min", **where)
    hops = {
        length: measured.interval("hops_vs_baseline", **where, notifications_min=round(length)) for length in lengths
    }
    known = {length: each for length, each in hops.items() if each is not None}
    if THRESHOLD_LOW not in known or len(known) < 2:
        return undecided()
    low = known.pop(THRESHOLD_LOW)
    evidence = f"delay100, of the baseline's: 10: {low}, {listed(known)}"
    return verdict(
        all(low.mean > each.mean for each in known.values()),
        any(low.high < each.low for each in known.values()),
        evidence,
    )


def judge_overloads(measured: Measured) -> Judgement:
    """Judge: brokers are overloaded with publishers at first homes, with POP and with delay100, never with load100."""
    parts, means = [], []
    for way in ("baseline", "pop", "delay100"):
        means_of_way = []
        for where in (CLUSTERED, RANDOM):
            by_x = _by_x(measured, "brokers_above_load100", **where, way=way)
            counts = [each.mean for x, each in by_x.items() if x > 1]
            if not counts:
                return undecided()
            means_of_way.append(sum(counts) / len(counts))
        means.append(sum(means_of_way) / len(means_of_way))
        parts.append(f"{NAMES.get(way, way)} {means_of_way[0]:.1f} and {means_of_way[1]:.1f}")
    holds = all(mean >= OVERLOADED_MIN for mean in means)
    return verdict(holds, not holds, f"busier than load100's busiest, clustered and random: {', '.join(parts)}")


def judge_selection_time(measured: Measured) -> Judgement:
    """Judge: the paper's selection with 63 brokers takes less than 70 ms."""
    most = measured.value("grape_quadratic_ms_max", brokers=63)
    middle = measured.value("grape_quadratic_ms_p50", brokers=63)
    if most is None or middle is None:
        return undecided()
    return verdict(
        most < PAPER_MS_MAX, most >= PAPER_MS_MAX, f"median {middle:.1f} ms, at most {most:.1f} ms, in Python"
    )


def _by_x(measured: Measured, name: str, /, **where: Value) -> dict[float, Interval]:
    """Return a figure with its interval by X."""
    intervals = {x: measured.interval(name, **where, x=round(x)) for x in measured.steps(name, "x", **where)}
    return {x: each for x, each in intervals.items() if each is not None}
