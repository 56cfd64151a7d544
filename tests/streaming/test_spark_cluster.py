"""The job on a cluster of Spark: what is killed of it costs nothing."""

import json
import time
from pathlib import Path

import psutil
import pytest

from regraft.infra.spark_cluster import start_spark_cluster
from regraft.infra.supervise import Supervisor
from regraft.streaming.streaming_settings import StreamingSettings
from tests.streaming.submitted_job import ROOT, ask_to_stop, submitted_job
from tests.streaming.test_run_job import beats, check_windows, job, send, wait_status

pytestmark = [pytest.mark.spark, pytest.mark.stack]

__all__ = ["job"]  # The fixture.

WAIT_S = 180.0  # Seven processes of Java and Python begin, and some begin again.


def test_a_cluster_gives_the_same_windows_whatever_is_killed_of_it(job: StreamingSettings, tmp_path: Path) -> None:
    """On a master with two workers, an executor and then a whole worker are killed: nothing is missing."""
    begin_ms = (int(time.time()) - 100) * 1_000
    more = ("--conf", "spark.executor.memory=512m", "--conf", f"spark.executorEnv.PYTHONPATH={ROOT}")
    with Supervisor() as supervisor:
        master = start_spark_cluster(supervisor, tmp_path, memory_mb=512)
        with submitted_job(job, tmp_path, master, more=more) as process:
            sent = 0
            for killed in ("", "executor", "worker", "", ""):
                if killed:
                    kill_part(supervisor, killed)
                for _ in range(5):  # Each in a micro-batch of its own, or nearly.
                    send(job, beats(range(sent, sent + 4), begin_ms))
                    sent += 4
                    time.sleep(0.3)
                wait_status(
                    job,
                    lambda status, until=sent: status["window_end_ms_last"] == begin_ms + (until - 1) * 1_000,
                    lambda: process.poll() is None,
                    WAIT_S,
                )
            status = json.loads(job.status_file.read_text())
            ask_to_stop(process)
            assert process.wait(30) == 0, (tmp_path / "log").read_text()
    assert (status["late_rows"], status["dead_letters"], status["windows"]) == (0, 0, sent - 1)
    check_windows(job, sent - 1)


def kill_part(supervisor: Supervisor, part: str) -> None:
    """Kill a worker with all that it has started, or an executor alone; either is started again."""
    worker = psutil.Process(next(event.pid for event in supervisor.events if event.service == "spark-worker-0"))
    executors = [child for child in worker.children() if "CoarseGrainedExecutorBackend" in " ".join(child.cmdline())]
    assert executors
    for each in [*executors, worker] if part == "worker" else executors:
        each.kill()
