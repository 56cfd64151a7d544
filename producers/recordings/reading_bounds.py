"""How much memory reading a recording may take; a damaged or hostile file could take more.

The settings of a run fill it.
"""

from __future__ import annotations

from dataclasses import dataclass

from regraft.schemas.bounds import RECORD_BYTES_MAX

BLOCK_MB_MIN = 2 * (RECORD_BYTES_MAX >> 20)  # A block may hold one such record besides its 256 KiB.


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

    def errors(self) -> list[str]:
        """Return what is wrong, one sentence each."""
        errors = []
        if self.block_mb_max < BLOCK_MB_MIN:
            errors.append(
                f"block_mb_max is {self.block_mb_max}: must be at least {BLOCK_MB_MIN}, or blocks of a recorder are "
                "left out"
            )
        if self.overlap_mb_max < self.block_mb_max:
            errors.append(
                f"overlap_mb_max is {self.overlap_mb_max}: must be at least block_mb_max ({self.block_mb_max}), or "
                "one block "
                "alone is too much"
            )
        return errors


DEFAULT_BOUNDS = ReadingBounds()
