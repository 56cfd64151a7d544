"""Read what Mosquitto has logged since the last read, up to the line of the node's own subscription.

In: the file of ``log_dest file``, or another with Mosquitto's output. Out: lines. Their form belongs to
:mod:`producers.nodes.mqtt.log_line_form`; everything after the node's own line is received from the broker itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

LOG_BYTES_MAX = 16 << 20  # At most per read, from the end of the file: some 250,000 lines.


@dataclass
class MosquittoLog:
    """One log file. ``read`` continues after the lines it has returned, and starts over if the file has shrunk."""

    file: Path
    _position: int = 0

    def read(self, own_filter: str) -> list[bytes] | None:
        """Return the new lines up to that of the subscription to ``own_filter``, None if there is none yet.

        Raises OSError if the file cannot be read.
        """
        with self.file.open("rb") as log:
            size = log.seek(0, 2)
            begin = self._position if self._position <= size else 0
            is_cut = size - begin > LOG_BYTES_MAX
            begin = max(begin, size - LOG_BYTES_MAX)
            log.seek(begin)
            content = log.read(LOG_BYTES_MAX)
        own = f" {own_filter}\n".encode()
        place = content.find(own)  # The first: the second is of the end of this subscription.
        if place < 0:
            return None
        end = place + len(own)
        self._position = begin + end
        lines = content[:end].split(b"\n")[:-1]
        return lines[1:] if is_cut else lines
