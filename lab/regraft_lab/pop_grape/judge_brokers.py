"""Judge the claims on the brokers' own protocols: overhead, thresholds, times, memory.

In: figures of :mod:`experiments.pop_grape.compare_relocation` and :mod:`experiments.pop_grape.time_migration`. Out: a
verdict with its evidence. The claims are in :mod:`experiments.pop_grape.relocation_claims`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise

import numpy as np

from regraft_lab.claim_evidence import Judgement, Measured, Value, undecided, verdict
from regraft_lab.judge_size import Size
from regraft_lab.pop_grape.distributed_runs import GRAPE_THRESHOLDS, POP_THRESHOLDS

PREFIX = "pop_grape_distributed_"
PLANETLAB: dict[str, Value] = {"testbed": "planetlab"}
CLUSTER: dict[str, Value] = {"testbed": "cluster"}
OVERHEAD: dict[str, Value] = {"kind": "overhead"}
GRAPE_VARIANTS = ("load100", "delay100")
OVERHEAD_ABOVE_MAX = 0.05  # The text gives neither rates nor numbers of clients.
POP_ABOVE_GRAPE = Size(0.5, within=0.2)  # "approximately 50 % higher".
MIGRATION_MS_MAX = 5_000.0
MIGRATION_HOPS = 10
GATHER_MS_MAX = 5_000.0
PROPORTIONAL_MIN = 0.9  # Correlation of the mean wait and the number of hops.


def judge_overhead(distribution: str, variants: tuple[str, ...], claimed: float) -> Callable[[Measured], Judgement]:
    """Return the judge of "overhead is at most"."""

    def judge(measured: Measured) -> Judgement:
        readings = {
            (variant, x): share
            for variant in variants
            for x, share in _by_x(
                measured, "message_share", **OVERHEAD, distribution=distribution, variant=variant
            ).items()
        }
        if not readings:
            return undecided()
        worst = max(readings, key=lambda key: readings[key])
        evidence = f"at most {readings[worst]:.0%} of the notifications ({worst[0]}, X = {worst[1]:g})"
        holds = readings[worst] <= claimed + OVERHEAD_ABOVE_MAX
        return verdict(holds, not holds, evidence)

    return judge


def judge_fewer(size: Size) -> Callable[[Measured], Judgement]:
    """Return the judge of "GRAPE's overhead is lower than POP's by up to"."""

    def judge(measured: Measured) -> Judgement:
        cuts = {}
        for distribution in ("clustered", "random"):
            where: dict[str, Value] = {**OVERHEAD, "distribution": distribution}
            pop = _by_x(measured, "message_share", **where, variant="pop")
            for variant in GRAPE_VARIANTS:
                for x, share in _by_x(measured, "message_share", **where, variant=variant).items():
                    if pop.get(x):
                        cuts[distribution, variant, x] = 1 - share / pop[x]
        if not cuts:
            return undecided()
        best = max(cuts, key=lambda key: cuts[key])
        evidence = f"best {cuts[best]:.0%} fewer ({best[1]}, {best[0]}, X = {best[2]:g})"
        return Judgement(size.judge(cuts[best]), evidence)

    return judge


def judge_random_messages(measured: Measured) -> Judgement:
    """Judge: under the random workload POP has about 50 % more messages than GRAPE."""
    pop, grape = (
        _by_x(measured, "all_messages_share", distribution="random", variant=variant) for variant in ("pop", "load100")
    )
    ratios = {x: pop[x] / grape[x] for x in pop if grape.get(x)}
    if not ratios:
        return undecided()
    mean = sum(ratios.values()) / len(ratios)
    evidence = ", ".join(f"X = {x:g}: {ratio:.2f}" for x, ratio in ratios.items())
    return Judgement(POP_ABOVE_GRAPE.judge(mean - 1), f"POP's over load100's: {evidence}")


def judge_memory(measured: Measured) -> Judgement:
    """Judge: GRAPE needs more memory than POP."""
    ratios: dict[tuple[str, float], float] = {}
    for distribution in ("clustered", "random"):
        pop, grape = (
            _by_x(measured, "memory_bytes_mean", distribution=distribution, variant=variant)
            for variant in ("pop", "load100")
        )
        ratios |= {(distribution, x): grape[x] / pop[x] for x in grape if pop.get(x)}
    if not ratios:
        return undecided()
    evidence = ", ".join(f"{distribution} X = {x:g}: {ratio:.1f}" for (distribution, x), ratio in ratios.items())
    return verdict(
        all(ratio > 1 for ratio in ratios.values()),
        any(ratio < 1 for ratio in ratios.values()),
        f"bytes of traces at a broker, load100's over POP's: {evidence}",
    )


def judge_slower_selection(measured: Measured) -> Judgement:
    """Judge: GRAPE takes longer to select a broker than POP."""
    ratios: dict[tuple[str, float], float] = {}
    for distribution in ("clustered", "random"):
        pop, grape = (
            _by_x(measured, "selection_ms_mean", distribution=distribution, variant=variant)
            for variant in ("pop", "delay100")
        )
        ratios |= {(distribution, x): grape[x] / pop[x] for x in grape if pop.get(x)}
    if not ratios:
        return undecided()
    evidence = ", ".join(f"{distribution} X = {x:g}: {ratio:.1f}" for (distribution, x), ratio in ratios.items())
    slower = all(ratio > 1 for ratio in ratios.values())
    return verdict(slower, not slower, f"mean time, delay100's over POP's: {evidence}")


def judge_worst_overhead(size: Size) -> Callable[[Measured], Judgement]:
    """Return the judge of "in the worst case GRAPE has so much less overhead than POP", each at its worst threshold."""

    def judge(measured: Measured) -> Judgement:
        grape = [
            share
            for variant in GRAPE_VARIANTS
            for share in _by_threshold(measured, "message_share", f"{variant} G", GRAPE_THRESHOLDS, OVERHEAD).values()
        ]
        pop = _by_threshold(measured, "message_share", "pop P", POP_THRESHOLDS, OVERHEAD).values()
        if not grape or not pop:
            return undecided()
        return Judgement(
            size.judge(1 - max(grape) / max(pop)),
            f"at most {max(grape):.0%} against {max(pop):.0%} of the notifications",
        )

    return judge


def judge_gathering(measured: Measured) -> Judgement:
    """Judge: fetching and computing takes at most 5 s without pings."""
    readings = {
        (distribution, x): spent_ms
        for distribution in ("clustered", "random")
        for x, spent_ms in _by_x(
            measured, "selection_without_pings_ms_max", distribution=distribution, variant="delay100"
        ).items()
    }
    if not readings:
        return undecided()
    worst = max(readings, key=lambda key: readings[key])
    holds = readings[worst] <= GATHER_MS_MAX
    return verdict(holds, not holds, f"at most {readings[worst] / 1000:.1f} s ({worst[0]}, X = {worst[1]:g})")


def judge_first_trigger(measured: Measured) -> Judgement:
    """Judge: with G_threshold = 10 there are more messages than without GRAPE."""
    shares = {
        variant: _by_threshold(measured, "all_messages_share", f"{variant} G", GRAPE_THRESHOLDS, {})
        for variant in GRAPE_VARIANTS
    }
    first = {
        variant: by_threshold[GRAPE_THRESHOLDS[0]]
        for variant, by_threshold in shares.items()
        if GRAPE_THRESHOLDS[0] in by_threshold
    }
    if not first:
        return undecided()
    evidence = "; ".join(
        f"{variant} {_listed(by_threshold)}" for variant, by_threshold in shares.items() if by_threshold
    )
    more = any(share > 1 for share in first.values())
    return verdict(more, not more, f"all messages, of the baseline's: {evidence}")


def judge_last_hops(measured: Measured) -> Judgement:
    """Judge: with G_threshold = 10 publishers end up farther from subscribers than with any other value."""
    hops = _by_threshold(measured, "hops_share", "delay100 G", GRAPE_THRESHOLDS, {})
    if GRAPE_THRESHOLDS[0] not in hops or len(hops) < 2:
        return undecided()
    evidence = f"delay100, of the baseline's: {_listed(hops)}"
    worst = max(hops, key=lambda count: hops[count]) == GRAPE_THRESHOLDS[0]
    return verdict(worst, not worst, evidence)


def judge_range(
    names: tuple[str, ...], thresholds: tuple[int, ...], low: float, high: float
) -> Callable[[Measured], Judgement]:
    """Return the judge of "overhead varies between"."""

    def judge(measured: Measured) -> Judgement:
        readings = {
            (name, count): share
            for name in names
            for count, share in _by_threshold(measured, "message_share", name, thresholds, OVERHEAD).items()
        }
        if not readings:
            return undecided()
        least, most = (choose(readings, key=lambda key: readings[key]) for choose in (min, max))
        evidence = f"{readings[least]:.0%} ({least[0]}={least[1]}) to {readings[most]:.0%} ({most[0]}={most[1]})"
        fits = abs(readings[least] - low) <= OVERHEAD_ABOVE_MAX and abs(readings[most] - high) <= OVERHEAD_ABOVE_MAX
        return verdict(fits, not fits, evidence)

    return judge


def judge_grape_triggers(measured: Measured) -> Judgement:
    """Judge: a greater G_threshold means later decisions and less overhead."""
    return _judge_triggers(measured, "load100 G", GRAPE_THRESHOLDS, overhead_grows=False)


def judge_pop_triggers(measured: Measured) -> Judgement:
    """Judge: a greater P_threshold means later decisions and more overhead."""
    return _judge_triggers(measured, "pop P", POP_THRESHOLDS, overhead_grows=True)


def _judge_triggers(measured: Measured, name: str, thresholds: tuple[int, ...], *, overhead_grows: bool) -> Judgement:
    overhead = _by_threshold(measured, "message_share", name, thresholds, OVERHEAD)
    waits_s = _by_threshold(measured, "first_decision_s", name, thresholds, {})
    if len(overhead) < 2 or len(waits_s) < 2:
        return undecided()
    sign = 1 if overhead_grows else -1
    holds = all(sign * (later - earlier) > 0 for earlier, later in pairwise(overhead.values()))
    holds = holds and waits_s[min(waits_s)] < waits_s[max(waits_s)]
    evidence = f"overhead {_listed(overhead)}; first decision after {_listed(waits_s)} s"
    return verdict(holds, not holds, evidence)


def judge_migration_time(measured: Measured) -> Judgement:
    """Judge: a migration over 10 hops takes at most 5 s."""
    paper, whole = (measured.value(f"{name}_max", hops=MIGRATION_HOPS) for name in ("paper_wait_ms", "move_ms"))
    if paper is None or whole is None:
        return undecided()
    evidence = f"the paper's at most {paper / 1000:.1f} s, our transition {whole / 1000:.1f} s from decision to end"
    return verdict(paper <= MIGRATION_MS_MAX, paper > MIGRATION_MS_MAX, evidence)


def judge_migration_proportional(measured: Measured) -> Judgement:
    """Judge: the publisher's wait is proportional to the number of brokers on its path."""
    hops = measured.steps("paper_wait_ms", "hops")
    waits_ms = [measured.value("paper_wait_ms", hops=round(each)) or 0.0 for each in hops]
    if len(hops) < 3:
        return undecided()
    correlation = float(np.corrcoef(hops, waits_ms)[0, 1])
    evidence = (
        f"correlation {correlation:.2f}; {hops[0]:g} hop {waits_ms[0]:.0f} ms, {hops[-1]:g} hops {waits_ms[-1]:.0f} ms"
    )
    return verdict(correlation >= PROPORTIONAL_MIN, correlation < PROPORTIONAL_MIN, evidence)


