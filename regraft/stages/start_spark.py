"""Start the Spark session of the streaming stage: in this process, or as the driver of a cluster's executors."""

from __future__ import annotations

import socket
import sys
import threading
import time
from typing import Any

import structlog
from pyspark.sql import SparkSession

from regraft.infra.local.spark_session import build_spark_session
from regraft.infra.process.stack_error import StackError
from regraft.settings.run_settings import Settings
from regraft.settings.server_settings import STANDALONE_MASTER, SparkSettings
from regraft.streaming.measure_backlog import batch_records_max
from regraft.streaming.open_checkpoint import shards_before_start
from regraft.streaming.size_job import HEAP_MB_MIN, executor_heap_mb, heap_mb

CONNECT_S_MAX = 5.0  # To each master.
EXECUTOR_S_MAX = 30.0  # A cluster that has room starts one within seconds.
POLL_S = 0.2

log = structlog.get_logger(__name__)


def start_spark(settings: Settings, stop: threading.Event) -> SparkSession:
    """Return a running session; on a cluster it has an executor, or a warning was logged that there is none.

    Raises StackError if no master listens, or the secret of the cluster cannot be used.
    """
    spark, directory = settings.spark, settings.run.directory
    require_master(spark.master)
    session = build_spark_session(
        "regraft",
        run_dir=directory,
        master=spark.master,
        driver_host=spark.driver_host,
        driver_memory_mb=spark.driver_memory_mb or driver_heap_mb(settings),
        executor_python=spark.executor_python or sys.executable,
        secret_file=spark.secret_file,
        extra={**settings.streaming.session_options, **executor_options(settings)},
    )
    if not spark.is_local:
        _await_executor(session, spark, stop)
    return session


def driver_heap_mb(settings: Settings) -> int:
    """Return the driver's heap in MB, by the size of a micro-batch if it does all the work, else the minimum."""
    return heap_mb(batch_records_max(settings.streaming)) if settings.spark.is_local else HEAP_MB_MIN


def executor_options(settings: Settings) -> dict[str, str]:
    """Return Spark's settings for the memory and cores of each executor; empty in local mode."""
    spark = settings.spark
    if spark.is_local:
        return {}
    cores = {"spark.executor.cores": str(spark.executor_cores)} if spark.executor_cores else {}
    records, shards = batch_records_max(settings.streaming), shards_before_start(settings.streaming)
    memory_mb = spark.executor_memory_mb or executor_heap_mb(records, shards, spark.executor_cores)
    return {"spark.executor.memory": f"{memory_mb}m", **cores}


def require_master(master: str) -> None:
    """Raise StackError if no master of a standalone cluster listens; Spark itself would try for a minute."""
    if not master.startswith(STANDALONE_MASTER):
        return
    reasons = []
    for address in master.removeprefix(STANDALONE_MASTER).split(","):
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host, int(port)), CONNECT_S_MAX).close()
        except (OSError, ValueError) as error:
            reasons.append(f"{address}: {error}")
        else:
            return
    raise StackError(
        f"No Spark master listens at {master} ({'; '.join(reasons)}): start one, or give a different one as "
        "spark.master; local[2] needs none"
    )


def _await_executor(session: SparkSession, spark: SparkSettings, stop: threading.Event) -> None:
    """Wait until there is an executor, and log a warning if there is none in time: the query would wait silently."""
    jvm_context: Any = session.sparkContext._jsc
    deadline_s = time.monotonic() + EXECUTOR_S_MAX
    while not stop.is_set() and time.monotonic() < deadline_s:
        if (count := jvm_context.sc().getExecutorMemoryStatus().size() - 1) > 0:  # The driver is counted as well.
            log.info("executors_ready", count=count, master=spark.master)
            return
        stop.wait(POLL_S)
    if not stop.is_set():
        advice = "the job waits; check that a worker offers this many cores and this much memory, and see its log"
        cores, memory = spark.executor_cores or 1, session.conf.get("spark.executor.memory")
        log.warning("executors_missing", master=spark.master, cores_min=cores, memory=memory, advice=advice)
