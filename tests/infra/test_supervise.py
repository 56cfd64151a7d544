"""The supervisor starts, watches, restarts and stops services; nothing outlives it."""

import math
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from regraft.infra.local.service import (
    NO_RESTART,
    SERVER_VARIABLES,
    RestartPolicy,
    Service,
    ServiceEvent,
    ServiceEventKind,
)
from regraft.infra.local.supervise import OWN_NAME, ServiceFailedError, Supervisor
from regraft.infra.process.measure_memory import YOUNG_S
from tests.wait_until import PATIENCE_S, wait_until

MakeService = Callable[..., Service]
QUICK = RestartPolicy(restarts_max=2, backoff_ms=1, backoff_ms_max=2, healthy_s=math.inf)


@pytest.fixture
def supervisor() -> Iterator[Supervisor]:
    with Supervisor() as running:
        yield running


def _kill(supervisor: Supervisor, name: str) -> int:
    pid = supervisor.pid(name)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    return pid


def _alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_killed_service_is_restarted_and_counted(supervisor: Supervisor, script_service: MakeService) -> None:
    """A service killed with SIGKILL is restarted, and the events report it in order."""
    supervisor.start(script_service("one", restart=QUICK))
    first = _kill(supervisor, "one")
    wait_until(lambda: supervisor.restarts("one") == 1 and supervisor.events[-1].kind is ServiceEventKind.READY)
    assert supervisor.pid("one") != first
    kinds = [event.kind for event in supervisor.events]
    assert kinds == [
        ServiceEventKind.STARTED,
        ServiceEventKind.READY,
        ServiceEventKind.DIED,
        ServiceEventKind.RESTARTED,
        ServiceEventKind.READY,
    ]
    assert supervisor.events[2].exit_code == -signal.SIGKILL


def test_a_death_says_why_and_names_the_log(supervisor: Supervisor, script_service: MakeService) -> None:
    """By what the process wrote last itself, unless it was killed; a log holds what earlier ones wrote, too."""
    script = "import sys, time; time.sleep(0.3); sys.exit('no more\\x1b room')"
    service = script_service("one", script, restart=QUICK)
    supervisor.start(service)
    wait_until(lambda: any(event.kind is ServiceEventKind.DIED for event in supervisor.events))
    died = next(event for event in supervisor.events if event.kind is ServiceEventKind.DIED)
    assert died.failure == f"it exited with code 1 (no more  room): see {service.log_file}"
    quiet = script_service("two", restart=NO_RESTART)
    quiet.log_file.write_text("of an earlier process\n")
    supervisor.start(quiet)
    _kill(supervisor, "two")
    wait_until(lambda: supervisor.events[-1].kind is ServiceEventKind.GAVE_UP)
    died = next(event for event in supervisor.events if event.kind is ServiceEventKind.DIED and event.service == "two")
    assert died.failure == f"it was killed by signal 9: see {quiet.log_file}"


def test_restarts_are_bounded(supervisor: Supervisor, script_service: MakeService) -> None:
    """A service that keeps dying is given up after the restarts that its policy permits."""
    supervisor.start(script_service("weak", restart=QUICK))
    for count in range(3):
        wait_until(lambda count=count: supervisor.restarts("weak") == count and supervisor.is_ready("weak"))
        _kill(supervisor, "weak")
    assert supervisor.wait_end("weak", PATIENCE_S) == -signal.SIGKILL
    assert supervisor.events[-1].kind is ServiceEventKind.GAVE_UP
    assert supervisor.restarts("weak") == 2


def test_restart_allowance_returns_after_health(supervisor: Supervisor, script_service: MakeService) -> None:
    """A service that was healthy for long enough may be restarted as often as before."""
    policy = RestartPolicy(restarts_max=1, backoff_ms=1, backoff_ms_max=1, healthy_s=0.0)
    supervisor.start(script_service("lasting", restart=policy))
    child = supervisor._children["lasting"]
    for count in range(4):
        wait_until(lambda count=count: child.restarts == count and child.ready.is_set() and not child.restarts_spent)
        _kill(supervisor, "lasting")
    wait_until(lambda: supervisor.restarts("lasting") == 4)


