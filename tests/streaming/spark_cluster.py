"""A standalone Spark cluster on this machine, from the installed Spark: one master, several workers.

    python tests/streaming/spark_cluster.py [--workers 2] [--cores 1] [--memory-mb 1024] [--directory DIR] [COMMAND ...]

Without a command it prints its URL, for ``spark.master``, and the file of its secret, for ``spark.secret_file``, and
runs until it is interrupted. With a Regraft command such
as ``stage stream --set kafka.bootstrap=kafka:9092`` or ``demo --quick``, it runs the command with this master and
returns its exit code. What runs on the cluster does not belong here.
"""

import argparse
import secrets
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pyspark
from rich.console import Console

from regraft.infra.local.find_java import find_java
from regraft.infra.local.secure_spark import write_properties
from regraft.infra.local.service import SERVER_VARIABLES, RestartPolicy, Service
from regraft.infra.local.start_on_port import start_on_port
from regraft.infra.local.supervise import Supervisor
from regraft.infra.process.end_on_sigterm import stop_on_signals
from regraft.infra.process.find_port import LOOPBACK, choose_ports, is_listening
from regraft.infra.process.write_private import write_private

SPARK_HOME = Path(pyspark.__file__).parent
SCALA_VERSION = "2.13"  # in the names of its jars
HEAP_MB = 192  # Of the master and of each worker; executors have separate heaps.
PROPERTIES = "spark.conf"  # The secret is in it, not in command lines.
POLL_S, STOP_S_MAX = 0.2, 120.0  # At the end of a run, brokers may take a minute to deliver everything.
MASTER, WORKER = "org.apache.spark.deploy.master.Master", "org.apache.spark.deploy.worker.Worker"


def start_spark_cluster(
    supervisor: Supervisor, run_dir: Path, *, workers: int = 2, cores: int = 1, memory_mb: int = 1_024
) -> str:
    """Start a master and workers under ``supervisor``; each worker offers ``cores`` cores and ``memory_mb`` MB.

    Returns the master's URL. Workers that end are restarted. Its parts, and the drivers of jobs, authenticate by the
    secret in :func:`secret_file_of`. Raises ServiceFailedError.
    """
    directory = (run_dir / "spark-cluster").absolute()
    directory.mkdir(parents=True, exist_ok=True)
    write_private(secret_file_of(run_dir), f"{secrets.token_urlsafe(32)}\n".encode())
    write_properties(secret_file_of(run_dir), directory / PROPERTIES)

    def prepare(_: bool) -> tuple[int, Service]:
        port, ui_port = choose_ports(2)
        where = ("--host", LOOPBACK, "--port", str(port), "--webui-port", str(ui_port))
        given = ("--properties-file", str(directory / PROPERTIES), *where)
        return port, _service("spark-master", MASTER, given, directory, port)

    port = start_on_port(supervisor, "Spark's master", None, prepare)
    url = f"spark://{LOOPBACK}:{port}"
    for number in range(workers):
        _start_worker(supervisor, directory, url, number, cores=cores, memory_mb=memory_mb)
    return url


def secret_file_of(run_dir: Path) -> Path:
    """Return where the secret of the cluster is, for ``spark.secret_file``."""
    return (run_dir / "spark-cluster" / "secret").absolute()


def _start_worker(
    supervisor: Supervisor, directory: Path, url: str, number: int, *, cores: int, memory_mb: int
) -> None:
    name = f"spark-worker-{number}"

    def prepare(_: bool) -> tuple[int, Service]:
        port, ui_port = choose_ports(2)
        where = ("--host", LOOPBACK, "--port", str(port), "--webui-port", str(ui_port))
        resources = ("--cores", str(cores), "--memory", f"{memory_mb}m", "--work-dir", str(directory / name))
        given = ("--properties-file", str(directory / PROPERTIES), *where, *resources, url)
        return port, _service(name, WORKER, given, directory, port)

    start_on_port(supervisor, "a worker of Spark", None, prepare)


def _service(name: str, program: str, given: tuple[str, ...], directory: Path, port: int) -> Service:
    java = find_java()
    return Service(
        name=name,
        command=(str(java.executable), f"-Xmx{HEAP_MB}m", "-cp", f"{SPARK_HOME}/jars/*", program, *given),
        log_file=directory / f"{name}.log",
        # Spark's launcher of executors needs these; Spark's scripts, which are not used, would set them.
        environment={
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_SCALA_VERSION": SCALA_VERSION,
            "JAVA_HOME": str(java.home),
            "SPARK_LOCAL_IP": LOOPBACK,
        },
        inherited=SERVER_VARIABLES,
        directory=directory,
        ready=lambda: is_listening(port),
        restart=RestartPolicy(),
    )


def run_on(url: str, secret_file: Path, command: list[str], stop: threading.Event) -> int:
    """Run a Regraft command with this master until it ends or ``stop`` is set; return its exit code."""
    cluster = [
        word for given in (f"master={url}", f"secret_file={secret_file}") for word in ("--set", f"spark.{given}")
    ]
    process = subprocess.Popen([sys.executable, "-m", "regraft", *command, *cluster])
    while process.poll() is None and not stop.wait(POLL_S):
        pass
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
    return process.wait()


def main() -> int:
    """Run a cluster until interrupted, or for as long as a command runs on it; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2, help="number of workers")
    parser.add_argument("--cores", type=int, default=1, help="cores that each worker gives to executors")
    parser.add_argument("--memory-mb", type=int, default=1_024, help="memory that each worker gives to executors")
    parser.add_argument("--directory", type=Path, help="where logs and scratch space go; default: a new directory")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="a command of Regraft, with its options")
    given = parser.parse_args()
    directory = given.directory or Path(tempfile.mkdtemp(prefix="spark-cluster-"))
    with stop_on_signals() as stop, Supervisor() as supervisor:
        url = start_spark_cluster(
            supervisor, directory, workers=given.workers, cores=given.cores, memory_mb=given.memory_mb
        )
        console = Console(stderr=True, soft_wrap=True)
        secret = secret_file_of(directory)
        console.print(
            f"{url} is ready: give it as spark.master, and {secret} as spark.secret_file. Logs are in {secret.parent}."
        )
        if given.command:
            return run_on(url, secret, given.command, stop)
        stop.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
