"""The Python in documents runs from top to bottom, with the results that the text states."""

import re
from pathlib import Path
from typing import Any

import pytest

from regraft.api.connectors import ConnectorContext, ConnectorSpec
from regraft.producers.nodes.connectors.connector import Connector
from regraft.settings.place_demo import ensure_inventory
from regraft.settings.run_settings import load_settings
from tests.record_virtual import record_virtual

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder in which out/rec.avro is a recording of some seconds."""
    monkeypatch.chdir(tmp_path)
    settings = load_settings({"run": {"directory": str(tmp_path / "run")}, "demo": {"brokers": 6}})
    file = tmp_path / "out" / "rec.avro"
    file.parent.mkdir()
    record_virtual(settings, ensure_inventory(settings), 12.0, file)
    return file


def _run_blocks(page: str, count: int) -> dict[str, object]:
    blocks = BLOCK.findall((ROOT / "docs" / page).read_text(encoding="utf-8"))
    assert len(blocks) == count
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, f"docs/{page}", "exec"), names)
    return names


def test_the_tutorial_runs(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Costs, the planner's proposal and what the connector passes on match the page.

    The connector has all that a node asks of one.
    """
    names: dict[str, Any] = _run_blocks("tutorial.md", 5)
    connector_parts = {*Connector.__annotations__, *(name for name in vars(Connector) if not name.startswith("_"))}
    assert {name for name in connector_parts if not hasattr(names["BusConnector"](names["Bus"]()), name)} == set()
    spec: ConnectorSpec[Any] = names["SPEC"]
    context = ConnectorContext(url="bus://h:1", broker="b01", overlay="regraft", state_file=recorded)
    assert isinstance(spec.connect(context, spec.settings()), names["BusConnector"])
    row, direct, proposal, *connector = capsys.readouterr().out.splitlines()
    assert (float(row), float(direct)) == (700.0, 500.0)
    assert proposal == "(('b00', 'b01'),) (('b00', 'b02'),) 200.0"
    assert connector == ["quotes.ibm True", "b'7.25'", "[b'81.5']"]


def test_a_recording_becomes_a_table(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The cost that the page computes is the one by which the controller planned."""
    names = _run_blocks("recordings.md", 4)
    costs, plans = names["costs"], names["plans"]
    assert isinstance(costs, dict)
    assert isinstance(plans, dict)
    assert (recorded.parent / "deliveries.png").stat().st_size > 10_000
    first = plans["plan-1"]
    assert costs[first.window_end_ms // 1_000 - 5] == pytest.approx(first.cost_before_per_s)
    assert "plan-1" in capsys.readouterr().out
