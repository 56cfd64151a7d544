"""A small Confluent-compatible schema registry on the loopback, for tests."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

from regraft.schemas.codec import use_wire_ids


@dataclass
class FakeRegistry:
    """A registry that gives each schema text an id in order of arrival; it can fail first, or refuse."""

    port: int = 0
    ids: dict[str, int] = field(default_factory=dict)
    subjects: dict[str, list[str]] = field(default_factory=dict)
    failures: int = 0
    refusal: str = ""
    requests: int = 0
    authorization: str = ""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def answer(self, path: str, body: bytes) -> tuple[int, object]:
        self.requests += 1
        if self.failures:
            self.failures -= 1
            return 503, {"message": "not ready"}
        if self.refusal:
            return 409, {"error_code": 409, "message": self.refusal}
        _, subjects, subject, versions = path.split("/")
        assert (subjects, versions) == ("subjects", "versions")
        document = json.loads(body)
        assert document["schemaType"] == "AVRO"
        self.subjects.setdefault(unquote(subject), []).append(json.loads(document["schema"])["name"])
        return 200, {"id": self.ids.setdefault(document["schema"], len(self.ids) + 1)}


@contextmanager
def running_registry() -> Iterator[FakeRegistry]:
    """Serve a registry while the block runs; the codec uses the fixed ids again afterwards."""
    fake = FakeRegistry()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            fake.authorization = self.headers.get("Authorization", "")
            status, document = fake.answer(self.path, self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(document).encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    fake.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield fake
    finally:
        server.shutdown()
        server.server_close()
        use_wire_ids({})
