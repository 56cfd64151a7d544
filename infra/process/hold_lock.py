"""Hold an exclusive lock on a file for as long as a block runs.

The kernel (flock) releases the lock when its holder dies, however it dies, so locks cannot become stale. The holder's
process id is written to the file for messages only.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from regraft.infra.process.stack_error import StackError

POLL_S = 0.1


class LockHeldError(StackError):
    """Reports that another process holds the lock; ``holder_pid`` is None if it could not be read."""

    def __init__(self, message: str, holder_pid: int | None) -> None:
        super().__init__(message)
        self.holder_pid = holder_pid


@contextmanager
def hold_lock(lock_file: Path, wait_s_max: float = 0.0) -> Iterator[None]:
    """Hold the lock of ``lock_file`` while the block runs.

    Raises LockHeldError if another process still holds it after ``wait_s_max`` seconds.
    """
    lock_file.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(lock_file, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        _acquire(descriptor, lock_file, wait_s_max)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _acquire(descriptor: int, lock_file: Path, wait_s_max: float) -> None:
    deadline_s = time.monotonic() + wait_s_max
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= deadline_s:
                holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
                message = (
                    f"Lock {lock_file} is still held by process {holder or 'unknown'} after {wait_s_max:g} s: "
                    "wait for that process to exit, or stop it."
                )
                raise LockHeldError(message, int(holder) if holder.isdigit() else None) from None
            time.sleep(POLL_S)
