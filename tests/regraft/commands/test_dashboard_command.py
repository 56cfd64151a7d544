"""`regraft dashboard`: tokens from the command line, its settings, its place among the stages."""

import json
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from regraft.cli import app
from regraft.dashboard.operator_tokens import TokenSecretError, check_token
from regraft.dashboard.revoked_tokens import RevokedTokens
from regraft.settings.run_settings import load_settings
from regraft.settings.settings_example import settings_text
from regraft.stages.loop_services import DASHBOARD, loop_service
from regraft.stages.run_stage import STAGES

SECRET = "s" * 32


def test_a_token_made_by_the_command_opens_the_dashboard(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is for the namespace of the settings and expires at its time; its id is printed to standard error."""
    monkeypatch.setenv("REGRAFT_DASHBOARD__SECRET", SECRET)
    call = ["dashboard", "token", "--by", "Ana", "--hours", "2", "--set", "kafka.namespace=lab"]
    before_s = int(time.time())
    answer = CliRunner().invoke(app, call)
    after_s = time.time()
    assert answer.exit_code == 0
    operator = check_token(SECRET, answer.stdout.strip(), "lab", 24)
    assert operator.name == "Ana"
    assert operator.token_id in answer.stderr
    assert before_s <= operator.until_ms / 1000 - 7200 <= after_s
    as_json = json.loads(CliRunner().invoke(app, [*call, "--json"]).stdout)
    assert check_token(SECRET, as_json["token"], "lab", 24).until_ms // 1000 == as_json["until_ms"] // 1000


def test_a_revoked_token_is_refused_by_the_dashboard(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It is revoked once, by its id or by the token itself; anything else is refused in one sentence."""
    monkeypatch.setenv("REGRAFT_DASHBOARD__SECRET", SECRET)
    place = ["--set", f"run.directory={tmp_path}"]
    made = json.loads(CliRunner().invoke(app, ["dashboard", "token", "--by", "Ana", "--json", *place]).stdout)
    file = load_settings({"run": {"directory": tmp_path}}).dashboard.revoked_path
    first = CliRunner().invoke(app, ["dashboard", "token", "--revoke", made["id"], *place])
    again = CliRunner().invoke(app, ["dashboard", "token", "--revoke", made["token"], *place])
    assert first.stdout == f"Token {made['id']} is revoked in {tmp_path / 'revoked-tokens.txt'}.\n"
    assert again.stdout == f"Token {made['id']} was already revoked in {tmp_path / 'revoked-tokens.txt'}.\n"
    assert made["id"] in RevokedTokens(file)
    wrong = CliRunner().invoke(app, ["dashboard", "token", "--revoke", "Ana", *place])
    assert isinstance(wrong.exception, TokenSecretError)


@pytest.mark.parametrize("words", [[], ["Ana"], ["--revoke"], ["0123456789abcdef", "--by", "Ana"]], ids=" ".join)
def test_a_token_is_either_made_for_a_name_or_revoked_by_its_id(words: list[str]) -> None:
    """Who forgets --revoke does not get a new token instead."""
    assert CliRunner().invoke(app, ["dashboard", "token", *words]).exit_code == 2


def test_the_secret_is_in_no_record_of_a_run() -> None:
    """Recorded settings, and the output of `regraft settings`, contain only that there is one."""
    settings = load_settings({"dashboard": {"secret": SECRET}})
    assert settings.to_record()["dashboard"]["secret"] == "given"
    assert SECRET not in settings_text(settings) + repr(settings.dashboard)
    assert settings.to_environment()["REGRAFT_DASHBOARD__SECRET"] == SECRET


def test_the_dashboard_shares_the_settings_of_the_controller(tmp_path: Path) -> None:
    """Kafka, namespace, live view and inventory are those of the run; its service runs its own command."""
    settings = load_settings({"run": {"directory": tmp_path}, "kafka": {"namespace": "lab"}})
    dashboard, controller = settings.dashboard, settings.controller
    for name in ("bootstrap", "namespace", "redis_url", "inventory_path"):
        assert getattr(dashboard, name) == getattr(controller, name)
    assert dashboard.status_file == tmp_path / "dashboard.json"
    assert loop_service(DASHBOARD, settings).command[-2:] == ("stage", "dashboard")
    assert "dashboard" in STAGES
