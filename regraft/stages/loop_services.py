"""Describe the Python processes of the loop, alerts and dashboard included, as services of the supervisor."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from regraft.infra.local.service import RestartPolicy, Service
from regraft.settings.run_settings import Settings

EMULATOR, STREAMING, CONTROLLER = "emulator", "streaming", "controller"
ALERTS, DASHBOARD = "alerts", "dashboard"
COMMANDS = {  # As `regraft stage` names them.
    EMULATOR: "emulate",
    STREAMING: "stream",
    CONTROLLER: "control",
    ALERTS: "alerts",
    DASHBOARD: "dashboard",
}
SHOWN_NAMES = {
    CONTROLLER: "controller",
    STREAMING: "Spark",
    ALERTS: "alerts",
    DASHBOARD: "dashboard",
    EMULATOR: "brokers and clients",
}
# On SIGTERM the emulator waits until everything in transit has arrived (at most 60 s) and reached Kafka (30 s); Spark
# completes its micro-batch; the controller completes the transition in progress (15 s) and its last writes (10 s).
GRACE_S = {EMULATOR: 100.0, STREAMING: 30.0, CONTROLLER: 30.0, ALERTS: 25.0, DASHBOARD: 15.0}
READY_TIMEOUT_S = 180.0
POLL_S = 0.1
# Settings that hold secrets or their locations, and the stages that get them.
SECRETS: dict[str, tuple[str, ...]] = {
    "redis": (CONTROLLER, ALERTS, DASHBOARD),
    "alerts.targets": (ALERTS,),
    "alerts.webhooks": (ALERTS,),
    "dashboard.secret": (DASHBOARD,),
}
REDIS_VARIABLES = ("REGRAFT_REDIS_URL", "REDIS_URL")
# The emulator holds the ledger, so its death ends the run.
RESTARTS_MAX = {EMULATOR: 0, STREAMING: 8, CONTROLLER: 8, ALERTS: 8, DASHBOARD: 8}


def started_together(names: Sequence[str]) -> list[list[str]]:
    """Return the stages that start at the same time: the emulated brokers last, so all else is there to see them."""
    others = [name for name in names if name != EMULATOR]
    return [others, [EMULATOR]] if EMULATOR in names else [others]


def loop_service(name: str, settings: Settings) -> Service:
    """Return the service of one stage, which is ready once it has written its status file."""
    status_file = settings.run.directory / f"{name}.json"
    return Service(
        name=name,
        command=(sys.executable, "-m", "regraft", "stage", COMMANDS[name]),
        log_file=settings.run.directory / "logs" / f"{name}.log",
        environment={**_own_settings(name, settings), "PYTHONPATH": _python_path()},
        ready=_written_since(status_file, time.time()),
        ready_timeout_s=READY_TIMEOUT_S,
        grace_s=GRACE_S[name],
        restart=RestartPolicy(restarts_max=RESTARTS_MAX[name]),
        finishes=name == EMULATOR,
    )


def start_fresh(
    start: Callable[..., None], names: Sequence[str], settings: Settings, on_wait: Callable[[str], None]
) -> None:
    """Start these stages of a fresh run by ``start``, and emulated brokers while Spark compiles its first micro-batch.

    Both take about as long. Raises ServiceFailedError.
    """
    pool = ThreadPoolExecutor(1)
    others = pool.submit(start, *(loop_service(name, settings) for name in names), on_wait=on_wait)
    pool.shutdown(wait=False)
    offsets = settings.streaming.query_directory / "offsets"
    while not (others.done() or (isinstance(offsets, Path) and offsets.is_dir())):  # A URI is only Java's to read.
        time.sleep(POLL_S)
    if others.done():
        others.result()
    start(loop_service(EMULATOR, settings))
    others.result()


def _own_settings(name: str, settings: Settings) -> dict[str, str]:
    """Return the settings as variables; empty those with secrets that the child would inherit but must not see."""
    withheld = [secret for secret, users in SECRETS.items() if name not in users]
    environment = settings.to_environment(withheld)
    if "redis" in withheld:
        security = settings.redis.security
        environment |= dict.fromkeys((*REDIS_VARIABLES, *security.variables), "")
    return environment


def _written_since(file: Path, time_s: float) -> Callable[[], bool]:
    def is_written() -> bool:
        return file.exists() and file.stat().st_mtime >= time_s - 1

    return is_written


def _python_path() -> str:
    """Return a search path with this package first, so that a child finds it from any directory."""
    own = str(Path(__file__).resolve().parents[2])
    inherited = os.environ.get("PYTHONPATH")
    return f"{own}{os.pathsep}{inherited}" if inherited else own
