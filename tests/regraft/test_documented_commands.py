"""The command lines of README and tutorial as printed, in a directory with a space, without HOME and with LANG=C.

One Kafka, Valkey and loop serve all of them. What a document prints for the reader's own servers is replaced by these.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from regraft.infra.process.find_port import choose_ports

ROOT = Path(__file__).parents[2]
ENOUGH_S = 240.0
PLAN_S_MAX = 180.0
LONG_RUNNING = ("regraft servers", "regraft run", "regraft stage control", "regraft demo", "regraft stage node")
FIRST = ("regraft inventory", "regraft topics")
# What else than 0 a line may end with: there is no plan-7, and a busy machine may be behind.
OTHER_CODES = {"regraft plans approve plan-7": {2}, "regraft status": {0, 1}}
INSTEAD = {"--planner auto": "--planner swap_links_ci --closed-loop-s 0"}  # Minutes of CPU less.


def printed_lines(page: str, heading: str) -> list[str]:
    """Return the command lines under a heading, without their comments."""
    section = (ROOT / page).read_text(encoding="utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    blocks = re.findall(r"^```\n(.*?)^```", section, re.DOTALL | re.MULTILINE)
    return [line.split(" # ")[0].strip() for block in blocks for line in block.splitlines() if line.strip()]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return a directory with a space, and next to it a folder with the command ``regraft``."""
    command = tmp_path / "bin" / "regraft"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m regraft "$@"\n')
    command.chmod(0o755)
    directory = tmp_path / "my project"
    directory.mkdir()
    return directory


def environment(place: Path, **more: str) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("JAVA_HOME", "REGRAFT_CACHE") if name in os.environ}
    path = os.pathsep.join([str(place.parent / "bin"), os.environ["PATH"]])
    return {**kept, "PATH": path, "PYTHONPATH": str(ROOT), "LANG": "C", **more}


@contextmanager
def running(line: str, place: Path, log: Path, **more: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a line until the block ends, then stop it as Ctrl-C does."""
    with log.open("wb") as out:
        process = subprocess.Popen(
            ["sh", "-c", f"exec {line}"], cwd=place, env=environment(place, **more), stdout=out, stderr=out,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )  # fmt: skip
        try:
            yield process
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(ENOUGH_S)


def wait_for(text: str, log: Path, process: subprocess.Popen[bytes]) -> str:
    """Return what was printed once it holds the text."""
    deadline_s = time.monotonic() + ENOUGH_S
    while text not in (printed := log.read_text(errors="replace")):
        assert process.poll() is None, printed
        assert time.monotonic() < deadline_s, printed
        time.sleep(0.2)
    return printed


def call(line: str, place: Path, **more: str) -> subprocess.CompletedProcess[str]:
    for printed, instead in INSTEAD.items():
        line = line.replace(printed, instead)
    return subprocess.run(
        ["sh", "-c", line], cwd=place, env=environment(place, **more), capture_output=True, text=True,
        stdin=subprocess.DEVNULL, timeout=ENOUGH_S, check=False,
    )  # fmt: skip


def check(line: str, place: Path, **more: str) -> None:
    answer = call(line, place, **more)
    told = f"{line} ended with {answer.returncode}:\n{answer.stdout}{answer.stderr}"
    assert answer.returncode in OTHER_CODES.get(line, {0}), told
    assert "Traceback" not in answer.stderr, told


def exported(printed: str) -> dict[str, str]:
    """Return the variable that ``regraft servers`` prints, as a shell reads its line."""
    (line,) = re.findall(r"^ *(export REGRAFT_SETTINGS=.*)$", printed, re.MULTILINE)
    shell = subprocess.run(["sh", "-c", f"{line}; env"], capture_output=True, text=True, env={}, check=True)
    return dict(each.split("=", 1) for each in shell.stdout.splitlines() if each.startswith("REGRAFT_"))


@pytest.mark.stack
@pytest.mark.spark
def test_printed_command_lines_work(place: Path) -> None:
    """From `regraft servers` to an approved plan and a backtest; the two long-running ones stop at Ctrl-C."""
    tutorial = printed_lines("docs/tutorial.md", "3. Put it next to your brokers")
    readme = [line for line in printed_lines("README.md", "Operating it") if not line.startswith("export ")]
    assert tutorial[0] == "regraft servers"
    loop = next(line for line in tutorial if line.startswith("regraft run"))
    kafka_port, valkey_port = choose_ports(2)
    ports = f"--kafka-port {kafka_port} --valkey-port {valkey_port}"
    servers_log, loop_log = place.parent / "servers.log", place.parent / "loop.log"
    with running(f"{tutorial[0]} {ports}", place, servers_log) as servers:
        settings = exported(wait_for("Stop both with Ctrl-C.", servers_log, servers))
        assert Path(settings["REGRAFT_SETTINGS"]).is_file()
        elsewhere = place.parent / "my brokers"  # The loop has emulated ones.
        elsewhere.mkdir()
        for line in readme:
            if line.startswith(FIRST):
                check(line, elsewhere, **settings)
        with running(f"{loop} --dashboard", place, loop_log, REGRAFT_DASHBOARD__PORT="0", **settings) as process:
            wait_for("Dashboard: http://", loop_log, process)
            _wait_for_a_plan(place, settings)
            for line in (*tutorial, *readme):
                if not line.startswith(("export ", *FIRST, *LONG_RUNNING)):
                    check(line, place, **settings)
    printed = loop_log.read_text(errors="replace")
    assert "Starting: " in printed
    assert "Stopping: " in printed
    assert (process.returncode, servers.returncode) == (0, 0), printed


def _wait_for_a_plan(place: Path, settings: dict[str, str]) -> None:
    deadline_s = time.monotonic() + PLAN_S_MAX
    while "plan-1 waits" not in (answer := call("regraft plans list", place, **settings)).stdout:
        assert time.monotonic() < deadline_s, answer.stdout + answer.stderr
        time.sleep(2.0)
