"""Verdicts depend on the figures alone; tables, README and drawings show the file's figures."""

from pathlib import Path

import pytest

import regraft_lab.dynatops
from regraft.api.programs import Figure, write_figures
from regraft_lab.claim_evidence import Claim, Judgement, Measured, Verdict
from regraft_lab.claims_block import END, begin_marker
from regraft_lab.dynatops.draw_dynatops import draw_dynatops
from regraft_lab.dynatops.dynatops_claims import PAPER_CLAIMS
from regraft_lab.dynatops.judge_dynatops_ours import (
    OUR_CLAIMS,
    judge_changes_cut,
    judge_cut_ratio,
    judge_limits,
    judge_net_benefit,
    judge_protocol_total,
)
from regraft_lab.dynatops.judge_location import (
    judge_handovers,
    judge_imbalance,
    judge_larger_clusters,
    judge_u_shape,
)
from regraft_lab.dynatops.judge_poisson import (
    judge_all_patterns,
    judge_cheaper_reconfiguration,
    judge_connected_grows,
    judge_connected_patterns,
    judge_less_sensitive,
    judge_saved,
)
from regraft_lab.dynatops.judge_readings import DYNATOPS, MULTIMODAL, TCO, over_readings, size_over_readings
from regraft_lab.dynatops.judge_reassignment import (
    PERIODS,
    judge_degradation,
    judge_longer_periods,
    judge_times,
)
from regraft_lab.dynatops.tabulate_dynatops import PROGRAM, main
from regraft_lab.judge_size import Size

CLAIMS = Path(regraft_lab.dynatops.__file__).with_name("claims.md")
Where = dict[str, str | int | float]


def figure(name: str, value: float, where: Where | None = None, **more: str | int | float) -> Figure:
    """Return a figure with its setting."""
    return Figure(name, {**(where or {}), **more}, value, "1")


def at_rate(rate: float) -> Where:
    """Return the headline setting at another rate."""
    return {**MULTIMODAL, "changes_per_user_h": rate}


@pytest.mark.parametrize("claim", [*PAPER_CLAIMS, *OUR_CLAIMS], ids=lambda claim: claim.text)
def test_without_figures_nothing_can_be_decided(claim: Claim) -> None:
    """An experiment that was not run refutes nothing."""
    assert claim.judged(Measured([])).verdict is Verdict.UNDECIDED


@pytest.mark.parametrize("claim", [*PAPER_CLAIMS, *OUR_CLAIMS], ids=lambda claim: claim.text)
def test_every_claim_is_listed_as_it_is_judged(claim: Claim) -> None:
    """A command writes the file next to the README; a claim changed since then would not be in it."""
    text = CLAIMS.read_text(encoding="utf-8")
    assert f"| {claim.place} | {claim.text} | {claim.test} | **" in text


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"a": 0.5, "b": 0.4}, Verdict.REPRODUCED),
        ({"a": 0.5, "b": 0.1}, Verdict.UNDECIDED),
        ({"a": 0.2, "b": 0.1}, Verdict.REFUTED),
        ({"a": 0.2}, Verdict.REFUTED),
    ],
)
def test_a_claim_must_hold_in_every_reading(values: dict[str, float], expected: Verdict) -> None:
    """If it holds in no reading it is refuted, if only in some it is undecided."""
    assert over_readings(values, 0.3).verdict is expected


def test_a_size_is_judged_in_every_reading() -> None:
    """With the evidence of any other claim."""
    found = size_over_readings({"a": 0.5, "b": 0.4}, Size(0.2))
    assert found == Judgement(Verdict.EXCEEDED, "40% (b) to 50% (a); holds in 2 of 2 readings")


def test_readings_are_reported_with_where_it_holds() -> None:
    """The worst and the best value, and how many hold."""
    assert over_readings({"a": 0.5, "b": 0.1}, 0.3).evidence == "10% (b) to 50% (a); holds in 1 of 2 readings"


@pytest.mark.parametrize(("against_tco", "expected"), [(0.6, Verdict.REPRODUCED), (0.2, Verdict.SMALLER)])
def test_the_better_of_bayeux_and_tco_counts(against_tco: float, expected: Verdict) -> None:
    """70 % less than Bayeux is not enough if TCO has as few."""
    figures = [figure("delay", 3.0, {**MULTIMODAL, **DYNATOPS})]
    for base in (16, 4):
        figures.append(
            figure("messages_cut", 0.7, {**MULTIMODAL, **DYNATOPS}, against=f"bayeux{base}", against_homes="static")
        )
    figures.append(
        figure("messages_cut", against_tco, {**MULTIMODAL, **DYNATOPS}, against="tco", against_homes="static")
    )
    assert judge_saved("messages", Size(0.5, is_least=True))(Measured(figures)).verdict is expected


