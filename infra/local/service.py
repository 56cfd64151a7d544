"""Describe a child process that the supervisor runs, what happened to it, and what it wrote to its log."""

import json
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from regraft.schemas.texts import one_line

TAIL_BYTES = 4_000
CAUSE_LENGTH_MAX = 400


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """How often a service that died is restarted; the pause doubles from ``backoff_ms`` up to its maximum.

    After ``healthy_s`` of uninterrupted readiness, the count of restarts towards ``restarts_max`` starts at 0 again.
    """

    restarts_max: int = 5
    backoff_ms: int = 200
    backoff_ms_max: int = 5_000
    healthy_s: float = 60.0

    def pause_s(self, restarts: int) -> float:
        """Return the pause before the restart that follows ``restarts`` earlier ones, in seconds."""
        return min(self.backoff_ms << restarts, self.backoff_ms_max) / 1_000


# The environment variables that a server program may need.
SERVER_VARIABLES = frozenset(
    {"HOME", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "PATH", "TMPDIR", "TZ"}
)
NO_RESTART = RestartPolicy(restarts_max=0)


def always_ready() -> bool:
    """Return True, for services that are ready as soon as they run."""
    return True


@dataclass(frozen=True, slots=True)
class Service:
    """One child process.

    ``environment`` is added to the supervisor's, which is reduced to ``inherited`` if given: third-party programs must
    not see our secrets. ``ready`` is called repeatedly until it returns True; a call must take at most about 1 s.
    ``finishes``: exit code 0 is success, not a death. Output is appended to ``log_file``, which is moved aside at the
    next start if it is larger than ``log_bytes_max``.
    """

    name: str
    command: tuple[str, ...]
    log_file: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    inherited: frozenset[str] | None = None
    directory: Path | None = None
    ready: Callable[[], bool] = always_ready
    ready_timeout_s: float = 60.0
    stop_signal: signal.Signals = signal.SIGTERM
    grace_s: float = 10.0
    restart: RestartPolicy = field(default_factory=RestartPolicy)
    finishes: bool = False
    log_bytes_max: int = 16_000_000


class ServiceEventKind(StrEnum):
    """What happened to a service."""

    STARTED = "started"
    READY = "ready"
    DIED = "died"
    RESTARTED = "restarted"
    FINISHED = "finished"
    GAVE_UP = "gave up"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class ServiceEvent:
    """Something that happened to a service, with the restarts so far; ``exit_code`` is negative for a signal.

    ``failure`` says why its process died, or is a sentence once it has ended for good although it should run.
    """

    time_s: float
    service: str
    kind: ServiceEventKind
    pid: int
    restarts: int
    exit_code: int | None = None
    failure: str = ""

    @property
    def text(self) -> str:
        """What happened, with the reason of a death."""
        process = f" (process {self.pid})" if self.pid else ""
        why = f": {self.failure}" if self.kind is ServiceEventKind.DIED else ""
        return f"{self.service} {self.kind}{process}{why}"


def rotate_log(log_file: Path, bytes_max: int) -> int:
    """Make the log's directory, move a log of more than ``bytes_max`` aside, and return the size of what is left."""
    log_file.parent.mkdir(parents=True, exist_ok=True)
    size = log_file.stat().st_size if log_file.exists() else 0
    if size > bytes_max:
        log_file.replace(log_file.with_name(log_file.name + ".1"))
        return 0
    return size


def log_tail(log_file: Path, begin: int = 0) -> str:
    """Return the end of a log, at most TAIL_BYTES and nothing before ``begin``; "" if it cannot be read."""
    try:
        with log_file.open("rb") as stream:
            stream.seek(max(begin, log_file.stat().st_size - TAIL_BYTES))
            return stream.read().decode(errors="replace")
    except OSError:
        return ""


def how_ended(exit_code: int | None) -> str:
    """Describe the end of a process."""
    return f"was killed by signal {-exit_code}" if exit_code and exit_code < 0 else f"exited with code {exit_code}"


def logged_cause(log_file: Path, begin: int, exit_code: int | None) -> str:
    """Return in brackets what the process that ended has logged as the reason; "" for one that was killed."""
    is_killed = exit_code is not None and exit_code < 0
    cause = "" if is_killed else cause_of(log_tail(log_file, begin))
    return f" ({cause})" if cause else ""


def cause_of(tail: str) -> str:
    """Return why a process ended by its last log entry with a reason, else its last line; "" if it wrote nothing."""
    lines = [line.strip() for line in tail.splitlines() if line.strip()]
    for line in reversed(lines):
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict) and entry.get("reason"):
            return _shortened(str(entry["reason"]))
    return _shortened(lines[-1]) if lines else ""


def _shortened(text: str) -> str:
    text = one_line(text).rstrip(".")
    return text if len(text) <= CAUSE_LENGTH_MAX else text[: CAUSE_LENGTH_MAX - 1] + "…"
