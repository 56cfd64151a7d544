"""Start, watch, restart and stop the child processes of one run.

One thread owns all children: it starts them, probes whether they are ready, restarts those that died, and measures
their memory. The kernel kills a child when the *thread* that started it ends, so this thread lives as long as the
supervisor. Which services there are, and what their commands mean, does not belong here.
"""

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Self

import psutil
import structlog

from regraft.infra.local.service import (
    Service,
    ServiceEvent,
    ServiceEventKind,
    how_ended,
    log_tail,
    logged_cause,
    rotate_log,
)
from regraft.infra.process.measure_memory import memory_by_session, memory_bytes
from regraft.infra.process.stack_error import StackError

TICK_S = 0.05
MEMORY_INTERVAL_S = 1.0
EVENTS_MAX = 10_000
KILL_WAIT_S = 5.0
OWN_NAME = "supervisor"
TOO_SLOW = (
    " If its log shows no error, this machine is busy or slow: raise run.patience, {patience:g} now"
    " (`--set run.patience=3`, for `regraft servers` `--patience 3`)."
)
WRAPPER = Path(__file__).with_name("die_with_parent.py")
# `python -m` puts the working directory first on the path, where a folder could shadow one of our packages. This
# prevents it but keeps PYTHONPATH, which holds what a child needs; grandchildren inherit both.
SAFE_PATH = {"PYTHONSAFEPATH": "1"}

log = structlog.get_logger(__name__)


class ServiceFailedError(StackError):
    """Reports that a service did not get ready, with the end of its log in ``log_tail``."""

    def __init__(self, message: str, log_tail: str) -> None:
        super().__init__(message)
        self.log_tail = log_tail


@dataclass(slots=True)
class _Child:
    """The state of one service; only the supervisor's thread changes it, others wait for its events."""

    service: Service
    process: subprocess.Popen[bytes] | None = None
    started_s: float = 0.0
    restart_at_s: float | None = None
    restarts: int = 0
    restarts_spent: int = 0
    ready_s: float | None = None
    was_ready: bool = False
    failure: str = ""
    log_begin: int = 0
    ready: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)
    settled: threading.Event = field(default_factory=threading.Event)
    exit_code: int | None = None
    memory_bytes_max: int = 0


