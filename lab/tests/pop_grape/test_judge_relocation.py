"""Verdicts depend on the figures alone; tables and drawings show the file's figures."""

from pathlib import Path

import pytest

from regraft.api.programs import Figure, write_figures
from regraft_lab.claim_evidence import Claim, Measured, Verdict
from regraft_lab.claims_block import END, begin_marker
from regraft_lab.judge_size import Size
from regraft_lab.pop_grape.draw_relocation import draw_relocation
from regraft_lab.pop_grape.judge_brokers import (
    judge_first_trigger,
    judge_migration_time,
    judge_overhead,
    judge_range,
    judge_slower_selection,
    judge_worst_overhead,
)
from regraft_lab.pop_grape.judge_joint import (
    OUR_CLAIMS,
    judge_never_more_expensive,
    judge_same_choice,
    judge_split,
)
from regraft_lab.pop_grape.judge_relocation import (
    judge_all_at_one,
    judge_best,
    judge_delay_sacrificed,
    judge_load_lowest,
    judge_overloads,
    judge_pop_between,
    judge_random_alike,
    judge_random_output,
    judge_selection_time,
    judge_short_sessions,
    judge_weights,
)
from regraft_lab.pop_grape.relocation_claims import PAPER_CLAIMS
from regraft_lab.pop_grape.relocation_figures import SPREAD
from regraft_lab.pop_grape.tabulate_claims import PROGRAM, main

Where = dict[str, str | int | float]
CLUSTERED: Where = {"measured": "clock", "testbed": "planetlab", "workload": "clustered", "predicates": "shared"}
RANDOM: Where = {**CLUSTERED, "workload": "random"}
COUNTED: Where = {**CLUSTERED, "measured": "count", "testbed": "hops"}


def figure(name: str, value: float, **where: str | int | float) -> Figure:
    """Return a figure with its setting."""
    return Figure(name, dict(where), value, "1")


def interval(name: str, mean: float, half: float, **where: str | int | float) -> list[Figure]:
    """Return a mean and its interval as two figures."""
    return [figure(name, mean, **where), figure(f"{name}_ci95", half, **where)]


@pytest.mark.parametrize("claim", [*PAPER_CLAIMS, *OUR_CLAIMS], ids=lambda claim: claim.text)
def test_without_figures_nothing_can_be_decided(claim: Claim) -> None:
    """An experiment that was not run refutes nothing."""
    assert claim.judged(Measured([])).verdict is Verdict.UNDECIDED


@pytest.mark.parametrize(
    ("best", "expected"),
    [(0.72, Verdict.REPRODUCED), (0.88, Verdict.EXCEEDED), (0.60, Verdict.SMALLER)],
)
def test_up_to_is_the_best_over_x(best: float, expected: Verdict) -> None:
    """The evidence names its X, and the best beyond X = 1."""
    found = judge_best("client_delay", Size(0.68), ("load100",))(
        Measured(
            [
                figure("client_delay_cut", best, **CLUSTERED, x=1, way="load100"),
                figure("client_delay_cut", 0.4, **RANDOM, x=8, way="load100"),
            ]
        )
    )
    assert found.verdict is expected
    assert found.evidence == f"{best:.2f} (load100, clustered, X = 1); 0.40 (load100, random, X = 8)"


def test_one_publisher_elsewhere_refutes_all_at_one_broker() -> None:
    """Every publisher must be at its subscribers' broker, by every method."""
    shares = [figure("at_subscribers_share", 1.0, **CLUSTERED, x=1, way=way) for way in ("load100", "delay100", "pop")]
    assert judge_all_at_one(Measured(shares)).verdict is Verdict.REPRODUCED
    shares[1] = figure("at_subscribers_share", 0.9, **CLUSTERED, x=1, way="delay100")
    assert judge_all_at_one(Measured(shares)).verdict is Verdict.REFUTED


@pytest.mark.parametrize(("above", "expected"), [(0.1, Verdict.REPRODUCED), (-0.01, Verdict.REFUTED)])
def test_the_lowest_message_rate_has_none_below(above: float, expected: Verdict) -> None:
    """X = 1 does not count, because all are equal there."""
    figures = interval("message_rate_above_load100", 0.0, 0.0, **CLUSTERED, x=1, way="pop")
    figures += interval("message_rate_above_load100", above, 0.2, **CLUSTERED, x=8, way="pop")
    assert judge_load_lowest(Measured(figures)).verdict is expected


