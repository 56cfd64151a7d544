"""Which outages happen, and when: brokers or agents that die, brokers that hang, links that are slow or cut.

In: texts from settings, or parameters of a random schedule. Out: outages. Their effect on an overlay belongs to
:mod:`producers.emulator.play_outages`.

A text reads ``KIND TARGETS at SECONDS for SECONDS``, followed by ``by FACTOR`` for a slow link: ``death b03,b07 at 60
for 60``, ``suspension b01 at 10 for 5``, ``slow b01,b02 at 20 for 10 by 20``, ``cut b01,b02 at 20 for 10``, ``agent
b03 at 10 for 5``. TARGETS names brokers (also for the agents beside them), for a link its two ends, or with ``site:4``
the four brokers that are nearest to one another.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.overlay_configuration import Link

SITE = "site:"
SLOW_FACTOR = 10.0
_NUMBER = r"(\d+(?:\.\d+)?)"
_TEXT = re.compile(rf"(\w+) (\S+) at {_NUMBER} for {_NUMBER}(?: by {_NUMBER})?")


class OutageKind(StrEnum):
    """The kinds of outages."""

    DEATH = "death"
    SUSPENSION = "suspension"
    SLOW = "slow"
    CUT = "cut"
    AGENT = "agent"

    @property
    def is_of_link(self) -> bool:
        """Whether it affects a link, not brokers."""
        return self in (OutageKind.SLOW, OutageKind.CUT)


EMULATED_KINDS = tuple(kind for kind in OutageKind if kind is not OutageKind.AGENT)  # Emulated clients have no agents.


@dataclass(frozen=True)
class Outage:
    """One outage: it begins ``at_s`` after the start and lasts ``for_s``; ``factor`` multiplies a slow link's delay."""

    kind: OutageKind
    targets: tuple[str, ...]
    at_s: float
    for_s: float
    factor: float = SLOW_FACTOR


def outage_of(text: str) -> Outage:
    """Return the outage that a text describes; raise ValueError if the text is invalid."""
    match = _TEXT.fullmatch(text.strip())
    if match is None or match[1] not in set(OutageKind):
        raise ValueError(
            f"outage {text!r}: write KIND TARGETS at SECONDS for SECONDS [by FACTOR], with one of "
            f"{', '.join(OutageKind)} as KIND"
        )
    kind, targets = OutageKind(match[1]), tuple(match[2].split(","))
    if kind.is_of_link and (len(set(targets)) != 2):
        raise ValueError(f"outage {text!r}: a link has two ends, write them as A,B")
    return Outage(kind, targets, float(match[3]), float(match[4]), float(match[5] or SLOW_FACTOR))


def with_names(outage: Outage, inventory: Inventory) -> Outage:
    """Return the outage with its brokers' names resolved; raise ValueError if the inventory lacks one."""
    targets = outage.targets
    if len(targets) == 1 and targets[0].startswith(SITE):
        count = targets[0].removeprefix(SITE)
        if not count.isdecimal() or not 1 <= int(count) < len(inventory.brokers):
            raise ValueError(f"{targets[0]} is not a site: write {SITE} and a number below {len(inventory.brokers)}")
        targets = site_of(inventory, int(count))
    unknown = sorted(set(targets) - set(inventory.brokers))
    if unknown:
        raise ValueError(f"outages name {', '.join(unknown)}, which the inventory does not have: use names from it")
    return Outage(outage.kind, targets, outage.at_s, outage.for_s, outage.factor)


def site_of(inventory: Inventory, count: int) -> tuple[str, ...]:
    """Return the ``count`` brokers with the least sum of link costs from one of them to the others."""
    nearest = np.sort(inventory.link_cost, axis=1)[:, :count].sum(axis=1)
    middle = int(nearest.argmin())
    return tuple(sorted(inventory.brokers[place] for place in np.argsort(inventory.link_cost[middle])[:count]))


@dataclass(frozen=True)
class Chaos:
    """Parameters of random outages.

    ``every_s``: mean pause between two. ``for_s``: mean length. ``kinds``: the kinds that occur. ``down_share_max``:
    the largest share of brokers that may be dead or suspended at once. ``until_s``: time after which none begins, None
    for no end.
    """

    every_s: float
    for_s: float
    kinds: tuple[OutageKind, ...] = EMULATED_KINDS
    down_share_max: float = 0.25
    until_s: float | None = None


def random_outages(chaos: Chaos, brokers: Sequence[str], links: Sequence[Link], rng: random.Random) -> Iterator[Outage]:
    """Yield random outages, ordered by time."""
    at_s = rng.expovariate(1 / chaos.every_s)
    while chaos.until_s is None or at_s < chaos.until_s:
        kind = rng.choice(chaos.kinds)
        targets = rng.choice(links) if kind.is_of_link else (rng.choice(brokers),)
        yield Outage(kind, targets, at_s, rng.uniform(0.5, 1.5) * chaos.for_s)
        at_s += rng.expovariate(1 / chaos.every_s)
