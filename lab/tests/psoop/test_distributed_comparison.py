"""The comparison of deciding brokers with central planners: variants, figures, command line."""

import json
import sys
from pathlib import Path

import pytest

from regraft.api.emulation import LedgerSnapshot
from regraft_lab.psoop import compare_distributed
from regraft_lab.psoop.compare_distributed import UncleanRunError, distributed_figures
from regraft_lab.psoop.distributed_overlay import CachedOverlay
from regraft_lab.psoop.distributed_variants import VARIANTS, Scene, run_variant


def test_figures_of_a_small_comparison() -> None:
    """Every variant has its cost; the static tree's is its own, and central planners do not broadcast."""
    reported: list[tuple[str, int]] = []
    figures = distributed_figures(
        8, 1, 22.0, ("static", "distributed", "central_cost"), advance=lambda what, done: reported.append((what, done))
    )
    assert [done for _, done in reported] == [0, 1, 2, 3]
    values = {(figure.name, figure.where["variant"], figure.where.get("kind")): figure.value for figure in figures}
    assert values["psoop_distributed_cost_share", "static", None] == 1
    assert values["psoop_distributed_cost_share_mean", "static", None] == pytest.approx(1, abs=0.05)
    assert values["psoop_distributed_cost_share", "central_cost", None] < 0.9
    for variant in ("static", "distributed", "central_cost"):
        assert values["psoop_distributed_lost", variant, None] == 0
    assert values["psoop_distributed_messages", "distributed", "broadcast"] > 0
    assert ("psoop_distributed_messages", "central_cost", "broadcast") not in values
    messages = sum(
        value
        for (name, variant, kind), value in values.items()
        if name == "psoop_distributed_messages" and variant == "distributed" and kind and not kind.startswith("all ")
    )
    assert messages == sum(
        values["psoop_distributed_messages", "distributed", f"all {group}"] for group in ("deciding", "exchanging")
    )


def test_an_unclean_ledger_gives_no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """If something was lost, the comparison reports that instead of a result."""
    monkeypatch.setattr(CachedOverlay, "finish", lambda _: LedgerSnapshot(expected=1, lost=1, final=True))
    with pytest.raises(UncleanRunError, match="static with seed 1"):
        distributed_figures(4, 1, 21.0, ("static",))


def test_every_variant_can_be_made_and_an_unknown_one_is_named() -> None:
    """The table of variants has no entry that cannot run."""
    scene = Scene.of(4, 1)
    for variant in VARIANTS:
        assert scene.overlay(variant).present == scene.inventory.bootstrap
    with pytest.raises(ValueError, match="variant 'best' is unknown: expected one of static"):
        scene.overlay("best")
    with pytest.raises(ValueError, match="simulated_s is 20"):
        run_variant(scene, "static", 20.0)


def test_command_line_prints_a_table_and_writes_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file has the common form of all measurements."""
    target = tmp_path / "figures.json"
    monkeypatch.setattr(compare_distributed, "DEFAULT_VARIANTS", ("static",))
    monkeypatch.setattr(sys, "argv", ["x", "--brokers", "4", "--seconds", "20.5", "--seed", "2", "--json", str(target)])
    compare_distributed.main()
    assert "static" in capsys.readouterr().out
    document = json.loads(target.read_text())
    assert document["run"]["seed"] == 2
    assert {figure["where"]["variant"] for figure in document["figures"]} == {"static"}
