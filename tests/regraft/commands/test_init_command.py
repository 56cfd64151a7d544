"""`regraft init` writes a settings file that the other commands read as requested."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from regraft.cli import app
from regraft.commands import init_command
from regraft.infra.local.make_certificates import LocalAuthority
from regraft.settings.run_settings import SettingsError, load_settings
from tests.full_disk import small_disk

RUNNER = CliRunner()


def test_options_are_read_back(tmp_path: Path) -> None:
    """Without a terminal nothing is asked: the options count, and defaults for the rest."""
    file = tmp_path / "site.toml"
    options = ("--bootstrap", "kafka:9092", "--namespace", "east", "--directory", str(tmp_path / "run"), "--act")
    answer = RUNNER.invoke(app, ["init", str(file), *options])
    assert answer.exit_code == 0, answer.output
    settings = load_settings(file=file)
    assert (settings.kafka.bootstrap, settings.kafka.namespace) == ("kafka:9092", "east")
    assert settings.run.directory == tmp_path / "run"
    assert settings.controller.dry_run is False


def test_what_it_prints_can_be_pasted(tmp_path: Path) -> None:
    """A path with a space is quoted, and what else a site may need is named."""
    answer = RUNNER.invoke(app, ["init", str(tmp_path / "my site.toml")])
    assert f"export REGRAFT_SETTINGS='{tmp_path / 'my site.toml'}'\n" in answer.output
    for name in ("redis.url", "kafka.security.mechanism", "alerts.targets", "metrics_port"):
        assert name in answer.output


def test_naming_an_authority_turns_tls_on(tmp_path: Path) -> None:
    """Trusted certificates are only of use with TLS."""
    file, authority = tmp_path / "site.toml", LocalAuthority(tmp_path)
    assert RUNNER.invoke(app, ["init", str(file), "--ca-file", str(authority.ca_file)]).exit_code == 0
    assert load_settings(file=file).kafka.security.tls is True


def test_plans_wait_for_approval_by_default(tmp_path: Path) -> None:
    """The file's default is the safe one."""
    file = tmp_path / "site.toml"
    assert RUNNER.invoke(app, ["init", str(file)]).exit_code == 0
    assert load_settings(file=file).controller.dry_run is True


def test_at_a_terminal_it_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It asks for each setting that no option gives; an empty answer takes the default."""
    answers = {init_command.KAFKA.text: "k1:9093", init_command.NAMESPACE.text: "west"}
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("typer.prompt", lambda text, default: answers.get(text, default))
    monkeypatch.setattr("typer.confirm", lambda _: True)
    file = tmp_path / "site.toml"
    init_command.init(file, directory=str(tmp_path))
    settings = load_settings(file=file)
    assert (settings.kafka.bootstrap, settings.kafka.namespace) == ("k1:9093", "west")
    assert settings.controller.dry_run is False


def test_an_existing_file_is_kept(tmp_path: Path) -> None:
    """Nothing is overwritten."""
    file = tmp_path / "site.toml"
    file.write_text("# mine\n")
    answer = RUNNER.invoke(app, ["init", str(file)])
    assert (answer.exit_code, file.read_text()) == (2, "# mine\n")
    assert "already exists: name a different file" in answer.output


def test_a_wrong_answer_leaves_no_file(tmp_path: Path) -> None:
    """What the other commands would refuse is refused at once, with the same message."""
    file = tmp_path / "site.toml"
    answer = RUNNER.invoke(app, ["init", str(file), "--bootstrap", ""])
    assert isinstance(answer.exception, SettingsError)
    assert not file.exists()


@pytest.mark.parametrize("name", ["\U0001f680", "a\x7fb", "a\\b"])
def test_any_directory_can_be_given(tmp_path: Path, name: str) -> None:
    """TOML has other escapes than JSON."""
    file = tmp_path / "new.toml"
    answer = RUNNER.invoke(app, ["init", str(file), "--directory", str(tmp_path / name)])
    if name.isprintable():
        assert answer.exit_code == 0, answer.exception
        assert load_settings(file=file).run.directory == tmp_path / name
    else:
        assert "it has a control character" in str(answer.exception)


def test_a_full_disk_leaves_no_file(tmp_path: Path) -> None:
    """Otherwise the next call would find that it already exists."""
    with small_disk(tmp_path / "disk") as disk:
        disk.fill()
        assert isinstance(RUNNER.invoke(app, ["init", str(disk.directory / "new.toml")]).exception, OSError)
        disk.make_room()
        assert list(disk.directory.iterdir()) == []
