"""The commands for alerts: printing rules, trying them on recordings, users' mistakes."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from regraft.alerts.read_rules import DEFAULT_RULES, load_rules
from regraft.cli import app
from regraft.settings.run_settings import SettingsError, load_settings
from regraft.settings.settings_example import settings_text
from tests.alerts.make_recordings import EXPECTED, make_recording

RUNNER = CliRunner()
SMALL = Path(__file__).parents[1] / "regraft" / "recordings" / "small.avro"


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("recording") / "trouble.avro"
    make_recording(out, with_state=False)
    return out


def tried(file: Path, *more: str, rules: Path = DEFAULT_RULES, code: int = 0) -> dict[str, Any]:
    """Return what ``alerts test --json`` prints."""
    answer = RUNNER.invoke(app, ["alerts", "rules", str(rules), str(file), "--json", *more])
    assert answer.exit_code == code, answer.output
    return dict(json.loads(answer.stdout))


def changes(found: dict[str, Any]) -> list[tuple[float, str, str, str]]:
    return [(each["at_s"], each["rule"], each["subject"], each["status"]) for each in found["changes"]]


def test_default_rules_find_the_trouble_in_a_recording(recording: Path) -> None:
    """A silent broker, a growing queue and an aborted plan: raised and cleared when expected."""
    found, expected = tried(recording), tomllib.loads(EXPECTED.read_text())["alert"]
    assert changes(found) == [(each["at_s"], each["rule"], each["subject"], each["status"]) for each in expected]
    assert found["is_aggregated"]
    rules = {rule for _, rule, _, status in changes(found) if status == "raised"}
    assert rules >= {"broker_silent", "congestion", "queue_growth", "plan_aborted"}


def test_default_rules_find_nothing_in_a_recording_without_trouble() -> None:
    """A quiet run of the emulator raises no alert."""
    assert tried(SMALL)["changes"] == []


def test_a_recording_of_state_gives_the_same_alerts_as_one_of_telemetry(recording: Path, tmp_path: Path) -> None:
    """It makes no difference whether Spark's rows were recorded or are computed from telemetry."""
    out = tmp_path / "state.avro"
    make_recording(out, with_state=True)
    found = tried(out)
    assert not found["is_aggregated"]
    last_s = max(at_s for at_s, *_ in changes(found))
    assert changes(found) == [each for each in changes(tried(recording)) if each[0] <= last_s]


def test_maintenance_shows_which_alerts_would_have_been_silenced(tmp_path: Path) -> None:
    """The order precedes the recording; alerts of its broker are raised and silenced."""
    out = tmp_path / "maintained.avro"
    make_recording(out, with_state=False, in_maintenance="b03")
    found = tried(out)
    kept = {
        (each["rule"], each["subject"]): each["silenced_by"] for each in found["changes"] if each["status"] == "raised"
    }
    assert kept["broker_silent", "b03"] == "maintenance of b03"
    assert kept["congestion", "b01"] == ""


def test_rules_are_printed_as_a_file_and_as_json(tmp_path: Path) -> None:
    """The printed file can be copied; --json gives every parameter, including the defaults."""
    printed = RUNNER.invoke(app, ["alerts", "rules"]).stdout
    assert printed == DEFAULT_RULES.read_text()
    own = tmp_path / "own.toml"
    own.write_text('[[rule]]\nname = "x"\non = "window.missing"\nfor_s = 5\n')
    for where in (["--set", f"alerts.rules_file={own}"], [str(own)]):
        (rule,) = json.loads(RUNNER.invoke(app, ["alerts", "rules", "--json", *where]).stdout)
        assert (rule["name"], rule["for_s"], rule["severity"]) == ("x", 5.0, "warning")
    assert len(load_rules().rules) == printed.count("[[rule]]") > 1


def test_kafka_that_is_away_is_reported_in_a_sentence() -> None:
    """Listing needs Kafka; without it the command prints one sentence."""
    from regraft.infra.process.stack_error import StackError

    answer = RUNNER.invoke(app, ["alerts", "list", "--bootstrap", "127.0.0.1:1"])
    assert isinstance(answer.exception, StackError)
    assert "port 1 of 127.0.0.1 is closed" in str(answer.exception)


def test_settings_of_alerts_reach_the_stage_and_hide_their_urls() -> None:
    """run.json and printed settings hold no URL of a target; a child process gets the full URLs."""
    given = {"alerts": {"targets": ["json://127.0.0.1/tok-en"], "webhooks": ["https://h.example.org/tok-en"]}}
    settings = load_settings({**given, "streaming": {"window_ms": 8_000, "grace_ms": 1_000}})
    assert settings.alerts.webhooks == ("https://h.example.org/tok-en",)
    assert settings.alerts.window_ms == 8_000
    assert "tok-en" not in str(settings.to_record()) + settings_text(settings)
    assert "tok-en" in settings.to_environment()["REGRAFT_ALERTS__TARGETS"]


def test_wrong_settings_do_not_reveal_secrets() -> None:
    """A URL instead of a list, or an invalid URL: the message names the setting, not its value."""
    for given in ({"targets": "json://tok-en"}, {"targets": ["none://tok-en"]}, {"webhooks": ["tok-en"]}):
        with pytest.raises(SettingsError) as caught:
            load_settings({"alerts": given})
        assert "tok-en" not in str(caught.value)
        assert "alerts" in str(caught.value)
