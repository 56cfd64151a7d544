"""Read what Mosquitto has written into its log since a node last looked, up to the line of the node's own subscription.

In: the file of ``log_dest file``, or any that holds what Mosquitto prints. Out: lines. What they say of clients belongs
to :mod:`producers.nodes.mqtt_interest`; what comes after the own line is heard from the broker itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

LOG_BYTES_MAX = 16 << 20  # Read at once, from the end: some 250,000 lines.


@dataclass
class MosquittoLog:
    """One log file. ``read`` continues after what it has returned; in a file that is shorter now it starts over."""

    file: Path
    _position: int = 0

    def read(self, own_line: str) -> list[str] | None:
        """Return the lines up to the last that ends with ``own_line``, None if there is none yet.

        Raises OSError when the file cannot be read.
        """
        with self.file.open("rb") as log:
            size = log.seek(0, 2)
            begin = self._position if self._position <= size else 0
            is_cut = size - begin > LOG_BYTES_MAX
            begin = max(begin, size - LOG_BYTES_MAX)
            log.seek(begin)
            content = log.read(LOG_BYTES_MAX)
        own = f" {own_line}\n".encode()
        place = content.rfind(own)
        if place < 0:
            return None
        end = place + len(own)
        self._position = begin + end
        lines = content[:end].decode(errors="replace").split("\n")[:-1]
        return lines[1:] if is_cut else lines