@pytest.mark.parametrize(
    ("mean", "half", "expected"),
    [(0.2, 0.1, Verdict.REPRODUCED), (-0.2, 0.1, Verdict.REFUTED), (0.1, 0.2, Verdict.UNDECIDED)],
)
def test_a_sacrifice_must_be_certain(mean: float, half: float, expected: Verdict) -> None:
    """Both delay and hops above delay100's."""
    figures = interval("client_delay_above_delay100", mean, half, **CLUSTERED, **SPREAD, way="load100")
    figures += interval("hops_above_delay100", mean, half, **CLUSTERED, **SPREAD, way="load100")
    assert judge_delay_sacrificed(Measured(figures)).verdict is expected


@pytest.mark.parametrize(("pop", "expected"), [(0.1, Verdict.REPRODUCED), (0.4, Verdict.REFUTED)])
def test_pop_is_between_the_two_ends(pop: float, expected: Verdict) -> None:
    """Between 0 (load100) and 0.3 (delay100)."""
    figures = []
    for metric in ("load", "client_delay", "hops"):
        figures += interval(f"{metric}_above_load100", pop, 0.0, **CLUSTERED, **SPREAD, way="pop")
        figures += interval(f"{metric}_above_load100", 0.3, 0.0, **CLUSTERED, **SPREAD, way="delay100")
    assert judge_pop_between(Measured(figures)).verdict is expected


def test_random_differences_count_at_every_x() -> None:
    """One visible difference at one X refutes it."""
    figures = interval("load_above_load100", 0.01, 0.0, **RANDOM, x=2, way="delay100")
    assert judge_random_alike("delay100", ("load", "hops"))(Measured(figures)).verdict is Verdict.REPRODUCED
    figures += interval("hops_above_load100", -0.2, 0.0, **RANDOM, x=8, way="delay100")
    assert judge_random_alike("delay100", ("load", "hops"))(Measured(figures)).verdict is Verdict.REFUTED


@pytest.mark.parametrize(("at_fifty", "expected"), [(0.45, Verdict.REPRODUCED), (0.70, Verdict.REFUTED)])
def test_weights_must_be_monotonic(at_fifty: float, expected: Verdict) -> None:
    """Messages saved fall from load100 to load1; a rise in between refutes it."""
    saved = {100: 0.6, 75: 0.5, 50: at_fifty, 25: 0.4, 1: 0.3}
    delays = {100: 0.30, 75: 0.31, 50: 0.32, 25: 0.33, 1: 0.34}
    figures = []
    for weight in saved:
        for priority, own, other in (("load", saved, delays), ("delay", delays, saved)):
            way = f"{priority}{weight}"
            opposite = {100: 1, 75: 25, 50: 50, 25: 75, 1: 100}[weight]
            rates, times = (own, other) if priority == "load" else (other, own)
            at = weight if priority == "load" else opposite
            figures.append(figure("message_rate_cut", rates[at], **COUNTED, x=8, way=way))
            figures.append(figure("delay_cut", times[at], **COUNTED, x=8, way=way))
    assert judge_weights(Measured(figures)).verdict is expected


@pytest.mark.parametrize(("delay100", "expected"), [(2.0, Verdict.REPRODUCED), (0.5, Verdict.REFUTED)])
def test_overloads_need_at_least_one_broker(delay100: float, expected: Verdict) -> None:
    """On the mean over X and both workloads, for the start, POP and delay100."""
    figures = [
        figure("brokers_above_load100", count, **where, x=8, way=way)
        for where in (CLUSTERED, RANDOM)
        for way, count in (("baseline", 3.0), ("pop", 1.0), ("delay100", delay100))
    ]
    assert judge_overloads(Measured(figures)).verdict is expected
    assert judge_overloads(Measured(figures[:3])).verdict is Verdict.UNDECIDED


@pytest.mark.parametrize(
    ("delay100", "expected"), [(1.2, Verdict.REPRODUCED), (1.02, Verdict.UNDECIDED), (0.8, Verdict.REFUTED)]
)
def test_short_sessions_of_either_priority_are_enough(delay100: float, expected: Verdict) -> None:
    """More messages than the baseline with delay100, though not with load100."""
    at: Where = {"measured": "sessions", "notifications_min": 10}
    figures = interval("message_rate_with_own_vs_baseline", delay100, 0.05, **at, way="delay100")
    figures += interval("message_rate_with_own_vs_baseline", 0.5, 0.05, **at, way="load100")
    assert judge_short_sessions(Measured(figures)).verdict is expected


