"""The common format of measurements: ``run`` and a flat list of ``figures``."""

import json
import os
import platform
import subprocess
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from regraft.schemas.status_file import replace_file

PACKAGES = ("regraft", "pyspark", "confluent-kafka", "fastavro", "numpy", "scipy", "pyarrow")


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured value; ``where`` identifies what was measured, such as planner and mode."""

    name: str
    where: dict[str, str | int | float]
    value: float
    unit: str


def run_facts(settings: dict[str, Any], seed: int) -> dict[str, Any]:
    """Return what is needed to repeat the run: versions, seed, settings, commit and cores."""
    return {
        "commit": _commit(),
        "cores": os.cpu_count(),
        "seed": seed,
        "settings": settings,
        "versions": {"python": platform.python_version()} | {name: _version(name) for name in PACKAGES},
    }


def write_figures(path: Path, run: dict[str, Any], figures: list[Figure]) -> None:
    """Write one JSON object with ``run`` and ``figures``."""
    document = {"run": run, "figures": [asdict(figure) for figure in figures]}
    replace_file(path, json.dumps(document, indent=1) + "\n")


def _commit() -> str:
    try:
        result = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=Path(__file__).parent, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return result.stdout.strip()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
