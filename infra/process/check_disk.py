"""Check that a directory's file system has enough space before a run, and recognise a disk that became full."""

import errno
import shutil
from pathlib import Path

from regraft.infra.process.stack_error import StackError

FREE_MB_MIN = 500


class DiskFullError(StackError):
    """Reports how much space is free, how much is needed, and where."""


def free_mb(directory: Path) -> int:
    """Return the space in MB that this user may take on the file system of ``directory``, which need not exist yet."""
    existing = directory.absolute()
    while not existing.exists():
        existing = existing.parent
    return shutil.disk_usage(existing).free // 1_000_000


def check_disk(directory: Path, free_mb_min: int = FREE_MB_MIN) -> None:
    """Raise DiskFullError if less than ``free_mb_min`` MB are free for ``directory``."""
    found_mb = free_mb(directory)
    if found_mb < free_mb_min:
        raise DiskFullError(
            f"Only {found_mb} MB are free for {directory}, but at least {free_mb_min} MB are needed: "
            "free some space, or choose a directory on another disk."
        )


def is_disk_full(error: OSError) -> bool:
    """Return True if a write failed because the disk is full or the user's quota is used up."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)