def test_services_stop_in_reverse_order(script_service: MakeService) -> None:
    """The service started last is stopped first."""
    with Supervisor() as supervisor:
        for name in ("store", "stream", "control"):
            supervisor.start(script_service(name))
        pids = [supervisor.pid(name) for name in ("store", "stream", "control")]
    stopped = [event.service for event in supervisor.events if event.kind is ServiceEventKind.STOPPED]
    assert stopped == ["control", "stream", "store"]
    assert not any(_alive(pid) for pid in pids if pid)


def test_services_start_together(supervisor: Supervisor, script_service: MakeService) -> None:
    """Of services that start together, the first may wait for what the last does; each is waited for in turn."""
    waited_for: list[str] = []
    late = script_service("late")
    early = script_service("early", ready=late.log_file.exists)
    supervisor.start(early, late, on_wait=waited_for.append)
    assert waited_for == ["early", "late"]
    assert supervisor.is_ready("early")
    assert supervisor.is_ready("late")


def test_of_services_that_start_together_the_one_that_fails_is_reported(
    supervisor: Supervisor, script_service: MakeService
) -> None:
    """The error is about the service that ended; the one that is ready stays, and a stop ends it."""
    with pytest.raises(ServiceFailedError, match="Service weak exited with code 3 before it was ready"):
        supervisor.start(script_service("steady"), script_service("weak", "raise SystemExit(3)", ready=lambda: False))
    assert supervisor.is_ready("steady")
    assert supervisor.pid("weak") is None


def test_service_that_ignores_the_stop_is_killed(script_service: MakeService) -> None:
    """A service that does not react to its stop signal is killed after its grace period."""
    script = "import signal, time; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"
    service = script_service("deaf", script, grace_s=0.2)
    with Supervisor() as supervisor:
        supervisor.start(service)
        wait_until(lambda: "deaf" in service.log_file.read_text())
    assert supervisor.events[-1].exit_code == -signal.SIGKILL


def test_grandchildren_end_with_their_service(
    supervisor: Supervisor, script_service: MakeService, tmp_path: Path
) -> None:
    """The processes that a service started are gone when it dies, before it is restarted."""
    marker = tmp_path / "grandchild"
    script = f"""
        import pathlib, subprocess, sys, time
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        pathlib.Path({str(marker)!r}).write_text(str(child.pid))
        time.sleep(600)
    """
    supervisor.start(
        script_service("parent", textwrap.dedent(script), restart=NO_RESTART, ready=lambda: marker.exists())
    )
    wait_until(lambda: marker.read_text() != "")
    grandchild = int(marker.read_text())
    assert _alive(grandchild)
    _kill(supervisor, "parent")
    supervisor.wait_end("parent", PATIENCE_S)
    wait_until(lambda: not _alive(grandchild))


def test_children_die_with_a_killed_supervisor(tmp_path: Path) -> None:
    """If the supervising process is killed with SIGKILL, the kernel kills its services."""
    script = f"""
        import os, sys, time
        from pathlib import Path
        from regraft.infra.local.service import Service
        from regraft.infra.local.supervise import Supervisor
        supervisor = Supervisor()
        sleeper = (sys.executable, "-c", "import time; time.sleep(600)")
        supervisor.start(Service("child", sleeper, Path({str(tmp_path)!r}) / "child.log"))
        os.write(1, f"\\nPID {{supervisor.pid('child')}}\\n".encode())  # one write: no log line comes into it
        time.sleep(600)
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    root = Path(__file__).parents[2]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root) as parent:
        assert parent.stdout is not None
        child = next(int(line.split()[1]) for line in parent.stdout if line.startswith("PID "))
        assert _alive(child)
        parent.kill()
    wait_until(lambda: not _alive(child))


def test_children_survive_the_thread_that_started_them(supervisor: Supervisor, script_service: MakeService) -> None:
    """A service started from a short-lived thread keeps running: the kernel ties it to the supervisor's own thread."""
    asking = threading.Thread(target=supervisor.start, args=(script_service("kept"),))
    asking.start()
    asking.join()
    pid = supervisor.pid("kept")
    supervisor.start(script_service("later"))
    assert pid is not None
    assert _alive(pid)
    assert supervisor.restarts("kept") == 0


