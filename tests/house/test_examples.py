"""The Python that documents show runs, from top to bottom, and comes to what the text says."""

import re
from pathlib import Path

import pytest

from regraft.settings.place_demo import ensure_inventory
from regraft.settings.run_settings import load_settings
from regraft.virtual_runs.record_virtual import record_virtual

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which out/rec.avro is a recording of some seconds."""
    monkeypatch.chdir(tmp_path)
    settings = load_settings({"run": {"directory": str(tmp_path / "run")}, "demo": {"brokers": 6}})
    file = tmp_path / "out" / "rec.avro"
    file.parent.mkdir()
    record_virtual(settings, ensure_inventory(settings), 12.0, file)
    return file


def test_the_tutorial_runs(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The costs, the planner's proposal and what is recorded are those that it tells."""
    blocks = BLOCK.findall((ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8"))
    assert len(blocks) == 4
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "docs/tutorial.md", "exec"), names)
    row, direct, proposal, read = capsys.readouterr().out.splitlines()
    assert (float(row), float(direct)) == (700.0, 500.0)
    assert proposal == "(('b00', 'b01'),) (('b00', 'b02'),) 200.0"
    assert int(read.split()[0]) > 50
    assert recorded.is_file()
