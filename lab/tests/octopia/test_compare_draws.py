"""Routings are compared draw by draw, so that differences between draws do not hide those between routings."""

from __future__ import annotations

from dataclasses import replace

from regraft.api.programs import Figure
from regraft_lab.claim_evidence import Measured, Verdict
from regraft_lab.judge_size import Size
from regraft_lab.octopia.compare_draws import draw_figures
from regraft_lab.octopia.octopia_claims import (
    BURSTS,
    judge_counts,
    judge_less,
    judge_messages,
    judge_predicate,
    judge_slower_bursts,
)
from regraft_lab.octopia.octopia_tasks import PACES, TaskResult


def runs(name: str, values: dict[str, list[float]], workload: str, sender: str, rule: str = "product") -> list[Figure]:
    """Return the samples of one draw after the other, by routing."""
    where = {"workload": workload, "sender": sender, "rule": rule}
    return [Figure(name, {"routing": one, **where}, value, "ms") for one in values for value in values[one]]


def results(name: str, values: dict[str, list[float]]) -> list[TaskResult]:
    """Return the same samples under all bursts with both senders."""
    return [TaskResult(runs(name, values, workload, sender)) for workload in BURSTS for sender in PACES]


def test_a_small_gain_in_every_draw_counts_though_draws_differ_by_more() -> None:
    found = Measured(draw_figures(results("delay_ms_mean", {"idr": [10, 200, 500], "snr": [12, 202.5, 501.5]})))
    assert judge_less("delay_ms_mean", "snr")(found).verdict is Verdict.REPRODUCED


def test_a_gain_in_some_draws_decides_nothing_and_a_loss_in_all_refutes() -> None:
    mixed = Measured(draw_figures(results("delay_ms_mean", {"idr": [10, 200, 500], "snr": [12, 190, 505]})))
    worse = Measured(draw_figures(results("delay_ms_mean", {"idr": [10, 200, 500], "tid": [8, 198.5, 497.5]})))
    assert judge_less("delay_ms_mean", "snr")(mixed).verdict is Verdict.UNDECIDED
    assert judge_less("delay_ms_mean", "tid")(worse).verdict is Verdict.REFUTED


def test_a_predicate_that_drains_earlier_with_more_messages_is_no_better() -> None:
    where = {"routing": "idr", "workload": "burst_100k", "sender": "broker", "compared": "rules"}
    samples = [
        Figure(name, {**where, "rule": rule}, value, "")
        for rule, drains, messages in (("product", [3.0, 5, 9], [70.0, 80, 90]), ("sum", [2.0, 4, 8.1], [71.0, 81, 91]))
        for name, values in (("drain_s", drains), ("messages", messages))
        for value in values
    ]
    assert judge_predicate(Measured(draw_figures([TaskResult(samples)]))).verdict is Verdict.REFUTED
    fewer = [replace(one, value=-one.value) if one.name == "messages" else one for one in samples]
    assert judge_predicate(Measured(draw_figures([TaskResult(fewer)]))).verdict is Verdict.REPRODUCED


def counts(name: str, octopia: float, padres: float) -> Measured:
    return Measured(
        [Figure(name, {"routing": one}, value, "") for one, value in (("octopia", octopia), ("padres", padres))]
    )


def test_counts_are_compared_in_the_direction_of_the_claim() -> None:
    """81 % less exceeds 63.5 % less, 52 % more exceeds 33 % more, and 47 % more refutes 33 % less."""
    delay = counts("delay", 1.0, 5.3)
    assert judge_counts("delay", Size(0.635))(delay).verdict is Verdict.EXCEEDED
    entries = counts("entries", 14.0, 9.2)
    assert judge_counts("entries", Size(0.33), is_more=True)(entries).verdict is Verdict.EXCEEDED
    assert judge_counts("entries", Size(0.33))(entries).verdict is Verdict.REFUTED
    messages = counts("messages", 13.0, 8.2)
    assert judge_counts("messages", Size(0.327), ("padres", "octopia"))(messages).verdict is Verdict.REPRODUCED


def test_next_to_no_more_messages_are_the_claimed_few() -> None:
    """0.4 % fewer are within one hundredth of 0.3 % more; 2 % more are not."""
    judge = judge_messages("snr", Size(0.003, within=0.01), is_more=True)
    fewer = Measured(draw_figures(results("messages", {"idr": [996.0], "snr": [1000.0]})))
    more = Measured(draw_figures(results("messages", {"idr": [1020.0], "snr": [1000.0]})))
    assert judge(fewer).verdict is Verdict.REPRODUCED
    assert judge(more).verdict is Verdict.EXCEEDED


def test_the_gain_must_fall_with_the_pace_by_either_sender() -> None:
    """4.3, 4.1, 3.5 % falls; 95, 98, 34 % does not."""
    for slower, expected in ((98.0, Verdict.REFUTED), (50.0, Verdict.REPRODUCED)):
        figures: list[Figure] = []
        for sender, gains in (("link", (4.3, 4.1, 3.5)), ("broker", (95.0, slower, 34.4))):
            for workload, gain in zip(("burst_100k", "burst_80k", "burst_60k"), gains, strict=True):
                figures += runs("delay_ms_mean", {"idr": [100 - gain], "snr": [100.0]}, workload, sender)
        assert judge_slower_bursts(Measured(figures)).verdict is expected


def test_means_are_over_draws_and_nothing_is_compared_with_itself() -> None:
    figures = draw_figures(results("messages", {"idr": [10, 20], "snr": [20, 40]}))
    means = {str(one.where["routing"]): one.value for one in figures if one.name == "messages"}
    saved = {str(one.where["routing"]): one.value for one in figures if one.name == "messages_saved"}
    assert means == {"idr": 15, "snr": 30}
    assert saved == {"snr": 15}
