"""Files that one process replaces while others read them: readers see the old or the new content, never a part."""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, Self

import msgspec
import structlog

log = structlog.get_logger(__name__)


class ReplaceablePath(Protocol):
    """The methods of a path that an atomic replacement needs: those of ``pathlib``, or of another store."""

    @property
    def name(self) -> str:
        """The last component."""

    @property
    def parent(self) -> Self:
        """The directory."""

    def mkdir(self, *, parents: bool = ..., exist_ok: bool = ...) -> None:
        """Create the directory."""

    def with_name(self, name: str, /) -> Self:
        """Return a path next to this one."""

    def write_text(self, text: str, /, encoding: str = ...) -> int:
        """Write a file."""

    def replace(self, target: Self, /) -> Self:
        """Rename the file, replacing the target."""

    def unlink(self) -> None:
        """Delete the file."""


def replace_file(path: ReplaceablePath, text: str) -> None:
    """Replace a file atomically, creating its directory if needed; a link's target, and no pipe or device.

    Raises OSError, for example on a full disk; the old content then stays, and no temporary file is left.
    """
    if isinstance(path, Path):
        if path.exists() and not path.is_file():
            path.write_text(text, encoding="utf-8")
            return
        if path.is_symlink():
            path = Path(os.path.realpath(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        fresh.write_text(text, encoding="utf-8")
        fresh.replace(path)
    except OSError:
        with suppress(OSError):
            fresh.unlink()
        raise


class StatusFile:
    """A JSON file with a stage's progress; a full disk is reported once and does not stop the stage.

    ``failures`` counts the documents that could not be written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.failures = 0
        self._is_failing = False

    def write(self, document: Mapping[str, Any] | msgspec.Struct) -> None:
        """Replace the file with the document."""
        try:
            replace_file(self._path, msgspec.json.format(msgspec.json.encode(document), indent=1).decode() + "\n")
        except OSError as error:
            self.failures += 1
            if not self._is_failing:
                log.warning("status_not_written", path=str(self._path), reason=str(error))
            self._is_failing = True
        else:
            self._is_failing = False
