"""The status file as one of the loop's views: the document as JSON, replaced whole."""

from __future__ import annotations

from pathlib import Path

from controller.control_ports import Document
from schemas.status_file import StatusFile


class StatusView:
    """Publishes the loop's document in a file."""

    def __init__(self, path: Path) -> None:
        self._file = StatusFile(path)

    def publish(self, document: Document, now_ms: int) -> None:
        """Replace the file by the document; a full disk stops nothing."""
        self._file.write(document)
