"""TCO: an overlay in which the subscribers of every topic are connected, so that no broker relays (DCB-M).

How events travel on it does not belong here (:mod:`experiments.dynatops.connected_dissemination`).

Source: Chen, Vitenberg, Jacobsen, ICDCS 2011 (DCB-M), on Chockler et al., PODC 2007 and Onus and Richa, INFOCOM 2009;
Zhao13, section 6.2: "TCO requires its broker overlay to be reconfigured whenever topic-connected property is no
longer hold due to subscription changes on brokers. We reconfigure TCO by running the DCB-M algorithm for partitions of
nodes having changed subscriptions", and a reconfiguration costs one message per changed link.

Verified in the authors' abstracts: the goal is a low maximum degree; brokers are divided into bulk and lightweight
ones, the latter into random parts, and the parts' overlays are joined. The rest is our reading:

- bulk brokers are the tenth with the most topics; the number of parts is about the number of brokers in a part;
- each part is connected separately by MinMax-ODA;
- representatives of each part, chosen greedily, cover every topic that is also wanted elsewhere, if possible three
  times;
- MinMax-ODA on bulk brokers and representatives, with the links of the parts in place, joins the parts;
- bulk brokers and parts are drawn once. When a topic is disconnected, the parts in which subscriptions have changed
  since the last time are reconnected, then all are rejoined; otherwise everything stays.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from regraft_lab.dynatops.connect_topics import (
    MINMAX,
    Flags,
    Link,
    adjacency_of,
    greedy_links,
    unconnected_topics,
)

BULK = -1  # Marks bulk brokers, which are in no part.
BULK_SHARE = 0.1
COVERAGE = 3  # Representatives of a part for each topic, so that joining it does not depend on a single one.


@dataclass(frozen=True, eq=False)
class ConnectedOverlay:
    """A topic-connected overlay.

    ``wanted`` (brokers, topics): the subscriptions it was built for. ``part_of`` (brokers,): each broker's part, or
    BULK. ``part_links``: links inside each part; ``joining_links``: links between bulk brokers and representatives. A
    link names the smaller broker first. ``weight_ratio_max`` as in :func:`greedy_links`.
    """

    wanted: Flags
    part_of: NDArray[np.int32]
    part_links: tuple[frozenset[Link], ...]
    joining_links: frozenset[Link]
    weight_ratio_max: float

    @cached_property
    def links(self) -> frozenset[Link]:
        """All links."""
        return self.joining_links.union(*self.part_links)

    @cached_property
    def adjacency(self) -> Flags:
        """The adjacency matrix, shape (brokers, brokers)."""
        return adjacency_of(self.links, len(self.wanted))

    @cached_property
    def degrees(self) -> NDArray[np.int64]:
        """The number of links of each broker, shape (brokers,)."""
        degrees: NDArray[np.int64] = self.adjacency.sum(axis=1)
        return degrees


def build_overlay(
    wanted: Flags,
    rng: np.random.Generator,
    bulk_share: float = BULK_SHARE,
    part_count: int | None = None,
    weight_ratio_max: float = MINMAX,
) -> ConnectedOverlay:
    """Return the overlay that DCB-M builds for these subscriptions, shape (brokers, topics).

    ``part_count`` defaults to the square root of the number of lightweight brokers; with one part and no bulk brokers
    this is MinMax-ODA. Raises ValueError if the share is outside 0 to 1 or there is no part.
    """
    if not 0 <= bulk_share <= 1:
        raise ValueError(f"bulk_share is {bulk_share}: must be from 0 to 1")
    count = len(wanted)
    heaviest_first = np.argsort(-wanted.sum(axis=1), kind="stable")
    light = rng.permutation(heaviest_first[round(bulk_share * count) :])
    parts = max(1, round(math.sqrt(len(light)))) if part_count is None else part_count
    if parts < 1:
        raise ValueError(f"part_count is {parts}: must be at least 1")
    part_of = np.full(count, BULK, dtype=np.int32)
    part_of[light] = np.arange(len(light)) % parts
    empty = ConnectedOverlay(wanted, part_of, (frozenset(),) * parts, frozenset(), weight_ratio_max)
    return _connected(empty, wanted, frozenset(range(parts)))


def rebuild_overlay(overlay: ConnectedOverlay, wanted: Flags) -> tuple[ConnectedOverlay, int]:
    """Return the overlay for new subscriptions, and how many links differ; unchanged while all topics are connected.

    Zhao13 counts the number of differing links as the messages of the reconfiguration.
    """
    if not len(unconnected_topics(overlay.adjacency, wanted)):
        return overlay, 0
    changed = overlay.part_of[(overlay.wanted != wanted).any(axis=1)]
    rebuilt = _connected(overlay, wanted, frozenset(np.unique(changed).tolist()) - {BULK})
    return rebuilt, len(overlay.links ^ rebuilt.links)


def _connected(overlay: ConnectedOverlay, wanted: Flags, parts: frozenset[int]) -> ConnectedOverlay:
    """Connect these parts, then join all parts."""
    part_links = tuple(
        _inside(overlay, wanted, part) if part in parts else links for part, links in enumerate(overlay.part_links)
    )
    joiners = overlay.part_of == BULK
    for part in range(len(part_links)):
        joiners = joiners | _representatives(wanted, overlay.part_of == part)
    present = sorted(frozenset[Link]().union(*part_links))
    joining = greedy_links(wanted, present, joiners, overlay.weight_ratio_max)
    return replace(overlay, wanted=wanted.copy(), part_links=part_links, joining_links=frozenset(joining))


def _inside(overlay: ConnectedOverlay, wanted: Flags, part: int) -> frozenset[Link]:
    """Return links that connect a part; topics wanted by a single broker in it need none."""
    brokers = np.flatnonzero(overlay.part_of == part).tolist()
    links = greedy_links(wanted[brokers], weight_ratio_max=overlay.weight_ratio_max)
    return frozenset((brokers[one], brokers[other]) for one, other in links)


def _representatives(wanted: Flags, inside: Flags) -> Flags:
    """Return brokers of a part that cover its shared topics, shape (brokers,), chosen greedily by topics covered."""
    shared = wanted[inside].any(axis=0) & wanted[~inside].any(axis=0)
    open_times = np.where(shared, np.minimum(wanted[inside].sum(axis=0), COVERAGE), 0)
    chosen = np.zeros(len(wanted), dtype=np.bool_)
    while (open_times > 0).any():
        gains = np.where(inside & ~chosen, wanted[:, open_times > 0].sum(axis=1), 0)
        best = int(gains.argmax())
        chosen[best] = True
        open_times = open_times - wanted[best]
    return chosen