@pytest.mark.parametrize(("most_ms", "expected"), [(69.0, Verdict.REPRODUCED), (71.0, Verdict.REFUTED)])
def test_the_slowest_selection_counts(most_ms: float, expected: Verdict) -> None:
    """The paper's bound is 70 ms with 63 brokers."""
    at: Where = {"brokers": 63}
    figures = [figure("grape_quadratic_ms_p50", 5.0, **at), figure("grape_quadratic_ms_max", most_ms, **at)]
    assert judge_selection_time(Measured(figures)).verdict is expected


@pytest.mark.parametrize(("worst", "expected"), [(0.0, Verdict.REPRODUCED), (0.01, Verdict.REFUTED)])
def test_one_more_expensive_placement_refutes_ours(worst: float, expected: Verdict) -> None:
    """On any testbed and workload."""
    figures = [
        figure("cost_above_best_of_paper_max", -0.1, **CLUSTERED, x=2),
        figure("cost_above_best_of_paper_max", worst, **{**RANDOM, "testbed": "cluster"}, x=64),
    ]
    assert judge_never_more_expensive(Measured(figures)).verdict is expected


def test_the_split_needs_both_halves() -> None:
    """Far apart with shared predicates but not with independent ones."""
    figures = interval("message_rate_above_load100", 0.3, 0.1, **COUNTED, **SPREAD, way="delay100")
    independent: Where = {**COUNTED, "predicates": "independent"}
    same = interval("message_rate_above_load100", 0.01, 0.0, **independent, **SPREAD, way="delay100")
    differing = interval("message_rate_above_load100", 0.2, 0.0, **independent, **SPREAD, way="delay100")
    assert judge_split(Measured(figures)).verdict is Verdict.UNDECIDED
    assert judge_split(Measured(figures + same)).verdict is Verdict.REPRODUCED
    assert judge_split(Measured(figures + differing)).verdict is Verdict.REFUTED


def test_choices_must_all_be_the_same() -> None:
    """At every size."""
    figures = [figure("identical_share", 1.0, brokers=brokers) for brokers in (63, 255)]
    figures += [
        figure(f"{way}_ms_p50", 1.0, brokers=brokers) for brokers in (63, 255) for way in ("grape", "grape_quadratic")
    ]
    assert judge_same_choice(Measured(figures)).verdict is Verdict.REPRODUCED
    figures[1] = figure("identical_share", 0.9, brokers=255)
    assert judge_same_choice(Measured(figures)).verdict is Verdict.REFUTED


def test_overhead_is_that_of_the_worst_x() -> None:
    """At most 32 % with a margin of 5."""
    at: Where = {"testbed": "planetlab", "distribution": "clustered", "variant": "pop", "kind": "overhead"}
    shares = [
        figure("pop_grape_distributed_message_share", share, **at, interested_brokers=x)
        for x, share in ((2, 0.1), (8, 0.36))
    ]
    judge = judge_overhead("clustered", ("pop",), 0.32)
    assert judge(Measured(shares)).verdict is Verdict.REPRODUCED
    shares.append(figure("pop_grape_distributed_message_share", 0.5, **at, interested_brokers=32))
    assert judge(Measured(shares)).verdict is Verdict.REFUTED


@pytest.mark.parametrize(
    ("grape", "expected"), [(0.46, Verdict.REPRODUCED), (0.2, Verdict.EXCEEDED), (1.04, Verdict.REFUTED)]
)
def test_overheads_are_compared_at_the_worst_thresholds_of_both(grape: float, expected: Verdict) -> None:
    """46 % is a fifth less than 57 %."""
    where: dict[str, str | int | float] = {"testbed": "cluster", "kind": "overhead"}
    shares = {"load100 G=10": grape, "delay100 G=200": 0.1, "pop P=10": 0.06, "pop P=200": 0.57}
    figures = [
        figure("pop_grape_distributed_message_share", share, **where, variant=variant)
        for variant, share in shares.items()
    ]
    assert judge_worst_overhead(Size(0.2))(Measured(figures)).verdict is expected


