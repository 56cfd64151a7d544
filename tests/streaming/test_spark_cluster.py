"""The job on a Spark cluster, as an operator starts it: killing its parts loses nothing."""

import dataclasses
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from regraft.infra.local.supervise import Supervisor
from regraft.streaming.streaming_settings import StreamingSettings
from tests.streaming.spark_cluster import secret_file_of, start_spark_cluster
from tests.streaming.submitted_job import running, stage_command
from tests.streaming.test_run_job import beats, check_windows, job, known_brokers_of, send, wait_status

pytestmark = [pytest.mark.spark, pytest.mark.stack]

__all__ = ["job"]  # The fixture.

WAIT_S = 180.0  # Seven processes of Java and Python start, and some restart.
MEMORY_MB = 512


@contextmanager
def streamed(job: StreamingSettings, run_dir: Path, master: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run ``regraft stage stream`` with its log in ``run_dir/log``; it is killed at the end if it still runs."""
    command = stage_command(
        [sys.executable, "-m", "regraft"], job, run_dir,
        driver_memory_mb=MEMORY_MB, executor_memory_mb=MEMORY_MB, secret_file=secret_file_of(run_dir.parent),
    )  # fmt: skip
    with running([*command, "--master", master], run_dir) as process:
        yield process


def test_a_cluster_gives_the_same_windows_whatever_part_is_killed(job: StreamingSettings, tmp_path: Path) -> None:
    """On a master with two workers, an executor and then an entire worker are killed: nothing is missing."""
    begin_ms, run_dir = (int(time.time()) - 100) * 1_000, tmp_path / "run"
    run_dir.mkdir()
    inventory = known_brokers_of(job).inventory_path
    assert inventory is not None
    inventory.rename(run_dir / "inventory.json")
    job = dataclasses.replace(job, status_file=run_dir / "streaming.json")
    with Supervisor() as supervisor:
        master = start_spark_cluster(supervisor, tmp_path, memory_mb=MEMORY_MB)
        with streamed(job, run_dir, master) as process:
            sent = 0
            for killed in ("", "executor", "worker", "", ""):
                if killed:
                    kill_part(supervisor, killed)
                for _ in range(5):  # Each in its own micro-batch, or nearly.
                    send(job, beats(range(sent, sent + 4), begin_ms))
                    sent += 4
                    time.sleep(0.3)
                wait_status(
                    job,
                    lambda status, until=sent: status["window_end_ms_last"] == begin_ms + (until - 1) * 1_000,
                    lambda: process.poll() is None,
                    WAIT_S,
                )
            assert job.status_file is not None
            status = json.loads(job.status_file.read_text())
            process.send_signal(signal.SIGTERM)
            log = (run_dir / "log").read_text()
            assert process.wait(30) == 0, log
    assert (status["late_rows"], status["dead_letters"], status["windows"]) == (0, 0, sent - 1)
    assert '"event": "executors_ready"' in log
    check_windows(job, sent - 1)


def kill_part(supervisor: Supervisor, part: str) -> None:
    """Kill a worker with all its child processes, or an executor alone; both are restarted."""
    worker = psutil.Process(next(event.pid for event in supervisor.events if event.service == "spark-worker-0"))
    executors = [child for child in worker.children() if "CoarseGrainedExecutorBackend" in " ".join(child.cmdline())]
    assert executors
    for each in [*executors, worker] if part == "worker" else executors:
        each.kill()