def test_service_that_ends_at_once_is_reported_with_its_log(
    supervisor: Supervisor, script_service: MakeService
) -> None:
    """A service that ends before it is ready is not restarted, and the error has the reason and the end of its log."""
    service = script_service("broken", "import sys; print('no disk.'); sys.exit(3)", ready=lambda: False)
    sentence = rf"^Service broken exited with code 3 before it was ready \(no disk\): see {service.log_file}\.$"
    with pytest.raises(ServiceFailedError, match=sentence) as caught:
        supervisor.start(service)
    assert "no disk" in caught.value.log_tail
    assert supervisor.events[-1].failure == str(caught.value)


def test_the_reason_of_an_earlier_process_is_not_taken_for_that_of_the_last(
    supervisor: Supervisor, script_service: MakeService
) -> None:
    """Logs are appended to: a process that ends silently has no reason, whatever its predecessor wrote."""
    service = script_service("silent", "import sys; sys.exit(3)", ready=lambda: False)
    service.log_file.parent.mkdir(exist_ok=True)
    service.log_file.write_text("the reason of last week\n")
    with pytest.raises(ServiceFailedError, match="before it was ready: see"):
        supervisor.start(service)


def test_service_that_is_never_ready_is_given_up(supervisor: Supervisor, script_service: MakeService) -> None:
    """A service that is not ready in time is stopped, and the error says how to wait longer."""
    with pytest.raises(ServiceFailedError, match=r"was not ready within 0\.2 s: see .*run\.patience, 1 now"):
        supervisor.start(script_service("slow", ready=lambda: False, ready_timeout_s=0.2))


def test_a_start_ends_when_a_stop_is_asked_for(supervisor: Supervisor, script_service: MakeService) -> None:
    """Who stops the loop while a stage starts does not wait until that is ready or too slow."""
    stop = threading.Event()
    service = script_service("slow", ready=lambda: bool(stop.set()))
    with pytest.raises(ServiceFailedError, match="was stopped before it was ready"):
        supervisor.start(service, stop=stop)
    assert [event.kind for event in supervisor.events] == [ServiceEventKind.STARTED, ServiceEventKind.STOPPED]


def test_patience_makes_services_wait_longer(script_service: MakeService) -> None:
    """On a slow machine each service may take longer by the same factor."""
    asked: list[float] = []
    with Supervisor(patience=600) as patient:
        patient.start(
            script_service("slow", ready=lambda: bool(asked.append(0) or len(asked) > 3), ready_timeout_s=0.1)
        )
        assert patient.is_ready("slow")
    with (
        pytest.raises(ServiceFailedError, match=r"within 0\.2 s.*run\.patience, 2 now"),
        Supervisor(patience=2) as brief,
    ):
        brief.start(script_service("slow", ready=lambda: False, ready_timeout_s=0.1))


def test_missing_program_is_reported(supervisor: Supervisor, tmp_path: Path) -> None:
    """A command that cannot be run is a failed service whose log names the program."""
    with pytest.raises(ServiceFailedError) as caught:
        supervisor.start(Service("ghost", ("/no/such/program",), tmp_path / "ghost.log", ready=lambda: False))
    assert "Cannot run /no/such/program" in caught.value.log_tail


def test_finished_service_is_not_restarted(supervisor: Supervisor, script_service: MakeService) -> None:
    """A one-shot service ends with code 0 and is not restarted."""
    supervisor.start(script_service("task", "import time; time.sleep(0.2)", finishes=True))
    assert supervisor.wait_end("task", PATIENCE_S) == 0
    assert supervisor.events[-1].kind is ServiceEventKind.FINISHED


def test_service_gets_its_environment(supervisor: Supervisor, script_service: MakeService) -> None:
    """The environment given to a service is added to the supervisor's own."""
    service = script_service(
        "reader", "import os; print(os.environ['WORD'], 'PATH' in os.environ)", finishes=True, environment={"WORD": "x"}
    )
    supervisor.start(service)
    supervisor.wait_end("reader", PATIENCE_S)
    assert service.log_file.read_text() == "x True\n"


