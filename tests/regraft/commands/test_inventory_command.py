"""`regraft inventory`: from what an operator has to a file that every command reads, and what is wrong with one."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from regraft.cli import app
from regraft.inventories.source_error import SourceError
from regraft.overlay.inventory.inventory import InventoryError
from regraft.overlay.inventory.inventory_schema import inventory_schema
from regraft.overlay.read_inventory import load_inventory

RUNNER = CliRunner()
BROKERS = "broker,latitude,longitude,region\nb01,47.4,8.5,zrh\nb02,48.9,2.3,cdg\nb03,40.7,-74.0,nyc\n"
MISSING_PAIR = {
    "brokers": ["b01", "b02", "b03"],
    "processing_cost": [1, 1, 1],
    "link_cost": [[0, 2, None], [2, 0, 4], [None, 4, 0]],
    "degree_max": 8,
    "links": [["b01", "b02"], ["b02", "b03"]],
}


def make(*arguments: str) -> str:
    answer = RUNNER.invoke(app, ["inventory", "make", *arguments], catch_exceptions=False)
    assert answer.exit_code == 0, answer.output
    return answer.stdout


def test_names_alone_make_placeholders(tmp_path: Path) -> None:
    """The file is where the run directory is; the note names the setting that waits for measurements."""
    text = make("--brokers", "b02,b01,b03", "--set", f"run.directory={tmp_path / 'run'}")
    assert text.startswith(f"Wrote {tmp_path}/run/inventory.json: 3 brokers, and a tree of 2 links")
    assert "controller.links.estimate_unmeasured" in text
    inventory = load_inventory(tmp_path / "run" / "inventory.json")
    assert inventory.brokers == ("b01", "b02", "b03")
    assert inventory.clients_stay


def test_tables_and_prices_make_a_billed_inventory(tmp_path: Path) -> None:
    """Nothing is odd about measured pairs; prices are those of the regions."""
    (tmp_path / "brokers.csv").write_text(BROKERS)
    (tmp_path / "rtt.csv").write_text("from,to,rtt_ms\nb01,b02,12\nb02,b03,80\nb01,b03,90\n")
    pairs = [(a, b) for a in ("zrh", "cdg", "nyc") for b in ("zrh", "cdg", "nyc", "clients")]
    (tmp_path / "prices.csv").write_text("from,to,price_per_gb\n" + "".join(f"{a},{b},0.02\n" for a, b in pairs))
    out = tmp_path / "inventory.json"
    sources = ["--brokers", str(tmp_path / "brokers.csv"), "--round-trips", str(tmp_path / "rtt.csv")]
    bill = ["--prices", str(tmp_path / "prices.csv"), "--currency", "USD", "--message-bytes", "500"]
    assert make(*sources, *bill, "--clients-move", "--out", str(out)).endswith("No oddities found.\n")
    inventory = load_inventory(out)
    assert inventory.cost_of_link("b01", "b03") == 45.0
    assert inventory.prices is not None
    assert inventory.prices.access_per_gb.tolist() == [0.02] * 3
    assert not inventory.clients_stay


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ([], "give --brokers, --topology"),
        (["--brokers", "a,b", "--weight", "ms"], "--weight names an attribute of the links in --topology"),
        (["--brokers", "a,b", "--currency", "USD"], "--prices, --currency and --message-bytes go together"),
    ],
)
def test_options_that_do_not_go_together_are_refused(arguments: list[str], why: str, tmp_path: Path) -> None:
    """The call ends with 2 and writes nothing."""
    answer = RUNNER.invoke(app, ["inventory", "make", *arguments, "--out", str(tmp_path / "i.json")])
    assert answer.exit_code == 2
    assert why in " ".join(answer.stderr.replace("│", " ").split())
    assert not list(tmp_path.iterdir())


def test_an_existing_file_stays(tmp_path: Path) -> None:
    """It may be in use."""
    file = tmp_path / "i.json"
    file.write_text("mine")
    answer = RUNNER.invoke(app, ["inventory", "make", "--brokers", "a,b", "--out", str(file)])
    assert (answer.exit_code, file.read_text()) == (2, "mine")
    assert f"{file} already exists: name a different file with --out" in answer.stderr


def test_impossible_names_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    """What no command would read is not written; nor is a list of one broker."""
    for names, error in (("a,b\x07", InventoryError), ("a", SourceError)):
        answer = RUNNER.invoke(app, ["inventory", "make", "--brokers", names, "--out", str(tmp_path / "i.json")])
        assert isinstance(answer.exception, error)
    assert not list(tmp_path.iterdir())


def test_check_names_the_missing_pair(tmp_path: Path) -> None:
    """One sentence, exit code 1; as JSON, too."""
    file = tmp_path / "inventory.json"
    file.write_text(json.dumps(MISSING_PAIR))
    answer = RUNNER.invoke(app, ["inventory", "check", str(file)])
    assert answer.exit_code == 1
    assert "Wrong: link_cost of b01 and b03 is missing: give what a notification costs" in answer.stdout
    answer = RUNNER.invoke(app, ["inventory", "check", str(file), "--json"])
    assert answer.exit_code == 1
    found = json.loads(answer.stdout)
    assert [error.split(":")[0] for error in found["wrong"]] == ["link_cost of b01 and b03 is missing"]
    assert found["odd"] == []


def test_check_notes_what_is_odd(tmp_path: Path) -> None:
    """What is odd does not fail."""
    file = tmp_path / "inventory.json"
    file.write_text(json.dumps(MISSING_PAIR | {"link_cost": [[0, 2, 9], [2, 0, 4], [9, 4, 0]], "degree_max": 1}))
    answer = RUNNER.invoke(app, ["inventory", "check", "--set", f"run.directory={tmp_path}"])
    assert answer.exit_code == 0
    assert f"{file} can be used: a tree over 3 brokers." in answer.stdout
    assert answer.stdout.count("Note: ") == 2
    assert len(json.loads(RUNNER.invoke(app, ["inventory", "check", str(file), "--json"]).stdout)["odd"]) == 2


def test_check_of_no_file_names_the_command_that_makes_one(tmp_path: Path) -> None:
    """Exit code 2, as for other wrong names of files."""
    answer = RUNNER.invoke(app, ["inventory", "check", str(tmp_path / "none.json")])
    assert answer.exit_code == 2
    assert "does not exist: `regraft inventory make` writes one" in answer.stderr


def test_the_schema_is_printed() -> None:
    """As the reader has it."""
    assert json.loads(RUNNER.invoke(app, ["inventory", "check", "--schema"]).stdout) == inventory_schema()
