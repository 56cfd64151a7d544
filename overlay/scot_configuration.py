"""A structured cyclic overlay over named brokers, as a value with an epoch (Shafique).

In: regions, each with its broker of every cluster, and the tree that links regions. Out: links, neighbours of both
kinds, and what every kind of overlay answers (:mod:`overlay.overlay_configuration`). Routing does not belong here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import msgspec

from regraft.overlay.configuration import link
from regraft.overlay.overlay_configuration import Link
from regraft.overlay.structured_cyclic import OverlayShapeError, ScotBroker, StructuredCyclicOverlay, scot_overlay
from regraft.schemas.plan import ClientMove, Plan


@dataclass(frozen=True)
class ScotConfiguration:
    """Regions of brokers, one of each cluster, and the links between regions, by their numbers.

    ``regions`` (regions, clusters) holds names; the brokers of a region are all linked to each other, those of a
    cluster as ``region_links`` says. ``homes`` as on every overlay. Raises OverlayShapeError when regions differ in
    size, a broker is named twice or the region links are no tree, ValueError when a home is no broker.
    """

    KIND: ClassVar[str] = "scot"
    CLIENTS: ClassVar[str] = "publishers"

    epoch: int
    regions: tuple[tuple[str, ...], ...]
    region_links: tuple[tuple[int, int], ...]
    homes: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        if len({len(region) for region in self.regions}) != 1:
            sizes = sorted({len(region) for region in self.regions})
            raise OverlayShapeError(f"regions have {sizes} brokers: each needs one of every cluster")
        if len(self.brokers) != len(set(self.brokers)):
            raise OverlayShapeError("a broker is named twice: each has one region and one cluster")
        numbers = {number for pair in self.region_links for number in pair}
        if numbers != set(range(len(self.regions))):
            raise OverlayShapeError(f"region links join {len(numbers)} regions, there are {len(self.regions)}")
        strangers = sorted(set(self.home_of.values()) - set(self.brokers))
        if strangers:
            raise ValueError(f"publishers have homes that are not in the overlay: {', '.join(strangers)}")
        _ = self.shape

    @cached_property
    def shape(self) -> StructuredCyclicOverlay:
        """The product that the overlay is, with regions named by their numbers."""
        return scot_overlay(((str(a), str(b)) for a, b in self.region_links), len(self.regions[0]))

    @cached_property
    def brokers(self) -> tuple[str, ...]:
        """All brokers, sorted."""
        return tuple(sorted(broker for region in self.regions for broker in region))

    @cached_property
    def place_of(self) -> dict[str, tuple[int, int]]:
        """Each broker's region and cluster, by number."""
        return {
            broker: (number, cluster)
            for number, region in enumerate(self.regions)
            for cluster, broker in enumerate(region)
        }

    @cached_property
    def links(self) -> tuple[Link, ...]:
        """The links within clusters and within regions, sorted."""
        pairs = (*self.shape.a_links(), *self.shape.i_links())
        return tuple(sorted(link(self._named(one), self._named(other)) for one, other in pairs))

    def _named(self, place: ScotBroker) -> str:
        return self.regions[int(place.region)][place.cluster]

    @cached_property
    def home_of(self) -> dict[str, str]:
        """The home of each publisher of which it is known."""
        return dict(self.homes)

    @cached_property
    def neighbours(self) -> dict[str, tuple[str, ...]]:
        """Each broker's neighbours, sorted."""
        found: dict[str, list[str]] = {broker: [] for broker in self.brokers}
        for a, b in self.links:
            found[a].append(b)
            found[b].append(a)
        return {broker: tuple(sorted(peers)) for broker, peers in found.items()}

    @property
    def degree_max(self) -> int:
        """The largest number of links at one broker."""
        return max(len(peers) for peers in self.neighbours.values())

    def cluster_neighbours(self, broker: str) -> tuple[str, ...]:
        """Return the neighbours in the broker's cluster, sorted."""
        region, cluster = self.place_of[broker]
        around = self.shape.primary_neighbours(ScotBroker(str(region), cluster))
        return tuple(sorted(self._named(place) for place in around))

    def region_of(self, broker: str) -> tuple[str, ...]:
        """Return the brokers of the broker's region by cluster, itself among them."""
        return self.regions[self.place_of[broker][0]]

    def static_way(self, source_broker: str, target_broker: str) -> tuple[str, ...]:
        """Return the brokers that static routing leads over: first to the target's cluster, then within that."""
        cluster = self.place_of[target_broker][1]
        entry, target = self.place_of[source_broker][0], self.place_of[target_broker][0]
        way = [self.regions[entry][cluster]]
        if way[0] != source_broker:
            way.insert(0, source_broker)
        regions: Sequence[str] = _tree_path(self.shape, str(entry), str(target))
        return (*way, *(self.regions[int(region)][cluster] for region in regions[1:]))

    def with_homes(self, homes: Mapping[str, str]) -> Self:
        """Return the same overlay with exactly these homes."""
        return replace(self, homes=tuple(sorted(homes.items())))

    def at_epoch(self, epoch: int) -> Self:
        """Return the same overlay and homes with another number."""
        return replace(self, epoch=epoch)

    def target_of(self, plan: Plan) -> Self:
        """Raise ValueError: no plan leads anywhere from here yet."""
        raise ValueError(f"plan {plan.plan} cannot be executed: a structured cyclic overlay has no plans yet")

    def origin_of(self, plan: Plan, homes: Mapping[str, str]) -> Self:
        """Raise ValueError as :meth:`target_of`."""
        return self.target_of(plan)

    def as_target(self, plan: Plan, present: Self) -> Plan:
        """Return the plan with the links and brokers of this overlay, by which brokers report what they hold."""
        return msgspec.structs.replace(plan, links_target=self.links, brokers_target=self.brokers)

    def moves_known_to(self, broker: str, moves: Sequence[ClientMove]) -> tuple[ClientMove, ...]:
        """Return all moves."""
        return tuple(moves)

    def overlay_fields(self) -> dict[str, Any]:
        """Return what an inventory's JSON holds of the overlay."""
        return {"regions": self.regions, "region_links": self.region_links}

    @classmethod
    def of_fields(cls, brokers: Sequence[str], fields: Mapping[str, Any]) -> Self | None:
        """Return the overlay of epoch 0 from an inventory's JSON, None when that holds no such.

        Raises OverlayShapeError when it cannot be one, TypeError when the fields cannot be read.
        """
        if "regions" not in fields:
            return None
        found = cls._of(0, fields["regions"], fields["region_links"])
        if found.brokers != tuple(sorted(brokers)):
            raise OverlayShapeError(f"regions hold {len(found.brokers)} brokers, the inventory {len(brokers)} others")
        return found

    @classmethod
    def _of(cls, epoch: int, regions: Iterable[Iterable[str]], region_links: Iterable[Iterable[int]]) -> Self:
        pairs = tuple(sorted((min(pair), max(pair)) for pair in map(tuple, region_links)))
        return cls(epoch, tuple(tuple(region) for region in regions), pairs)

    def shown_fields(self) -> dict[str, Any]:
        """Return nothing: a picture needs only the links."""
        return {}

    def reshaped(self, shown: Mapping[str, Any]) -> Self:
        """Return this overlay without homes: it has no other links."""
        return self.with_homes({})

    @cached_property
    def digest(self) -> str:
        """A fingerprint of epoch, regions and the links between them."""
        text = "\n".join([str(self.epoch), *(" ".join(region) for region in self.regions), str(self.region_links)])
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def _tree_path(shape: StructuredCyclicOverlay, start: str, end: str) -> list[str]:
    ways, frontier = {start: [start]}, [start]
    for region in frontier:
        for peer in sorted(shape.tree.neighbors(region)):
            if peer not in ways:
                ways[peer] = [*ways[region], peer]
                frontier.append(peer)
    return ways[end]
