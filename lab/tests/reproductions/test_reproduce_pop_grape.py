import json
from pathlib import Path

import pytest

import regraft_lab.reproductions.reproduce_pop_grape
from lab.tests.pop_grape.small_relocation import SMALL_SIZE
from lab.tests.reproductions.run_small import run_small


@pytest.fixture(scope="module")
def small_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a complete run in a tiny size."""
    printed = "clustered: load100 yields the lowest message rate"
    out = tmp_path_factory.mktemp("pop-grape")
    return run_small("pop-grape", regraft_lab.reproductions.reproduce_pop_grape, SMALL_SIZE, out, printed)


def test_a_run_leaves_figures_tables_and_drawings(small_run: Path) -> None:
    """The copy is the same file, and every drawing is an SVG."""
    document = json.loads((small_run / "figures.json").read_text(encoding="utf-8"))
    assert document == json.loads((small_run / "copy.json").read_text(encoding="utf-8"))
    assert document["run"]["seed"] == 2
    assert document["run"]["settings"]["size"] == "small"
    names = {figure["name"] for figure in document["figures"]}
    assert {
        "load_cut",
        "message_rate_cut",
        "delay_cut",
        "client_delay_cut",
        "hops_cut",
        "cost_cut",
        "moved_share",
        "message_rate_with_own_vs_baseline",
        "grape_ms_p50",
        "identical_choices",
    } <= names
    assert "| 5.2, Fig. 5a |" in (small_run / "claims.md").read_text(encoding="utf-8")
    drawings = {path.name: path.read_text(encoding="utf-8") for path in small_run.glob("*.svg")}
    assert set(drawings) == {"planetlab-message-rate.svg", "planetlab-client-delay.svg"}
    assert all("<svg" in drawing and "Regraft" in drawing for drawing in drawings.values())
