"""Only commands about emulated brokers invent brokers; all others need the operator's inventory."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from regraft.cli import app, main
from regraft.infra.process import log_stream
from regraft.settings.place_demo import ensure_inventory, require_inventory
from regraft.settings.run_settings import SettingsError, load_settings
from regraft.stages import run_stage as stage_module

COMMANDS = [
    ["run"],
    ["stage", "control"],
    ["stage", "stream"],
    ["recover"],
    ["stage", "node", "--broker", "b01", "--connector", "nats://127.0.0.1:7422"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command[:2]))
def test_without_an_inventory_no_command_invents_brokers(command: list[str], tmp_path: Path) -> None:
    """One sentence names the setting, the file, the page and the command that makes it; nothing is written."""
    answer = CliRunner().invoke(app, [*command, "--set", f"run.directory={tmp_path / 'run'}"])
    assert isinstance(answer.exception, SettingsError)
    [error] = answer.exception.errors
    assert f"run.directory is '{tmp_path}/run'" in error
    for part in (f"{tmp_path}/run/inventory.json", "regraft inventory make", "docs/inventory.md"):
        assert part in error
    assert ("--emulate" in error) == (command[:2] in (["run"], ["stage", "control"], ["stage", "stream"]))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("stage", ["control", "stream", "emulate"])
def test_stages_of_emulated_brokers_place_them(stage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same settings, each stage on each machine gets the same brokers."""
    flags = ["--set", f"run.directory={tmp_path}", "--set", "demo.brokers=6"]
    monkeypatch.setitem(stage_module.STAGES, stage, lambda *_: 0)
    monkeypatch.setattr(stage_module, "check_topics", lambda *_, **__: None)
    monkeypatch.setattr(log_stream, "configure_logs", lambda *_: None)  # Not to the runner's stream.
    emulated = [] if stage == "emulate" else ["--emulate"]
    answer = CliRunner().invoke(app, ["stage", stage, *emulated, *flags])
    assert answer.exit_code == 0, answer.output
    placed = json.loads((tmp_path / "inventory.json").read_text())
    own = load_settings({"run": {"directory": tmp_path / "other"}, "demo": {"brokers": 6}})
    assert placed == json.loads(ensure_inventory(own).to_json())


def test_an_inventory_is_all_that_is_required(tmp_path: Path) -> None:
    """With the file there is no complaint."""
    (tmp_path / "inventory.json").write_text("{}")
    require_inventory(load_settings({"run": {"directory": tmp_path}}))


def test_a_wrong_inventory_is_a_sentence_and_not_a_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Any command that reads it ends with 2, as for wrong settings."""
    (tmp_path / "inventory.json").write_text('{"brokers": ["a"]}')
    monkeypatch.setattr("sys.argv", ["regraft", "doctor", "--set", f"run.directory={tmp_path}"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert f"{tmp_path}/inventory.json is not an inventory: " in capsys.readouterr().err
