"""Which runs of sequence numbers brokers report in full when sampling, and how reports encode it.

A publisher's sequence numbers are cut into runs of 4, 8, 16, 32 or 64; 64 is a block of telemetry. A share is 1 /
2^power. A run is in the sample of a power if that many leading bits of its hash are 0. So all brokers have the same
sample without coordination, and the sample of a smaller share is a subset of that of any larger share with the same run
length. Long runs leave fewer cells of busy publishers, short ones show more of slow publishers.

What a broker delivers of a publisher's other runs goes into one **counts cell** every few seconds, an ordinary
:class:`schemas.telemetry.Delivery` whose block encodes power and run, beyond the range of sequence numbers. It has the
hand-overs and bytes, no delivery bits, and bit 0 of ``published`` if the broker published something. It is also
present, with counts of 0, if everything that a publisher published was in the sample, so that readers of a window know
its share. Counts cells are merged, kept and packed like all others.

How estimates follow from the share belongs to the readers (docs/sampling.md).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from regraft.schemas.bounds import BLOCK_MAX
from regraft.schemas.telemetry import BLOCK_SIZE

POWER_MAX = 10
SHARE_MIN = 1 / (1 << POWER_MAX)
RUNS = (64, 32, 16, 8, 4)  # Allowed lengths of runs; their index is encoded in counts cells.
COUNTS_BLOCK_MIN = BLOCK_MAX + 1 - len(RUNS) * (POWER_MAX + 1)
PUBLISHED_FLAG = 1
_WORD = (1 << 64) - 1
_STEP, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


@dataclass(frozen=True, slots=True)
class SampleRule:
    """Defines a sample of sequence numbers: 1 / 2^``power`` of all runs of ``run`` numbers."""

    power: int = 0
    run: int = BLOCK_SIZE

    @property
    def counts_block(self) -> int:
        """The block of the counts cells of this sample."""
        return BLOCK_MAX - RUNS.index(self.run) * (POWER_MAX + 1) - self.power


@dataclass(frozen=True, slots=True)
class Sampling:
    """What a broker reports in full: 1 / 2^``power`` of all runs of ``run`` numbers, and counts of the rest.

    ``counts_s`` is the number of seconds per counts cell. ``seed`` selects the sample; all brokers and readers use the
    same, other seeds are for tests.
    """

    power: int = 0
    counts_s: int = 1
    seed: int = 0
    run: int = BLOCK_SIZE

    @classmethod
    def of(cls, share: float, counts_s: int, run: int = BLOCK_SIZE) -> Sampling:
        """Return the sampling with a share; raise ValueError unless that is a power of 1/2, at least SHARE_MIN."""
        return cls(power_of(share), counts_s, run=run)

    @property
    def share(self) -> float:
        """The share of all runs that is reported in full."""
        return 1 / (1 << self.power)

    def at_most(self, power: int) -> Sampling:
        """Return the sampling with the smaller share: this one's or that of ``power``."""
        return replace(self, power=max(self.power, power))

    @property
    def counts_block(self) -> int:
        """The block of the counts cells."""
        return SampleRule(self.power, self.run).counts_block

    def includes(self, publisher: str, sequence: int) -> bool:
        """Return True if the notification with this sequence number is reported in full."""
        return self.power == 0 or block_word(publisher, sequence // self.run, self.seed) >> (64 - self.power) == 0


FULL = Sampling()


def power_of(share: float) -> int:
    """Return the power of a share; raise ValueError unless the share is a power of 1/2, at least SHARE_MIN."""
    if error := share_error(share):
        raise ValueError(f"the share {error}")
    return round(1 / share).bit_length() - 1


def share_error(share: float) -> str:
    """Return what is wrong with a share, "" if nothing is."""
    inverse = 1 / share if share > 0 else 0.0
    if SHARE_MIN <= share <= 1 and inverse == int(inverse) and int(inverse).bit_count() == 1:
        return ""
    return f"is {share:g}: 1 for all, or 0.5, 0.25, 0.125 and so on, halved at most {POWER_MAX} times"


def share_text(share: float) -> str:
    """Return a share as text, such as ``1 of 4 notifications``."""
    return f"1 of {round(1 / share)} notifications" if share < 1 else "all notifications"


def rule_of_counts(block: int) -> SampleRule | None:
    """Return the rule encoded in the block of a counts cell, or None for any other block."""
    if block < COUNTS_BLOCK_MIN:
        return None
    place, power = divmod(BLOCK_MAX - block, POWER_MAX + 1)
    return SampleRule(power, RUNS[place])


def sample_masks(publisher: str, blocks: NDArray[np.int64], rule: SampleRule, seed: int = 0) -> NDArray[np.uint64]:
    """Return for each block of a publisher the mask of its bits in the sample, as :meth:`Sampling.takes` defines it."""
    masks = np.zeros(blocks.shape, dtype=np.uint64)
    runs, ones = BLOCK_SIZE // rule.run, (1 << rule.run) - 1
    for place in range(runs):
        is_taken = _taken(publisher, blocks * runs + place, rule.power, seed)
        masks |= np.where(is_taken, np.uint64(ones << place * rule.run), np.uint64(0))
    return masks


def _taken(publisher: str, numbers: NDArray[np.int64], power: int, seed: int) -> NDArray[np.bool_]:
    if power == 0:
        return np.ones(numbers.shape, dtype=np.bool_)
    word = numbers.astype(np.uint64) * np.uint64(_STEP) + np.uint64(_key(publisher, seed))
    word = (word ^ (word >> np.uint64(30))) * np.uint64(_FIRST)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(_SECOND)
    return np.asarray((word ^ (word >> np.uint64(31))) >> np.uint64(64 - power) == 0)


@lru_cache(maxsize=1 << 16)
def _key(publisher: str, seed: int) -> int:
    digest = hashlib.blake2b(publisher.encode(), digest_size=8, salt=seed.to_bytes(16, "little")).digest()
    return int.from_bytes(digest, "little")


def block_word(publisher: str, block: int, seed: int = 0) -> int:
    """Return a 64-bit hash of a publisher's block, or run, with this number."""
    return _mixed(_key(publisher, seed), block)


def _mixed(key: int, block: int) -> int:
    """Return SplitMix64's output for the state ``key`` plus ``block`` increments."""
    word = (block * _STEP + key) & _WORD
    word = (word ^ (word >> 30)) * _FIRST & _WORD
    word = (word ^ (word >> 27)) * _SECOND & _WORD
    return word ^ (word >> 31)
