"""The status file: the loop's document as JSON, replaced whole, so a reader never sees half of it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import structlog

from controller.control_ports import Document

log = structlog.get_logger(__name__)


class StatusFile:
    """Writes the document beside the file and renames it; a full disk is told once and does not stop the loop."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.failures = 0
        self._is_failing = False

    def publish(self, document: Document, now_ms: int) -> None:
        """Replace the file by the document."""
        beside = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        try:
            beside.write_text(json.dumps(document), encoding="utf-8")
            beside.replace(self._path)
        except OSError as error:
            self.failures += 1
            if not self._is_failing:
                log.warning("status_not_written", path=str(self._path), reason=str(error))
            self._is_failing = True
        else:
            self._is_failing = False
