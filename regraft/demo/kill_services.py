"""Kill services of a running demo with SIGKILL, one after the other, to show that the loop survives it.

In: a supervisor, the time, and how far the windows are. Out: what was killed, in words. Starting them again is the
supervisor's work. The emulator is spared: its ledger is what the outcome is judged by.
"""

from __future__ import annotations

import os
import signal

from infra.supervise import Supervisor
from regraft.stages.loop_services import CONTROLLER, STREAMING

KILLED_IN_TURN = (CONTROLLER, STREAMING, "valkey", "kafka")


class KillSchedule:
    """Who is killed next, and when: after a pause, and not before a window has closed since the last kill.

    Waiting for the window makes each kill one of its own: killing Kafka while Spark still starts would show less.
    """

    def __init__(self, supervisor: Supervisor, pause_s: float) -> None:
        self._supervisor = supervisor
        self._pause_s = pause_s
        self._waiting = list(KILLED_IN_TURN)
        self._killed_s = 0.0
        self._killed_window_ms = 0

    def act(self, elapsed_s: float, newest_window_ms: int) -> str:
        """Kill who is due and return a sentence about it; empty when nobody is."""
        if not self._waiting or not self._has_recovered(elapsed_s, newest_window_ms):
            return ""
        pid = self._supervisor.pid(self._waiting[0])
        if pid is None:
            return ""  # it is being started again at this moment: the next look finds it
        os.kill(pid, signal.SIGKILL)
        self._killed_s, self._killed_window_ms = elapsed_s, newest_window_ms
        return f"killed {self._waiting.pop(0)} (process {pid}) with SIGKILL"

    def is_over(self, elapsed_s: float, newest_window_ms: int) -> bool:
        """Tell whether all have been killed, and the loop has gone on for a pause since."""
        return not self._waiting and self._has_recovered(elapsed_s, newest_window_ms)

    def _has_recovered(self, elapsed_s: float, newest_window_ms: int) -> bool:
        return elapsed_s - self._killed_s >= self._pause_s and newest_window_ms > self._killed_window_ms
