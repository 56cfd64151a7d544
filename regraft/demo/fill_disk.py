"""Fill a disk that belongs to a run alone, to its last byte, and give the room back.

In: a directory that is a separate file system. Out: one file that takes all room. Mounting is the caller's work.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

from regraft.infra.stack_error import StackError

SIZE_MB_MAX = 16_000
FILLER = ".filler"
BLOCK = bytes(4_096)


class NotOwnDiskError(StackError):
    """Reports why a disk is not filled."""


class OwnDisk:
    """The file system of one directory; raises NotOwnDiskError where it is not one that may be filled."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._filler = directory / FILLER
        if not directory.is_mount():
            raise NotOwnDiskError(
                f"{directory} is not a separate file system, and only such a one is filled: mount one "
                "there, for example with "
                f"`mount -t tmpfs -o size=4g tmpfs {directory}`, or leave demo.fill_disk out."
            )
        size_mb = shutil.disk_usage(directory).total // 1_000_000
        if size_mb > SIZE_MB_MAX:
            raise NotOwnDiskError(
                f"The file system of {directory} has {size_mb} MB, but at most {SIZE_MB_MAX} MB are filled: "
                "mount a smaller one there, or leave demo.fill_disk out."
            )
        self.make_room()  # That of a run that was killed meanwhile.

    @property
    def is_full(self) -> bool:
        """Return True if it was filled and no room made since."""
        return self._filler.exists()

    def fill(self) -> None:
        """Take all the room that is left."""
        descriptor = os.open(self._filler, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            free_bytes, size_bytes = shutil.disk_usage(self.directory).free, os.fstat(descriptor).st_size
            if free_bytes > len(BLOCK):
                with suppress(
                    OSError
                ):  # Others write meanwhile: what could not be had at once is taken block by block.
                    os.posix_fallocate(descriptor, size_bytes, free_bytes)
            while os.write(descriptor, BLOCK):
                pass
        except OSError:
            pass  # It is full.
        finally:
            os.close(descriptor)

    def make_room(self) -> None:
        """Give the room back."""
        self._filler.unlink(missing_ok=True)
