"""Configuration: the links of a tree and the homes of its publishers, as a value with an epoch."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import msgspec

from regraft.overlay.overlay_configuration import (
    NO_CHANGE,
    TREE,
    BrokerChange,
    Link,
    LinkError,
    OverlayConfiguration,
    fingerprint,
    link,
)
from regraft.schemas.command import Command
from regraft.schemas.plan import ClientMove, Plan


class NotATreeError(LinkError):
    """The links do not form one tree over the brokers; the message says what is wrong."""


@dataclass(frozen=True)
class TreeConfiguration(OverlayConfiguration):
    """A spanning tree over brokers and the homes of publishers, numbered by the epoch.

    ``brokers``, ``links`` and ``homes`` are sorted, so that equal overlays are equal values. ``homes`` lists
    (publisher, home) for publishers whose home is known: publishers come and go freely, so some may be missing.
    Raises NotATreeError if the links are not a tree over all brokers, ValueError if a home is not a broker.
    """

    KIND: ClassVar[str] = TREE
    CLIENTS: ClassVar[str] = "publishers"

    brokers: tuple[str, ...]
    links: tuple[Link, ...]
    homes: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(
        cls,
        epoch: int,
        brokers: Iterable[str],
        links: Iterable[tuple[str, str]],
        homes: Mapping[str, str] | None = None,
    ) -> TreeConfiguration:
        """Build a configuration from brokers, links and homes in any order."""
        placed = tuple(sorted((homes or {}).items()))
        return cls(epoch, tuple(sorted(brokers)), tuple(sorted(link(a, b) for a, b in links)), placed)

    def __post_init__(self) -> None:
        if len(set(self.links)) != len(self.links):
            raise NotATreeError(f"a link is listed twice among {len(self.links)} links")
        if len(self.links) != len(self.brokers) - 1:
            raise NotATreeError(
                f"{len(self.links)} links over {len(self.brokers)} brokers, a tree has {len(self.brokers) - 1}"
            )
        unknown = sorted({end for pair in self.links for end in pair} - set(self.brokers))
        if unknown:
            raise NotATreeError(f"links name brokers that are not in the overlay: {', '.join(unknown)}")
        reached = set(self.next_hops_from(self.brokers[0])) | {self.brokers[0]}
        if len(reached) != len(self.brokers):
            missing = sorted(set(self.brokers) - reached)
            others = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            raise NotATreeError(f"not connected: {missing[0]}{others} cannot be reached")
        self._check_homes()

    def next_hops_from(self, source_broker: str) -> dict[str, str]:
        """Return, for each other reachable broker, the neighbour of ``source_broker`` on the path to it. O(brokers)."""
        first: dict[str, str] = {peer: peer for peer in self.neighbours[source_broker]}
        frontier = list(first)
        while frontier:
            reached = frontier.pop()
            for peer in self.neighbours[reached]:
                if peer != source_broker and peer not in first:
                    first[peer] = first[reached]
                    frontier.append(peer)
        return first

    def reached_over(self, links: Collection[Link], source_broker: str) -> frozenset[str]:
        """Return the brokers that these links of the tree connect to ``source_broker``, itself included. O(brokers)."""
        reached, frontier = {source_broker}, [source_broker]
        while frontier:
            broker = frontier.pop()
            for peer in self.neighbours[broker]:
                if peer not in reached and link(broker, peer) in links:
                    reached.add(peer)
                    frontier.append(peer)
        return frozenset(reached)

    def links_kept_since(self, before: TreeConfiguration, lost: frozenset[str] = frozenset()) -> frozenset[Link]:
        """Return the links shared with an earlier tree, except those of brokers whose earlier incarnation is lost."""
        both = set(self.links).intersection(before.links)
        return frozenset(pair for pair in both if lost.isdisjoint(pair)) if lost else frozenset(both)

    def path(self, source_broker: str, target_broker: str) -> tuple[str, ...]:
        """Return the brokers from source to target, both included. O(brokers)."""
        towards = self.parents_from(target_broker)
        path = [source_broker]
        while path[-1] != target_broker:
            path.append(towards[path[-1]])
        return tuple(path)

    def parents_from(self, root_broker: str) -> dict[str, str]:
        """Return each broker's parent in the tree rooted at ``root_broker``; the dict is in breadth-first order."""
        parents: dict[str, str] = {}
        frontier = [root_broker]
        for broker in frontier:
            for peer in self.neighbours[broker]:
                if peer != root_broker and peer not in parents:
                    parents[peer] = broker
                    frontier.append(peer)
        return parents

    def replaced(
        self,
        epoch: int,
        removed: Iterable[Link],
        added: Iterable[Link],
        homes: Mapping[str, str] | None = None,
        change: BrokerChange = NO_CHANGE,
    ) -> TreeConfiguration:
        """Return the configuration with links exchanged and the publishers of ``homes`` moved, at a later epoch.

        Links of lost brokers are removed whether ``removed`` lists them or not; publishers at brokers that are gone
        have no home. Raises NotATreeError if the result is not a tree, ValueError if a removed link is absent, an added
        one is present, a home is not a broker, ``change`` does not fit, or the epoch does not grow.
        """
        if epoch <= self.epoch:
            raise ValueError(f"epoch {epoch} does not follow the present epoch {self.epoch}")
        brokers = change.of(self.brokers)
        present = {pair for pair in self.links if change.lost.isdisjoint(pair)}
        for pair in removed:
            if not change.lost.isdisjoint(pair):
                continue
            if pair not in present:
                raise ValueError(f"link {pair[0]}-{pair[1]} cannot be removed: it is not in epoch {self.epoch}")
            present.remove(pair)
        for pair in added:
            if pair in present:
                raise ValueError(f"link {pair[0]}-{pair[1]} cannot be added: it is already in epoch {self.epoch}")
            present.add(pair)
        gone = change.left | change.lost
        kept = {publisher: home for publisher, home in self.home_of.items() if home not in gone}
        return TreeConfiguration.of(epoch, brokers, present, kept | dict(homes or {}))

    def target_of(self, plan: Plan) -> TreeConfiguration:
        """Return the tree that the plan leads to, without homes.

        Raises NotATreeError if its links are not a tree over its brokers, ValueError if it leads to a ring.
        """
        if plan.ring_target:
            raise ValueError(
                f"{plan.plan} leads to a ring, but the inventory's overlay is a tree: use the inventory that it "
                "was made for, or a different namespace"
            )
        return TreeConfiguration.of(plan.epoch_to, plan.brokers_target or self.brokers, plan.links_target)

    def target_of_prepare(self, command: Command) -> TreeConfiguration:
        """Return the tree with the links exchanged and with the brokers that join or leave, as a prepare says."""
        removed = [link(*ends) for ends in command.links_removed]
        added = [link(*ends) for ends in command.links_added]
        return self.replaced(command.epoch_to, removed, added, change=self.change_of(command))

    def origin_of(self, plan: Plan, homes: Mapping[str, str]) -> TreeConfiguration:
        """Return the tree from which the plan led to this one, with these homes."""
        links = (set(self.links) - set(plan.links_added)) | set(plan.links_removed)
        brokers = {end for pair in links for end in pair} or self.brokers  # A single broker has no links.
        return TreeConfiguration.of(plan.epoch_from, brokers, links, homes)

    def as_target(self, plan: Plan, present: Self) -> Plan:
        """Return the plan completed to lead from ``present`` to this tree: its target, and the links removed and added.

        All links of brokers that the plan lists as lost are removed, and added again if the target has them.
        """
        lost = set(plan.brokers_lost)
        kept = {pair for pair in present.links if lost.isdisjoint(pair)} & set(self.links)
        return msgspec.structs.replace(
            plan,
            links_removed=tuple(sorted(set(present.links) - kept)),
            links_added=tuple(sorted(set(self.links) - kept)),
            links_target=self.links,
            brokers_target=self.brokers,
        )

    def moves_known_to(self, broker: str, moves: Sequence[ClientMove]) -> tuple[ClientMove, ...]:
        """Return all moves: every broker routes by a publisher's home, which advertisements make known."""
        return tuple(moves)

    def overlay_fields(self) -> dict[str, Any]:
        """Return the fields that describe the tree in an inventory's JSON."""
        return {"links": self.links}

    @classmethod
    def of_fields(cls, brokers: Sequence[str], fields: Mapping[str, Any]) -> Self | None:
        """Return the tree of epoch 0 from an inventory's JSON, or None if it holds no tree.

        Raises TypeError or ValueError if the links cannot be read, NotATreeError if they are not a tree.
        """
        if "links" not in fields:
            return None
        return cls(0, tuple(sorted(brokers)), tuple(sorted(link(a, b) for a, b in fields["links"])))

    def shown_fields(self) -> dict[str, Any]:
        """Return no fields: drawing a tree takes only its links."""
        return {}

    def reshaped(self, shown: Mapping[str, Any]) -> TreeConfiguration:
        """Return the tree with the links of ``shown``, without homes. Brokers without a link are dead and left out."""
        links = [(a, b) for a, b in shown["links"]]
        brokers = tuple(sorted({end for pair in links for end in pair})) or self.brokers
        return TreeConfiguration.of(self.epoch, brokers, links)

    @cached_property
    def digest(self) -> str:
        """A fingerprint of epoch, brokers and links, to check that two parties mean the same tree."""
        return fingerprint(str(self.epoch), *self.brokers, *(f"{a} {b}" for a, b in self.links))
