"""Write a file that only this user may read, such as one with a password."""

import os
from pathlib import Path


def write_private(file: Path, content: bytes) -> None:
    """Write or replace the file, which nobody else can open at any moment."""
    file.unlink(missing_ok=True)
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(content)