def test_memory_counts_children_of_services(supervisor: Supervisor, script_service: MakeService) -> None:
    """The memory of a service includes that of the processes it started, and its maximum is kept."""
    hungry = "import time; held = bytearray(64_000_000); time.sleep(600)"
    script = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {hungry!r}])"
    supervisor.start(script_service("outer", script))
    wait_until(lambda: supervisor.memory_bytes()["outer"] > 64_000_000)
    wait_until(lambda: supervisor.memory_bytes_max["outer"] > 64_000_000)
    assert supervisor.memory_bytes()[OWN_NAME] > 0
    assert supervisor.memory_total_bytes_max > supervisor.memory_bytes_max["outer"]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows how many processes share a page")
def test_memory_counts_shared_pages_once(supervisor: Supervisor, script_service: MakeService) -> None:
    """Spark's workers are forks of one process and share most of their memory, as these do."""
    script = "import os, time; held = b'x' * 100_000_000; [os.fork() for _ in range(2)]; time.sleep(600)"
    supervisor.start(script_service("outer", script))
    pid = supervisor.pid("outer")
    wait_until(lambda: len(psutil.Process(pid).children(recursive=True)) == 3)
    forks = psutil.Process(pid).children(recursive=True)
    wait_until(lambda: all(time.time() - fork.create_time() >= YOUNG_S for fork in forks))
    assert supervisor.memory_bytes()["outer"] > 100_000_000
    assert supervisor.memory_bytes()["outer"] < 200_000_000


def test_failing_listener_does_not_affect_services(script_service: MakeService) -> None:
    """A listener that raises does not affect the services."""

    def raising(event: ServiceEvent) -> None:
        raise ValueError(event.service)

    with Supervisor(on_event=raising) as supervisor:
        supervisor.start(script_service("steady"))
        supervisor.start(script_service("another"))
        assert supervisor.is_ready("steady")


def test_a_later_listener_gets_the_events_from_then_on(script_service: MakeService) -> None:
    """The first listener still gets every event."""
    first: list[ServiceEvent] = []
    later: list[ServiceEvent] = []
    with Supervisor(on_event=first.append) as supervisor:
        supervisor.start(script_service("early"))
        supervisor.listen(later.append)
        supervisor.start(script_service("late"))
    assert {event.service for event in first} == {"early", "late"}
    kinds = [event.kind for event in later if event.service == "early"]
    assert ServiceEventKind.STARTED not in kinds
    assert kinds[-1] is ServiceEventKind.STOPPED
    assert first[-len(later) :] == later


def test_same_name_twice_is_refused(supervisor: Supervisor, script_service: MakeService) -> None:
    """Two services of one name are a bug in the caller."""
    supervisor.start(script_service("twin"))
    with pytest.raises(ValueError, match="already supervised"):
        supervisor.start(script_service("twin"))


def test_a_stopped_service_may_be_started_again(supervisor: Supervisor, script_service: MakeService) -> None:
    """A service that was stopped by name is forgotten and can be started again."""
    service = script_service("phoenix")
    supervisor.start(service)
    supervisor.stop_service("phoenix")
    assert supervisor.pid("phoenix") is None
    supervisor.start(service)
    assert supervisor.is_ready("phoenix")


def test_large_log_is_moved_aside_at_a_start(supervisor: Supervisor, script_service: MakeService) -> None:
    """A log that exceeds its bound is moved aside when the service starts, so logs stay bounded over restarts."""
    service = script_service("chatty", log_bytes_max=10)
    service.log_file.write_text("a long story of an earlier run")
    supervisor.start(service)
    assert service.log_file.with_name("chatty.log.1").read_text().startswith("a long story")
    assert service.log_file.stat().st_size == 0


def test_a_server_inherits_only_what_it_may(
    script_service: Callable[..., Service], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The supervisor's variables may hold secrets; a third-party program gets only the named ones."""
    monkeypatch.setenv("REGRAFT_DASHBOARD__SECRET", "hunter2")
    out = tmp_path / "environment"
    script = f"import os, pathlib; pathlib.Path({str(out)!r}).write_text(repr(dict(os.environ)))"
    with Supervisor() as supervisor:
        service = script_service("server", script, inherited=SERVER_VARIABLES, environment={"OWN": "1"}, finishes=True)
        supervisor.start(service)
        assert supervisor.wait_end("server", PATIENCE_S) is not None
    found = out.read_text()
    assert "hunter2" not in found
    assert "'PATH'" in found
    assert "'OWN': '1'" in found
