"""The lists that brokers' HTTP interfaces give, and the errors if they do not."""

from __future__ import annotations

import socketserver
import threading
from functools import partial
from typing import Any

import pytest

from regraft.producers.nodes.amqp.amqp_interest import Binding
from regraft.producers.nodes.amqp.ask_rabbit import bindings_of
from regraft.producers.nodes.connectors import ask_api
from regraft.producers.nodes.connectors.ask_api import BrokerApi, NoAnswerError
from tests.producers.nodes.http_stand_in import answering
from tests.producers.nodes.server_process import free_port


@pytest.mark.parametrize(
    "answer", [{}, 3, {"data": [{"topic": "x"}], "meta": {}}, {"data": {}, "meta": {}}, {"data": 3}, b"<html>", b""]
)
def test_an_answer_without_a_list_is_refused(answer: object) -> None:
    """It is never read as an empty list of subscriptions or bindings."""
    with answering(lambda *_: (200, answer)) as url, pytest.raises(NoAnswerError):
        bindings_of(BrokerApi(url), "/", "amq.topic")


def test_refusals_and_timeouts_name_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong key, a closed port and an endless answer are reported with the requested address."""
    with answering(lambda *_: (401, {})) as url, pytest.raises(NoAnswerError, match=rf"{url}.*401"):
        BrokerApi(url, "somebody", "wrong").ask("/any", str)
    closed = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(NoAnswerError, match=closed):
        BrokerApi(closed).ask("/any", str)
    monkeypatch.setattr(ask_api, "ANSWER_BYTES_MAX", 100)
    with answering(lambda *_: (200, "x" * 200)) as url, pytest.raises(NoAnswerError, match=f"{url}.*ask for less"):
        BrokerApi(url).ask("/any", str)


def test_another_server_of_the_cluster_is_asked_if_one_is_gone() -> None:
    """The interface may be that of any server of a cluster; the last is named if none answers."""
    closed = [f"http://127.0.0.1:{free_port()}" for _ in range(2)]
    with answering(lambda *_: (200, "there")) as url:
        assert BrokerApi(f"{closed[0]}, {url}/,{closed[1]}").ask("/any", str) == "there"
    with pytest.raises(NoAnswerError, match=closed[1]):
        BrokerApi(",".join(closed)).ask("/any", str)


def test_a_proxy_of_the_environment_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind many firewalls there is one for the web; it cannot reach a broker, nor should it see the login."""
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port()}")
    monkeypatch.delenv("no_proxy", raising=False)
    with answering(lambda *_: (200, "there")) as url:
        assert BrokerApi(url).ask("/any", str) == "there"


@pytest.mark.parametrize("answer", [b"+OK NATS\r\n", b"HTTP/1.1 200\r\nContent-Length: 9\r\n\r\nx", b"", b"\xff" * 99])
def test_a_port_that_speaks_something_else_is_reported(answer: bytes) -> None:
    """Such as the broker's own port, given in place of its interface's."""
    with socketserver.TCPServer(("127.0.0.1", 0), partial(_Speaker, answer)) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        with pytest.raises(NoAnswerError):
            BrokerApi(f"http://127.0.0.1:{server.server_address[1]}").ask("/any", str)


class _Speaker(socketserver.BaseRequestHandler):
    def __init__(self, answer: bytes, *arguments: Any) -> None:
        self._answer = answer
        super().__init__(*arguments)

    def handle(self) -> None:
        self.request.recv(4_096)
        self.request.sendall(self._answer)


def test_bindings_are_read() -> None:
    """The list of RabbitMQ for an exchange, whose name and virtual host may contain any character."""
    asked = []

    def answer(path: str, *_: object) -> tuple[int, object]:
        asked.append(path)
        return 200, [{"destination_type": "queue", "destination": "q", "routing_key": "a.#", "arguments": {}}]

    with answering(answer) as url:
        assert bindings_of(BrokerApi(f"{url}/"), "/", "a b") == [Binding("queue", "q", "a.#")]
    assert asked == ["/api/exchanges/%2F/a%20b/bindings/source"]
