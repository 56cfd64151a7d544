"""A small file system for one test, which can be filled up and emptied again."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

SIZE_MB = 4
BLOCK = bytes(1 << 12)


class SmallDisk:
    """A mounted tmpfs; ``fill`` uses up its free space, ``make_room`` frees it again."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._filler = directory / "filler"

    def fill(self) -> None:
        descriptor = os.open(self._filler, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            while True:
                os.write(descriptor, BLOCK)
        except OSError:
            pass  # It is full.
        finally:
            os.close(descriptor)

    def make_room(self) -> None:
        self._filler.unlink()


@contextmanager
def small_disk(directory: Path) -> Iterator[SmallDisk]:
    """Mount a tmpfs of ``SIZE_MB`` at ``directory`` while the block runs; skip the test if that is not permitted."""
    directory.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE_MB}m", "regraft-test", str(directory)]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        pytest.skip(f"no full disk can be made here ({error})")
    if answer.returncode != 0:
        pytest.skip(f"no full disk can be made here, which takes root: {answer.stderr.strip()}")
    try:
        yield SmallDisk(directory)
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], check=False)
