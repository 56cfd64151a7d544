"""docs/inventory.md: its example is an inventory, its table has every field, and its outputs are those of commands."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from regraft.cli import app
from regraft.inventories.read_brokers import BROKER_COLUMNS
from regraft.overlay.inventory.inventory_schema import FIELDS, PRICES
from regraft.overlay.read_inventory import parse_inventory

PAGE = (Path(__file__).parents[3] / "docs" / "inventory.md").read_text(encoding="utf-8")
EXAMPLE = re.search(r"```json\n(.*?)```", PAGE, re.DOTALL)
SHOWN = re.findall(r"^\$ (.*)\n((?:(?!\$ |```).*\n)*)", PAGE, re.MULTILINE)
WRONG = {
    "brokers": ["b01", "b02", "b03"],
    "procesing_cost": [0.03, 0.03, 0.03],
    "link_cost": [[0, 6.3, None], [6.3, 0, 40], [None, 40, 0]],
    "degree_max": 8,
    "links": [["b01", "b02"], ["b02", "b04"]],
}


def test_the_example_is_an_inventory() -> None:
    """It is what `make` writes for the round trips of the page."""
    assert EXAMPLE is not None
    assert parse_inventory(EXAMPLE[1], "the page").cost_of_link("b01", "b03") == 46.8


def test_the_page_has_every_field_and_column() -> None:
    """In code, as they are written."""
    for name in (*FIELDS, *PRICES, *BROKER_COLUMNS):
        assert f"`{name}`" in PAGE, name


@pytest.mark.parametrize("number", range(len(SHOWN)), ids=[command for command, _ in SHOWN])
def test_commands_print_what_the_page_shows(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the page's files, in an empty directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    for command, text in SHOWN:
        if command.startswith("cat "):
            Path(command.removeprefix("cat ")).write_text(text)
    assert EXAMPLE is not None
    command, text = SHOWN[number]
    if "check" in command or "nodes init" in command:
        Path("out/run").mkdir(parents=True)
        Path("out/run/inventory.json").write_text(EXAMPLE[1])
        Path("mine.json").write_text(json.dumps(WRONG))
    if command.startswith("regraft "):
        answer = CliRunner().invoke(app, command.split()[1:])
        # A line of three dots stands for the lines that the page leaves out.
        shown = ".*".join(map(re.escape, text.split("...\n")))
        assert re.fullmatch(shown, answer.stdout, re.DOTALL), answer.stdout
        assert answer.exit_code == ("Wrong: " in text)
