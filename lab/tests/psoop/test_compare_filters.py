"""The comparison of ways to announce interest: what it keeps equal, and what it counts."""

import json
from pathlib import Path

import pytest

from regraft.api.programs import Figure
from regraft.api.trees import overlay_cost
from regraft_lab.psoop import compare_filters
from regraft_lab.psoop.compare_filters import (
    adapted_shares,
    filter_figures,
    main,
    sharing_variants,
    start_state,
)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reduce brokers and rounds; traffic, caches and filters are the paper's."""
    for name, value in {"BROKERS": 14, "ROUNDS": 3, "ROUNDS_JUDGED": 2}.items():
        monkeypatch.setattr(compare_filters, name, value)


def by_method(figures: list[Figure], name: str) -> dict[str, float]:
    return {str(figure.where["telling"]): figure.value for figure in figures if figure.name == name}


def test_sizes_and_false_positives_are_those_of_a_full_cache() -> None:
    """8,192 identifiers of 8 bytes, the paper's 100,000 bits at 0.43 %, and filters no larger than requested."""
    variants = {variant.name: variant for variant in sharing_variants()}
    assert len(variants) == len(sharing_variants())
    assert variants["masks"].broadcast_bytes == 65_536
    assert variants["paper's filter"].broadcast_bytes == 12_500
    assert variants["paper's filter"].false_positive_share == pytest.approx(0.0043, abs=5e-5)
    assert variants["filter for 10 %"].false_positive_share == pytest.approx(0.1, rel=1e-3)
    assert all(variant.settings.errors() == [] for variant in sharing_variants())


def test_shares_are_costs_of_eq_1_and_2(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a round the last tree is the first, so it costs all of that one's cost, on both spans of traffic."""
    state, later = start_state("uniform", 3)
    assert adapted_shares(state, later, sharing_variants()[0], 3)[0] < 1
    assert overlay_cost(state.configuration, state.inventory, state.sets).total_per_s == pytest.approx(
        state.tree_costs.cost_per_s
    )
    monkeypatch.setattr(compare_filters, "ROUNDS", 0)
    assert adapted_shares(state, later, sharing_variants()[0], 3) == (1, 1)


def test_instances_repeat_and_masks_are_the_measure() -> None:
    """The same seeds give the same figures; every method is compared with exact masks of the same cache."""
    figures = filter_figures(["uniform"], range(2))
    assert figures == filter_figures(["uniform"], range(2))
    assert by_method(figures, "cost_share_to_masks")["masks"] == 1
    assert by_method(figures, "cost_share_to_masks_error")["masks"] == 0
    assert all(0 < share < 1.2 for share in by_method(figures, "cost_share").values())


def test_the_command_writes_table_and_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every method is a row, and the file says how to run it again."""
    file = tmp_path / "figures.json"
    main(["--instances", "1", "--seed", "5", "--costs", "transit-stub", "--json", str(file)])
    printed = capsys.readouterr().out
    assert all(variant.name in printed for variant in sharing_variants())
    document = json.loads(file.read_text(encoding="utf-8"))
    assert document["run"]["seed"] == 5
    assert document["run"]["settings"]["costs"] == ["transit-stub"]
    with pytest.raises(SystemExit):
        main(["--instances", "0"])
    assert "0 instances give no figures: at least 1" in capsys.readouterr().err
