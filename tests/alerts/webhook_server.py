"""A real HTTP server on the loopback that receives alerts and answers as configured."""

import threading
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
    """``answers`` are the statuses to give in turn, then 200; ``headers`` extend each.

    None is given while ``may_answer`` is cleared.
    """

    port: int = 0
    received: list[Received] = field(default_factory=list)
    answers: deque[int] = field(default_factory=deque)
    answer_body: bytes = b"{}"
    headers: dict[str, str] = field(default_factory=dict)
    may_answer: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.may_answer.set()

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
    configured = WebhookServer()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            configured.received.append(Received(self.path, dict(self.headers.items()), body))
            status = configured.answers.popleft() if configured.answers else 200
            configured.may_answer.wait()
            self.send_response(status)
            for name, value in configured.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(configured.answer_body)))
            self.end_headers()
            self.wfile.write(configured.answer_body)

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing."""

        def handle(self) -> None:
            try:
                super().handle()
            except ConnectionError:
                return  # The sender has given up waiting, which is the purpose of a slow answer.

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    configured.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield configured
    finally:
        configured.may_answer.set()
        server.shutdown()
        server.server_close()
        thread.join(10)
