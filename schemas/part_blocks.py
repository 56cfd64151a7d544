"""Which part of its subscribers received what a broker delivered, and its encoding in cells of telemetry.

A window has one mask for all subscribers of a broker, so it does not show what some of them would receive elsewhere. On
request, brokers also report parts: ordinary cells (:class:`schemas.telemetry.Delivery`) whose block, beyond the range
of sequence numbers, encodes part, plane and block. The number of the part's subscribers that received a notification is
a binary number, whose digit of value 2^plane is the notification's bit in the mask of that plane. So cells of parts are
merged by OR, kept and packed like all others, and count exactly however often they arrive. They have no hand-overs and
no bytes, which are in the cells of the whole broker.

The part REST is all subscribers of the broker that are in no other part, in plane 0 only. Parts are reported for
subscribers that a plan has moved to a broker, for MOVED_SEPARATE_MS after arrival, long enough to see what the plan
saves; and, if configured, for the single subscribers that receive the most. Two parts of a broker share a number once
in a million.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache

BLOCK_BITS, NUMBER_BITS, PLANE_BITS = 30, 20, 4
PART_BLOCK_MIN = 1 << 55
PART_BLOCK_END = PART_BLOCK_MIN + (1 << BLOCK_BITS + NUMBER_BITS + PLANE_BITS)
PLANES_MAX = 1 << PLANE_BITS
REST = 0
MOVED_SEPARATE_MS = 5 * 60_000


@dataclass(frozen=True, slots=True)
class PartBlock:
    """The decoded block of a part's cell; ``block`` is the block of sequence numbers."""

    number: int
    plane: int
    block: int


def part_block(number: int, plane: int, block: int) -> int | None:
    """Return the block of a part's cell, or None beyond 69 billion notifications or 65,535 receiving subscribers.

    ``block`` is the block of sequence numbers.
    """
    if block >> BLOCK_BITS or plane >= PLANES_MAX:
        return None
    return PART_BLOCK_MIN | (plane << NUMBER_BITS | number) << BLOCK_BITS | block


def part_of_block(block: int) -> PartBlock | None:
    """Return the decoded block of a part's cell, or None for any other block."""
    if not PART_BLOCK_MIN <= block < PART_BLOCK_END:
        return None
    rest, number_bits = block - PART_BLOCK_MIN, (1 << NUMBER_BITS) - 1
    return PartBlock(rest >> BLOCK_BITS & number_bits, rest >> BLOCK_BITS + NUMBER_BITS, rest & ((1 << BLOCK_BITS) - 1))


def number_of_moved(epoch: int, home_from: str) -> int:
    """Return the number of the part that the plan to ``epoch`` moved from a broker."""
    return _number(f"{epoch} {home_from}")


@lru_cache(maxsize=1 << 17)
def number_of_subscriber(name: str) -> int:
    """Return the number of the part that consists of one subscriber."""
    return _number(name)


def _number(text: str) -> int:
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") % ((1 << NUMBER_BITS) - 1) + 1  # Never REST.
