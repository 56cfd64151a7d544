"""Serve a stage's metrics and health over HTTP: /metrics for Prometheus, /health and /ready for supervisors.

In: a registry and a function that returns the stage's health. Out: a small server in separate threads, bounded in
number and time. What is measured, and what counts as an error, belongs to the stage.
"""

from __future__ import annotations

import json
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

import structlog
from prometheus_client import CollectorRegistry, make_wsgi_app

from regraft.infra.process.find_port import LOOPBACK
from regraft.infra.process.stack_error import StackError

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

REQUESTS_AT_ONCE_MAX = 8
REQUEST_TIMEOUT_S = 10.0
PATHS = ("/metrics", "/health", "/ready")
PORT_MAX = 65_535

log = structlog.get_logger(__name__)


class MetricsPortError(StackError):
    """Reports that the port for the metrics cannot be used."""


@dataclass(frozen=True, slots=True)
class Health:
    """The health of a stage: whether it can do its work now, and its errors, one sentence each.

    A stage that is not ready and has no errors is starting or waits for another one. An error is something that a
    restart may fix: /health then answers 503. ``notes`` are other reasons for not being ready; ``proved`` says what the
    stage has seen work, and how long ago.
    """

    is_ready: bool
    errors: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    proved: tuple[str, ...] = ()


class Pulse:
    """When a loop last ran. The loop calls ``beat``, other threads call ``error``."""

    def __init__(self, what: str, silence_s_max: float, stopwatch_s: Callable[[], float] = time.monotonic) -> None:
        self._what = what
        self._silence_s_max = silence_s_max
        self._stopwatch_s = stopwatch_s
        self._beat_s = stopwatch_s()

    def beat(self) -> None:
        """Report that the loop runs."""
        self._beat_s = self._stopwatch_s()

    @property
    def silent_s(self) -> float:
        """How long ago the loop last ran."""
        return self._stopwatch_s() - self._beat_s

    def error(self) -> str | None:
        """Return a sentence if the loop has not run for more than ``silence_s_max``, else None."""
        silent_s = self.silent_s
        if silent_s <= self._silence_s_max:
            return None
        return f"{self._what} has not run for {silent_s:.1f} s; at most {self._silence_s_max:g} s are normal"


class RunningHealth:
    """The health of a loop, which is ready, and may hang, only while ``is_running``."""

    def __init__(self, what: str, silence_s_max: float) -> None:
        self.pulse = Pulse(what, silence_s_max)
        self.is_running = False

    def __call__(self) -> Health:
        """Return the health now."""
        error = self.pulse.error() if self.is_running else None
        return Health(self.is_running, () if error is None else (error,))


class MetricsServer:
    """A running server; ``close`` stops it, and so does leaving its ``with`` block."""

    def __init__(self, server: WSGIServer) -> None:
        self._server = server
        self._thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port on which it listens, also if 0 was requested."""
        return int(self._server.server_address[1])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop listening; requests in progress end by themselves."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(REQUEST_TIMEOUT_S)


def serve_metrics(registry: CollectorRegistry, host: str, port: int, health: Callable[[], Health]) -> MetricsServer:
    """Serve ``registry`` and ``health`` on ``port`` (0 for a free one).

    ``health`` is called from other threads and must not block. Raises MetricsPortError if the port cannot be used.
    """
    try:
        server = _BoundedServer((host, port), _QuietHandler)
    except (OSError, OverflowError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise MetricsPortError(
            f"Metrics cannot be served on {host}:{port} ({reason}): stop the process that listens there, or choose "
            "another metrics_port or metrics_host."
        ) from error
    server.set_app(_application(registry, health))
    log.info("metrics_listening", host=host, port=server.server_address[1])
    return MetricsServer(server)


def port_errors(port: int | None, host: str = LOOPBACK) -> list[str]:
    """Return what is wrong with the settings ``metrics_port`` and ``metrics_host``, one sentence each."""
    if port is None and host != LOOPBACK:
        return [f"metrics_host is {host} without metrics_port, so nothing is served: give a port, or leave it out"]
    if port is None or 0 < port <= PORT_MAX:
        return []
    return [f"metrics_port is {port}: must be from 1 to {PORT_MAX}, or none to open no port"]


class _BoundedServer(socketserver.ThreadingMixIn, WSGIServer):
    """A thread for each request, at most REQUESTS_AT_ONCE_MAX; further requests are closed without an answer."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: type[WSGIRequestHandler]) -> None:
        self.address_family = socket.getaddrinfo(*address, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        self._free = threading.BoundedSemaphore(REQUESTS_AT_ONCE_MAX)
        super().__init__(address, handler)

    def server_bind(self) -> None:
        """Bind without a DNS look-up of the host name, which may take long and is not used."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no thread could start
            self._free.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log why one request failed: the caller disconnected, or an error here."""
        log.debug("metrics_request_failed", client=client_address[0], exc_info=True)


class _QuietHandler(WSGIRequestHandler):
    timeout = REQUEST_TIMEOUT_S

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing, because scrapes arrive every few seconds."""


def _application(registry: CollectorRegistry, health: Callable[[], Health]) -> WSGIApplication:
    metrics: WSGIApplication = make_wsgi_app(registry)

    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if path == "/metrics":
            return metrics(environ, start_response)
        if path not in PATHS:
            return _respond(start_response, "404 Not Found", {"error": f"no such path: {path}", "paths": PATHS})
        if environ["REQUEST_METHOD"] != "GET":
            return _respond(start_response, "405 Method Not Allowed", {"error": "only GET is supported"})
        answer = _ask(health)
        is_healthy = not answer.errors and (answer.is_ready or path == "/health")
        status = "200 OK" if is_healthy else "503 Service Unavailable"
        more = {name: texts for name, texts in (("notes", answer.notes), ("proved", answer.proved)) if texts}
        return _respond(start_response, status, {"is_ready": answer.is_ready, "errors": answer.errors} | more)

    return answer


def _ask(health: Callable[[], Health]) -> Health:
    try:
        return health()
    except Exception as error:  # whatever the error, the stage is not healthy
        return Health(is_ready=False, errors=(f"the stage cannot report its health: {type(error).__name__}: {error}",))


def _respond(start_response: StartResponse, status: str, document: dict[str, Any]) -> list[bytes]:
    body = (json.dumps(document) + "\n").encode()
    start_response(status, [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
    return [body]
