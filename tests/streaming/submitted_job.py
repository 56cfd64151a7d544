"""The job by spark-submit, on any master, in its own process."""

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pyspark

from regraft.infra.local.fetch_jars import spark_jars
from regraft.infra.local.find_java import find_java
from regraft.infra.local.java_options import start_options
from regraft.infra.local.spark_session import driver_class_path, spark_archive
from regraft.streaming.streaming_settings import JAVA_OPTIONS, StreamingSettings

ROOT = Path(__file__).parents[2]
KILLED_PROGRAM = "killed_submit_job.py"


@contextmanager
def submitted_job(
    job: StreamingSettings, directory: Path, master: str, *, more: Sequence[str] = (), armed: Path | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run it with its log in ``directory/log``; it is killed at the end if it still runs.

    With ``armed`` its driver is killed at the points armed in that directory (``kill_parts``).
    """
    java_options = f"{JAVA_OPTIONS} {shlex.join(start_options(spark_archive(find_java())))}"
    command = [
        str(Path(pyspark.__file__).parent / "bin" / "spark-submit"),
        *("--master", master, "--driver-memory", "512m"),
        *("--conf", f"spark.driver.extraJavaOptions={java_options}"),
        *("--conf", f"spark.executor.extraJavaOptions={java_options}"),
        *("--driver-class-path", driver_class_path()),
        *("--conf", f"spark.executor.extraClassPath={driver_class_path()}"),
        *("--conf", "spark.ui.enabled=false", *more),
        *("--jars", ",".join(str(jar) for jar in spark_jars())),
        str(ROOT / "streaming" / "submit_job.py" if armed is None else Path(__file__).with_name(KILLED_PROGRAM)),
        *("--bootstrap", job.bootstrap, "--namespace", job.namespace, "--checkpoint", str(job.checkpoint_directory)),
        *("--window-ms", "1000", "--grace-ms", "500", "--trigger-ms", "100", "--status-file", str(job.status_file)),
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
    environment["SPARK_LOCAL_IP"] = "127.0.0.1"
    environment |= {} if armed is None else {"ARMED": str(armed)}
    with running(command, directory, environment) as process:
        yield process


@contextmanager
def running(
    command: Sequence[str], directory: Path, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program in a directory with its log there; at the end it is killed with all its child processes."""
    with (directory / "log").open("ab") as log:
        process = subprocess.Popen(
            command, env=environment, stdout=log, stderr=log, cwd=directory, start_new_session=True
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)


def stage_command(program: Sequence[str], job: StreamingSettings, run_dir: Path, **more: object) -> list[str]:
    """Return the command of ``regraft stage stream`` by a program, with ``more`` settings of Spark."""
    given = {
        "kafka.bootstrap": job.bootstrap,
        "kafka.namespace": job.namespace,
        "run.directory": run_dir,
        "streaming.window_ms": job.window_ms,
        "streaming.grace_ms": job.grace_ms,
        **{f"spark.{name}": value for name, value in more.items()},
    }
    settings = [word for name, value in given.items() for word in ("--set", f"{name}={value}")]
    return [*program, "stage", "stream", *settings]


def ask_to_stop(process: subprocess.Popen[bytes]) -> None:
    """Ask the program itself to stop; the JVM around it ends with the program's exit code."""
    for child in psutil.Process(process.pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # Spark starts short-lived ones all the time.
            if "submit_job.py" in " ".join(child.cmdline()):
                child.send_signal(signal.SIGTERM)
