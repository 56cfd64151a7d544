"""Metrics and health over HTTP: what a scraper and a supervisor request, and what they get."""

import json
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry, Counter

from regraft.infra.process.find_port import LOOPBACK, is_listening
from regraft.infra.process.serve_metrics import (
    REQUESTS_AT_ONCE_MAX,
    Health,
    MetricsPortError,
    MetricsServer,
    Pulse,
    port_errors,
    serve_metrics,
)
from tests.wait_until import PATIENCE_S


class Stage:
    """A stage whose health a test sets."""

    def __init__(self) -> None:
        self.health = Health(is_ready=True)
        self.is_asked = threading.Event()
        self.may_answer = threading.Event()
        self.may_answer.set()

    def __call__(self) -> Health:
        self.is_asked.set()
        assert self.may_answer.wait(PATIENCE_S)
        return self.health


@pytest.fixture
def stage() -> Stage:
    return Stage()


@pytest.fixture
def server(stage: Stage) -> Iterator[MetricsServer]:
    registry = CollectorRegistry()
    Counter("regraft_test_windows", "Windows seen.", registry=registry).inc(3)
    with serve_metrics(registry, LOOPBACK, 0, stage) as running:
        yield running


def ask(server: MetricsServer, path: str, accept: str = "*/*", method: str = "GET") -> tuple[int, str, str]:
    """Return status, content type and body."""
    url = f"http://{LOOPBACK}:{server.port}{path}"
    request = urllib.request.Request(url, headers={"Accept": accept}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers["Content-Type"], error.read().decode()


def test_metrics_are_served_in_the_requested_format(server: MetricsServer) -> None:
    """The plain format by default, OpenMetrics if the scraper prefers it."""
    status, kind, text = ask(server, "/metrics")
    assert (status, kind.split(";")[0]) == (200, "text/plain")
    assert "regraft_test_windows_total 3.0" in text
    _, kind, text = ask(server, "/metrics", "application/openmetrics-text;version=1.0.0")
    assert kind.startswith("application/openmetrics-text")
    assert text.endswith("# EOF\n")


def test_a_healthy_stage_is_alive_and_ready(server: MetricsServer) -> None:
    """Both answers are 200 and say so."""
    for path in ("/health", "/ready"):
        status, _, text = ask(server, path)
        assert (status, json.loads(text)) == (200, {"is_ready": True, "errors": []})


def test_a_stage_that_starts_is_alive_but_not_ready(server: MetricsServer, stage: Stage) -> None:
    """A supervisor does not restart it, a load balancer does not use it yet."""
    stage.health = Health(is_ready=False)
    assert ask(server, "/health")[0] == 200
    assert ask(server, "/ready")[0] == 503


def test_a_stage_that_has_not_seen_its_part_work_is_alive_but_not_ready(server: MetricsServer, stage: Stage) -> None:
    """A restart does not bring Kafka back; the answer says what is proved, or why nothing is."""
    stage.health = Health(is_ready=False, notes=("Kafka has not answered for 61 s",))
    assert ask(server, "/health")[0] == 200
    status, _, text = ask(server, "/ready")
    assert (status, json.loads(text)["notes"]) == (503, ["Kafka has not answered for 61 s"])
    stage.health = Health(is_ready=True, proved=("windows were read 2 s ago",))
    status, _, text = ask(server, "/ready")
    assert (status, json.loads(text)["proved"]) == (200, ["windows were read 2 s ago"])


def test_a_error_makes_a_stage_neither_alive_nor_ready(server: MetricsServer, stage: Stage) -> None:
    """The answer names the error, and metrics are still served."""
    stage.health = Health(is_ready=True, errors=("the loop stands",))
    for path in ("/health", "/ready"):
        status, _, text = ask(server, path)
        assert (status, json.loads(text)["errors"]) == (503, ["the loop stands"])
    assert ask(server, "/metrics")[0] == 200


def test_a_stage_whose_health_check_fails_is_unhealthy(server: MetricsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception while the stage determines its health is an error, not a broken connection."""
    monkeypatch.setattr(Stage, "__call__", lambda _self: 1 / 0)
    status, _, text = ask(server, "/health")
    assert status == 503
    assert "ZeroDivisionError" in json.loads(text)["errors"][0]


def test_other_paths_and_methods_are_answered_with_what_exists(server: MetricsServer) -> None:
    """404 lists the paths; only GET is answered."""
    status, _, text = ask(server, "/")
    assert (status, json.loads(text)["paths"]) == (404, ["/metrics", "/health", "/ready"])
    assert ask(server, "/health", method="POST")[0] == 405


def test_a_taken_port_is_reported_in_one_sentence(server: MetricsServer, stage: Stage) -> None:
    """Address, reason and what to do."""
    with pytest.raises(
        MetricsPortError, match=rf"on 127.0.0.1:{server.port} \(Address already in use\): stop the " r"process"
    ):
        serve_metrics(CollectorRegistry(), LOOPBACK, server.port, stage)
    with pytest.raises(MetricsPortError, match="choose another metrics_port or metrics_host"):
        serve_metrics(CollectorRegistry(), "no.such.host.invalid", 0, stage)


def test_the_port_is_free_after_a_stop(stage: Stage) -> None:
    """The stage's next start finds its port free."""
    server = serve_metrics(CollectorRegistry(), LOOPBACK, 0, stage)
    port = server.port
    server.close()
    assert not is_listening(port)
    serve_metrics(CollectorRegistry(), LOOPBACK, port, stage).close()


def test_requests_at_once_are_bounded(server: MetricsServer, stage: Stage) -> None:
    """Hanging clients occupy at most this many threads; when they leave, others are answered again."""
    stage.may_answer.clear()
    held = [socket.create_connection((LOOPBACK, server.port), timeout=PATIENCE_S) for _ in range(REQUESTS_AT_ONCE_MAX)]
    for each in held:
        each.sendall(b"GET /health HTTP/1.0\r\n\r\n")
    assert stage.is_asked.wait(PATIENCE_S)
    with socket.create_connection((LOOPBACK, server.port), timeout=PATIENCE_S) as one_more:
        assert _closed_unanswered(one_more)
    stage.may_answer.set()
    for each in held:
        with each:
            assert b"200 OK" in each.recv(1000)
    while True:  # A thread becomes free a moment after its answer.
        try:
            assert ask(server, "/ready")[0] == 200
            break
        except (urllib.error.URLError, ConnectionError):
            continue


def _closed_unanswered(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def test_a_hanging_loop_is_a_error_until_it_continues() -> None:
    """The sentence says what has been silent for how long, and the usual interval."""
    now_s = [0.0]
    pulse = Pulse("the control loop", 30.0, lambda: now_s[0])
    now_s[0] = 30.0
    assert pulse.error() is None
    now_s[0] = 31.5
    assert pulse.error() == "the control loop has not run for 31.5 s; at most 30 s are normal"
    pulse.beat()
    assert pulse.error() is None


def test_impossible_ports_are_wrong_settings() -> None:
    """With None no port is opened; 0 would be a different port at each start, which nothing could scrape."""
    assert port_errors(None) == port_errors(9_101) == []
    for port in (0, -1, 65_536):
        assert port_errors(port) == [f"metrics_port is {port}: must be from 1 to 65535, or none to open no port"]
