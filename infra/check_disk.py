"""Check that a directory's file system has room before a run writes into it; say so when it runs full anyway."""

import errno
import shutil
from pathlib import Path

from regraft.infra.stack_error import StackError

FREE_MB_MIN = 500


class DiskFullError(StackError):
    """Reports how much room there is, how much is needed, and where."""


def free_mb(directory: Path) -> int:
    """Return the free room for this user on the file system of ``directory``, which need not exist yet, in MB."""
    existing = directory.absolute()
    while not existing.exists():
        existing = existing.parent
    return shutil.disk_usage(existing).free // 1_000_000


def check_disk(directory: Path, free_mb_min: int = FREE_MB_MIN) -> None:
    """Raise DiskFullError when less than ``free_mb_min`` MB are free for ``directory``."""
    found_mb = free_mb(directory)
    if found_mb < free_mb_min:
        raise DiskFullError(
            f"Only {found_mb} MB are free for {directory}, at least {free_mb_min} MB are needed: "
            "free some space, or choose a directory on another disk."
        )


def is_disk_full(error: OSError) -> bool:
    """Return True if a write failed for lack of space, on the disk or in the user's share of it."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def describe_full_disk(error: OSError) -> str:
    """Return the sentence for a user whose write failed for lack of space."""
    return f"The disk of {error.filename or 'the run directory'} is full: free some space and start again."
