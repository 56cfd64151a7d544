"""The claims of Shafique's evaluation and of ours beside, and their table.

In: figures. Out: a verdict with its evidence for each claim, Markdown. What is run does not belong here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from regraft.experiments.claim_evidence import Claim, Judgement, Measured, Value, undecided, verdict
from regraft.experiments.claims_block import claim_rows, put_claims
from regraft.experiments.octopia.octopia_tasks import BURSTS_PER_MIN, PACES
from regraft.infra.measured_figures import Figure

PROGRAM = "regraft.experiments.octopia.octopia_claims"
BURSTS = [workload for workload, per_min in BURSTS_PER_MIN.items() if per_min]
EQUAL_WITHIN = 0.01


def judge_counts(name: str, low: float, high: float) -> Callable[[Measured], Judgement]:
    """Return a judge of the share that OctopiA saves of PADRES' messages, which has to be from low to high."""

    def judge(measured: Measured) -> Judgement:
        ours, padres = (measured.value(name, routing=routing) for routing in ("octopia", "padres"))
        if ours is None or padres is None:
            return undecided()
        saved = 1 - ours / padres
        return verdict(
            low <= saved <= high, not low <= saved <= high, f"{ours:.1f} against {padres:.1f}: {-saved:+.1%}"
        )

    return judge


def judge_srt(measured: Measured) -> Judgement:
    """Tables of advertisements are 93 % smaller."""
    cut = measured.value("srt_cut", routing="octopia")
    return undecided() if cut is None else verdict(round(cut, 2) == 0.93, round(cut, 2) != 0.93, f"{cut:.1%}")


def judge_less(name: str, other: str) -> Callable[[Measured], Judgement]:
    """Return a judge of whether IDR has less of something than another routing, in all bursts, whoever sends."""

    def judge(measured: Measured) -> Judgement:
        found = [
            (setting, idr, than, saved)
            for setting, where, idr, than in _pairs(measured, name, other)
            if (saved := measured.interval(f"{name}_saved", routing=other, **where)) is not None
        ]
        if not found:
            return undecided()
        return verdict(
            all(saved.low > 0 for _, _, _, saved in found),
            any(saved.high <= 0 for _, _, _, saved in found),
            "; ".join(f"{setting}: {idr:.1f} against {than:.1f}, less {saved}" for setting, idr, than, saved in found),
        )

    return judge


def judge_messages(other: str, low: float, high: float) -> Callable[[Measured], Judgement]:
    """Return a judge of how many more messages IDR sends, as a share of the other's; the worst burst counts."""

    def judge(measured: Measured) -> Judgement:
        pairs = _pairs(measured, "messages", other)
        if not pairs:
            return undecided()
        more = [(setting, idr / than - 1) for setting, _, idr, than in pairs]
        within = all(low <= share <= high for _, share in more)
        return verdict(within, not within, ", ".join(f"{setting}: {share:+.1%}" for setting, share in more))

    return judge


def judge_predicate(measured: Measured) -> Judgement:
    """Another predicate drains the burst earlier at no more messages."""
    found = []
    for sender in PACES:
        where: dict[str, Value] = {"routing": "idr", "workload": "burst_100k", "sender": sender}
        ours, paper = (measured.value("drain_s", rule=rule, **where) for rule in ("sum", "product"))
        drain, messages = (measured.interval(f"{name}_saved", rule="sum", **where) for name in ("drain_s", "messages"))
        if ours is not None and paper is not None and drain is not None and messages is not None:
            # What is saved is that of the paper's predicate: less than nothing where the other one is better.
            found.append((sender, ours, paper, drain, messages.mean <= 0))
    if not found:
        return undecided()
    return verdict(
        any(drain.high < 0 and no_more for *_, drain, no_more in found),
        not any(drain.mean < 0 and no_more for *_, drain, no_more in found),
        "; ".join(f"one sender a {sender}: {ours:.3f} against {paper:.3f} s" for sender, ours, paper, *_ in found),
    )


def _pairs(measured: Measured, name: str, other: str) -> list[tuple[str, dict[str, Value], float, float]]:
    pairs = []
    for sender in PACES:
        for workload in BURSTS:
            where: dict[str, Value] = {"workload": workload, "sender": sender, "rule": "product"}
            idr, than = (measured.value(name, routing=routing, **where) for routing in ("idr", other))
            if idr is not None and than is not None:
                pairs.append((f"{workload} by {sender}", where, idr, than))
    return pairs


ALL_BURSTS = (
    "draw by draw, the interval of the difference above 0, in all bursts, with a sender for each link and each broker"
)
PAPER_CLAIMS = (
    Claim("VIII, Fig. 9b", "Tables of advertisements are 93 % smaller", "1 - 5/70", judge_srt),
    Claim(
        "VIII, Fig. 9c", '98.9 "times" fewer messages of advertisements', "read as percent, to half of one",
        judge_counts("advertisement_messages", 0.984, 0.994),
    ),
    Claim(
        "VIII, Fig. 11c", "PADRES has 32.7 % fewer messages of subscriptions", "OctopiA has 30 to 70 % more",
        judge_counts("subscription_messages", -0.7, -0.3),
    ),
    Claim("VIII", "Dynamic routing delays less than static", ALL_BURSTS, judge_less("delay_ms_mean", "snr")),
    Claim(
        "VIII", "Dynamic routing delays less than TID (static here)", ALL_BURSTS,
        judge_less("delay_ms_mean", "tid"),
    ),
    Claim("VIII", "Dynamic routing is stable before static", ALL_BURSTS, judge_less("drain_s", "snr")),
    Claim(
        "VIII", "Queues at the host are less loaded than in static", ALL_BURSTS,
        judge_less("queue_measure_mean", "snr"),
    ),
    Claim("VIII", "0.3 % more messages than static", "0 to 1 % more", judge_messages("snr", 0.0, EQUAL_WITHIN)),
    Claim(
        "VIII", "58.6 % fewer messages than TID (static here)", "50 to 70 % fewer",
        judge_messages("tid", -0.7, -0.5),
    ),
)  # fmt: skip
OUR_CLAIMS = (
    Claim("ours", "CE + Q > tau drains a burst before CE * Q > tau, at no more messages",
          "draw by draw at the fastest burst, with either sender", judge_predicate),
)  # fmt: skip


def claims_document(run: dict[str, Any], figures: Sequence[Figure]) -> str:
    """Return the tables of claims as Markdown."""
    measured = Measured(figures)
    head = f"Size {run['settings']['size']}, seed {run['seed']}."
    return "\n".join([head, "", *claim_rows((*PAPER_CLAIMS, *OUR_CLAIMS), measured), ""])


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables of a file of figures, or replace those in a README; end with code 2 when that cannot be."""
    return put_claims(PROGRAM, "regraft reproduce octopia", claims_document, arguments)


if __name__ == "__main__":
    sys.exit(main())
