import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from regraft.demo.disturb_services import KILLED
from regraft.infra.process.find_port import choose_ports
from regraft.producers.recordings.read_recording import open_recording
from tests.regraft.demo.watch_secrets import ClientCommands, SecretWatch
from tests.regraft.run_installed import CHECKOUT, run_installed
from tests.wait_until import PATIENCE_S


def _regraft(*arguments: str, timeout_s: float) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "regraft", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False, cwd=CHECKOUT)


@pytest.mark.spark
@pytest.mark.stack
def test_killing_each_part_of_the_loop_loses_nothing(tmp_path: Path) -> None:
    """Secured servers and stages are killed under traffic: no delivery or plan is lost or doubled, no secret shown."""
    with SecretWatch(tmp_path) as watch, ClientCommands(tmp_path, _regraft) as commands:
        answer = _regraft(
            *("demo", "--secure", "--dashboard", "--chaos", "--json", "--seed", "5", "--duration", "90"),
            *("--out", str(tmp_path), "--set", "dashboard.port=0", "--set", "demo.kill_every_s=10"),
            timeout_s=700,
        )
    assert commands.errors == []
    assert watch.seen >= {"java", "valkey-server", "regraft"}
    assert watch.found == []
    assert answer.returncode == 0, answer.stderr[-4000:]
    summary = json.loads(answer.stdout)
    _check_account(summary)
    assert all(summary["restarts"][name] >= 1 for name in KILLED), summary["restarts"]
    assert summary["alerts_raised"]["service_restarted"] >= 1
    _check_plans(tmp_path / "run")
    assert (tmp_path / "report.html").stat().st_size > 20_000
    assert json.loads((tmp_path / "run.json").read_text())["seed"] == 5


@pytest.mark.spark
@pytest.mark.stack
def test_a_death_is_repaired_and_a_returning_broker_is_admitted(
    installed: Path, folder_of_others: Path, tmp_path: Path
) -> None:
    """Two brokers die and return, one of them twice: nothing is lost except what had to cross the dead.

    All of it runs from the wheel, including stages and Spark's workers.
    """
    outages = ["death b03,b07 at 6 for 12", "death b03 at 36 for 4"]
    chosen = {
        "demo.brokers": 12,
        "controller.shadow_planners": [],
        "emulator.outages": outages,
        "streaming.window_ms": 2_000,
        "streaming.grace_ms": 1_000,
        "controller.members.silence_ms": 4_000,
    }
    settings = [part for name, value in chosen.items() for part in ("--set", f"{name}={json.dumps(value)}")]
    arguments = ("demo", "--scenario", "outage", "--json", "--seed", "3", "--duration", "75", "--out", str(tmp_path))
    recorded = ("--record", str(tmp_path / "rec.avro"))
    answer = run_installed(
        installed, folder_of_others, "-m", "regraft", *arguments, *recorded, *settings, timeout_s=700
    )
    assert answer.stdout, answer.stderr[-4000:]  # So small an overlay may end more expensive: exit code 1.
    summary = json.loads(answer.stdout)
    _check_account(summary)
    assert summary["ledger_final"]
    assert summary["outages"] == {"death": 2}
    assert summary["repairs"] >= 1
    _check_plans(tmp_path / "run")
    members = json.loads((tmp_path / "run" / "controller.json").read_text())["members"]
    assert {broker for repair in members["repairs"] for broker in repair["lost"]} == {"b03", "b07"}
    assert members["counts"] == {"in_service": 12}
    assert "b03, b07: restarted, empty" in (tmp_path / "report.html").read_text()
    recording = open_recording(tmp_path / "rec.avro")
    topics = Counter(message.topic for message in recording.messages())
    assert topics["telemetry"] == summary["telemetry_records"]
    assert {"plans", "windows", "members"} <= topics.keys()
    assert recording.warnings == []


@pytest.mark.spark
@pytest.mark.stack
def test_users_move_and_ids_are_reassigned_on_a_ring_without_loss(tmp_path: Path) -> None:
    """The chord scenario on real Kafka and Spark: users and IDs move, every delivery is made."""
    answer = _regraft(
        *("demo", "--scenario", "chord", "--json", "--seed", "2", "--duration", "80", "--out", str(tmp_path)),
        timeout_s=700,
    )
    assert answer.returncode == 0, answer.stderr[-4000:]
    summary = json.loads(answer.stdout)
    _check_account(summary)
    assert summary["users_moved"] > 0
    assert summary["subscription_changes_cut"] is not None
    assert "id_moves" in summary
    _check_plans(tmp_path / "run")
    assert "Users that moved" in (tmp_path / "report.html").read_text()


def _check_account(summary: dict[str, Any]) -> None:
    """Check that everything owed came once and in order, except what had to cross a dead broker."""
    assert summary["deliveries"] > 0
    found = [summary[name] for name in ("lost", "repeated", "out_of_order", "unexpected")]
    assert found == [summary["lost_to_deaths"], 0, 0, 0]


def _check_plans(run_directory: Path) -> None:
    """Check that each plan starts from the previous one's epoch, and that all brokers reach the last plan's."""
    plans = json.loads((run_directory / "controller.json").read_text())["plans"]
    epoch = 0
    for plan in plans:
        assert plan["epoch_from"] == epoch
        if plan["phase"] not in ("aborting", "aborted"):
            epoch = plan["epoch_to"]
    brokers_by_epoch = json.loads((run_directory / "emulator.json").read_text())["brokers_by_epoch"]
    assert list(brokers_by_epoch) == [str(epoch)]


def test_a_missing_kafka_is_reported_in_one_sentence(tmp_path: Path) -> None:
    """A wrong address ends with code 1 and what to do, not with a page of connection errors."""
    address = f"127.0.0.1:{choose_ports(1)[0]}"
    answer = _regraft(
        "run", "--emulate", "--bootstrap", address, "--set", f"run.directory={tmp_path}", timeout_s=PATIENCE_S
    )
    assert answer.returncode == 1
    assert answer.stderr.count("\n") == 1
    assert f"port {address.rpartition(':')[2]} of 127.0.0.1" in answer.stderr
    assert "is closed" in answer.stderr
