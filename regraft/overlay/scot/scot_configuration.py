"""A structured cyclic overlay over named brokers, as a value with an epoch (Shafique).

In: regions, each with its broker of every cluster, and the tree that links regions. Out: links, neighbours of both
kinds, and the protocol of every kind of overlay (:mod:`overlay.overlay_configuration`). Routing does not belong here.

In the paper, each slot of the product has its own broker. Here a broker may stand in for others of its cluster: it
then has several slots, adjacent in the tree of regions, without links between them. So the overlay keeps its kind
whichever brokers die, leave or join.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import msgspec

from regraft.overlay.overlay_configuration import (
    NO_CHANGE,
    BrokerChange,
    Link,
    OverlayConfiguration,
    fingerprint,
    joined,
    link,
)
from regraft.overlay.scot.scot_slots import (
    Regions,
    Slots,
    id_moves_between,
    moved_slots,
    region_link_names,
    region_links_of,
    regions_of,
    slots_of,
)
from regraft.overlay.scot.structured_cyclic import OverlayShapeError, StructuredCyclicOverlay, scot_overlay
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.schemas.command import Command
from regraft.schemas.plan import IdMove, LinkPair, Plan, RingId


@dataclass(frozen=True)
class ScotConfiguration(OverlayConfiguration):
    """Regions of brokers, one of each cluster, and the links between regions, by their numbers.

    ``regions`` (regions, clusters) holds names. The brokers of a region are all linked to each other, those of a
    cluster as ``region_links`` specifies. A broker named more than once stands in for others of its cluster. ``homes``
    are as in every overlay. Raises OverlayShapeError if regions differ in size, a broker is in two clusters, its slots
    are not adjacent, or the region links are not a tree; ValueError if a home is not a broker.
    """

    KIND: ClassVar[str] = "scot"
    CLIENTS: ClassVar[str] = "publishers"
    HAS_SLOTS: ClassVar[bool] = True

    regions: Regions
    region_links: tuple[tuple[int, int], ...]
    homes: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        if len({len(region) for region in self.regions}) != 1:
            sizes = sorted({len(region) for region in self.regions})
            raise OverlayShapeError(f"regions have {sizes} brokers: each needs one of every cluster")
        numbers = {number for pair in self.region_links for number in pair}
        if numbers != set(range(len(self.regions))):
            raise OverlayShapeError(f"region links join {len(numbers)} regions, but there are {len(self.regions)}")
        _ = self.shape
        self._check_slots()
        self._check_homes()

    def _check_slots(self) -> None:
        for broker, slots in self.slots.items():
            clusters = {cluster for _, cluster in slots}
            if len(clusters) > 1:
                raise OverlayShapeError(f"{broker} is in clusters {sorted(clusters)}: a broker is in one")
            held = {str(region) for region, _ in slots}
            if not self.shape.are_linked(held):
                raise OverlayShapeError(f"{broker} is in regions {sorted(held)}: regions that it joins must be linked")

    @cached_property
    def shape(self) -> StructuredCyclicOverlay:
        """The overlay as a product of tree and clusters, with regions named by their numbers."""
        return scot_overlay(((str(a), str(b)) for a, b in self.region_links), len(self.regions[0]))

    @cached_property
    def brokers(self) -> tuple[str, ...]:
        """All brokers, sorted."""
        return tuple(sorted(self.slots))

    @cached_property
    def cluster_count(self) -> int:
        """The number of clusters."""
        return len(self.regions[0])

    @cached_property
    def slots(self) -> dict[str, list[tuple[int, int]]]:
        """Each broker's slots, as (region, cluster) numbers, sorted."""
        slots: dict[str, list[tuple[int, int]]] = {}
        for number, region in enumerate(self.regions):
            for cluster, broker in enumerate(region):
                slots.setdefault(broker, []).append((number, cluster))
        return slots

    @cached_property
    def slot_of(self) -> dict[str, tuple[int, int]]:
        """Each broker's region and cluster number; the first place if it has several."""
        return {broker: slots[0] for broker, slots in self.slots.items()}

    @cached_property
    def cluster_links(self) -> tuple[Link, ...]:
        """The links within clusters (aLinks), sorted."""
        links = {
            link(self.regions[one][cluster], self.regions[other][cluster])
            for one, other in self.region_links
            for cluster in range(self.cluster_count)
            if self.regions[one][cluster] != self.regions[other][cluster]
        }
        return tuple(sorted(links))

    @cached_property
    def links(self) -> tuple[Link, ...]:
        """The links within clusters and within regions, sorted."""
        across = {
            link(one, other)
            for region in self.regions
            for slot, one in enumerate(region)
            for other in region[slot + 1 :]
        }
        return tuple(sorted(across.union(self.cluster_links)))

    @cached_property
    def _within(self) -> dict[str, tuple[str, ...]]:
        return joined(self.brokers, self.cluster_links)

    def cluster_neighbours(self, broker: str) -> tuple[str, ...]:
        """Return the neighbours in the broker's cluster, sorted."""
        return self._within[broker]

    def region_of(self, broker: str) -> tuple[str, ...]:
        """Return the brokers of the broker's region by cluster, itself included."""
        return self.regions[self.slot_of[broker][0]]

    def static_route(self, source_broker: str, target_broker: str) -> tuple[str, ...]:
        """Return the brokers on the static route: first to the target's cluster, then within it; both ends included."""
        cluster = self.slot_of[target_broker][1]
        entry, target = self.slot_of[source_broker][0], self.slot_of[target_broker][0]
        route = [source_broker]
        for region in self.shape.path(str(entry), str(target)):
            holder = self.regions[int(region)][cluster]
            if holder != route[-1]:
                route.append(holder)
        return tuple(route)

    def static_tree(self, home: str) -> TreeConfiguration:
        """Return the tree, without homes, over which static routing distributes what is published at ``home``.

        It consists of the trees of all clusters, joined by the links from ``home`` to the other brokers of its region.
        """
        across = [link(home, peer) for peer in self.region_of(home) if peer != home]
        return TreeConfiguration.of(self.epoch, self.brokers, (*self.cluster_links, *across))

    def replaced(
        self,
        epoch: int,
        id_moves: Iterable[IdMove],
        removed: Iterable[LinkPair],
        added: Iterable[LinkPair],
        change: BrokerChange = NO_CHANGE,
    ) -> ScotConfiguration:
        """Return the overlay with slots reassigned and links between regions exchanged, at a later epoch.

        Slots are numbered as in :mod:`overlay.scot.scot_slots`. Raises ValueError if a broker does not have the slot
        that it gives up, a removed link does not exist, the result is not an overlay of this kind, or ``change`` does
        not lead to its brokers.
        """
        if epoch <= self.epoch:
            raise ValueError(f"epoch {epoch} does not follow the present epoch {self.epoch}")
        links = set(region_link_names(self.region_links))
        if absent := set(removed) - links:
            raise ValueError(f"links between regions do not exist: {sorted(absent)}")
        holders = moved_slots(slots_of(self.regions), id_moves)
        overlay = ScotConfiguration._made(epoch, holders, (links - set(removed)) | set(added))
        wanted = change.of(self.brokers)
        if set(overlay.brokers) != wanted:
            outsiders = sorted(wanted.symmetric_difference(overlay.brokers))
            raise ValueError(f"slots and brokers do not match: {', '.join(outsiders)}")
        kept = {name: home for name, home in self.home_of.items() if home in wanted}
        return overlay.with_homes(kept)

    def target_of(self, plan: Plan) -> ScotConfiguration:
        """Return the overlay that the plan leads to, without homes.

        Raises ValueError if it is not one of this kind over the target brokers.
        """
        if not plan.ring_target:
            raise ValueError(
                f"{plan.plan} leads to a tree, but the inventory's overlay is a structured cyclic one: use the "
                "inventory that it was made for, or a different namespace"
            )
        holders = {one.ring_id: one.broker for one in plan.ring_target}
        target = ScotConfiguration._made(plan.epoch_to, holders, plan.links_target)
        brokers = tuple(sorted(plan.brokers_target)) or self.brokers
        if target.brokers != brokers:
            raise ValueError(
                f"{plan.plan} leads to {len(target.brokers)} brokers, which are not the {len(brokers)} of the "
                "inventory: use the inventory that it was made for, or a different namespace"
            )
        return target

    def target_of_prepare(self, command: Command) -> ScotConfiguration:
        """Return the overlay with slots reassigned and regions relinked, as a prepare says."""
        change, removed, added = self.change_of(command), command.links_removed, command.links_added
        return self.replaced(command.epoch_to, command.id_moves, removed, added, change)

    def origin_of(self, plan: Plan, homes: Mapping[str, str]) -> ScotConfiguration:
        """Return the overlay from which the plan led to this one, with these homes."""
        back = [IdMove(move.broker, move.id_to, move.id_from) for move in plan.id_moves]
        links = (set(region_link_names(self.region_links)) - set(plan.links_added)) | set(plan.links_removed)
        origin = ScotConfiguration._made(plan.epoch_from, moved_slots(slots_of(self.regions), back), links)
        return origin.with_homes(homes)

    def as_target(self, plan: Plan, present: Self) -> Plan:
        """Return the plan completed to lead from ``present`` to this overlay: slots and links between regions."""
        links, before = region_link_names(self.region_links), region_link_names(present.region_links)
        holders = slots_of(self.regions)
        return msgspec.structs.replace(
            plan,
            links_removed=tuple(sorted(set(before) - set(links))),
            links_added=tuple(sorted(set(links) - set(before))),
            links_target=links,
            id_moves=id_moves_between(slots_of(present.regions), holders),
            ring_target=tuple(sorted(RingId(broker, slot) for slot, broker in holders.items())),
            brokers_target=self.brokers,
        )

    def overlay_fields(self) -> dict[str, Any]:
        """Return the fields that describe the overlay in an inventory's JSON."""
        return {"regions": self.regions, "region_links": self.region_links}

    @classmethod
    def of_fields(cls, brokers: Sequence[str], fields: Mapping[str, Any]) -> Self | None:
        """Return the overlay of epoch 0 from an inventory's JSON, or None if it holds no regions.

        Raises OverlayShapeError if the regions are not such an overlay, TypeError if the fields cannot be read.
        """
        if "regions" not in fields:
            return None
        pairs = tuple(sorted((min(pair), max(pair)) for pair in map(tuple, fields["region_links"])))
        overlay = cls(0, tuple(tuple(region) for region in fields["regions"]), pairs)
        if overlay.brokers != tuple(sorted(brokers)):
            raise OverlayShapeError(f"regions hold {len(overlay.brokers)} brokers, the inventory {len(brokers)} others")
        return overlay

    @classmethod
    def of_install(cls, epoch: int, id_moves: Iterable[IdMove], links: Iterable[LinkPair]) -> ScotConfiguration:
        """Return the overlay of an install command. Raises ValueError if it is not one of this kind."""
        return cls._made(epoch, {move.id_to: move.broker for move in id_moves}, links)

    @classmethod
    def _made(cls, epoch: int, holders: Slots, links: Iterable[LinkPair]) -> ScotConfiguration:
        return ScotConfiguration(epoch, regions_of(holders), region_links_of(links))

    def reshaped(self, shown: Mapping[str, Any]) -> ScotConfiguration:
        """Return the overlay over the same brokers with the slots of ``shown``, without homes.

        Views from before slots were shown describe this overlay: no planner changed slots then.
        """
        if not shown.get("regions"):
            return self.with_homes({})
        overlay = ScotConfiguration.of_fields(self.brokers, shown)
        assert overlay is not None
        return overlay.at_epoch(self.epoch)

    @cached_property
    def digest(self) -> str:
        """A fingerprint of epoch, regions and the links between them."""
        return fingerprint(str(self.epoch), *(" ".join(region) for region in self.regions), str(self.region_links))
