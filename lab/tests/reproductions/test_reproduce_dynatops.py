import json
from pathlib import Path

import pytest

import regraft_lab.reproductions.reproduce_dynatops
from lab.tests.dynatops.small_dynatops import SMALL_SIZE
from lab.tests.reproductions.run_small import run_small


@pytest.fixture(scope="module")
def small_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a complete run in a tiny size."""
    printed = "DYNATOPS has the least overhead under all patterns"
    out = tmp_path_factory.mktemp("dynatops")
    return run_small("dynatops", regraft_lab.reproductions.reproduce_dynatops, SMALL_SIZE, out, printed)


def test_a_run_leaves_figures_tables_and_drawings(small_run: Path) -> None:
    """The copy is the same file, the promised figures exist, and every drawing is an SVG."""
    document = json.loads((small_run / "figures.json").read_text(encoding="utf-8"))
    assert document == json.loads((small_run / "copy.json").read_text(encoding="utf-8"))
    assert document["run"]["seed"] == 2
    assert document["run"]["settings"]["size"] == "small"
    assert document["run"]["settings"]["data"] == "the shipped cut"
    settings = {
        "ssbr_ms": {"brokers", "topics"},
        "assignment_ms": {"brokers", "topics"},
        "cut_ssbr": {"pattern"},
        "cut_assignment": {"pattern"},
        "net_benefit_ssbr": {"pattern", "events"},
        "net_benefit_assignment": {"pattern", "events"},
        "subscription_changes_cut": {"cluster_brokers"},
        "load_cv": {"cluster_brokers", "load_weight"},
        "protocol_messages": {"brokers", "topics", "moved"},
        "placement_pass_ms": {"users"},
    }
    for name, keys in settings.items():
        found = [each for each in document["figures"] if each["name"] == name]
        assert found, name
        assert all(keys <= each["where"].keys() for each in found)
    assert "| 6.3.1, Fig. 7a |" in (small_run / "claims.md").read_text(encoding="utf-8")
    drawings = {path.name: path.read_text(encoding="utf-8") for path in small_run.glob("*.svg")}
    assert {"fig6a.svg", "fig7.svg", "fig9.svg", "protocol.svg"} <= set(drawings)
    assert all("<svg" in drawing for drawing in drawings.values())
