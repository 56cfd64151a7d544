"""Fill a disk that only this run uses, to its last byte, and free it again.

The user mounts it.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

from regraft.infra.process.stack_error import StackError

SIZE_MB_MAX = 16_000
FILLER = ".filler"
BLOCK = bytes(4_096)


class NotOwnDiskError(StackError):
    """The directory may not be filled; the message gives the reason and a remedy."""


class OwnDisk:
    """The file system of one directory. Raises NotOwnDiskError if it is not a separate one, or too large to fill."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._filler = directory / FILLER
        if not directory.is_mount():
            raise NotOwnDiskError(
                f"{directory} is not a separate file system, and only a separate file system may be filled: "
                f"mount one there, for example with `mount -t tmpfs -o size=4g tmpfs {directory}`, or leave "
                "demo.fill_disk out."
            )
        size_mb = shutil.disk_usage(directory).total // 1_000_000
        if size_mb > SIZE_MB_MAX:
            raise NotOwnDiskError(
                f"The file system of {directory} has {size_mb} MB, but at most {SIZE_MB_MAX} MB are filled: "
                "mount a smaller one there, or leave demo.fill_disk out."
            )
        self.make_room()  # An earlier run may have been killed while the disk was full.

    @property
    def is_full(self) -> bool:
        """True if the disk was filled and not freed since."""
        return self._filler.exists()

    def fill(self) -> None:
        """Take all free space."""
        descriptor = os.open(self._filler, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            free_bytes, size_bytes = shutil.disk_usage(self.directory).free, os.fstat(descriptor).st_size
            if free_bytes > len(BLOCK):
                with suppress(OSError):  # Others write meanwhile: the loop below takes the rest block by block.
                    os.posix_fallocate(descriptor, size_bytes, free_bytes)
            while os.write(descriptor, BLOCK):
                pass
        except OSError:
            pass  # The disk is full.
        finally:
            os.close(descriptor)

    def make_room(self) -> None:
        """Free the space."""
        self._filler.unlink(missing_ok=True)