@pytest.mark.parametrize(
    ("dynatops", "tco", "cheaper", "grows"),
    [
        ((10, 12), (100, 400), Verdict.REPRODUCED, Verdict.REPRODUCED),
        ((10, 90), (100, 150), Verdict.SMALLER, Verdict.REFUTED),
    ],
)
def test_reconfiguration_is_judged_at_the_highest_rate(
    dynatops: tuple[float, float], tco: tuple[float, float], cheaper: Verdict, grows: Verdict
) -> None:
    """12 of 400 is 97 % less, 90 of 150 only 40 %; a factor of 4 is dramatic, one of 1.5 is not."""
    figures = []
    for system, values in ((DYNATOPS, dynatops), (TCO, tco)):
        for rate, value in zip((0.025, 0.1), values, strict=True):
            figures.append(figure("reassignment_messages_per_h", value, {**at_rate(rate), **system}))
            figures.append(figure("delay", 3.0, {**at_rate(rate), **system}))
            figures.append(figure("moved_per_h", 0.1, {**at_rate(rate), **system}))
    found = Measured(figures)
    assert judge_cheaper_reconfiguration(found).verdict is cheaper
    assert judge_connected_grows(found).verdict is grows
    assert judge_less_sensitive(found).verdict is grows  # a factor of 1.2 against 4, of 9 against 1.5


@pytest.mark.parametrize(("zipf", "expected"), [(2.4, Verdict.REPRODUCED), (4.9, Verdict.REFUTED)])
def test_low_under_zipf_is_low_relative_to_the_others(zipf: float, expected: Verdict) -> None:
    """5 hops elsewhere."""
    delays = {"uniform": 5.0, "zipf": zipf, "multimodal": 5.1}
    figures = [figure("delay", value, {**MULTIMODAL, **TCO, "pattern": pattern}) for pattern, value in delays.items()]
    assert judge_connected_patterns(Measured(figures)).verdict is expected


def test_a_tie_is_not_an_advantage() -> None:
    """As many messages as the best of the others is not fewer."""
    figures = [
        figure(
            "messages_cut", 0.0, {**MULTIMODAL, **DYNATOPS, "pattern": pattern}, against=other, against_homes="static"
        )
        for pattern in ("uniform", "zipf", "multimodal")
        for other in ("bayeux16", "bayeux4", "tco")
    ]
    assert judge_all_patterns("messages")(Measured(figures)).verdict is Verdict.REFUTED


@pytest.mark.parametrize(
    ("by_cluster", "expected"),
    [
        ({1: 9, 5: 4, 50: 8}, Verdict.REPRODUCED),
        ({1: 9, 5: 4, 50: 2}, Verdict.REFUTED),
        ({1: 3, 5: 4, 50: 8}, Verdict.REFUTED),
    ],
)
def test_a_u_has_its_least_in_the_middle(by_cluster: dict[int, float], expected: Verdict) -> None:
    """At neither the smallest nor the largest c."""
    where: Where = {"model": "location", "grid": "8x8", "homes": "asks_home", "load_weight": 0.0}
    figures = [figure("user_management_per_h", value, where, cluster_brokers=c) for c, value in by_cluster.items()]
    assert judge_u_shape(Measured(figures)).verdict is expected


def test_handovers_hold_in_one_reading_and_not_in_the_other() -> None:
    """So the text does not decide it."""
    where: Where = {"model": "location", "grid": "8x8", "load_weight": 0.0, "cluster_brokers": 10}
    figures = [
        figure("handovers_cut", value, where, homes=homes) for homes, value in (("asks_home", 0.99), ("asks_near", 0.4))
    ]
    found = judge_handovers(Measured(figures))
    assert found.verdict is Verdict.UNDECIDED
    assert "holds in 1 of 2" in found.evidence


@pytest.mark.parametrize(("at_fifty", "expected"), [(30.0, Verdict.REPRODUCED), (18.0, Verdict.REFUTED)])
def test_imbalance_must_grow_with_the_cluster(at_fifty: float, expected: Verdict) -> None:
    """10 without placement, 20 in clusters of ten."""
    where: Where = {"model": "location", "grid": "8x8"}
    figures = [
        figure("load_std", 10.0, where, homes="located"),
        figure("load_std", 20.0, where, homes="asks_home", load_weight=0.0, cluster_brokers=10),
        figure("load_std", at_fifty, where, homes="asks_home", load_weight=0.0, cluster_brokers=50),
    ]
    assert judge_imbalance(Measured(figures)).verdict is expected


@pytest.mark.parametrize(
    ("cuts", "expected"), [((0.1, 0.2, 0.4), Verdict.REPRODUCED), ((0.1, 0.4, 0.2), Verdict.REFUTED)]
)
def test_an_improvement_that_reverses_does_not_grow(cuts: tuple[float, ...], expected: Verdict) -> None:
    """From one c to the next it may fall by at most 0.05."""
    where: Where = {
        "model": "location", "grid": "8x8", "homes": "asks_home", "load_weight": 0.0, "system": "ssbr",
        "period_h": 168.0, "events_per_user_h": 1.0, "against": "bayeux16", "against_homes": "located",
    }  # fmt: skip
    figures = [figure("messages_cut", cut, where, cluster_brokers=c) for c, cut in zip((1, 10, 50), cuts, strict=True)]
    assert judge_larger_clusters("messages")(Measured(figures)).verdict is expected