@pytest.mark.parametrize(("grape_ms", "expected"), [(900.0, Verdict.REPRODUCED), (90.0, Verdict.REFUTED)])
def test_selections_are_compared_at_every_x(grape_ms: float, expected: Verdict) -> None:
    """One X at which GRAPE is faster refutes that it is slower."""
    where: dict[str, str | int | float] = {"testbed": "planetlab", "distribution": "random"}
    figures = [
        figure("pop_grape_distributed_selection_ms_mean", value, **where, interested_brokers=x, variant=variant)
        for variant, values in {"pop": (100.0, 100.0), "delay100": (500.0, grape_ms)}.items()
        for x, value in zip((2, 8), values, strict=True)
    ]
    assert judge_slower_selection(Measured(figures)).verdict is expected


@pytest.mark.parametrize(("cut", "expected"), [(-0.1, Verdict.REPRODUCED), (0.1, Verdict.REFUTED)])
def test_output_at_random_is_judged_beyond_one_broker(cut: float, expected: Verdict) -> None:
    """With all subscribers at one broker nothing is sent."""
    figures = [
        figure("output_cut", value, **RANDOM, x=x, way="load100") for x, value in {1: 1.0, 2: -0.2, 8: cut}.items()
    ]
    assert judge_random_output(Measured(figures)).verdict is expected


def test_triggers_are_looked_up_by_threshold() -> None:
    """The variant's name contains it."""
    share = figure("pop_grape_distributed_all_messages_share", 1.2, testbed="cluster", variant="load100 G=10")
    assert judge_first_trigger(Measured([share])).verdict is Verdict.REPRODUCED


@pytest.mark.parametrize(("most", "expected"), [(0.60, Verdict.REPRODUCED), (0.80, Verdict.REFUTED)])
def test_a_range_is_met_at_both_ends(most: float, expected: Verdict) -> None:
    """6 to 57 %, each within 5."""
    figures = [
        figure(
            "pop_grape_distributed_message_share", share, testbed="cluster", kind="overhead", variant=f"pop P={count}"
        )
        for count, share in ((10, 0.07), (200, most))
    ]
    judge = judge_range(("pop P",), (10, 25, 200), 0.06, 0.57)
    assert judge(Measured(figures)).verdict is expected


def test_ten_hops_take_at_most_five_seconds() -> None:
    """By the paper's protocol; ours is reported next to it."""
    figures = [figure("paper_wait_ms_max", 5_100.0, hops=10), figure("move_ms_max", 4_000.0, hops=10)]
    assert judge_migration_time(Measured(figures)).verdict is Verdict.REFUTED


def test_the_readme_block_is_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Only the text between the markers; without a README the tables are printed."""
    path, readme = tmp_path / "figures.json", tmp_path / "README.md"
    run = {"seed": 4, "commit": "0" * 40, "settings": {"size": "small", "draws": {}, "counted_draws": 2}}
    cuts = [figure(f"{metric}_cut", 0.5, **CLUSTERED, x=2, way="pop") for metric in ("load", "client_delay", "cost")]
    write_figures(path, run, cuts)
    readme.write_text(f"before\n{begin_marker(PROGRAM)}\nmade before\n{END}\nafter\n", encoding="utf-8")
    assert main(["--json", str(path), "--readme", str(readme)]) == 0
    text = readme.read_text(encoding="utf-8")
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "made before" not in text
    assert "| clustered, shared | 2 | – | – | – | 0.50 / 0.50 / 0.50 | – | – |" in text
    assert main(["--json", str(path)]) == 0
    assert "seed 4" in capsys.readouterr().out
    assert main(["--json", str(readme)]) == 2


def test_drawings_are_made_of_what_was_run() -> None:
    """One testbed gives its message rate and its delay, byte-identical when repeated; no figures give no drawing."""
    figures = [
        figure(name, value, **{**CLUSTERED, "workload": workload}, x=x, way=way)
        for workload in ("clustered", "random")
        for way, value in (("baseline", 3.0), ("ours", 1.0))
        for x in (1, 2, 8)
        for name in ("message_rate", "client_delay")
    ]
    drawn = draw_relocation(figures)
    assert set(drawn) == {"planetlab-message-rate.svg", "planetlab-client-delay.svg"}
    assert all("<svg" in each and "Regraft" in each for each in drawn.values())
    assert draw_relocation(figures) == drawn
    assert draw_relocation([]) == {}
