"""The process that forks Python workers; every test marked ``spark`` shows that real queries run with it."""

import importlib
import sys

import pytest

from regraft.streaming.fork_workers import PathWatch
from regraft.streaming.streaming_settings import SPARK_SETTINGS


def test_a_task_looks_for_files_again_only_if_the_path_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that brings a file changes the path, and finds it; the next one need not look."""
    looks: list[int] = []
    monkeypatch.setattr(importlib, "invalidate_caches", lambda: looks.append(1))
    monkeypatch.setattr(sys, "path", list(sys.path))
    watch = PathWatch()
    watch.invalidate_caches()
    assert not looks
    sys.path.insert(1, "/brought/along.zip")
    watch.invalidate_caches()
    watch.invalidate_caches()
    assert len(looks) == 1


def test_spark_forks_workers_by_this_module() -> None:
    """The configured module can be imported."""
    importlib.import_module(SPARK_SETTINGS["spark.python.daemon.module"])
