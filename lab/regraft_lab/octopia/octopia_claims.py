"""The claims of Shafique's evaluation and ours, and their table.

In: figures. Out: a verdict with its evidence for each claim, Markdown. Running the evaluation does not belong here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from regraft.api.programs import Figure
from regraft_lab.claim_evidence import Claim, Judgement, Measured, Value, undecided, verdict
from regraft_lab.claims_block import claim_rows, put_claims, summary_rows
from regraft_lab.judge_size import SIZE_TEST, Size, judge_all
from regraft_lab.octopia.octopia_tasks import BURSTS_PER_MIN, OURS, PACES, PAPERS, RULE_SENDER, RULE_WORKLOAD

PROGRAM = "regraft_lab.octopia.octopia_claims"
BURSTS = [workload for workload, per_min in BURSTS_PER_MIN.items() if per_min]
EXACT_93 = Size(0.93, within=0.005)  # Computed, not drawn.
IN_ALL_BURSTS = f"{SIZE_TEST}, in all bursts"


def judge_counts(
    name: str, size: Size, routings: Sequence[str] = ("octopia", "padres"), *, is_more: bool = False, **where: Value
) -> Callable[[Measured], Judgement]:
    """Return the judge of a figure of the first routing: so much less than that of the second, or so much more."""

    def judge(measured: Measured) -> Judgement:
        one, other = (measured.value(name, routing=routing, **where) for routing in routings)
        if one is None or other is None:
            return undecided()
        change = one / other - 1
        return Judgement(size.judge(change if is_more else -change), f"{one:.1f} against {other:.1f}: {change:+.1%}")

    return judge


def judge_srt(measured: Measured) -> Judgement:
    """Judge: tables of advertisements are 93 % smaller."""
    cut = measured.value("srt_cut", routing="octopia")
    return undecided() if cut is None else Judgement(EXACT_93.judge(cut), f"{cut:.1%}")


def judge_less(name: str, other: str, bursts: Sequence[str] = BURSTS) -> Callable[[Measured], Judgement]:
    """Return the judge of "IDR has less" of a figure than another routing, in all bursts, for any sender."""

    def judge(measured: Measured) -> Judgement:
        readings = [
            (setting, idr, than, saved)
            for setting, where, idr, than in _pairs(measured, name, other, bursts)
            if (saved := measured.interval(f"{name}_saved", routing=other, **where)) is not None
        ]
        if not readings:
            return undecided()
        return verdict(
            all(saved.low > 0 for _, _, _, saved in readings),
            any(saved.high <= 0 for _, _, _, saved in readings),
            "; ".join(
                f"{setting}: {idr:.1f} against {than:.1f}, less {saved}" for setting, idr, than, saved in readings
            ),
        )

    return judge


def judge_share_saved(name: str, other: str, shares: Mapping[str, float]) -> Callable[[Measured], Judgement]:
    """Return the judge of IDR's saving in a figure, by burst: the paper's shares."""

    def judge(measured: Measured) -> Judgement:
        readings = [
            (setting, 1 - idr / than, Size(shares[str(where["workload"])]))
            for setting, where, idr, than in _pairs(measured, name, other)
            if where["workload"] in shares and than
        ]
        if not readings:
            return undecided()
        evidence = ", ".join(f"{setting}: {-saved:+.1%}" for setting, saved, _ in readings)
        return Judgement(judge_all([size.judge(saved) for _, saved, size in readings]), evidence)

    return judge


def judge_under_1s(measured: Measured) -> Judgement:
    """Judge: most notifications arrive within a second with dynamic routing, fewest with static TID.

    Runs in which all routings deliver all notifications within a second do not count.
    """
    readings = []
    for sender in PACES:
        for workload in ("burst_100k", "quotes_100k"):
            where: dict[str, Value] = {"workload": workload, "sender": sender, "rule": "product"}
            shares = [measured.value("under_1s_share", routing=routing, **where) for routing in ("idr", "snr", "tid")]
            known = [share for share in shares if share is not None]
            if len(known) == len(shares) and min(known) < 1:
                readings.append((f"{workload} by {sender}", known))
    if not readings:
        return undecided()
    holds = all(idr >= snr >= tid and idr > tid for _, (idr, snr, tid) in readings)
    evidence = "; ".join(f"{setting}: {' / '.join(f'{share:.1%}' for share in shares)}" for setting, shares in readings)
    return verdict(holds, not holds, evidence)


def judge_more_bursting(measured: Measured) -> Judgement:
    """Judge: dynamic routing saves a smaller share of the delay with two bursting publishers than with one, with three
    an even smaller one.
    """
    readings = []
    for sender in PACES:
        saved = []
        for workload in ("burst_100k", "burst_100k_of_2", "burst_100k_of_3"):
            where: dict[str, Value] = {"workload": workload, "sender": sender, "rule": "product"}
            idr, snr = (measured.value("delay_ms_mean", routing=routing, **where) for routing in ("idr", "snr"))
            saved += [] if idr is None or not snr else [1 - idr / snr]
        readings += [(sender, saved)] if len(saved) == 3 else []
    if not readings:
        return undecided()
    falls = [one > two > three for _, (one, two, three) in readings]
    evidence = "; ".join(f"by {sender}: {', '.join(f'{share:.1%}' for share in saved)}" for sender, saved in readings)
    return verdict(all(falls), not all(falls), evidence)


def judge_slower_bursts(measured: Measured) -> Judgement:
    """Judge: dynamic routing saves a smaller share of the delay the slower the burst."""
    readings = []
    for sender in PACES:
        saved = [
            1 - idr / snr
            for _, where, idr, snr in _pairs(measured, "delay_ms_mean", "snr", ("burst_100k", "burst_80k", "burst_60k"))
            if where["sender"] == sender and snr
        ]
        readings += [(sender, saved)] if len(saved) == 3 else []
    if not readings:
        return undecided()
    falls = [fast > middle > slow for _, (fast, middle, slow) in readings]
    evidence = "; ".join(f"by {sender}: {', '.join(f'{share:.1%}' for share in saved)}" for sender, saved in readings)
    return verdict(all(falls), not all(falls), evidence)


def judge_messages(other: str, size: Size, *, is_more: bool = False) -> Callable[[Measured], Judgement]:
    """Return the judge of IDR's messages in all bursts: so much fewer than the other routing's, or so much more."""

    def judge(measured: Measured) -> Judgement:
        pairs = _pairs(measured, "messages", other)
        if not pairs:
            return undecided()
        more = [(setting, idr / than - 1) for setting, _, idr, than in pairs]
        effects = [share if is_more else -share for _, share in more]
        return Judgement(size.judge_settings(effects), ", ".join(f"{setting}: {share:+.1%}" for setting, share in more))

    return judge


def judge_predicate(measured: Measured) -> Judgement:
    """Judge: another predicate drains the burst earlier without more messages."""
    where: dict[str, Value] = {"routing": "idr", "workload": RULE_WORKLOAD, "sender": RULE_SENDER, "compared": "rules"}
    ours, paper = (measured.value("drain_s", rule=rule, **where) for rule in (OURS, PAPERS))
    # Savings are those of the paper's predicate: negative if the other one is better.
    drain, messages = (measured.interval(f"{name}_saved", rule=OURS, **where) for name in ("drain_s", "messages"))
    if ours is None or paper is None or drain is None or messages is None:
        return undecided()
    no_more = messages.mean <= 0
    return verdict(
        drain.high < 0 and no_more,
        drain.mean >= 0 or not no_more,
        f"{ours:.3f} against {paper:.3f} s, difference {drain}; of messages {messages}",
    )


def _pairs(
    measured: Measured, name: str, other: str, bursts: Sequence[str] = BURSTS
) -> list[tuple[str, dict[str, Value], float, float]]:
    pairs = []
    for sender in PACES:
        for workload in bursts:
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
        judge_counts("advertisement_messages", Size(0.989, within=0.005)),
    ),
    Claim(
        "VIII, Fig. 9a", "Advertisements take 63.5 % less time", f"{SIZE_TEST}, over links of equal length",
        judge_counts("advertisement_delay_ms", Size(0.635), links="equal"),
    ),
    Claim(
        "VIII, Fig. 9a", "Advertisements take 63.5 % less time", f"{SIZE_TEST}, over PlanetLab's links",
        judge_counts("advertisement_delay_ms", Size(0.635), links="planetlab"),
    ),
    Claim(
        "VIII, Fig. 11b", "Tables of subscriptions have 33 % more entries", SIZE_TEST,
        judge_counts("subscription_entries", Size(0.33), is_more=True),
    ),
    Claim(
        "VIII, Fig. 11a", "Subscriptions take 33 % less time",
        f"{SIZE_TEST}, over PlanetLab's, without matching",
        judge_counts("subscription_delay_ms", Size(0.33), links="planetlab"),
    ),
    Claim(
        "VIII, Fig. 11c", "PADRES has 32.7 % fewer messages of subscriptions",
        f"{SIZE_TEST}; PADRES's figure first",
        judge_counts("subscription_messages", Size(0.327), ("padres", "octopia")),
    ),
    Claim("VIII", "Dynamic routing delays less than static", ALL_BURSTS, judge_less("delay_ms_mean", "snr")),
    Claim("VIII", "Dynamic routing delays less than TID, static", ALL_BURSTS, judge_less("delay_ms_mean", "tid")),
    Claim(
        "VIII", "Dynamic routing delays less than TID, dynamic", ALL_BURSTS, judge_less("delay_ms_mean", "tid_dynamic")
    ),
    Claim("VIII", "Dynamic routing is stable before static", ALL_BURSTS, judge_less("drain_s", "snr")),
    Claim(
        "VIII", "Queues at the host are less loaded than in static", ALL_BURSTS,
        judge_less("queue_measure_mean", "snr"),
    ),
    Claim(
        "VIII", "Delays are 17.5, 17.7 and 21 % less than in static at 100K, 80K and 60K", IN_ALL_BURSTS,
        judge_share_saved(
            "delay_ms_mean", "snr", {"burst_100k": 0.175, "burst_80k": 0.177, "burst_60k": 0.21}
        ),
    ),
    Claim(
        "VIII", "Queues at the host are 61 % less loaded than in static", IN_ALL_BURSTS,
        judge_share_saved("queue_measure_mean", "snr", dict.fromkeys(BURSTS, 0.61)),
    ),
    Claim(
        "VIII", "Queues at the host are 73 % less loaded than in TID, static", IN_ALL_BURSTS,
        judge_share_saved("queue_measure_mean", "tid", dict.fromkeys(BURSTS, 0.73)),
    ),
    Claim(
        "VIII", "Queues at the host are 73 % less loaded than in TID, dynamic", IN_ALL_BURSTS,
        judge_share_saved("queue_measure_mean", "tid_dynamic", dict.fromkeys(BURSTS, 0.73)),
    ),
    Claim(
        "VIII", "53.8, 44.1 and 31 % under 1 s in dynamic, static and TID", "in this order, TID static, drawn and real",
        judge_under_1s,
    ),
    Claim(
        "VIII", "What dynamic routing gains on static falls with more bursting publishers", "1, 2, 3 at 100K",
        judge_more_bursting,
    ),
    Claim(
        "VIII", "What dynamic routing gains on static falls with slower bursts", "100K, 80K, 60K; with either sender",
        judge_slower_bursts,
    ),
    Claim(
        "VIII", "0.3 % more messages than static", "give or take 0.01, in all bursts",
        judge_messages("snr", Size(0.003, within=0.01), is_more=True),
    ),
    Claim("VIII", "58.6 % fewer messages than TID, static", IN_ALL_BURSTS, judge_messages("tid", Size(0.586))),
    Claim("VIII", "58.6 % fewer messages than TID, dynamic", IN_ALL_BURSTS, judge_messages("tid_dynamic", Size(0.586))),
)  # fmt: skip
OUR_CLAIMS = (
    Claim("ours", "On real quotes and PlanetLab's delays dynamic routing delays less than static",
          "draw by draw, the interval of the difference above 0, with either sender",
          judge_less("delay_ms_mean", "snr", ("quotes_100k",))),
    Claim("ours", "CE + Q > tau drains a burst before CE * Q > tau, at no more messages",
          "draw by draw at the fastest burst, by broker, on more draws", judge_predicate),
)  # fmt: skip


def claims_document(run: dict[str, Any], figures: Sequence[Figure]) -> str:
    """Return the table of claims as Markdown."""
    return "\n".join([_head(run), "", *claim_rows((*PAPER_CLAIMS, *OUR_CLAIMS), Measured(figures)), ""])


def readme_document(run: dict[str, Any], figures: Sequence[Figure]) -> str:
    """Return the summary of the claims."""
    claims = {"Claims of the paper": PAPER_CLAIMS, "Ours": OUR_CLAIMS}
    return "\n".join([_head(run), "", *summary_rows(claims, Measured(figures)), ""])


def _head(run: dict[str, Any]) -> str:
    return f"Size {run['settings']['size']}, seed {run['seed']}."


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables of a file of figures, or replace those in a README; exit with 2 if a file is unusable."""
    return put_claims(PROGRAM, "regraft-lab octopia", claims_document, readme_document, arguments)


if __name__ == "__main__":
    sys.exit(main())
