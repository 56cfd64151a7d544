"""Write a file that only this user may read, such as one with a password."""

import os
from pathlib import Path


def write_private(file: Path, content: bytes) -> None:
    """Write or replace the file, which nobody else can open at any moment."""
    file.unlink(missing_ok=True)
    create_private(file, content)


def create_private(file: Path, content: bytes) -> None:
    """Write a new file, which nobody else can open at any moment; no part of it stays if the disk is full.

    Raises FileExistsError if it exists, or another OSError.
    """
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
    except OSError:
        file.unlink(missing_ok=True)
        raise
