"""What a source says about brokers: names, delays between them, where they are."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

UNEVEN_FACTOR = 1.1  # Measured delays that differ by less are equal.

Pair = tuple[str, str]


def pair_of(one: str, other: str) -> Pair:
    """Return two names in canonical order."""
    return (one, other) if one <= other else (other, one)


@dataclass
class FoundBrokers:
    """Brokers, in any order, and what is known about each.

    ``delays_ms``: one-way delays by pair of brokers or of regions. ``places``: longitude and latitude. ``notes``: what
    an operator should know about how the source was read, one sentence each.
    """

    names: list[str] = field(default_factory=list)
    delays_ms: dict[Pair, float] = field(default_factory=dict)
    places: dict[str, tuple[float, float]] = field(default_factory=dict)
    processing_ms: dict[str, float] = field(default_factory=dict)
    load_max_per_s: dict[str, float] = field(default_factory=dict)
    agent_of: dict[str, str] = field(default_factory=dict)
    region_of: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def delay_ms(self, one: str, other: str) -> float | None:
        """Return the delay between two brokers, or else between their regions; None if neither is known."""
        delay = self.delays_ms.get(pair_of(one, other))
        if delay is None and (regions := (self.region_of.get(one), self.region_of.get(other))) and None not in regions:
            return self.delays_ms.get(pair_of(str(regions[0]), str(regions[1])))
        return delay


def counted(count: int, what: str) -> str:
    """Return a number with what it counts."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def both_ways(delays_ms: Iterable[tuple[str, str, float]]) -> tuple[dict[Pair, float], list[str]]:
    """Return the mean of both directions of each pair, of several values of one direction the least; and a note.

    The least is that of a message which waited nowhere.
    """
    least: dict[Pair, float] = {}
    for source, target, delay_ms in delays_ms:
        least[source, target] = min(delay_ms, least.get((source, target), delay_ms))
    delays = {
        pair_of(*pair): (delay_ms + least.get((pair[1], pair[0]), delay_ms)) / 2 for pair, delay_ms in least.items()
    }
    uneven = []
    for pair, delay_ms in least.items():
        back_ms = least.get(pair[::-1], delay_ms)
        if pair[0] < pair[1] and max(delay_ms, back_ms) > UNEVEN_FACTOR * min(delay_ms, back_ms):
            uneven.append((abs(delay_ms - back_ms), pair))
    if not uneven:
        return delays, []
    _, (one, other) = max(uneven)
    return delays, [
        f"delays differ by direction for {counted(len(uneven), 'pair')}; the mean is used. The largest difference is "
        f"between {one} and {other} ({least[one, other]:g} and {least[other, one]:g} ms)"
    ]
