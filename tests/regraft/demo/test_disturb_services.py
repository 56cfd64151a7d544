import sys
from pathlib import Path

import psutil

from infra.service import RestartPolicy, Service
from infra.supervise import Supervisor
from regraft.demo.disturb_services import KILLED_IN_TURN, SUSPENDED_IN_TURN, SUSPENDED_S, DisturbSchedule
from tests.wait_until import wait_until


def _sleeper(name: str, directory: Path) -> Service:
    return Service(
        name=name,
        command=(sys.executable, "-c", "import time; time.sleep(60)"),
        log_file=directory / f"{name}.log",
        restart=RestartPolicy(backoff_ms=1),
    )


def test_each_service_is_disturbed_once_and_only_after_the_loop_has_recovered(tmp_path: Path) -> None:
    """A kill waits for its pause and for a window that closed since the last one; all are started again."""
    with Supervisor() as supervisor:
        for name in KILLED_IN_TURN:
            supervisor.start(_sleeper(name, tmp_path))
        schedule = DisturbSchedule(supervisor, pause_s=20)
        assert schedule.act(10, newest_window_ms=5_000) == ""  # too early
        assert schedule.act(25, newest_window_ms=0) == ""  # no window yet
        for turn, name in enumerate(KILLED_IN_TURN, start=1):
            assert schedule.act(30.0 * turn, newest_window_ms=5_000 * turn).startswith(f"killed {name} ")
            assert schedule.act(30.0 * turn + 25, newest_window_ms=5_000 * turn) == ""  # none closed since
            assert supervisor.wait_ready(name, 20)
        for name in KILLED_IN_TURN:
            wait_until(lambda name=name: supervisor.restarts(name) == 1 and supervisor.pid(name) is not None)
        for turn, name in enumerate(SUSPENDED_IN_TURN, start=len(KILLED_IN_TURN) + 1):
            assert schedule.act(30.0 * turn, newest_window_ms=5_000 * turn).startswith(f"suspended {name} ")
            pid = supervisor.pid(name)
            wait_until(lambda pid=pid: psutil.Process(pid).status() == psutil.STATUS_STOPPED)
            assert schedule.act(30.0 * turn + SUSPENDED_S / 2, newest_window_ms=5_000 * turn) == ""
            assert schedule.act(30.0 * turn + SUSPENDED_S, newest_window_ms=5_000 * turn).startswith(f"resumed {name} ")
            wait_until(lambda pid=pid: psutil.Process(pid).status() != psutil.STATUS_STOPPED)
        assert not schedule.is_over(500, newest_window_ms=5_000 * (len(KILLED_IN_TURN) + len(SUSPENDED_IN_TURN)))
        assert schedule.is_over(500, newest_window_ms=50_000)
        assert schedule.act(500, newest_window_ms=50_000) == ""
