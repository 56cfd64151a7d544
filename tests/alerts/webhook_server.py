"""A real HTTP server on the loopback that receives alerts and answers as configured."""

import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Received:
    """One request: path, headers and body."""

    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class WebhookServer:
    """``answers`` are the statuses to give in turn, then 200; ``wait_s`` delays each answer; ``location`` redirects."""

    port: int = 0
    received: list[Received] = field(default_factory=list)
    answers: deque[int] = field(default_factory=deque)
    answer_body: bytes = b"{}"
    headers: dict[str, str] = field(default_factory=dict)
    wait_s: float = 0.0

    @property
    def url(self) -> str:
        """The address at which it listens."""
        return f"http://127.0.0.1:{self.port}/hook/secret-token"

    @property
    def bodies(self) -> list[bytes]:
        """The requests' bodies."""
        return [each.body for each in self.received]


@contextmanager
def webhook_server(port: int = 0) -> Iterator[WebhookServer]:
    """Run a server until the block ends."""
    told = WebhookServer()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            told.received.append(Received(self.path, dict(self.headers.items()), body))
            status = told.answers.popleft() if told.answers else 200
            time.sleep(told.wait_s)
            self.send_response(status)
            for name, value in told.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(told.answer_body)))
            self.end_headers()
            self.wfile.write(told.answer_body)

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing."""

        def handle(self) -> None:
            try:
                super().handle()
            except ConnectionError:
                return  # The sender has given up waiting, which is the purpose of a slow answer.

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    told.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield told
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
