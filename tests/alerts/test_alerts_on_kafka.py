"""The alert stage as a separate process on a real Kafka: killed, restarted, replaced, disconnected."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from confluent_kafka import Producer
from typer.testing import CliRunner

from regraft.alerts.alert_store import AlertStore
from regraft.cli import app
from regraft.infra.kafka.create_topics import create_topics
from regraft.infra.local.kafka_server import RunningKafka, start_kafka
from regraft.infra.process.find_port import choose_ports
from regraft.run_records.read_topics import read_whole
from regraft.schemas.alert import Alert, AlertStatus, DeliveryState
from regraft.schemas.codec import encode
from regraft.schemas.dead_letter import DeadLetter
from regraft.schemas.event import AdaptationEvent, EventKind, Severity
from regraft.schemas.state import StateRow, WindowClosed
from regraft.schemas.topics import DEAD_LETTERS, EVENTS, STATE, WINDOWS, Topic, topic_name
from tests.alerts.scripted_alerts import WINDOW_MS, queue_of
from tests.alerts.webhook_server import WebhookServer, webhook_server
from tests.wait_until import wait_until

pytestmark = pytest.mark.stack
PATIENCE_S = 120.0
RULES = """
[[rule]]
name = "congestion"
on = "queue.congestion"
above = 10
for_windows = 2
clear_below = 5
clear_for_windows = 2
[[rule]]
name = "aborted"
on = "plan.aborted"
clear_after_s = 3600
text = "{detail}"
"""
NEAR_KINDS = (EventKind.ALERT_RAISED, EventKind.ALERT_CLEARED)


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningKafka]:
    with start_kafka(tmp_path_factory.mktemp("kafka")) as running:
        yield running


class Overlay:
    """What brokers, Spark and the controller write, in its own namespace, and the alert stage that reads it."""

    def __init__(self, kafka: RunningKafka, namespace: str, directory: Path, webhooks: tuple[str, ...]) -> None:
        create_topics(kafka.access, namespace=namespace)
        self.kafka, self.namespace, self.directory = kafka, namespace, directory
        self._producer = Producer({"bootstrap.servers": kafka.bootstrap, "linger.ms": 0})
        self._next_ms = time.time_ns() // 1_000_000 // WINDOW_MS * WINDOW_MS
        self.processes: list[subprocess.Popen[bytes]] = []
        (directory / "rules.toml").write_text(RULES)
        self.environment = {
            **os.environ,
            "REGRAFT_KAFKA_BOOTSTRAP": kafka.bootstrap,
            "REGRAFT_KAFKA_NAMESPACE": namespace,
            "REGRAFT_RUN__DIRECTORY": str(directory),
            "REGRAFT_STREAMING__WINDOW_MS": str(WINDOW_MS),
            "REGRAFT_STREAMING__GRACE_MS": "500",
            "REGRAFT_ALERTS__RULES_FILE": str(directory / "rules.toml"),
            "REGRAFT_ALERTS__WEBHOOKS": json.dumps(webhooks),
        }

    def start(self, **more: str) -> subprocess.Popen[bytes]:
        """Start the stage; return once it has read what was stored."""
        status = self.directory / "alerts.json"
        status.unlink(missing_ok=True)
        with (self.directory / "alerts.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "regraft", "stage", "alerts"],
                env={**self.environment, **more},
                stdout=log,
                stderr=log,
            )
        self.processes.append(process)
        wait_until(lambda: process.poll() is not None or self.status().get("is_reading", False), PATIENCE_S)
        assert process.poll() is None, self.log
        return process

    def status(self) -> dict[str, Any]:
        """Return the status file, empty if there is none yet."""
        try:
            return dict(json.loads((self.directory / "alerts.json").read_text()))
        except FileNotFoundError:
            return {}

    @property
    def flags(self) -> list[str]:
        """Return the flags with which a command finds the namespace."""
        return ["--bootstrap", self.kafka.bootstrap, "--set", f"kafka.namespace={self.namespace}"]

    @property
    def log(self) -> str:
        """Return what the stage has logged so far."""
        return (self.directory / "alerts.log").read_text()

    def window(self, congestion: float, subjects: int = 1) -> None:
        """Write one window in which this many brokers have this congestion."""
        start_ms, end_ms = self._next_ms, self._next_ms + WINDOW_MS
        self._next_ms = end_ms
        for number in range(subjects):
            queue = queue_of(f"b{number:02}", congestion=congestion)
            row = StateRow(start_ms, end_ms, "queue", f"{queue.broker}|", queue=queue)
            self.send(STATE, row, f"{start_ms}/queue/{row.entity}")
        self.send(WINDOWS, WindowClosed(start_ms, end_ms, 1, {"queue": subjects}, (), 0))
        assert self._producer.flush(PATIENCE_S) == 0

    def abort(self, text: str) -> None:
        """Write the event of an aborted plan."""
        now_ms = time.time_ns() // 1_000_000
        self.send(EVENTS, AdaptationEvent("plan-1", EventKind.PLAN_ABORTED, Severity.WARNING, now_ms, text))
        assert self._producer.flush(PATIENCE_S) == 0

    def send(self, topic: Topic, record: msgspec.Struct, key: str = "") -> None:
        """Write one record."""
        self._producer.produce(topic_name(topic, self.namespace), encode(record), key=key.encode())

    def alerts(self) -> dict[str, Alert]:
        """Return the stored alerts by key."""
        store = AlertStore(self.kafka.access, self.namespace)
        return {alert.key: alert for alert in store.load() or []}

    def alert_events(self) -> list[tuple[str, str]]:
        """Return kind and subject of the events about alerts."""
        events = read_whole(self.kafka.access, self.namespace, {EVENTS: AdaptationEvent}, PATIENCE_S)
        return [(str(each.kind), each.subject) for each in events if each.kind in NEAR_KINDS]

    def letters(self) -> list[DeadLetter]:
        """Return the dead letters."""
        return list(read_whole(self.kafka.access, self.namespace, {DEAD_LETTERS: DeadLetter}, PATIENCE_S))


@pytest.fixture
def overlay(
    kafka: RunningKafka, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Callable[..., Overlay]]:  # fmt: skip
    made: list[Overlay] = []

    def make(*webhooks: str) -> Overlay:
        name = request.node.name.replace("_", "-")[:40]
        made.append(Overlay(kafka, name, tmp_path, webhooks))
        return made[-1]

    yield make
    for each in made:
        for process in each.processes:
            process.kill()
            process.wait(PATIENCE_S)


@contextmanager
def one_server() -> Iterator[WebhookServer]:
    with webhook_server() as server:
        yield server


def has_arrived(server: WebhookServer, count: int) -> bool:
    """Return True if this many messages have arrived."""
    return len(server.received) >= count


def statuses(server: WebhookServer) -> list[tuple[str, str]]:
    """Return rule and status of each message that the server received."""
    return [(body["rule"], body["status"]) for body in map(json.loads, server.bodies)]


def test_a_killed_stage_resumes_and_sends_nothing_twice(overlay: Callable[..., Overlay]) -> None:
    """Killed with SIGKILL after an alert was sent and restarted: the alert is not sent again, its end is sent once."""
    with one_server() as server:
        lab = overlay(server.url)
        first = lab.start()
        lab.window(20)
        lab.window(20)
        lab.abort("b03 refused")
        wait_until(lambda: len(server.received) == 2, PATIENCE_S)
        wait_until(
            lambda: all(one.deliveries[0].state is DeliveryState.SENT for one in lab.alerts().values()), PATIENCE_S
        )
        first.send_signal(signal.SIGKILL)
        first.wait(PATIENCE_S)
        lab.window(20)  # while the stage is down
        second = lab.start()
        lab.window(20)
        wait_until(lambda: lab.status()["windows"] >= 4, PATIENCE_S)
        lab.window(1)
        lab.window(1)
        wait_until(lambda: len(server.received) == 3, PATIENCE_S)
        second.terminate()
        assert second.wait(PATIENCE_S) == 0, lab.log
        listed = CliRunner().invoke(app, ["alerts", "list", "--json", *lab.flags])
        shown = json.loads(listed.stdout)
        assert [each["rule"] for each in shown["active"]] == ["aborted"]
        assert [each["deliveries"][0]["state"] for each in shown["recent"]] == ["sent"]
        assert "1 active alert." in CliRunner().invoke(app, ["alerts", "list", *lab.flags]).stdout
    assert statuses(server) == [("congestion", "raised"), ("aborted", "raised"), ("congestion", "cleared")] or statuses(
        server
    ) == [("aborted", "raised"), ("congestion", "raised"), ("congestion", "cleared")]
    assert sorted(lab.alert_events()) == [
        ("alert_cleared", "b00"), ("alert_raised", "b00"), ("alert_raised", "plans"),
    ]  # fmt: skip
    found = lab.alerts()
    assert {key: alert.status for key, alert in found.items()} == {
        "congestion/b00": AlertStatus.CLEARED,
        "aborted/plans": AlertStatus.RAISED,
    }
    assert len({each.headers["Idempotency-Key"] for each in server.received}) == 3
    assert "secret-token" not in lab.log


def test_a_message_interrupted_by_a_kill_is_not_sent_again(overlay: Callable[..., Overlay]) -> None:
    """The target answers slowly and the stage is killed meanwhile: the delivery is recorded as uncertain, or, if the
    settings ask for it, repeated with the same key.
    """
    with one_server() as server:
        server.may_answer.clear()
        lab = overlay(server.url)
        first = lab.start()
        lab.window(20)
        lab.window(20)
        wait_until(lambda: len(server.received) == 1, PATIENCE_S)
        first.kill()
        first.wait(PATIENCE_S)
        server.may_answer.set()
        second = lab.start()
        wait_until(lambda: lab.alerts()["congestion/b00"].deliveries[0].state is DeliveryState.UNCERTAIN, PATIENCE_S)
        lab.window(1)
        lab.window(1)
        wait_until(lambda: len(server.received) == 2, PATIENCE_S)
        assert statuses(server) == [("congestion", "raised"), ("congestion", "cleared")]
        second.kill()
        second.wait(PATIENCE_S)
        lab.start(REGRAFT_ALERTS__RESEND_UNCERTAIN="true")
        wait_until(lambda: lab.alerts()["congestion/b00"].deliveries[0].state is DeliveryState.SENT, PATIENCE_S)
        assert statuses(server)[1:] == [("congestion", "cleared")] * 2
        assert len({each.headers["Idempotency-Key"] for each in server.received}) == 2


def test_an_unreachable_target_does_not_stop_others(overlay: Callable[..., Overlay]) -> None:
    """One target is down: the other one receives everything; what the first one missed is a dead letter."""
    with one_server() as server:
        away = f"http://127.0.0.1:{choose_ports(1)[0]}/hook/other-secret"
        lab = overlay(away, server.url)
        lab.start()
        for congestion, count in ((20, 1), (1, 2)):
            lab.window(congestion)
            lab.window(congestion)
            wait_until(partial(has_arrived, server, count), PATIENCE_S)
        lab.window(20, subjects=15)
        lab.window(20, subjects=15)
        wait_until(lambda: sum(json.loads(body)["count"] for body in server.bodies) >= 15 + 2, PATIENCE_S)
        wait_until(lambda: len(lab.letters()) == len(server.received), PATIENCE_S)
    for letter in lab.letters():
        assert letter.topic == f"{lab.namespace}.alerts"
        assert "no connection" in letter.reason
        assert json.loads(letter.value)["source"] == lab.namespace
        assert "other-secret" not in letter.reason
    assert "other-secret" not in lab.log


def test_a_second_stage_replaces_the_first_one(overlay: Callable[..., Overlay]) -> None:
    """Two stages of one namespace would send everything twice: the older one exits with code 1 and a sentence."""
    with one_server() as server:
        lab = overlay(server.url)
        first = lab.start()
        lab.start()
        lab.window(20)
        lab.window(20)
        wait_until(lambda: len(server.received) == 1, PATIENCE_S)
        wait_until(lambda: first.poll() is not None, PATIENCE_S)
        assert first.returncode == 1
        assert "Another alert stage took over" in lab.log
        assert statuses(server) == [("congestion", "raised")]


def test_the_stage_survives_a_killed_kafka(kafka: RunningKafka, overlay: Callable[..., Overlay]) -> None:
    """Kafka dies and returns: later alerts are reported once, by the same process or its successor."""
    with one_server() as server:
        lab = overlay(server.url)
        process = lab.start()
        lab.window(20)
        pid = kafka.supervisor.pid("kafka")
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: kafka.supervisor.pid("kafka") not in (None, pid), PATIENCE_S)
        lab.window(20)
        wait_until(lambda: len(server.received) == 1 or process.poll() is not None, PATIENCE_S)
        assert process.poll() is None, lab.log
        lab.window(1)
        lab.window(1)
        wait_until(lambda: len(server.received) == 2, PATIENCE_S)
        assert statuses(server) == [("congestion", "raised"), ("congestion", "cleared")]