class Supervisor:
    """Runs services as child processes; use it as a context manager, which stops them in reverse order at its end."""

    def __init__(self, on_event: Callable[[ServiceEvent], None] | None = None, *, patience: float = 1.0) -> None:
        """Start the thread; ``patience`` multiplies how long each service may take to get ready, for slow machines."""
        self._listeners = [] if on_event is None else [on_event]
        self._patience = patience
        self._children: dict[str, _Child] = {}
        self._requests: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._events: deque[ServiceEvent] = deque(maxlen=EVENTS_MAX)
        self._memory_total_bytes_max = 0
        self._memory_measured_s = 0.0
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="supervisor", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def events(self) -> tuple[ServiceEvent, ...]:
        """What has happened so far, oldest first, at most the last EVENTS_MAX events."""
        return tuple(self._events)

    @property
    def memory_bytes_max(self) -> dict[str, int]:
        """The peak memory of each service with its children, sampled every MEMORY_INTERVAL_S."""
        return {name: child.memory_bytes_max for name, child in dict(self._children).items()}

    @property
    def memory_total_bytes_max(self) -> int:
        """The peak memory of all services and this process together."""
        return self._memory_total_bytes_max

    def memory_bytes(self) -> dict[str, int]:
        """Return the memory of each service with its children, and of this process as ``supervisor``."""
        by_session, used = memory_by_session(), {OWN_NAME: memory_bytes(psutil.Process())}
        for name in list(self._children):
            pid = self.pid(name)
            if pid is not None:
                used[name] = by_session[pid]  # every service leads a session
        return used

    def listen(self, listener: Callable[[ServiceEvent], None]) -> None:
        """Call ``listener`` with each event from now on, in the supervisor's thread; it must not block."""
        self._listeners.append(listener)

    def start(
        self,
        *services: Service,
        stop: threading.Event | None = None,
        on_wait: Callable[[str], None] = lambda name: None,
    ) -> None:
        """Start services together and wait until all are ready, or stop those that are not once ``stop`` is set.

        ``on_wait`` gets the name of each service that is waited for, one after the other. Raises ServiceFailedError
        about the first that ends or is stopped before it is ready, or is too slow.
        """
        children = [_Child(service) for service in services]
        for child in children:
            if (name := child.service.name) in self._children:
                raise ValueError(f"A service named {name!r} is already supervised: give each its own name.")
            self._children[name] = child
            self._call(partial(self._spawn, child))
        for child in children:
            on_wait(child.service.name)
            self._await(child, stop)
        for child in children:
            if child.failure:
                self._children.pop(child.service.name, None)
                raise ServiceFailedError(child.failure, log_tail(child.service.log_file))

    def _await(self, child: _Child, stop: threading.Event | None) -> None:
        service = child.service
        end_s = time.monotonic() + self._ready_s_max(service) + service.grace_s + 2 * KILL_WAIT_S
        while not child.settled.wait(TICK_S):
            if stop is not None and stop.is_set():
                self._call(partial(self._stop_child, child))
            elif time.monotonic() > end_s:
                raise RuntimeError(f"The probe of service {service.name} does not return: set a time limit.")

    def wait_end(self, name: str, timeout_s: float) -> int | None:
        """Wait until a service has ended for good and return its exit code; None if it has not after ``timeout_s``."""
        child = self._children[name]
        return child.exit_code if child.ended.wait(timeout_s) else None

    def pid(self, name: str) -> int | None:
        """Return the process id of a service, None if it does not run."""
        child = self._children.get(name)
        process = child.process if child else None
        return process.pid if process else None

    def restarts(self, name: str) -> int:
        """Return how often a service was restarted."""
        return self._children[name].restarts

    def is_ready(self, name: str) -> bool:
        """Return True if a service runs and its probe has succeeded since its last start."""
        return self._children[name].ready.is_set()

    def stop_service(self, name: str) -> None:
        """Stop one service and forget it; it may have ended already."""
        child = self._children[name]
        self._call(lambda: self._stop_child(child))
        del self._children[name]

    def stop(self) -> None:
        """Stop all services in the reverse order of their start; it may be called repeatedly."""
        if not self._thread.is_alive():
            return
        self._closing = True
        wait_s_max = sum(child.service.grace_s + KILL_WAIT_S + 1 for child in self._children.values()) + 10
        self._thread.join(wait_s_max)

    def _call(self, action: Callable[[], None]) -> None:
        """Run an action in the supervisor's thread and wait for it."""
        done = threading.Event()
        errors: list[BaseException] = []

        def run() -> None:
            try:
                action()
            except Exception as error:
                errors.append(error)
            finally:
                done.set()

        if self._closing or not self._thread.is_alive():
            raise RuntimeError("The supervisor was stopped: make a new one.")
        self._requests.put(run)
        while not done.wait(1.0):
            if not self._thread.is_alive():
                raise RuntimeError("The supervisor was stopped meanwhile.")
        if errors:
            raise errors[0]

    def _run(self) -> None:
        try:
            while not self._closing:
                with contextlib.suppress(queue.Empty):
                    self._requests.get(timeout=TICK_S)()
                for child in list(self._children.values()):
                    self._watch(child)
                if time.monotonic() - self._memory_measured_s >= MEMORY_INTERVAL_S:
                    self._measure()
        finally:
            for child in reversed(list(self._children.values())):
                self._stop_child(child)

    def _watch(self, child: _Child) -> None:
        now_s = time.monotonic()
        if child.restart_at_s is not None and now_s >= child.restart_at_s:
            child.restarts += 1
            child.restarts_spent += 1
            self._spawn(child)
        if child.process is None:
            return
        if _has_ended(child.process):
            self._handle_end(child)
        elif child.ready_s is not None:
            if now_s - child.ready_s > child.service.restart.healthy_s:
                child.restarts_spent = 0
        elif _answers(child.service):
            child.ready_s = now_s
            child.was_ready = True
            child.ready.set()
            child.settled.set()
            self._report(child, ServiceEventKind.READY)
        elif now_s - child.started_s > self._ready_s_max(child.service):
            self._terminate(child)
            self._restart_or_fail(child, f"was not ready within {self._ready_s_max(child.service):g} s", TOO_SLOW)

    def _ready_s_max(self, service: Service) -> float:
        return service.ready_timeout_s * self._patience

    def _spawn(self, child: _Child) -> None:
        service = child.service
        child.restart_at_s = None
        wrapper = (sys.executable, "-I", "-S", str(WRAPPER), str(os.getpid()))
        try:
            child.log_begin = rotate_log(service.log_file, service.log_bytes_max)
            with service.log_file.open("ab") as output:
                child.process = subprocess.Popen(
                    (*wrapper, *service.command),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=_environment(service),
                    cwd=service.directory,
                    start_new_session=True,  # Ctrl-C reaches only the supervisor, which stops services in order
                )
        except OSError as error:
            self._fail(child, f"could not be started ({error.strerror})")
            return
        child.started_s = time.monotonic()
        self._report(child, ServiceEventKind.RESTARTED if child.restarts else ServiceEventKind.STARTED)

    def _handle_end(self, child: _Child) -> None:
        """Record the end of a child's process, and schedule a restart if it is due."""
        pid = self._reap(child)
        if child.service.finishes and child.exit_code == 0:
            self._report(child, ServiceEventKind.FINISHED, pid)
            child.settled.set()
            child.ended.set()
            return
        why, log_file = how_ended(child.exit_code), child.service.log_file
        cause = logged_cause(log_file, child.log_begin, child.exit_code)
        self._report(child, ServiceEventKind.DIED, pid, f"it {why}{cause}: see {log_file}")
        self._restart_or_fail(child, why)

    def _restart_or_fail(self, child: _Child, reason: str, remedy: str = "") -> None:
        policy = child.service.restart
        if not child.was_ready:
            self._fail(child, reason if remedy else f"{reason} before it was ready", remedy)
        elif child.restarts_spent >= policy.restarts_max:
            self._fail(child, f"{reason} after {child.restarts_spent} restarts, the maximum", remedy)
        else:
            child.restart_at_s = time.monotonic() + policy.pause_s(child.restarts_spent)

    def _fail(self, child: _Child, reason: str, remedy: str = "") -> None:
        why = "" if remedy else logged_cause(child.service.log_file, child.log_begin, child.exit_code)
        child.failure = f"Service {child.service.name} {reason}{why}: see {child.service.log_file}."
        child.failure += remedy.format(patience=self._patience)
        self._report(child, ServiceEventKind.GAVE_UP)
        child.settled.set()
        child.ended.set()

    def _stop_child(self, child: _Child) -> None:
        child.restart_at_s = None
        if child.process is not None:
            pid = self._terminate(child)
            self._report(child, ServiceEventKind.STOPPED, pid)
        if not child.settled.is_set():
            child.failure = f"Service {child.service.name} was stopped before it was ready."
        child.settled.set()
        child.ended.set()

    def _terminate(self, child: _Child) -> int:
        """Ask a process to stop, kill it if it does not within its grace, and reap it; return its process id."""
        assert child.process is not None
        deadline_s = time.monotonic() + child.service.grace_s
        os.kill(child.process.pid, child.service.stop_signal)  # not `send_signal`, which may reap it
        while not _has_ended(child.process):
            if time.monotonic() > deadline_s:
                log.warning("service_killed", service=child.service.name)
                break
            time.sleep(TICK_S / 5)
        return self._reap(child)

    def _reap(self, child: _Child) -> int:
        """Kill what is left of a child's process group, store its exit code, and return its process id.

        The group is killed before its leader is reaped, because until then no other process can get its id.
        """
        process = child.process
        assert process is not None
        os.killpg(process.pid, signal.SIGKILL)
        child.exit_code = process.wait(KILL_WAIT_S)
        child.process = None
        child.ready_s = None
        child.ready.clear()
        return process.pid

    def _measure(self) -> None:
        self._memory_measured_s = time.monotonic()
        used = self.memory_bytes()
        for name, child in self._children.items():
            child.memory_bytes_max = max(child.memory_bytes_max, used.get(name, 0))
        self._memory_total_bytes_max = max(self._memory_total_bytes_max, sum(used.values()))

    def _report(self, child: _Child, kind: ServiceEventKind, pid: int | None = None, why: str = "") -> None:
        shown_pid = pid or (child.process.pid if child.process else 0)
        code = None if child.process else child.exit_code
        failure = why or child.failure
        event = ServiceEvent(time.time(), child.service.name, kind, shown_pid, child.restarts, code, failure)
        self._events.append(event)
        log.info("service", service=event.service, what=str(kind), pid=shown_pid, restarts=child.restarts, code=code)
        for listener in tuple(self._listeners):
            try:
                listener(event)
            except Exception:  # a listener's error must not end the thread that owns the children
                log.exception("service_listener_failed", service=event.service, what=str(kind))


def _environment(service: Service) -> dict[str, str]:
    own = service.inherited
    inherited = {name: value for name, value in os.environ.items() if own is None or name in own}
    return {**inherited, **SAFE_PATH, **service.environment}


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Return True if a process has ended, without reaping it."""
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _answers(service: Service) -> bool:
    """Return the result of a service's probe; False if it raises, with the reason in the log."""
    try:
        return service.ready()
    except Exception as error:
        log.debug("readiness_probe_failed", service=service.name, error=str(error))
        return False
