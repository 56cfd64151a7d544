from pathlib import Path

import pytest

from regraft.api.programs import Figure, write_figures
from regraft_lab.claim_evidence import Measured, Verdict
from regraft_lab.claims_block import END, begin_marker, with_block
from regraft_lab.psoop.claims_table import PROGRAM, claims_document, main
from regraft_lab.psoop.judge_claims import (
    PAPER_CLAIMS,
    judge_all_reduce,
    judge_broadcasts,
    judge_ci_best,
    judge_ci_every_alpha,
    judge_eta_four,
    judge_execution,
    judge_intervals,
    judge_lmst_by_alpha,
    judge_recovery,
    judge_workload,
)
from regraft_lab.psoop.judge_ours import OUR_CLAIMS, judge_long_memory, judge_short_memory

Where = dict[str, str | int | float]
BEGIN = begin_marker(PROGRAM)
FIG4: Where = {"figure": "fig4", "costs": "transit_stub", "memory": "cache", "period": "settled", "topologies": 25}


def interval(name: str, mean: float, half: float, **where: str | int | float) -> list[Figure]:
    """Return a mean and its interval as two figures."""
    return [Figure(name, dict(where), mean, "1"), Figure(f"{name}_ci95", dict(where), half, "1")]


def settled_costs(lmst: float, lmit: float, ci: float, half: float = 0.01) -> Measured:
    """Return the settled costs of the three heuristics."""
    costs = {"swap_links_lmst": lmst, "swap_links_lmit": lmit, "swap_links_ci": ci}
    return Measured(
        [each for name, cost in costs.items() for each in interval("cost_vs_random", cost, half, **FIG4, planner=name)]
    )


@pytest.mark.parametrize("claim", [*PAPER_CLAIMS, *OUR_CLAIMS], ids=lambda claim: claim.text)
def test_without_figures_nothing_can_be_decided(claim: object) -> None:
    """An experiment that was not run refutes nothing."""
    assert claim.judge(Measured([])).verdict is Verdict.UNDECIDED  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("costs", "half", "verdict"),
    [
        ((0.6, 0.9, 0.5), 0.01, Verdict.REPRODUCED),
        ((0.6, 1.1, 0.5), 0.01, Verdict.REFUTED),
        ((0.6, 0.99, 0.5), 0.05, Verdict.UNDECIDED),
    ],
)
def test_all_must_save_for_certain(costs: tuple[float, float, float], half: float, verdict: Verdict) -> None:
    """One heuristic above the random tree refutes that all reduce costs; if one may be above it is undecided."""
    assert judge_all_reduce("cache")(settled_costs(*costs, half)).verdict is verdict
    assert judge_all_reduce("interval")(settled_costs(*costs, half)).verdict is Verdict.UNDECIDED  # Another reading.


def above_ci(name: str, lmst: float, lmit: float, half: float, **where: str | int | float) -> list[Figure]:
    """Return how much more the other two cost than CI."""
    found = []
    for planner, above in (("swap_links_lmst", lmst), ("swap_links_lmit", lmit)):
        found += interval(name, above, half, **where, planner=planner)
    return found


@pytest.mark.parametrize(
    ("lmst", "half", "verdict"),
    [(0.1, 0.05, Verdict.REPRODUCED), (-0.1, 0.05, Verdict.REFUTED), (0.01, 0.05, Verdict.UNDECIDED)],
)
def test_ci_is_best_only_when_both_others_cost_more(lmst: float, half: float, verdict: Verdict) -> None:
    """Differences are taken network by network, so their own interval decides."""
    figures = above_ci(
        "cost_above_ci", lmst, 0.3, half, figure="fig4", costs="transit_stub", memory="cache", period="all"
    )
    assert judge_ci_best(Measured(figures)).verdict is verdict


def test_few_networks_do_not_refute_the_paper_s_interval() -> None:
    """With 4 networks intervals are wide anyway."""

    def judged(topologies: int) -> Verdict:
        figures = interval("cost_vs_random", 0.5, 0.1, **{**FIG4, "topologies": topologies}, planner="swap_links_ci")
        for planner in ("random_tree", "swap_links_lmst", "swap_links_lmit", "swap_links_ci"):
            figures.append(Figure("cost_interval_share", {**FIG4, "planner": planner}, 0.08, "1"))
        return judge_intervals(Measured(figures)).verdict

    assert judged(4) is Verdict.UNDECIDED
    assert judged(25) is Verdict.REFUTED


