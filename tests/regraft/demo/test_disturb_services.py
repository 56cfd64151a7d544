import random
import sys
from pathlib import Path

import psutil

from regraft.demo.disturb_services import KILLED, LASTS_S, SUSPENDED, DisturbSchedule, disturbances
from regraft.infra.local.service import RestartPolicy, Service
from regraft.infra.local.supervise import Supervisor
from tests.wait_until import wait_until

PAUSE_S = 20.0


def _sleeper(name: str, directory: Path) -> Service:
    return Service(
        name=name,
        command=(sys.executable, "-c", "import time; time.sleep(600)"),
        log_file=directory / f"{name}.log",
        restart=RestartPolicy(backoff_ms=1),
    )


def _schedule(supervisor: Supervisor, until_s: float = 0.0, seed: int = 1) -> DisturbSchedule:
    kinds = disturbances(supervisor.memory_bytes_max)
    return DisturbSchedule(supervisor, PAUSE_S, kinds, random.Random(seed), until_s)


def test_each_disturbance_happens_once_and_only_after_the_loop_has_recovered(tmp_path: Path) -> None:
    """Each waits for its pause and for a window closed since the last one; killed services restart."""
    with Supervisor() as supervisor:
        for name in KILLED:
            supervisor.start(_sleeper(name, tmp_path))
        schedule = _schedule(supervisor)
        assert schedule.act(10, newest_window_ms=5_000) == ""  # too early
        assert schedule.act(25, newest_window_ms=0) == ""  # no window yet
        count = len(KILLED) + len(SUSPENDED)
        for turn in range(1, count + 1):
            at_s, window_ms = 30.0 * turn, 5_000 * turn
            assert not schedule.is_over(at_s + 25, window_ms)
            what, name = schedule.act(at_s, window_ms).split()[:2]
            if what == "killed":
                wait_until(lambda name=name: supervisor.restarts(name) == 1 and supervisor.is_ready(name))
            else:
                assert what == "suspended"
                pid = supervisor.pid(name)
                wait_until(lambda pid=pid: psutil.Process(pid).status() == psutil.STATUS_STOPPED)
                assert schedule.act(at_s + LASTS_S / 2, window_ms) == ""
                assert schedule.act(at_s + LASTS_S, window_ms).startswith(f"resumed {name} ")
                wait_until(lambda pid=pid: psutil.Process(pid).status() != psutil.STATUS_STOPPED)
            assert schedule.act(at_s + 25, window_ms) == ""  # none closed since
        assert set(schedule.counts) == {f"kill {name}" for name in KILLED} | {f"suspend {name}" for name in SUSPENDED}
        assert set(schedule.counts.values()) == {1}
        assert schedule.is_over(500, newest_window_ms=5_000 * (count + 1))
        assert schedule.act(500, newest_window_ms=5_000 * (count + 1)) == ""


def test_all_disturbances_repeat_until_the_end_in_the_order_of_the_seed(tmp_path: Path) -> None:
    """A seed determines the order, another seed gives another one, and all kinds come once before any repeats."""
    courses = []
    with Supervisor() as supervisor:
        supervisor.start(_sleeper("kafka", tmp_path))
        supervisor.start(_sleeper("alerts", tmp_path))
        for seed in (3, 3, 4):
            schedule, course = _schedule(supervisor, until_s=620.0, seed=seed), []
            for turn in range(1, 60):
                wait_until(lambda: None not in (supervisor.pid("kafka"), supervisor.pid("alerts")))
                course.append(" ".join(schedule.act(15.0 * turn, 5_000 * turn).split()[:2]))
            courses.append(course)
            assert sum(schedule.counts.values()) >= 12
            assert schedule.is_over(900, 900_000)
    assert courses[0] == courses[1] != courses[2]
