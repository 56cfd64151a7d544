"""That names which others chose, in files and recordings, do not control the terminal where they are printed."""

import io
import sys
import tomllib
from pathlib import Path

import pytest
import structlog
from typer.testing import CliRunner

from regraft import cli
from regraft.cli import app, main
from regraft.infra.process.log_stream import configure_logs
from regraft.infra.process.stack_error import StackError
from regraft.inventories.source_error import SourceError
from regraft.overlay.inventory.inventory import InventoryError
from regraft.settings.run_settings import SettingsError
from regraft.settings.settings_example import toml_text
from tests.regraft.make_small_recording import SMALL

CLEAR, RED_C1, MIRRORED = "\x1b[2J", "\x9b31m", "\u202e"
HOSTILE = f"b{CLEAR}0{RED_C1}1{MIRRORED}"
ERRORS = [StackError(HOSTILE), InventoryError(HOSTILE), SettingsError([HOSTILE]), OSError(2, "no", HOSTILE)]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_does_not_control_the_terminal(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Names in messages may be those of a file that someone sent."""

    def fail() -> None:
        raise error

    monkeypatch.setattr(cli, "app", fail)
    monkeypatch.setattr("click.utils.should_strip_ansi", lambda *_: False)  # As at a terminal.
    with pytest.raises(SystemExit):
        main()
    printed = capfd.readouterr().err
    assert "b [2J0 31m1" in printed
    assert not {"\x1b", "\x9b", MIRRORED} & set(printed)


def test_a_name_in_a_table_adds_no_error_of_its_own() -> None:
    """Errors are one a line."""
    assert str(SourceError(["a\nb is wrong", "c"])) == "a b is wrong.\nc."


def test_a_recording_is_described_whatever_its_name(tmp_path: Path) -> None:
    """Square brackets are no markup, and escapes do not reach the terminal."""
    file = tmp_path / f"[red]{CLEAR}[" / "blue].avro"
    file.parent.mkdir()
    file.write_bytes(SMALL.read_bytes())
    answer = CliRunner().invoke(app, ["recording", str(file)])
    assert answer.exit_code == 0, answer.exception
    assert "[red] [2J[/blue].avro" in answer.stdout
    assert "\x1b" not in answer.stdout


@pytest.mark.parametrize("sign", ["\x9b", "\u202e", "\u2028", "\x7f", "\x1b", "\n"])
def test_settings_are_printed_as_toml_whatever_their_characters(sign: str) -> None:
    """Escaped, they are read back unchanged."""
    printed = toml_text(f"a{sign}b")
    assert sign not in printed
    assert tomllib.loads(f"value = {printed}") == {"value": f"a{sign}b"}


def test_a_log_at_a_terminal_shows_names_without_escapes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own colours stay, and a traceback keeps its lines."""
    out = io.StringIO()
    monkeypatch.setattr(out, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", out)
    configure_logs()
    structlog.get_logger().info("client_refused", client=HOSTILE, exception="one\ntwo")
    assert "b [2J0 31m1" in out.getvalue()
    assert CLEAR not in out.getvalue()
    assert "one\ntwo" in out.getvalue()
