"""The status file as one of the loop's views: JSON, replaced as a whole."""

from __future__ import annotations

from pathlib import Path

from regraft.schemas.live_view import LiveView
from regraft.schemas.status_file import StatusFile


class StatusView:
    """Publishes the live view in a file."""

    def __init__(self, path: Path) -> None:
        self._file = StatusFile(path)

    def publish(self, view: LiveView, now_ms: int) -> None:
        """Replace the file by the view; a full disk stops nothing."""
        self._file.write(view)