def judge_shorter_wait(measured: Measured) -> Judgement:
    """Judge: with our transition a publisher waits less than with the paper's migration, for every number of hops."""
    hops = measured.steps("publisher_wait_ms", "hops")
    pairs = [
        (measured.value("publisher_wait_ms", hops=round(each)), measured.value("paper_wait_ms", hops=round(each)))
        for each in hops
    ]
    known = [(ours, paper) for ours, paper in pairs if ours is not None and paper is not None]
    if not known:
        return undecided()
    ours_ms, paper_ms = (sum(each) / len(known) for each in zip(*known, strict=True))
    evidence = f"mean over hops {ours_ms:.0f} ms against {paper_ms:.0f} ms"
    return verdict(all(ours < paper for ours, paper in known), any(ours >= paper for ours, paper in known), evidence)


def _by_x(measured: Measured, name: str, /, **where: Value) -> dict[float, float]:
    """Return a figure of the brokers on PlanetLab by X."""
    values = {
        x: measured.value(f"{PREFIX}{name}", **PLANETLAB, **where, interested_brokers=round(x))
        for x in measured.steps(f"{PREFIX}{name}", "interested_brokers", **PLANETLAB, **where)
    }
    return {x: value for x, value in values.items() if value is not None}


def _by_threshold(
    measured: Measured, name: str, variant: str, thresholds: tuple[int, ...], where: Mapping[str, Value]
) -> dict[int, float]:
    values = {
        count: measured.value(f"{PREFIX}{name}", **CLUSTER, **where, variant=f"{variant}={count}")
        for count in thresholds
    }
    return {count: value for count, value in values.items() if value is not None}


def _listed(by_threshold: Mapping[int, float]) -> str:
    return ", ".join(f"{count}: {value:.2f}" for count, value in by_threshold.items())
