"""Kill services of a running demo with SIGKILL and suspend stages with SIGSTOP, one after the other.

To show that the loop survives it. In: a supervisor, the time, and how far the windows are. Out: what was done, in
words. Starting services again is the supervisor's work. The emulator is spared: its ledger is what the outcome is
judged by; what befalls brokers and links, it plays itself.
"""

from __future__ import annotations

import os
import signal

from infra.supervise import Supervisor
from regraft.stages.loop_services import CONTROLLER, STREAMING

KILLED_IN_TURN = (CONTROLLER, STREAMING, "valkey", "kafka")
SUSPENDED_IN_TURN = (STREAMING, CONTROLLER)
SUSPENDED_S = 10.0


class DisturbSchedule:
    """Who is disturbed next, and when: after a pause, and not before a window has closed since the last time.

    Waiting for the window makes each disturbance one of its own: killing Kafka while Spark still starts would show
    less. First all are killed, then stages are suspended for 10 s each.
    """

    def __init__(self, supervisor: Supervisor, pause_s: float) -> None:
        self._supervisor = supervisor
        self._pause_s = pause_s
        self._waiting = [(name, signal.SIGKILL) for name in KILLED_IN_TURN]
        self._waiting += [(name, signal.SIGSTOP) for name in SUSPENDED_IN_TURN]
        self._acted_s = 0.0
        self._acted_window_ms = 0
        self._suspended: tuple[str, int] | None = None

    def act(self, elapsed_s: float, newest_window_ms: int) -> str:
        """Do what is due and return a sentence about it; empty when nothing is."""
        if self._suspended is not None:
            return self.resume() if elapsed_s - self._acted_s >= SUSPENDED_S else ""
        if not self._waiting or not self._has_recovered(elapsed_s, newest_window_ms):
            return ""
        name, how = self._waiting[0]
        pid = self._supervisor.pid(name)
        if pid is None:
            return ""  # it is being started again at this moment: the next look finds it
        del self._waiting[0]
        self._acted_s, self._acted_window_ms = elapsed_s, newest_window_ms
        if how is signal.SIGKILL:
            os.kill(pid, how)
            return f"killed {name} (process {pid}) with SIGKILL"
        os.killpg(pid, how)  # With its children: Spark's Java, for one.
        self._suspended = name, pid
        return f"suspended {name} (process {pid}) with SIGSTOP for {SUSPENDED_S:g} s"

    def resume(self) -> str:
        """Let who is suspended go on, and say so; empty when nobody is."""
        if self._suspended is None:
            return ""
        (name, pid), self._suspended = self._suspended, None
        if self._supervisor.pid(name) != pid:
            return f"{name} did not live to be resumed"
        os.killpg(pid, signal.SIGCONT)
        return f"resumed {name} (process {pid})"

    def is_over(self, elapsed_s: float, newest_window_ms: int) -> bool:
        """Tell whether all have been disturbed, and the loop has gone on for a pause since."""
        return not self._waiting and self._suspended is None and self._has_recovered(elapsed_s, newest_window_ms)

    def _has_recovered(self, elapsed_s: float, newest_window_ms: int) -> bool:
        return elapsed_s - self._acted_s >= self._pause_s and newest_window_ms > self._acted_window_ms
