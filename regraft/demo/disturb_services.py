"""Disturb a running demo: kill services with SIGKILL, suspend stages with SIGSTOP.

This shows that the loop survives. In: a supervisor, the time, and the newest window. Out: sentences about what was
done. The supervisor restarts services. The emulator is spared because the run is judged by its ledger; it emulates
outages of brokers and links itself.
"""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

from regraft.infra.local.supervise import Supervisor
from regraft.stages.loop_services import ALERTS, CONTROLLER, DASHBOARD, STREAMING

KILLED = (CONTROLLER, STREAMING, ALERTS, DASHBOARD, "valkey", "kafka")
SUSPENDED = (CONTROLLER, STREAMING, ALERTS, DASHBOARD)
LASTS_S = 10.0  # How long a stage is suspended.


class DisturbKind(StrEnum):
    """What can be done to a service."""

    KILL = "kill"
    SUSPEND = "suspend"


@dataclass(frozen=True, slots=True)
class Disturbance:
    """One thing to do to the service ``target``."""

    kind: DisturbKind
    target: str

    def __str__(self) -> str:
        return f"{self.kind} {self.target}"


def disturbances(services: Collection[str]) -> list[Disturbance]:
    """Return all that can be done to these services."""
    planned = [Disturbance(DisturbKind.KILL, name) for name in KILLED if name in services]
    return planned + [Disturbance(DisturbKind.SUSPEND, name) for name in SUSPENDED if name in services]


class DisturbSchedule:
    """Disturbs one thing at a time, after a pause and only once a window has closed since the last disturbance.

    Waiting for a window keeps disturbances separate: killing Kafka while Spark is still starting would show less. All
    are done once, in random order; until ``until_s`` they are then repeated in another order. ``counts`` holds how
    often each was done.
    """

    def __init__(
        self,
        supervisor: Supervisor,
        pause_s: float,
        kinds: Collection[Disturbance],
        rng: random.Random,
        until_s: float = 0.0,
    ) -> None:
        self.counts: Counter[str] = Counter()
        self._supervisor = supervisor
        self._pause_s = pause_s
        self._kinds = tuple(kinds)
        self._rng = rng
        self._until_s = until_s
        self._waiting = self._drawn()
        self._acted_s = 0.0
        self._acted_window_ms = 0
        self._suspended: tuple[str, int] | None = None

    def act(self, elapsed_s: float, newest_window_ms: int) -> str:
        """Do what is due and return a sentence about it, empty if nothing is due."""
        if self._suspended is not None:
            return "" if elapsed_s - self._acted_s < LASTS_S else self.resume()
        if not self._waiting and elapsed_s < self._until_s:
            self._waiting = self._drawn()
        if not self._waiting or not self._has_recovered(elapsed_s, newest_window_ms):
            return ""
        due = self._waiting[0]
        pid = self._supervisor.pid(due.target)
        if pid is None:
            return ""  # it is being restarted; try again at the next call
        del self._waiting[0]
        self._acted_s, self._acted_window_ms = elapsed_s, newest_window_ms
        self.counts[str(due)] += 1
        return self._disturb(due, pid)

    def resume(self) -> str:
        """Resume the suspended stage; return a sentence about it, empty if there is none."""
        if self._suspended is None:
            return ""
        (name, pid), self._suspended = self._suspended, None
        if self._supervisor.pid(name) != pid:
            return f"{name} died before it was resumed"
        os.killpg(pid, signal.SIGCONT)
        return f"resumed {name} (process {pid})"

    def is_over(self, elapsed_s: float, newest_window_ms: int) -> bool:
        """Return True if nothing is left to do and the loop has recovered from the last disturbance."""
        return not self._waiting and self._suspended is None and self._has_recovered(elapsed_s, newest_window_ms)

    def _drawn(self) -> list[Disturbance]:
        return self._rng.sample(self._kinds, len(self._kinds))

    def _disturb(self, due: Disturbance, pid: int) -> str:
        if due.kind is DisturbKind.KILL:
            os.kill(pid, signal.SIGKILL)
            return f"killed {due.target} (process {pid}) with SIGKILL"
        os.killpg(pid, signal.SIGSTOP)  # With its children, such as Spark's Java.
        self._suspended = due.target, pid
        return f"suspended {due.target} (process {pid}) with SIGSTOP for {LASTS_S:g} s"

    def _has_recovered(self, elapsed_s: float, newest_window_ms: int) -> bool:
        return elapsed_s - self._acted_s >= self._pause_s and newest_window_ms > self._acted_window_ms
