"""A program in Go that uses the recipe of docs/recipes/go, for tests; ``moving_client.go`` is its source."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
from asyncio.subprocess import PIPE
from collections.abc import Callable
from pathlib import Path

import pytest

RECIPE = Path(__file__).parents[3] / "docs" / "recipes" / "go"
WITHOUT = "no Go that has nats.go is installed"


def build_moving_client(directory: Path) -> Path:
    """Build the program around a copy of the recipe; skip the test without Go, or if nats.go cannot be downloaded."""
    go = shutil.which("go") or pytest.skip(WITHOUT)
    shutil.copytree(RECIPE, directory, dirs_exist_ok=True)
    (directory / "moving").mkdir()
    (directory / "move_nats.go").rename(directory / "moving" / "move_nats.go")
    shutil.copy(Path(__file__).with_suffix(".go"), directory)

    def run(*command: str, timeout_s: float) -> subprocess.CompletedProcess[str]:
        # The first build takes half a minute of one processor; tests beside this one need the other.
        env = os.environ | {"GOMAXPROCS": "1", "GOFLAGS": "-buildvcs=false"}
        return subprocess.run(
            command, cwd=directory, env=env, capture_output=True, text=True, timeout=timeout_s, check=False
        )

    try:
        run(go, "mod", "download", timeout_s=60.0).check_returncode()
    except subprocess.SubprocessError as error:
        pytest.skip(f"{WITHOUT}: {error.stderr}")
    build = run(go, "build", "-o", "moving-client", ".", timeout_s=400.0)
    assert not build.returncode, build.stderr
    return directory / "moving-client"


class GoMover:
    """The running program; what it takes goes to ``take``, and the numbers of b01 it publishes again."""

    def __init__(self, program: Path, pause_s: float) -> None:
        self._program, self._pause_s, self._done = program, pause_s, asyncio.Queue[None]()

    async def start(self, brokers: dict[str, str], take: Callable[[str, bytes], None]) -> None:
        self._process = await asyncio.create_subprocess_exec(
            self._program, json.dumps(brokers), f"{self._pause_s}s", stdin=PIPE, stdout=PIPE
        )
        self._taking = asyncio.create_task(self._take_all(take))
        await self.publish("started", b"-")

    async def _take_all(self, take: Callable[[str, bytes], None]) -> None:
        assert self._process.stdout
        async for line in self._process.stdout:
            if line == b"done\n":
                self._done.put_nowait(None)
            else:
                subject, payload = line.split()
                take(subject.decode(), payload)

    async def _order(self, line: bytes) -> None:
        assert self._process.stdin
        self._process.stdin.write(line + b"\n")
        answered = asyncio.create_task(self._done.get())
        await asyncio.wait((answered, self._taking), return_when=asyncio.FIRST_COMPLETED)
        assert answered.done(), "the program has ended"

    async def publish(self, subject: str, payload: bytes) -> None:
        await self._order(b"publish %s %s" % (subject.encode(), payload))

    async def move(self, broker: str) -> None:
        await self._order(b"move " + broker.encode())

    async def stop(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        await self._taking
        assert await self._process.wait() == 0