def by_eta(name: str, values: dict[int, float], half: float = 0.001) -> Measured:
    """Return a figure of CI for each eta."""
    where: Where = {"figure": "fig5", "planner": "swap_links_ci", "period": "all"}
    return Measured([each for eta, mean in values.items() for each in interval(name, mean, half, **where, eta=eta)])


def test_eta_four_is_best_when_every_other_costs_more() -> None:
    """It is refuted as soon as one is certainly cheaper."""
    assert judge_eta_four(by_eta("cost_above_default_eta", {3: 0.02, 8: 0.1})).verdict is Verdict.REPRODUCED
    assert judge_eta_four(by_eta("cost_above_default_eta", {3: 0.02, 5: -0.02})).verdict is Verdict.REFUTED
    assert judge_eta_four(by_eta("cost_above_default_eta", {3: 0.02, 5: -0.02}, 0.05)).verdict is Verdict.UNDECIDED


def test_broadcasts_and_exchanges_are_judged_over_all_eta() -> None:
    """Broadcasts must rise with eta; exchanges must stay below 3 % for every eta."""
    assert judge_broadcasts(by_eta("broadcast_vs_random", {2: 0.01, 4: 0.03, 8: 0.06})).verdict is Verdict.REPRODUCED
    assert judge_broadcasts(by_eta("broadcast_vs_random", {2: 0.01, 4: 0.03, 8: 0.02})).verdict is Verdict.REFUTED
    assert judge_execution(by_eta("execution_cost_share", {2: 0.01, 8: 0.029})).verdict is Verdict.REPRODUCED
    assert judge_execution(by_eta("execution_cost_share", {2: 0.01, 8: 0.04})).verdict is Verdict.REFUTED


def test_a_short_run_decides_nothing_of_a_long_one() -> None:
    """The earlier a run ends, the more its initial exchanges weigh."""
    claim = next(claim for claim in PAPER_CLAIMS if claim.judge is judge_execution)
    shares = interval("execution_cost_share", 0.04, 0.001, figure="fig5", planner="swap_links_ci", eta=8)

    def judged(ticks: int) -> Verdict:
        length = Figure("cost_vs_random", {"figure": "fig5", "ticks": ticks}, 0.5, "1")
        return claim.judged(Measured([*shares, length])).verdict

    assert judged(5_000) is Verdict.UNDECIDED
    assert judged(25_000) is Verdict.REFUTED


def test_recovery_is_judged_by_the_slowest() -> None:
    """One heuristic that needs longer refutes that all are fast."""

    def judged(ticks: float) -> Verdict:
        figures = [
            Figure("recovery_ticks", {**FIG4, "planner": planner, "change_ticks": 25_000}, value, "ticks")
            for planner, value in (("swap_links_lmst", 1_000.0), ("swap_links_lmit", 2_000.0), ("swap_links_ci", ticks))
        ]
        return judge_recovery(Measured(figures)).verdict

    assert judged(5_000) is Verdict.REPRODUCED
    assert judged(6_000) is Verdict.REFUTED


def test_recovery_of_a_heuristic_that_saves_nothing_is_noise() -> None:
    """lMIT costs as much as the random tree, so that its 14,000 ticks decide nothing."""
    figures = [
        Figure("recovery_ticks", {**FIG4, "planner": planner, "change_ticks": 25_000}, value, "ticks")
        for planner, value in (("swap_links_lmst", 3_000.0), ("swap_links_lmit", 14_000.0), ("swap_links_ci", 4_000.0))
    ]
    for planner, cost in (("swap_links_lmst", 0.78), ("swap_links_lmit", 1.07), ("swap_links_ci", 0.64)):
        figures += interval("cost_vs_random", cost, 0.03, **FIG4, planner=planner)
    found = judge_recovery(Measured(figures))
    assert found.verdict is Verdict.REPRODUCED
    assert "lMIT at most 14,000 ticks (not counted" in found.evidence


def by_alpha(name: str, planner: str, values: dict[float, float], half: float = 0.005) -> list[Figure]:
    """Return a figure of one heuristic for each alpha."""
    where: Where = {"figure": "fig6", "planner": planner, "period": "all"}
    return [each for alpha, mean in values.items() for each in interval(name, mean, half, **where, alpha=alpha)]


