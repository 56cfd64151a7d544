"""How much memory reading a recording may take; a damaged or hostile file could take more.

The settings of a run fill it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReadingBounds:
    """How much of a recording may be in memory at once, when one is shown, replayed or backtested."""

    # Largest decompressed block, in MB of 1,048,576 bytes; a larger one counts as damaged: those of the recorder stay
    # below 9.
    block_mb_max: int = 64
    # Most memory, in the same MB, for blocks whose times overlap, because their messages must be merged; beyond it the
    # command ends: a recording of all topics stays below 10.
    overlap_mb_max: int = 1_024

    @property
    def block_bytes_max(self) -> int:
        """The largest decompressed block, in bytes."""
        return self.block_mb_max << 20

    @property
    def overlap_bytes_max(self) -> int:
        """The most memory for messages that wait to be merged, in bytes."""
        return self.overlap_mb_max << 20


DEFAULT_BOUNDS = ReadingBounds()
