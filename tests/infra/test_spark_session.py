"""Spark's base configuration, and a session that has it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from regraft.infra.local.spark_session import base_configuration, is_submitted, with_task_retries

# A space, quotes, signs of URIs, escapes and variables, and letters outside Latin-1.
ODD_NAME = """my "run's" 100%20 #1? a\\tb ${x} łódź😀"""
SCRIPT = """
import json, sys
from pathlib import Path
from regraft.infra.local.spark_session import build_spark_session

spark = build_spark_session("trial", run_dir=Path(sys.argv[1]), driver_memory_mb=512)
kafka = spark.read.format("kafka").option("kafka.bootstrap.servers", "127.0.0.1:1").option("subscribe", "x").load()
found = {
    "ids": [row.id for row in spark.range(3).mapInArrow(lambda batches: batches, "id long").collect()],
    "kafka": kafka.columns,
    "zone": spark.conf.get("spark.sql.session.timeZone"),
    "heap_mb": spark.sparkContext._jvm.java.lang.Runtime.getRuntime().maxMemory() // 2**20,
    "python": spark.range(1).rdd.map(lambda _: __import__("sys").executable).first(),
    "is_path_safe": spark.range(1).rdd.map(lambda _: __import__("sys").flags.safe_path).first(),
}
spark.stop()
print("FOUND", json.dumps(found))
"""


@pytest.mark.spark
def test_session_has_kafka_and_this_python(tmp_path: Path) -> None:
    """A session passes Arrow to Python, has the Kafka source, uses UTC, is small, and its workers are this Python.

    They import nothing from their working directory, whatever the session's environment says. The run directory may
    have any name, also where the locale is C.
    """
    directory = tmp_path / ODD_NAME
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    environment["LC_ALL"] = "C"
    answer = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(directory)], capture_output=True, text=True, cwd=Path(__file__).parents[2],
        check=False, timeout=300, env=environment,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr
    found = json.loads(answer.stdout.split("FOUND ")[1])
    assert found["ids"] == [0, 1, 2]
    assert found["kafka"][:2] == ["key", "value"]
    assert found["zone"] == "UTC"
    assert found["heap_mb"] <= 512
    assert found["python"] == sys.executable
    assert found["is_path_safe"] is True
    assert (directory / "spark" / "spark.log").is_file()


@pytest.mark.parametrize(
    ("master", "meant"),
    [
        ("local[2]", "local[2,4]"),
        ("local[*]", "local[*,4]"),
        ("local[2,1]", "local[2,1]"),
        ("local", "local"),
        ("spark://local[2]:7077", "spark://local[2]:7077"),
    ],
)
def test_a_task_may_fail_in_one_process_as_often_as_on_a_cluster(master: str, meant: str) -> None:
    """Unless the number is configured, and with more than one thread."""
    assert with_task_retries(master) == meant


def test_configuration_stays_in_the_run_directory(tmp_path: Path) -> None:
    """Spark's scratch space, warehouse and log are inside the run directory, jars are files, extras take precedence."""
    settings = base_configuration(tmp_path, extra={"spark.sql.shuffle.partitions": "4"})
    for key in ("spark.local.dir", "spark.sql.warehouse.dir"):
        assert settings[key].startswith(str(tmp_path))
    assert len(settings["spark.jars"].split(",")) == 4
    assert "spark.jars.packages" not in settings
    assert settings["spark.sql.shuffle.partitions"] == "4"


def test_the_driver_starts_with_the_jars_for_kafka(tmp_path: Path) -> None:
    """Java takes classes only from an archive of the class path with which it starts."""
    settings = base_configuration(tmp_path)
    assert settings["spark.driver.extraClassPath"].split(os.pathsep) == settings["spark.jars"].split(",")


def test_submitted_job_is_recognised() -> None:
    """spark-submit sets the port of its gateway in the environment."""
    assert is_submitted({"PYSPARK_GATEWAY_PORT": "1"})
    assert not is_submitted({})
