"""`regraft list planners`: built-in planners, the lab's, and one that cannot be loaded."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from regraft.cli import app
from regraft.controller.planners.planner_registry import OF_THE_LAB, PLANNERS
from tests.controller.planner_packages import planner_packages


def test_all_planners_are_listed_with_kind_and_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broken package is a line with the reason, and hides no other."""
    planner_packages(tmp_path, monkeypatch).install("broken_one", "raise OSError('no file')", roll_dice="SPEC")
    answer = CliRunner().invoke(app, ["list", "planners", "--json"])
    rows = {row["name"]: row for row in json.loads(answer.stdout)["planners"]}
    assert rows.keys() == {*PLANNERS, *OF_THE_LAB, "roll_dice"}
    assert rows["swap_links_lmst"] == {
        "name": "swap_links_lmst",
        "kind": "tree",
        "changes": "links of a tree, by link cost alone",
        "source": "Jaeger07, sections 3.1.2 and 5",
    }
    assert "OSError: no file" in rows["roll_dice"]["error"]
    text = CliRunner().invoke(app, ["list", "planners"]).stdout
    assert "swap_links_cost (tree)\n" in text
    assert "roll_dice\n    cannot be used: " in text
