"""Which blocks of sequence numbers brokers report in full when they report a sample, and how they say so.

A share is 1 / 2^power. A block is in the sample of a power when that many of its hash's first bits are 0: all brokers
have the same sample without asking each other, and that of a smaller share lies within that of each larger one.

What a broker delivers of a publisher's other blocks goes into one **counts cell** for each few seconds, an ordinary
:class:`schemas.telemetry.Delivery` whose block is BLOCK_MAX - power, which no sequence number reaches. It has the
hand-overs and bytes, no bit of what was delivered, and bit 0 of ``published`` where the broker published something. It
is there, with counts of 0, also where all that a publisher published was in the sample: who reads a window thus knows
its share. As cells they are merged, kept and packed like all others.

What is made of the share belongs to the readers (docs/sampling.md).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from regraft.schemas.bounds import BLOCK_MAX

POWER_MAX = 10
SHARE_MIN = 1 / (1 << POWER_MAX)
COUNTS_BLOCK_MIN = BLOCK_MAX - POWER_MAX
PUBLISHED_FLAG = 1
_WORD = (1 << 64) - 1
_STEP, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


@dataclass(frozen=True, slots=True)
class Sampling:
    """What a broker reports in full: 1 / 2^``power`` of all blocks, and counts of the rest by ``counts_s`` seconds.

    ``seed`` chooses the sample; all brokers and readers have the same, others are for tests.
    """

    power: int = 0
    counts_s: int = 1
    seed: int = 0

    @classmethod
    def of(cls, share: float, counts_s: int) -> Sampling:
        """Return the sampling of a share; raise ValueError for one that is no power of 1/2 down to SHARE_MIN."""
        if fault := share_fault(share):
            raise ValueError(f"the share {fault}")
        return cls(round(1 / share).bit_length() - 1, counts_s)

    @property
    def share(self) -> float:
        """The share of all blocks that is reported in full."""
        return 1 / (1 << self.power)

    def takes(self, publisher: str, block: int) -> bool:
        """Return True if the block is reported in full."""
        return self.power == 0 or block_word(publisher, block, self.seed) >> (64 - self.power) == 0


FULL = Sampling()


def share_fault(share: float) -> str:
    """Return what is wrong with a share, empty when nothing is."""
    inverse = 1 / share if share > 0 else 0.0
    if SHARE_MIN <= share <= 1 and inverse == int(inverse) and int(inverse).bit_count() == 1:
        return ""
    return f"is {share:g}: 1 for all, or 0.5, 0.25, 0.125 and so on, halved at most {POWER_MAX} times"


def sampling_faults(share: float, counts_s: int) -> list[str]:
    """Return what is wrong with the settings of a sample, one sentence each."""
    found = [f"sample_share {fault}"] if (fault := share_fault(share)) else []
    if counts_s < 1:
        found.append(f"sample_counts_s is {counts_s}: at least 1, deliveries come by the second")
    return found


def power_of_counts(block: int) -> int | None:
    """Return the power that a counts cell of this block tells, None for a block of sequence numbers."""
    return BLOCK_MAX - block if block >= COUNTS_BLOCK_MIN else None


def taken(publisher: str, blocks: NDArray[np.int64], power: int, seed: int = 0) -> NDArray[np.bool_]:
    """Return which blocks of a publisher are in the sample of a power; as :meth:`Sampling.takes`."""
    if power == 0:
        return np.ones(blocks.shape, dtype=np.bool_)
    word = blocks.astype(np.uint64) * np.uint64(_STEP) + np.uint64(_key(publisher, seed))
    word = (word ^ (word >> np.uint64(30))) * np.uint64(_FIRST)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(_SECOND)
    return np.asarray((word ^ (word >> np.uint64(31))) >> np.uint64(64 - power) == 0)


@lru_cache(maxsize=1 << 16)
def _key(publisher: str, seed: int) -> int:
    digest = hashlib.blake2b(publisher.encode(), digest_size=8, salt=seed.to_bytes(16, "little")).digest()
    return int.from_bytes(digest, "little")


def block_word(publisher: str, block: int, seed: int = 0) -> int:
    """Return 64 bits that are as good as drawn at random for the block."""
    return _mixed(_key(publisher, seed), block)


def _mixed(key: int, block: int) -> int:
    """Return SplitMix64's output for a state that the block counts up."""
    word = (block * _STEP + key) & _WORD
    word = (word ^ (word >> 30)) * _FIRST & _WORD
    word = (word ^ (word >> 27)) * _SECOND & _WORD
    return word ^ (word >> 31)
