"""The entry point of the Spark job's image: run an executor if Kubernetes starts one, else any other command.

Spark starts its executors with the single argument ``executor`` and the rest in variables; any other command is run
unchanged.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from regraft.infra.local.find_java import find_java
from regraft.infra.process.stack_error import StackError

EXECUTOR = "executor"
BACKEND = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
OPTION = "SPARK_JAVA_OPT_"  # Followed by a number.
# The arguments of an executor, and the variables in which Spark's Kubernetes scheduler passes them.
ARGUMENTS = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}
MEMORY = "SPARK_EXECUTOR_MEMORY"


class NotByKubernetesError(StackError):
    """Reports which variables of an executor are missing."""


def executor_command(environ: Mapping[str, str], java: Path, spark_home: Path) -> list[str]:
    """Return the command of an executor. Raises NotByKubernetesError if a variable is missing."""
    if missing := [name for name in (*ARGUMENTS.values(), MEMORY) if not environ.get(name)]:
        raise NotByKubernetesError(
            f"An executor needs {', '.join(missing)}, which Spark sets when it starts one on Kubernetes: leave "
            f"{EXECUTOR!r} to Spark (infra/kubernetes/spark.yaml)."
        )
    numbered = {int(name.removeprefix(OPTION)): value for name, value in environ.items() if name.startswith(OPTION)}
    places = [environ.get("SPARK_CONF_DIR"), environ.get("HADOOP_CONF_DIR"), environ.get("SPARK_CLASSPATH")]
    class_path = ":".join([*filter(None, places), f"{spark_home / 'jars'}/*"])
    heap = [f"-Xms{environ[MEMORY]}", f"-Xmx{environ[MEMORY]}"]
    arguments = [word for argument, name in ARGUMENTS.items() for word in (argument, environ[name])]
    return [
        str(java),
        *(numbered[number] for number in sorted(numbered)),
        *heap,
        "-cp",
        class_path,
        BACKEND,
        *arguments,
    ]


def spark_home() -> Path:
    """Return the folder of PySpark. Raises StackError if it is not installed."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise StackError("PySpark is not installed here: an executor needs the extra regraft[spark].")
    return Path(spec.origin).parent


def main(arguments: Sequence[str]) -> None:
    """Become the program; exit with 1 and one sentence if that fails."""
    command = list(arguments)
    try:
        if command[:1] == [EXECUTOR]:
            command = executor_command(os.environ, find_java().executable, spark_home())
        if not command:
            raise StackError("No command was given: use the image's own, or name one.")
        os.execvp(command[0], command)
    except (StackError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
