"""A stream for log lines that a disk without room does not break.

In: a stream, its lines. Out: the lines that there is room for. What is logged, and how, belongs to the caller.
"""

from __future__ import annotations

from typing import TextIO


class LogStream:
    """Writes to another stream, and continues if that fails; ``lost`` counts the lines since there was room last.

    A stage whose log is on a full disk has better to do than to end of it. Once there is room, one line says how many
    are missing.
    """

    def __init__(self, stream: TextIO) -> None:
        self.lost = 0
        self._stream = stream

    def write(self, line: str) -> int:
        """Write one line, and return its length also where it is lost."""
        try:
            if self.lost:
                self._stream.write(f"{self.lost} lines of this log are missing here: there was no space for them.\n")
            self._stream.write(line)
            self._stream.flush()
        except OSError:
            self.lost += 1
        else:
            self.lost = 0
        return len(line)

    def flush(self) -> None:
        """Do nothing: each line is flushed at once."""
