"""Fork Spark's Python workers without the work that this job's tasks do not need.

In and out: Spark's own protocol, as in ``pyspark.daemon``, which this replaces through ``spark.python.daemon.module``.
What workers do belongs to :mod:`streaming.close_shard`.

Before each task, Spark's worker rescans every zip and jar on its path, because a task may bring files; after it, the
worker collects garbage over all modules. Together these are most of the cost of a small micro-batch. This job brings no
files, and its modules are loaded here, once for all workers, and exempt from garbage collection.
"""

import gc
import importlib
import sys
from types import SimpleNamespace
from typing import Any

import pandas as pd  # noqa: F401 (loaded here, once for all workers)
import pyspark.daemon
import pyspark.worker_util

import regraft.streaming.close_shard
import regraft.streaming.read_telemetry  # noqa: F401 (the same)


class PathWatch:
    """Replaces ``importlib`` in the set-up of a task: rescans files only if the path has changed."""

    def __init__(self) -> None:
        self._path = list(sys.path)

    def invalidate_caches(self) -> None:
        """Let imports rescan the path, unless it is unchanged since the last call."""
        if sys.path != self._path:
            self._path = list(sys.path)
            importlib.invalidate_caches()


def trim_tasks() -> None:
    """Remove the unneeded work from each task of the workers that this process forks."""
    set_up: Any = pyspark.worker_util
    set_up.importlib = SimpleNamespace(**vars(importlib) | {"invalidate_caches": PathWatch().invalidate_caches})
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    trim_tasks()
    serve: Any = pyspark.daemon.manager
    serve()
