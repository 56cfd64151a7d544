"""The entry point of the Spark job's image: an executor as Spark's scheduler for Kubernetes requests it."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from regraft.infra.local.start_executor import ARGUMENTS, BACKEND, NotByKubernetesError, executor_command, spark_home

OPTIONS = {name: f"<{name}>" for name in ARGUMENTS.values()} | {"SPARK_EXECUTOR_MEMORY": "1024m"}


def test_an_executor_gets_the_drivers_options() -> None:
    """Each Java option in its order, the heap, and every argument by its name."""
    options = {f"SPARK_JAVA_OPT_{number}": f"-Dnumber={number}" for number in (10, 2, 0)}
    command = executor_command({**OPTIONS, **options, "SPARK_CONF_DIR": "/conf"}, Path("/java"), Path("/spark"))
    assert command[:6] == ["/java", "-Dnumber=0", "-Dnumber=2", "-Dnumber=10", "-Xms1024m", "-Xmx1024m"]
    assert command[6:9] == ["-cp", "/conf:/spark/jars/*", BACKEND]
    options_given = dict(zip(command[9::2], command[10::2], strict=True))
    assert options_given == {argument: OPTIONS[name] for argument, name in ARGUMENTS.items()}


def test_the_class_of_executors_is_in_the_locked_jars() -> None:
    """Another version of Spark may rename it."""
    (jar,) = (spark_home() / "jars").glob("spark-kubernetes_*.jar")
    with zipfile.ZipFile(jar) as classes:
        assert f"{BACKEND.replace('.', '/')}.class" in classes.namelist()


def test_an_executor_started_by_hand_is_one_sentence() -> None:
    """An executor started by hand says what is missing."""
    with pytest.raises(NotByKubernetesError, match=r"^An executor needs SPARK_EXECUTOR_ID, which Spark sets .*\.$"):
        executor_command({**OPTIONS, "SPARK_EXECUTOR_ID": ""}, Path("/java"), Path("/spark"))


@pytest.mark.parametrize(
    ("arguments", "code", "output"), [(["echo", "as it is"], 0, "as it is"), ([], 1, "No command")]
)
def test_any_other_command_is_run_as_it_is(arguments: list[str], code: int, output: str) -> None:
    """The image's own stage, or a shell."""
    command = [sys.executable, "-m", "regraft.infra.local.start_executor", *arguments]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    assert answer.returncode == code
    assert output in answer.stdout + answer.stderr
