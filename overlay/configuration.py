"""Configuration: the overlay's links and its publishers' homes as a value with an epoch."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

Link = tuple[str, str]


class NotATreeError(ValueError):
    """The links do not form one tree over the brokers; the message says what is wrong."""


class DegreeError(ValueError):
    """A broker would have more links than the cap allows."""


def link(broker: str, peer: str) -> Link:
    """Return the undirected link between two brokers in its one canonical order."""
    if broker == peer:
        raise ValueError(f"a link joins two brokers, got {broker!r} twice")
    return (broker, peer) if broker < peer else (peer, broker)


@dataclass(frozen=True)
class Configuration:
    """A spanning tree over brokers and the homes of publishers, numbered by its epoch.

    ``brokers``, ``links`` and ``homes`` are sorted, so that equal overlays are equal values. ``homes`` names
    (publisher, home) where it is known; publishers come and go by themselves, so it need not be all of them. Raises
    NotATreeError when the links are not a tree over all brokers, ValueError when a home is none of them.
    """

    epoch: int
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
    ) -> Configuration:
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
            raise NotATreeError(f"not connected: {missing[0]} and {len(missing) - 1} more cannot be reached")
        strangers = sorted(set(self.home_of.values()) - set(self.brokers))
        if strangers:
            raise ValueError(f"publishers have homes that are not in the overlay: {', '.join(strangers)}")

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

    @cached_property
    def degree_max(self) -> int:
        """The largest number of links at one broker."""
        return max((len(peers) for peers in self.neighbours.values()), default=0)

    def next_hops_from(self, source_broker: str) -> dict[str, str]:
        """Return, for every other reachable broker, the neighbour of ``source_broker`` on the way to it. O(brokers)."""
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
        """Return the brokers that these links of the tree join to ``source_broker``, itself included. O(brokers)."""
        reached, frontier = {source_broker}, [source_broker]
        while frontier:
            broker = frontier.pop()
            for peer in self.neighbours[broker]:
                if peer not in reached and link(broker, peer) in links:
                    reached.add(peer)
                    frontier.append(peer)
        return frozenset(reached)

    def path(self, source_broker: str, target_broker: str) -> tuple[str, ...]:
        """Return the brokers from source to target, both included. O(brokers)."""
        towards = self.parents_from(target_broker)
        path = [source_broker]
        while path[-1] != target_broker:
            path.append(towards[path[-1]])
        return tuple(path)

    def parents_from(self, root_broker: str) -> dict[str, str]:
        """Return each broker's parent when the tree hangs from ``root_broker``, in breadth-first order of insertion."""
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
    ) -> Configuration:
        """Return the configuration with links exchanged and the publishers of ``homes`` moved, at a later epoch.

        Raises NotATreeError when the result is no tree, ValueError when a removed link is absent, an added one is
        present, a home is no broker or the epoch does not grow.
        """
        if epoch <= self.epoch:
            raise ValueError(f"epoch {epoch} does not follow the present epoch {self.epoch}")
        present = set(self.links)
        for pair in removed:
            if pair not in present:
                raise ValueError(f"link {pair[0]}-{pair[1]} cannot be removed: it is not in epoch {self.epoch}")
            present.remove(pair)
        for pair in added:
            if pair in present:
                raise ValueError(f"link {pair[0]}-{pair[1]} cannot be added: it is in epoch {self.epoch} already")
            present.add(pair)
        return Configuration.of(epoch, self.brokers, present, self.home_of | dict(homes or {}))

    @cached_property
    def digest(self) -> str:
        """A fingerprint of epoch, brokers and links, for checking that two parties mean the same tree."""
        text = "\n".join([str(self.epoch), *self.brokers, *(f"{a} {b}" for a, b in self.links)])
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def check_degree(configuration: Configuration, degree_max: int) -> None:
    """Raise DegreeError when a broker has more than ``degree_max`` links."""
    for broker, peers in configuration.neighbours.items():
        if len(peers) > degree_max:
            raise DegreeError(f"{broker} would have {len(peers)} links, the limit is {degree_max}")
