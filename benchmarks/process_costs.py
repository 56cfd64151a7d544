"""Measure CPU time and peak memory of a benchmark's programs, by kind of process.

An ended process counts only if its parent has waited for it, as Spark's daemon does for its workers.
"""

import multiprocessing
import resource
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import psutil

PYTHON, JAVA, WORKERS, EXECUTORS = "driver (Python)", "Java", "workers (Python)", "executors (Java)"


def run_in_fresh_process(program: Callable[..., Any], *arguments: object) -> Any:
    """Run a program in a fresh process, so that its memory is measured alone; return its result."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(program, arguments)


def java_children() -> list[psutil.Process]:
    """Return the Java processes that this process started."""
    return [child for child in psutil.Process().children() if _is_java(child)]


def spark_cpu_s() -> dict[str, float]:
    """Return the CPU time so far of the driver, its Java (in local mode with the executors) and Python workers.

    Executors with their own Java are counted separately.
    """
    java, executors, workers = _spark_processes()
    executors_s = {EXECUTORS: cpu_s(executors)} if executors else {}
    return {PYTHON: time.process_time(), JAVA: cpu_s(java), **executors_s, WORKERS: cpu_s(workers, ended=True)}


def spark_peak_mb() -> dict[str, float]:
    """Return the sum of the peaks (MB) of those processes that still run; forked workers share some of it."""
    java, executors, workers = _spark_processes()
    executors_mb = {EXECUTORS: sum(map(peak_mb, executors))} if executors else {}
    own_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1_024
    return {PYTHON: own_mb, JAVA: sum(map(peak_mb, java)), **executors_mb, WORKERS: sum(map(peak_mb, workers))}


def _spark_processes() -> tuple[list[psutil.Process], list[psutil.Process], list[psutil.Process]]:
    """Return the driver's Java, executors with their own Java, and all Python workers."""
    java = java_children()
    below = [child for each in java for child in each.children(recursive=True)]
    executors = [child for child in below if _is_java(child)]
    return java, executors, [child for child in below if child not in executors]


def cpu_s(processes: Iterable[psutil.Process], *, ended: bool = False) -> float:
    """Return the CPU time of processes; with ``ended`` also that of their ended children."""
    spent_s = 0.0
    for process in processes:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        spent_s += times.user + times.system
        spent_s += times.children_user + times.children_system if ended else 0.0
    return spent_s


def peak_mb(process: psutil.Process) -> float:
    """Return the peak resident memory of a process, in MB."""
    try:
        status = (Path("/proc") / str(process.pid) / "status").read_text(encoding="utf-8")
    except FileNotFoundError:
        return 0.0
    return int(status.split("VmHWM:")[1].split()[0]) / 1_024 if "VmHWM:" in status else 0.0


def _is_java(process: psutil.Process) -> bool:
    try:
        return "java" in process.name() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
