"""The commands record, recording and replay: their descriptions of files, and their answers to mistakes."""

import json
import os
import signal
import threading
from contextlib import suppress
from pathlib import Path
from urllib.request import urlopen

import pytest
from typer.testing import CliRunner, Result

import regraft.replays.replay_run
from regraft.cli import app
from regraft.commands.replay_command import speed_of, time_of
from regraft.infra.process.find_port import choose_ports
from regraft.infra.process.stack_error import StackError
from regraft.producers.recordings import record_topics
from regraft.producers.recordings.read_recording import RecordingError, open_recording
from regraft.recordings.record_run import recorded_run
from regraft.schemas.topics import CLIENTS, TELEMETRY, topic_name
from regraft.settings.run_settings import SettingsError, load_settings
from regraft.stages.run_stage import SETTINGS_FILE
from tests.mock_kafka import mock_kafka
from tests.producers.recorded_messages import START_MS, telemetry, write
from tests.regraft.make_small_recording import SMALL, small_inventory
from tests.wait_until import PATIENCE_S, wait_until

RUNNER = CliRunner()


def invoke(*arguments: str) -> Result:
    return RUNNER.invoke(app, list(arguments))


@pytest.mark.parametrize("command", ["record", "recording", "replay"])
def test_every_command_explains_itself(command: str) -> None:
    """--help works without any server or file, and has examples."""
    answer = invoke(command, "--help")
    assert answer.exit_code == 0
    assert "Example" in answer.stdout


def test_a_recorder_serves_its_health_while_it_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ready once Kafka has said that all has arrived; a host without a port is refused."""
    assert "without metrics_port" in str(invoke("record", "--out", "x", "--metrics-host", "::1").exception)
    for limit in ("CALL_S", "CONNECT_S_MAX"):
        monkeypatch.setattr(record_topics, limit, PATIENCE_S)
    (tmp_path / "inventory.json").write_text(small_inventory().to_json())
    (port,) = choose_ports(1)
    stated: list[dict[str, object]] = []

    def ask() -> bool:
        with suppress(OSError), urlopen(f"http://127.0.0.1:{port}/ready", timeout=PATIENCE_S) as answer:
            stated.append(json.loads(answer.read()))
        return bool(stated)

    def ask_then_stop() -> None:
        wait_until(ask)
        os.kill(os.getpid(), signal.SIGTERM)

    asking = threading.Thread(target=ask_then_stop)
    with mock_kafka(*(topic_name(topic) for topic in (TELEMETRY, CLIENTS))) as (_, bootstrap):
        asking.start()
        answer = invoke(
            *("record", "--out", str(tmp_path / "r.avro"), "--bootstrap", bootstrap, "--json"),
            *("--duration", f"{2 * PATIENCE_S:g}", "--metrics-port", str(port), "--set", f"run.directory={tmp_path}"),
        )
        asking.join()
    assert answer.exit_code == 0, answer.output
    assert stated[0]["is_ready"]
    assert str(stated[0]["proved"]).startswith("['everything was last read up to the end reported by Kafka")


def test_a_recording_is_described() -> None:
    """It gives topics, time, brokers, epochs and parts, for people and for programs."""
    answer = invoke("recording", str(SMALL), "--json")
    assert answer.exit_code == 0
    found = json.loads(answer.stdout)
    assert found["brokers"] == found["brokers_in_inventory"] == 10
    assert found["epochs"] == [0, 1, 2]
    assert found["topics"]["telemetry"] > 2_500
    assert 69 < found["span_s"] < 71
    assert (found["unread"], found["warnings"], found["namespace"]) == ({}, [], "regraft")
    table = invoke("recording", str(SMALL)).stdout
    assert "telemetry 27" in table
    assert "0 to 2 (3)" in table


def test_a_cut_recording_is_described_up_to_the_cut(tmp_path: Path) -> None:
    """The readable part is reported with the warning, and the command ends with 1."""
    (tmp_path / "cut.avro").write_bytes(SMALL.read_bytes()[:-1_000])
    answer = invoke("recording", str(tmp_path / "cut.avro"), "--json")
    assert answer.exit_code == 1
    found = json.loads(answer.stdout)
    assert 0 < found["records"] < open_recording(SMALL).count
    assert "is cut: it was read to byte" in found["warnings"][0]


def test_brokers_of_another_run_are_detected(tmp_path: Path) -> None:
    """If the inventory of a recording lacks its brokers, it was recorded with another run's directory."""
    write(tmp_path / "rec.avro", telemetry(range(8)))
    data = (tmp_path / "rec.avro").read_bytes().replace(b'"b3"', b'"x3"')
    (tmp_path / "rec.avro").write_bytes(data)
    answer = invoke("recording", str(tmp_path / "rec.avro"), "--json")
    assert answer.exit_code == 1
    assert "1 brokers are not in its inventory (b3)" in json.loads(answer.stdout)["warnings"][0]