def test_longer_periods_are_judged_from_end_to_end() -> None:
    """Fewer at the longest than at the shortest period; 4 % more messages are slight, 10 % are not."""
    where = PERIODS["Poisson"]
    counts = [
        figure("reassignments_per_100h", value, where, period_h=h)
        for h, value in ((2.0, 8.0), (10.0, 9.0), (50.0, 2.0))
    ]
    assert judge_longer_periods("reassignments_per_100h")(Measured(counts)).verdict is Verdict.REPRODUCED
    for worse, expected in ((1.04, Verdict.REPRODUCED), (1.1, Verdict.REFUTED)):
        figures = [
            figure(name, value, where, period_h=h)
            for name in ("messages_per_notification",)
            for h, value in ((2.0, 100.0), (50.0, 100.0 * worse))
        ]
        assert judge_degradation(Measured(figures)).verdict is expected


@pytest.mark.parametrize(("spent_ms", "expected"), [(20.0, Verdict.REPRODUCED), (200.0, Verdict.REFUTED)])
def test_times_are_compared_with_the_papers(spent_ms: float, expected: Verdict) -> None:
    """184 ms at 100 brokers and 100 topics; the slower pattern counts."""
    figures = [
        figure("ssbr_ms", value, brokers=100, topics=100, pattern=pattern)
        for pattern, value in (("uniform 5%", 3.0), ("5 topics of one mode", spent_ms))
    ]
    assert judge_times(Measured(figures)).verdict is expected
    assert judge_limits("ssbr_ms", {(100, 100): 100.0})(Measured(figures)).verdict is expected


@pytest.mark.parametrize(("ours", "expected"), [(0.31, Verdict.REPRODUCED), (0.29, Verdict.REFUTED)])
def test_ours_must_cut_at_least_half_as_much_more(ours: float, expected: Verdict) -> None:
    """Against 0.2."""
    where: Where = {"brokers": 100, "topics": 100, "pattern": "uniform 5%"}
    figures = [figure("cut_ssbr", 0.2, where), figure("cut_assignment", ours, where)]
    assert judge_cut_ratio(Measured(figures)).verdict is expected
    prices = [
        figure("net_benefit_ssbr", 0.3, pattern="uniform 5%", events=30.0),
        figure("net_benefit_assignment", ours, pattern="uniform 5%", events=30.0),
    ]
    assert judge_net_benefit(Measured(prices)).verdict is expected


def test_small_clusters_do_not_count_among_ours() -> None:
    """The target applies to at least five brokers."""
    where: Where = {"model": "poisson", "pattern": "multimodal", "load_weight": 1.0}
    figures = [figure("subscription_changes_cut", cut, where, cluster_brokers=c) for c, cut in ((2, 0.1), (5, 0.9))]
    assert judge_changes_cut("multimodal")(Measured(figures)).verdict is Verdict.REPRODUCED


def test_one_ring_above_the_bound_is_enough_against_it() -> None:
    """With all moved it is within the bound, with two moved it is not."""
    figures = [
        figure(name, value, brokers=16, topics=20, moved=moved)
        for moved, sent, bound in ((2, 900.0, 200.0), (16, 900.0, 1500.0))
        for name, value in (("protocol_messages", sent), ("protocol_bound", bound))
    ]
    found = judge_protocol_total(Measured(figures))
    assert found.verdict is Verdict.REFUTED
    assert (
        found.evidence == "0.60 (16 brokers, 20 topics, 16 moved) to 4.50 (16 brokers, 20 topics, 2 moved) of the bound"
    )


def test_the_readme_block_is_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Only the text between the markers; without a README the tables are printed."""
    path, readme = tmp_path / "figures.json", tmp_path / "README.md"
    run = {"seed": 4, "commit": "0" * 40, "settings": {"size": "small", "draws": {"poisson": 2}, "data": "none"}}
    figures = [
        figure(name, value, {**MULTIMODAL, **TCO})
        for name, value in (("delay", 5.0), ("messages_per_notification", 90.0))
    ]
    write_figures(path, run, figures)
    readme.write_text(f"before\n{begin_marker(PROGRAM)}\nmade before\n{END}\nafter\n", encoding="utf-8")
    assert main(["--json", str(path), "--readme", str(readme)]) == 0
    text = readme.read_text(encoding="utf-8")
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "made before" not in text
    assert "| multimodal | – | – | – | 5.00 / 90.0 | – | – | – | – |" in text
    assert main(["--json", str(path)]) == 0
    assert "seed 4" in capsys.readouterr().out
    assert main(["--json", str(readme)]) == 2


def test_drawings_are_made_of_what_was_run() -> None:
    """With rates alone there is one drawing, byte-identical when repeated; without figures there is none."""
    figures = [
        figure(name, 3.0 * rate, {**at_rate(rate), **system})
        for rate in (0.025, 0.1)
        for system in (DYNATOPS, TCO)
        for name in ("delay", "messages_per_notification", "management_per_h", "reassignment_messages_per_h")
    ]
    drawn = draw_dynatops(figures)
    assert set(drawn) == {"fig7.svg"}
    assert "DYNATOPS" in drawn["fig7.svg"]
    assert draw_dynatops(figures) == drawn
    assert draw_dynatops([]) == {}
