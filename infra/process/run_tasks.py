"""Run the tasks of an evaluation on all cores, and keep finished results for later runs.

In: tasks, a function that runs one, a folder for finished ones. Out: their results, in the order of the tasks. The
tasks' work and the use of results do not belong here.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager, suppress
from functools import cache, partial
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from regraft.infra.process.end_on_sigterm import end_on_sigterm
from regraft.schemas.status_file import replace_file

PACKAGES = ("overlay", "controller", "producers", "streaming", "schemas")  # Results depend on these.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
POLL_S = 0.3

ReportDone = Callable[[str, int], None]
ReportWork = Callable[[int], None]


class Task(Protocol):
    """A task: a frozen msgspec.Struct whose fields determine its result."""

    @property
    def label(self) -> str:
        """The name of the task in file names; need not be unique."""

    @property
    def work_count(self) -> int:
        """The work of the task, in the units that it reports while it runs."""


TaskT = TypeVar("TaskT", bound=Task)
ResultT = TypeVar("ResultT", bound=msgspec.Struct)

_work_done: Synchronized[int] | None = None


def run_tasks(
    tasks: Sequence[TaskT],
    run_task: Callable[[TaskT, ReportWork], ResultT],
    result_type: type[ResultT],
    parts: Path | None,
    advance: ReportDone = lambda what, done: None,
    noun: str = "networks",
) -> list[ResultT]:
    """Return the results of tasks, run in one single-threaded process per core.

    ``run_task`` must be a module-level function, because it is sent to processes. ``parts`` is the folder for finished
    tasks; their names depend on the task and the source code, so a stopped run resumes and changed code starts over;
    None keeps nothing. ``advance(what, work_count)`` is called a few times a second; ``noun`` names tasks there. An
    interrupt ends the processes at once and is raised again.
    """
    kept = ((number, _read_part(parts, task, result_type)) for number, task in enumerate(tasks))
    results = {number: result for number, result in kept if result is not None}
    waiting = {number: task for number, task in enumerate(tasks) if number not in results}
    done_before = sum(tasks[number].work_count for number in results)

    def report_all(work_done: int, left: Sequence[TaskT]) -> None:
        advance(progress_text(len(waiting) - len(left), len(waiting), noun, left), done_before + work_done)

    for number, result in _run_in_processes(waiting, run_task, report_all):
        results[number] = result
        if parts is not None:
            replace_file(_part_path(parts, tasks[number]), msgspec.json.encode(result).decode())
    if parts is not None:
        _remove_others(parts, tasks)
    return [results[number] for number in range(len(tasks))]


def progress_text(done: int, total: int, noun: str, left: Sequence[Task]) -> str:
    """Return a text that names running tasks and counts finished ones; the first unfinished ones are those running."""
    running = ", ".join(task.label for task in left[: _core_count()])
    return (f"{running}; " if running else "") + f"{done} of {total} {noun} done"


def _run_in_processes(
    tasks: Mapping[int, TaskT],
    run_task: Callable[[TaskT, ReportWork], ResultT],
    advance: Callable[[int, list[TaskT]], None],
) -> Iterator[tuple[int, ResultT]]:
    if not tasks:
        return
    # Spawn: a process with threads (a progress bar) must not be forked.
    context = multiprocessing.get_context("spawn")
    with end_on_sigterm(), _one_thread_each():
        work_done = context.Value("q", 0)
        pool = ProcessPoolExecutor(
            min(_core_count(), len(tasks)), mp_context=context, initializer=_start_worker, initargs=(work_done,)
        )
        try:
            with _interrupts_held_back():
                work = partial(_work, run_task)
                futures: dict[Future[ResultT], int] = {
                    pool.submit(work, task): number for number, task in tasks.items()
                }
            running = set(futures)
            while running:
                finished, running = wait(running, timeout=POLL_S, return_when=FIRST_COMPLETED)
                advance(work_done.value, [tasks[number] for future, number in futures.items() if future in running])
                for future in finished:
                    yield futures[future], future.result()
        except BaseException:
            for process in multiprocessing.active_children():
                process.terminate()
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _start_worker(work_done: Synchronized[int]) -> None:
    """Report progress to the parent, and exit as soon as the parent has ended in any way."""
    global _work_done
    _work_done = work_done
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)


def _work(run_task: Callable[[TaskT, ReportWork], ResultT], task: TaskT) -> ResultT:
    return run_task(task, _report_work)


def _report_work(count: int) -> None:
    if _work_done is not None:
        with _work_done.get_lock():
            _work_done.value += count


@contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """Start processes that ignore Ctrl-C, which a terminal sends to all processes; raise it here afterwards.

    Child processes inherit the signal mask. In this process another thread, such as a progress bar's, may still receive
    the signal, and Python would raise in the main thread; a half-started process would then report that its input
    ended. So the handler only records it.
    """
    held_back: list[int] = []
    is_main = threading.current_thread() is threading.main_thread()
    handler = signal.signal(signal.SIGINT, lambda number, _: held_back.append(number)) if is_main else None
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if is_main:
            signal.signal(signal.SIGINT, handler)
    if held_back:
        signal.raise_signal(signal.SIGINT)


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Limit processes started meanwhile to one thread each, because there is one process per core."""
    before = {name: os.environ.get(name) for name in THREAD_VARIABLES}
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def _core_count() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _part_path(parts: Path, task: Task) -> Path:
    digest = hashlib.sha256(
        msgspec.json.encode(task) + _source_digest(type(task).__module__.split(".")[0]).encode()
    ).hexdigest()[:16]
    return parts / f"{task.label}-{digest}.json"


def _read_part(parts: Path | None, task: Task, result_type: type[ResultT]) -> ResultT | None:
    if parts is None:
        return None
    with suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode(_part_path(parts, task).read_bytes(), type=result_type)
    return None


def _remove_others(parts: Path, tasks: Sequence[Task]) -> None:
    """Remove parts of earlier code or settings, so that the folder stays bounded."""
    wanted = {_part_path(parts, task) for task in tasks}
    for path in parts.glob("*.json"):
        if path not in wanted:
            path.unlink(missing_ok=True)


@cache
def _source_digest(package: str) -> str:
    """Return a fingerprint of the code that results depend on: ours, and that of the tasks' own package."""
    root = Path(__file__).parents[2]
    own = Path(sys.modules[package].__file__ or "").parent if package in sys.modules else root
    digest = hashlib.sha256()
    for folder in (*(root / name for name in PACKAGES), *([] if own == root else [own])):
        for path in sorted(folder.rglob("*.py")):
            digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def divide_work(
    tasks: Sequence[TaskT],
    run_task: Callable[[TaskT, ReportWork], ResultT],
    result_type: type[ResultT],
    advance: ReportDone,
    noun: str,
    small_work: int,
) -> list[ResultT]:
    """Return the results of tasks, run in this process if their total work is at most ``small_work``.

    Work is in the unit of ``Task.work_count``.

    ``advance(what, work_count)`` and ``noun`` are as in :func:`run_tasks`.
    """
    if sum(task.work_count for task in tasks) > small_work:
        return run_tasks(tasks, run_task, result_type, None, advance, noun)
    done = 0
    results = []
    for number, task in enumerate(tasks):
        what = progress_text(number, len(tasks), noun, [task])

        def report_work(count: int, what: str = what) -> None:
            nonlocal done
            done += count
            advance(what, done)

        results.append(run_task(task, report_work))
    return results
