"""The commands for alerts: printing rules, trying them on recordings, comparing with expectations, users' mistakes."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from regraft.alerts.read_rules import DEFAULT_RULES, load_rules
from regraft.cli import app
from regraft.recordings.expect_alerts import ExpectationError, read_expected
from regraft.schemas.alert import AlertStatus
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
    found = tried(recording, "--expect", str(EXPECTED))
    assert found["differences"] == []
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


def test_a_difference_exits_with_1_and_is_shown(recording: Path, tmp_path: Path) -> None:
    """Changed rules fail the recording's expectations: the output lists what is missing and what is unexpected."""
    rules = tmp_path / "rules.toml"
    rules.write_text('[[rule]]\nname = "broker_silent"\non = "broker.silent"\nfor_windows = 4\nclear_for_windows = 2\n')
    expected = tmp_path / "expected.toml"
    expected.write_text(
        '[[alert]]\nrule = "broker_silent"\nsubject = "b03"\nstatus = "raised"\nat_s = 16.0\n'
        '[[alert]]\nrule = "broker_silent"\nsubject = "b03"\nstatus = "cleared"\nat_s = 34\nwithin_s = 2\n'
    )
    answer = RUNNER.invoke(app, ["alerts", "rules", str(rules), str(recording), "--expect", str(expected)])
    assert answer.exit_code == 1
    assert "Not as expected: missing: broker_silent b03 raised at 16 s." in answer.output
    assert "Not as expected: not expected: broker_silent b03 raised at 20 s." in answer.output
    assert "1 alerts raised, 1 cleared in 30 windows (made from its telemetry)" in answer.output


def test_written_expectations_are_met(recording: Path, tmp_path: Path) -> None:
    """--write creates the file that --expect reads."""
    written = tmp_path / "expected.toml"
    found = tried(recording, "--write", str(written))
    assert len(read_expected(written)) == len(found["changes"])
    assert tried(recording, "--expect", str(written))["differences"] == []


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("[[alert]", "is not TOML"),
        ("[[alerts]]\n", "'alerts' is not known"),
        ('[[alert]]\nrule = "r"\n', "alert 1: subject is missing"),
        ('[[alert]]\nrule = "r"\nsubject = "s"\nstatus = "on"\nat_s = 1\n', "status is 'on'"),
        ('[[alert]]\nrule = "r"\nsubject = "s"\nstatus = "raised"\nat_s = "1"\n', "at_s is '1'"),
        ('[[alert]]\nrule = "r"\nsubject = 1\nstatus = "raised"\nat_s = 1\n', "subject is 1"),
        ('[[alert]]\nrule = "r"\nsubjects = 1\n', "subjects is unknown"),
    ],
)
def test_bad_expectations_are_reported(tmp_path: Path, text: str, wanted: str) -> None:
    """A file of invalid expectations is refused with the reason."""
    file = tmp_path / "expected.toml"
    file.write_text(text)
    with pytest.raises(ExpectationError, match=r"cannot be used|is not TOML") as caught:
        read_expected(file)
    assert wanted in str(caught.value)
    with pytest.raises(ExpectationError, match="cannot be read"):
        read_expected(tmp_path / "absent.toml")


def test_rules_are_printed_as_a_file_and_as_json(tmp_path: Path) -> None:
    """The printed file can be copied; --json gives every parameter, including the defaults."""
    printed = RUNNER.invoke(app, ["alerts", "rules"]).stdout
    assert printed == DEFAULT_RULES.read_text()
    own = tmp_path / "own.toml"
    own.write_text('[[rule]]\nname = "x"\non = "window.missing"\nfor_s = 5\n')
    for where in (["--set", f"alerts.rules_file={own}"], [str(own)]):
        (rule,) = json.loads(RUNNER.invoke(app, ["alerts", "rules", "--json", *where]).stdout)
        assert (rule["name"], rule["for_s"], rule["severity"]) == ("x", 5.0, "warning")
    assert RUNNER.invoke(app, ["alerts", "rules", str(own), "--expect", "expected.toml"]).exit_code == 2
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


def test_expectations_use_the_statuses_of_the_record() -> None:
    """Expectation files use the words of the stored records."""
    assert {each.status for each in read_expected(EXPECTED)} == set(AlertStatus)