def test_a_file_that_is_no_recording_is_refused(tmp_path: Path) -> None:
    """Both commands that read recordings give one sentence."""
    (tmp_path / "plans.json").write_text("{}")
    for command in ("recording", "replay"):
        with pytest.raises(RecordingError, match="is not a recording: it does not start like an Avro file"):
            RUNNER.invoke(app, [command, str(tmp_path / "plans.json")], catch_exceptions=False)


def test_a_recording_needs_the_inventory_of_its_run(tmp_path: Path) -> None:
    """Without one the message says how to name the run's directory, and nothing is written."""
    out = tmp_path / "rec.avro"
    with pytest.raises(StackError, match=r"name its directory with --set run\.directory=DIR"):
        RUNNER.invoke(
            app, ["record", "--out", str(out), "--set", f"run.directory={tmp_path / 'none'}"], catch_exceptions=False
        )
    assert not out.exists()


def test_a_recording_has_the_settings_of_the_run_and_not_of_the_recorder(tmp_path: Path) -> None:
    """The controller's settings are read from its directory, without secrets and addresses."""
    small_inventory().save(tmp_path / "inventory.json")
    settings = load_settings({"run": {"directory": str(tmp_path)}, "redis": {"url": "redis://:pass@host/0"}})
    assert recorded_run(settings, (TELEMETRY,)).settings["controller"]["horizon_lifetimes"] == 4.0
    recorded = load_settings({"controller": {"horizon_lifetimes": 1.5}}).to_record()
    (tmp_path / SETTINGS_FILE).write_text(json.dumps(recorded))
    run = recorded_run(settings, (TELEMETRY,))
    assert run.settings["controller"]["horizon_lifetimes"] == 1.5
    assert set(run.settings) == {"run", "demo", "emulator", "streaming", "controller"}
    assert "pass" not in json.dumps(run.settings)
    for damaged in ("5", "null", "[]", '["run"]', '{"run": 5}'):
        (tmp_path / SETTINGS_FILE).write_text(damaged)
        assert recorded_run(settings, (TELEMETRY,)).settings["controller"]["horizon_lifetimes"] == 4.0


def test_wrong_flags_are_reported(tmp_path: Path) -> None:
    """Each wrong flag gives a sentence with what is allowed."""
    for arguments, reason in (
        (["record", "--out", "rec.avro", "--rotate-mb", "0"], "rotate_mb is 0"),
        (["record", "--out", "rec.avro", "--compress-level", "99"], "compress_level is 99"),
        (["replay", str(SMALL), "--speed", "fast"], "--speed fast: a number above 0, or max"),
        (["replay", str(SMALL), "--from", "noon"], "--from noon: seconds from the start"),
        (["replay", str(SMALL), "--all", "--run"], "--all and --run"),
        (["recording", str(SMALL), "--set", "recordings.block_mb_max=1"], "recordings.block_mb_max is not a setting"),
        (
            ["replay", str(SMALL), "--from", "1", "--set", "recordings.overlap_mb_max=9"],
            "recordings.overlap_mb_max is not a setting",
        ),
    ):
        with pytest.raises(SettingsError, match=reason):
            RUNNER.invoke(app, arguments, catch_exceptions=False)
    with pytest.raises(StackError, match="must be earlier than --to"):
        RUNNER.invoke(app, ["replay", str(SMALL), "--from", "20", "--to", "10"], catch_exceptions=False)


def test_speeds_and_times_are_parsed() -> None:
    """Seconds count from the beginning of the telemetry; a time without a zone is UTC."""
    assert (speed_of("max"), speed_of("1"), speed_of("0.5")) == (None, 1.0, 0.5)
    assert time_of("12.5", "--from", START_MS) == START_MS + 12_500
    assert time_of("2025-10-09T08:53:20", "--to", 0) == 1_760_000_000_000
    assert time_of("2025-10-09T10:53:20+02:00", "--to", 0) == 1_760_000_000_000
    assert time_of(None, "--to", 0) is None


def test_replaying_into_the_live_namespace_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """No topic is created: the recorded namespace and the one in the settings belong to live runs."""
    made: list[str] = []
    monkeypatch.setattr(regraft.replays.replay_run, "require_kafka", lambda bootstrap: None)
    monkeypatch.setattr(
        regraft.replays.replay_run, "create_replay_topics", lambda bootstrap, namespace: made.append(namespace)
    )
    for namespace, configured in (("regraft", "other"), ("other", "other")):
        with pytest.raises(StackError, match=rf"Namespace {namespace} is the one"):
            RUNNER.invoke(
                app,
                ["replay", str(SMALL), "--namespace", namespace, "--set", f"kafka.namespace={configured}"],
                catch_exceptions=False,
            )
    assert made == []
