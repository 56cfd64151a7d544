"""Search for the secrets of a secured run during and after it, and meanwhile use its servers as an operator would."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Self

import psutil

PACE_S = 0.5
TRIES_MAX = 3  # Servers are killed meanwhile: a command that finds none is repeated, as an operator would.
# These contain secrets on purpose, readable only by this user: those that the settings name, and Kafka's own logins.
KEPT = ("run/security/", "run/kafka/server.properties")


class Watch:
    """A thread that looks repeatedly while a block runs."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(120)

    def _run(self) -> None:
        while not self._over.wait(PACE_S):
            self.look()

    def look(self) -> None:
        """Look once."""
        raise NotImplementedError


class SecretWatch(Watch):
    """Searches command lines and environments of all processes of the run, and at its end all its files."""

    def __init__(self, out: Path) -> None:
        super().__init__(out)
        self.found: list[str] = []
        self.seen: set[str] = set()

    def __exit__(self, *details: object) -> None:
        super().__exit__(*details)
        secrets = self._secrets()
        assert len(secrets) >= 4  # Kafka's own user, that of the stages, Valkey's, and the server's key.
        for file in self.out.rglob("*"):
            name = str(file.relative_to(self.out))
            if file.is_file() and not name.startswith(KEPT) and any(each in file.read_bytes() for each in secrets):
                self.found.append(f"file {name}")

    def look(self) -> None:
        """Look once at every process that this one started."""
        secrets = self._secrets()
        for process in psutil.Process().children(recursive=True) if secrets else []:
            try:
                name, words, environment = process.name(), process.cmdline(), process.environ()
            except psutil.Error:
                continue  # it ended between listing and looking
            self.seen |= {name, *(Path(word).name for word in words[:9])}  # Valkey replaces its command line.
            shown = "\0".join([*words, *environment.values()]).encode(errors="replace")
            if any(secret in shown for secret in secrets):
                self.found.append(f"process {' '.join(words)[:200]}")

    def _secrets(self) -> list[bytes]:
        directory = self.out / "run" / "security"
        passwords = [file.read_bytes() for file in directory.glob("*.password")]
        keys = [file.read_bytes().splitlines()[1] for file in directory.glob("*-key.pem")]
        return [secret for secret in (*passwords, *keys) if secret]


class ClientCommands(Watch):
    """Runs commands against the servers of the run once it is up; ``errors`` holds what went wrong."""

    def __init__(self, out: Path, regraft: Callable[..., subprocess.CompletedProcess[str]]) -> None:
        super().__init__(out)
        self._regraft = regraft
        self._is_done = False
        self.errors = ["no command was run"]

    def look(self) -> None:
        """Run the commands once, when the last stage has started."""
        if self._is_done or not (self.out / "run" / "emulator.json").exists():
            return
        self._is_done, self.errors = True, []
        recording = ("record", "--out", str(self.out / "rec.avro"), "--duration", "3")
        inventory = ("--set", f"run.directory={self.out / 'run'}")
        for command in (
            ("topics", "--create"),
            ("plans", "list"),
            ("doctor",),
            (*recording, *inventory),
            ("status", "--json"),
        ):
            client = ("--settings", str(self.out / "run" / "security" / "client.toml"))
            for _ in range(TRIES_MAX):
                answer = self._regraft(*command, *client, timeout_s=90)
                is_well = answer.returncode == 0 or command[0] == "status"  # Just begun: maybe degraded.
                if is_well and not (command[0] == "status" and "status files" in answer.stdout):
                    break
            else:
                self.errors.append(f"{command}: {answer.returncode} {answer.stdout[-800:]} {answer.stderr[-800:]}")
        if (self.out / "rec.avro").stat().st_size < 10_000:
            self.errors.append("the recording is empty")
