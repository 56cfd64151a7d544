"""Fixtures of the infra tests: fake Java homes, a small Maven repository on the loopback, quiet service scripts."""

import hashlib
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from regraft.infra.local.fetch_jars import SETTINGS_VARIABLE, JarSet
from regraft.infra.local.service import Service

POM = (
    "<project><modelVersion>4.0.0</modelVersion><groupId>{0}</groupId><artifactId>{1}</artifactId>"
    "<version>{2}</version></project>"
)


@pytest.fixture
def fake_java(tmp_path: Path) -> Callable[[str, int], Path]:
    """Return a factory of Java homes whose ``java`` only prints its version, or its arguments."""

    def make(name: str, version: int) -> Path:
        home = tmp_path / name
        java = home / "bin" / "java"
        java.parent.mkdir(parents=True)
        java.write_text(
            "#!/bin/sh\n"
            'if [ "$1" = -XshowSettings:properties ]; then\n'
            f'  printf "    java.home = {home}\\n    java.specification.version = {version}\\n" >&2\n'
            "else\n"
            '  for each in "$@"; do printf "%s\\n" "$each"; done\n'
            "fi\n"
        )
        java.chmod(0o755)
        return home

    return make


@dataclass
class MavenRepository:
    """A Maven repository in memory; ``broken`` is how many more downloads of a path are cut off in the middle."""

    files: dict[str, bytes] = field(default_factory=dict)
    broken: dict[str, int] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def publish(self, root: str, content: bytes) -> str:
        """Publish one jar under ``group:artifact:version`` and return its path."""
        group, artifact, version = root.split(":")
        folder = f"/{group.replace('.', '/')}/{artifact}/{version}/{artifact}-{version}"
        self.files[f"{folder}.pom"] = POM.format(group, artifact, version).encode()
        self.files[f"{folder}.jar"] = content
        return f"{folder}.jar"


@pytest.fixture
def maven_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MavenRepository]:
    """Serve a Maven repository on the loopback, and configure it in Ivy by a settings file, as for a user's mirror."""
    repository = MavenRepository()

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self._answer(with_body=False)

        def do_GET(self) -> None:
            repository.asked.append(self.path)
            self._answer(with_body=True)

        def _answer(self, *, with_body: bool) -> None:
            content = repository.files.get(self.path)
            self.send_response(404 if content is None else 200)
            self.send_header("Content-Length", str(len(content or b"")))
            self.end_headers()
            if content and with_body:
                cut = repository.broken.get(self.path, 0)
                if cut:
                    repository.broken[self.path] = cut - 1
                self.wfile.write(content[: len(content) // 2] if cut else content)

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    settings = tmp_path / "ivysettings.xml"
    settings.write_text(
        '<ivysettings><settings defaultResolver="mirror"/><resolvers><ibiblio name="mirror" m2compatible="true" '
        f'root="http://127.0.0.1:{server.server_port}/"/></resolvers></ivysettings>'
    )
    monkeypatch.setenv(SETTINGS_VARIABLE, str(settings))
    yield repository
    server.shutdown()
    server.server_close()
    thread.join(10)


def jar_set_of(*jars: tuple[str, bytes]) -> JarSet:
    """Return a set of roots with their checksums."""
    roots = tuple(root for root, _ in jars)
    sums = {
        f"{root.split(':')[1]}-{root.split(':')[2]}.jar": hashlib.sha256(content).hexdigest() for root, content in jars
    }
    return JarSet("trial", roots, transitive=False, jars=sums)


@pytest.fixture
def script_service(tmp_path: Path) -> Callable[..., Service]:
    """Return a factory of services that run a few lines of Python."""

    def make(name: str, script: str = "import time; time.sleep(600)", **settings: object) -> Service:
        return Service(name, (sys.executable, "-c", script), tmp_path / f"{name}.log", **settings)  # type: ignore[arg-type]

    return make
