"""Fork Spark's Python workers, without what no task of this job needs done again.

In and out: Spark's own protocol, as in ``pyspark.daemon``, which ``spark.python.daemon.module`` replaces by this.
What workers do belongs to :mod:`streaming.close_shard`.

Before each task Spark's worker rescans every zip and jar on its path, as a task may bring files along, and after
it collects garbage, all modules included: together most of what a small micro-batch takes. This job brings no files.
Modules are loaded here, once for all workers, and are not garbage.
"""

import gc
import importlib
import sys
from types import SimpleNamespace
from typing import Any

import pyspark.daemon
import pyspark.worker_util

import regraft.streaming.close_shard  # noqa: F401 (what workers use; it is there when one is forked)


class PathWatch:
    """Stands in for ``importlib`` where a task is set up: rescans files only if the path has changed."""

    def __init__(self) -> None:
        self._path = list(sys.path)

    def invalidate_caches(self) -> None:
        """Let imports rescan the path, unless it is unchanged since the last call."""
        if sys.path != self._path:
            self._path = list(sys.path)
            importlib.invalidate_caches()


def lighten_tasks() -> None:
    """Take out of each task of the workers that this process forks what need not be done in it."""
    set_up: Any = pyspark.worker_util
    set_up.importlib = SimpleNamespace(**vars(importlib) | {"invalidate_caches": PathWatch().invalidate_caches})
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    lighten_tasks()
    serve: Any = pyspark.daemon.manager
    serve()
