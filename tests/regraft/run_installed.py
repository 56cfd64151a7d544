"""Run a Python in which the wheel is installed."""

import os
import subprocess
from pathlib import Path

from regraft.infra.local.find_cache import find_cache

CHECKOUT = Path(__file__).parents[2]
FOLDERS = ("schemas", "overlay", "producers", "streaming", "controller", "alerts", "dashboard", "infra")


def run_installed(
    installed: Path, folder: Path, *arguments: str, timeout_s: float | None = None
) -> subprocess.CompletedProcess[str]:
    """Run it out of reach of the checkout: in ``folder``, without this process's paths."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [str(installed), *arguments],
        cwd=folder,
        env={**kept, "REGRAFT_CACHE": str(find_cache())},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
