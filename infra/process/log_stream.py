"""A stream for log lines that survives a full disk."""

from __future__ import annotations

import sys
from typing import TextIO, cast

import structlog

from regraft.schemas.texts import clean_lines


class LogStream:
    """Writes to another stream, and continues if that fails; ``lost`` counts the lines lost since the last success.

    A stage must not end because its log is on a full disk. Once there is space again, one line says how many are
    missing.
    """

    def __init__(self, stream: TextIO) -> None:
        self.lost = 0
        self._stream = stream

    def write(self, line: str) -> int:
        """Write one line, and return its length even if it is lost."""
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
        """Do nothing, because ``write`` flushes each line."""


def _clean(_logger: object, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Return an event in which what others wrote does not control the terminal."""
    return {name: clean_lines(value) if isinstance(value, str) else value for name, value in event.items()}


def configure_logs(level: str = "info") -> None:
    """Write logs to standard error: formatted for people on a terminal, otherwise one JSON object per line."""
    if sys.stderr.isatty():
        renderers: list[structlog.typing.Processor] = [_clean, structlog.dev.ConsoleRenderer()]
    else:
        renderers = [structlog.processors.JSONRenderer()]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            *renderers,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(file=cast(TextIO, LogStream(sys.stderr))),
        cache_logger_on_first_use=True,
    )
