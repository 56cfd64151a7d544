"""Files with secrets that every user of this machine may read.

That is reported and not refused: mounts of secrets, as in Kubernetes, are often so, in a container with one user.
"""

from __future__ import annotations

import stat
from collections.abc import Iterable
from pathlib import Path

import structlog

from regraft.schemas.texts import name_some

log = structlog.get_logger(__name__)

NAMED_MAX = 3
TO_DO = "`chmod 600` makes them private, in Kubernetes a `defaultMode` of 0400 with an `fsGroup`"


def open_files(files: Iterable[Path]) -> list[Path]:
    """Return the files that every user may read; not those in a directory that others cannot enter."""
    return [file for file in files if _is_open(file)]


def open_text(files: Iterable[Path]) -> str:
    """Describe which files every user may read; "" if there is none."""
    names = [str(file) for file in open_files(files)]
    return f"every user of this machine may read what holds secrets: {name_some(names, NAMED_MAX)}" if names else ""


def warn_of_open(files: Iterable[Path]) -> None:
    """Log which files every user may read, and what to do."""
    if reason := open_text(files):
        log.warning("secrets_readable", reason=reason, to_do=TO_DO)


def _is_open(file: Path) -> bool:
    try:
        place = file.resolve()
        can_enter = all(parent.stat().st_mode & stat.S_IXOTH for parent in place.parents)
        return can_enter and bool(place.stat().st_mode & stat.S_IROTH)
    except OSError:  # Reported where the file is read.
        return False
