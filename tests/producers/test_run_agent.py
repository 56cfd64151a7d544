"""An agent's files and options: what is wrong is one sentence with the way out; TLS on both sides works."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from regraft.infra.process.stack_error import CallError, StackError
from regraft.producers.run_agent import AgentError, AgentOptions, listening_by_default, read_brokers, run_agent


def options(directory: Path, **given: object) -> AgentOptions:
    file = directory / "brokers.json"
    if not file.exists():
        file.write_text('{"b01": "nats://127.0.0.1:4222", "b02": "tls://nats.example.org"}')
    values = {"name": "web1", "broker": "b01", "brokers_file": file, "listen": "127.0.0.1:0"} | given
    return AgentOptions(**values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"name": "web 1"}, "--name is 'web 1'"),
        ({"name": "x" * 41}, "1 to 40 letters"),
        ({"broker": "b09"}, "name one of b01, b02"),
        ({"listen": "4222"}, "--listen: '4222' is not host:port"),
        ({"certificate_file": Path("agent.pem")}, "go together"),
        ({"certificate_file": Path("no.pem"), "key_file": Path("no.key")}, "must be PEM"),
        ({"ca_file": Path("no-ca.pem")}, "--ca-file no-ca.pem cannot be used"),
    ],
)
def test_a_wrong_option_is_named(given: dict[str, object], named: str, tmp_path: Path) -> None:
    with pytest.raises(AgentError) as error:
        run_agent(options(tmp_path, **given), threading.Event())
    assert named in str(error.value)


@pytest.mark.parametrize(
    "document",
    [
        [],
        {},
        {"b01": "amqp://h:1"},
        {"b01": "mqtt://h", "b02": "nats://h"},
        {"b01": "nats://user:secret@h:1"},
        {"b01": "nats://h:99999"},
        {"b01": 3},
    ],
)
def test_a_file_of_brokers_that_says_nothing_usable_is_refused(document: object, tmp_path: Path) -> None:
    file = tmp_path / "brokers.json"
    file.write_text(json.dumps(document))
    with pytest.raises(AgentError, match="it must be JSON such as"):
        read_brokers(file, None)
    with pytest.raises(AgentError, match="cannot be used") as error:
        read_brokers(tmp_path / "missing.json", None)
    assert isinstance(error.value, CallError)  # So the exit code is 2, after which nobody starts it again.


def test_brokers_have_the_usual_port_and_tls_where_asked_for(tmp_path: Path) -> None:
    options(tmp_path)
    brokers = read_brokers(tmp_path / "brokers.json", None)
    assert (brokers["b01"].port, brokers["b01"].tls) == (4222, None)
    assert (brokers["b02"].host, brokers["b02"].port) == ("nats.example.org", 4222)
    assert brokers["b02"].tls is not None
    (tmp_path / "mqtt.json").write_text('{"b01": "mqtt://127.0.0.1", "b02": "mqtts://mqtt.example.org"}')
    brokers = read_brokers(tmp_path / "mqtt.json", None)
    assert (brokers["b01"].port, brokers["b01"].tls, brokers["b02"].port) == (1883, None, 8883)
    assert brokers["b02"].tls is not None


@pytest.mark.parametrize(("scheme", "port"), [("nats", 4222), ("tls", 4222), ("mqtt", 1883), ("mqtts", 1883)])
def test_an_agent_listens_at_the_usual_port_of_its_protocol(scheme: str, port: int, tmp_path: Path) -> None:
    """Clients that expect a broker on this machine find the agent there; the port of its brokers does not matter."""
    file = tmp_path / "brokers.json"
    file.write_text(json.dumps({"b01": f"{scheme}://127.0.0.1:7777"}))
    assert listening_by_default(read_brokers(file, None)["b01"].scheme) == f"127.0.0.1:{port}"
    with pytest.raises(StackError, match=f"cannot listen on 127.0.0.1:{port} "), _taken(port):
        run_agent(options(tmp_path, listen=""), threading.Event())


@contextmanager
def _taken(port: int) -> Iterator[None]:
    """Hold a port, if nothing else on this machine does."""
    with socket.socket() as held:
        with suppress(OSError):
            held.bind(("127.0.0.1", port))
            held.listen()
        yield
