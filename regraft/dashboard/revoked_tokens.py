"""Tokens revoked before their expiry: a file of their ids, one per line, reread when it has changed."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

from regraft.infra.process.stack_error import StackError

REVOKED_BYTES_MAX = 1_000_000  # Some 20,000 tokens, each of which expires within a month.


class RevokedFileError(StackError):
    """The file of revoked tokens cannot be used; the message says why."""


class RevokedTokens:
    """The revoked ids in a file; a missing file has none.

    Deleting the file reinstates no token: the ids read last stay revoked until the process ends.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._seen: tuple[int, int, int] | None = None
        self._ids: frozenset[str] = frozenset()

    def __contains__(self, token_id: object) -> bool:
        """Return True if a token is revoked. Raises RevokedFileError if the file exists but cannot be read."""
        self._refresh(self._file)
        return token_id in self._ids

    def _refresh(self, file: Path) -> None:
        try:
            status = file.stat()
            seen = (status.st_ino, status.st_size, status.st_mtime_ns)
            if seen == self._seen:
                return
            if status.st_size > REVOKED_BYTES_MAX:
                raise RevokedFileError(
                    f"{file} has {status.st_size} bytes, but at most {REVOKED_BYTES_MAX} are read: "
                    "delete the lines of tokens that expired long ago."
                )
            lines = file.read_text(encoding="utf-8-sig").splitlines()
        except FileNotFoundError:
            return
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not text"
            raise RevokedFileError(f"{file} cannot be read ({reason}): without it no token is accepted.") from error
        self._ids = frozenset(words[0] for line in lines if (words := line.split()))
        self._seen = seen


def revoke_token(file: Path, token_id: str) -> bool:
    """Add an id to the file; return False if it is already there.

    Raises RevokedFileError if the file cannot be read or written.
    """
    if token_id in RevokedTokens(file):
        return False
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        former = file.read_bytes() if file.exists() else b""
        line = f"{token_id} {time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())}\n".encode()
        if former and not former.endswith(b"\n"):
            line = b"\n" + line
        descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            if os.write(descriptor, line) < len(line):  # A single write, so that concurrent revocations lose no line.
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise RevokedFileError(f"{file} cannot be written ({error.strerror}): the token is NOT revoked.") from error
    return True