def test_lmst_must_worsen_with_alpha() -> None:
    """Rising throughout, and certainly higher at the end."""
    assert (
        judge_lmst_by_alpha(
            Measured(by_alpha("cost_vs_random", "swap_links_lmst", {0.0: 0.4, 0.5: 0.6, 1.0: 1.0}))
        ).verdict
        is Verdict.REPRODUCED
    )
    assert (
        judge_lmst_by_alpha(
            Measured(by_alpha("cost_vs_random", "swap_links_lmst", {0.0: 0.8, 0.5: 0.6, 1.0: 0.5}))
        ).verdict
        is Verdict.REFUTED
    )


def test_ci_must_be_equal_or_better_for_every_alpha() -> None:
    """Refuted by one alpha at which another is certainly cheaper, and the evidence names it."""
    equal = by_alpha("cost_above_ci", "swap_links_lmst", {0.0: 0.0, 1.0: 0.4}) + by_alpha(
        "cost_above_ci", "swap_links_lmit", {0.0: 0.3}
    )
    assert judge_ci_every_alpha(Measured(equal)).verdict is Verdict.REPRODUCED
    worse = by_alpha("cost_above_ci", "swap_links_lmst", {0.0: -0.05, 1.0: 0.4})
    judgement = judge_ci_every_alpha(Measured(worse))
    assert judgement.verdict is Verdict.REFUTED
    assert "lMST at 0" in judgement.evidence


def test_workload_is_judged_by_its_count() -> None:
    """55.6 is approximately 50, 100 is not."""
    assert judge_workload(Measured(interval("notifications_per_subscription", 54.0, 0.1, figure="fig4"))).verdict is (
        Verdict.REPRODUCED
    )
    assert judge_workload(Measured(interval("notifications_per_subscription", 100.0, 0.1, figure="fig4"))).verdict is (
        Verdict.REFUTED
    )


def test_memory_claims_are_judged_by_their_own_lifetimes() -> None:
    """CI being worst at one lifetime and best from four on are independent claims."""
    figures = []
    for lifetimes, above in ((1.0, -0.1), (4.0, 0.1), (8.0, 0.2)):
        where: Where = {"figure": "figh", "period": "settled", "costs": "uniform", "lifetimes": lifetimes}
        figures += above_ci("forwarding_above_ci", above, above, 0.01, **where)
    assert judge_short_memory(Measured(figures)).verdict is Verdict.REPRODUCED
    assert judge_long_memory(Measured(figures)).verdict is Verdict.REPRODUCED
    figures += above_ci(
        "forwarding_above_ci", -0.1, 0.1, 0.01, figure="figh", period="settled", costs="transit_stub", lifetimes=16.0
    )
    assert judge_long_memory(Measured(figures)).verdict is Verdict.REFUTED


RUN = {"settings": {"size": "quick", "topologies": {"fig4": 2}}, "seed": 1, "commit": "0123456789abcdef"}


def test_the_readme_takes_the_tables_between_its_markers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The text around the markers stays, and repeating the command changes nothing."""
    figures, readme = tmp_path / "figures.json", tmp_path / "README.md"
    write_figures(figures, RUN, interval("notifications_per_subscription", 54.0, 0.1, figure="fig4"))
    readme.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n", encoding="utf-8")
    for _ in range(2):
        assert main(["--json", str(figures), "--readme", str(readme)]) == 0
    text = readme.read_text(encoding="utf-8")
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    assert "\nold\n" not in text
    assert "Claims of the paper: 1 reproduced, " in text
    claims = (tmp_path / "claims.md").read_text(encoding="utf-8")
    assert "| **reproduced** | 54.0 |" in claims
    assert main(["--json", str(figures)]) == 0
    assert capsys.readouterr().out.strip() in claims


def test_a_wrong_file_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The message names the file and what to give instead."""
    wrong = tmp_path / "wrong.json"
    wrong.write_text("{}", encoding="utf-8")
    assert main(["--json", str(wrong)]) == 2
    assert "regraft-lab psoop" in capsys.readouterr().err
    with pytest.raises(ValueError, match="no lines"):
        with_block("no markers", "block", BEGIN)


def test_the_document_has_every_claim() -> None:
    """Undecided claims are in the table, too."""
    text = claims_document(RUN, [])
    assert all(claim.text in text for claim in (*PAPER_CLAIMS, *OUR_CLAIMS))
