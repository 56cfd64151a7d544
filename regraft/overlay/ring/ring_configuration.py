"""ChordConfiguration: the ring ID of each broker and the homes of users, as a value with an epoch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from regraft.overlay.overlay_configuration import (
    NO_CHANGE,
    BrokerChange,
    Link,
    OverlayConfiguration,
    fingerprint,
    link,
)
from regraft.overlay.ring.chord_ring import ChordRing, RingError, chord_ring, hashed_ids, ring_key
from regraft.schemas.command import Command
from regraft.schemas.plan import OFF_RING, IdMove, Plan, RingId

TARGETS_KEPT_MAX = 4
UNKNOWN = -2  # The parent of a broker that is not on the ring; -1 is the parent of a root.
SAME_ROUTES_KEPT_MAX = 4  # One for each (before, after) pair of rings of a plan; 1 MB each at a thousand brokers.


@dataclass(frozen=True)
class RingConfiguration(OverlayConfiguration):
    """Brokers on a Chord ring and the homes of users, numbered by the epoch.

    ``ids[i]`` is the ring ID of ``brokers[i]``; ``brokers`` and ``homes`` are sorted, so that equal overlays are equal
    values. ``homes`` lists (user, home) for users whose home is known. Raises RingError if two brokers share an ID,
    ValueError if a home is not a broker.
    """

    KIND: ClassVar[str] = "ring"
    CLIENTS: ClassVar[str] = "users"

    bits: int
    brokers: tuple[str, ...]
    ids: tuple[int, ...]
    homes: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(
        cls, epoch: int, bits: int, id_of: Mapping[str, int], homes: Mapping[str, str] | None = None
    ) -> RingConfiguration:
        """Build a configuration from the ID of each broker, in any order."""
        brokers = tuple(sorted(id_of))
        placed = tuple(sorted((homes or {}).items()))
        return cls(epoch, bits, brokers, tuple(id_of[broker] for broker in brokers), placed)

    @classmethod
    def hashed(cls, epoch: int, bits: int, brokers: Iterable[str]) -> RingConfiguration:
        """Build the configuration that consistent hashing of the brokers' names gives, Zhao13's starting point."""
        ordered = sorted(brokers)
        return cls(epoch, bits, tuple(ordered), hashed_ids(ordered, bits))

    def __post_init__(self) -> None:
        if self.brokers != tuple(sorted(set(self.brokers))) or len(self.ids) != len(self.brokers):
            raise RingError(f"{len(self.brokers)} brokers, sorted and each once, need an ID each, got {len(self.ids)}")
        if len(set(self.ids)) != len(self.ids):
            twice = next(one for one in self.ids if self.ids.count(one) > 1)
            raise RingError(f"ring ID {twice} is that of more than one broker")
        chord_ring(self.bits, tuple(sorted(self.ids)))
        self._check_homes()

    @cached_property
    def ring(self) -> ChordRing:
        """The ring of the brokers' positions."""
        return chord_ring(self.bits, tuple(sorted(self.ids)))

    @cached_property
    def id_of(self) -> dict[str, int]:
        """The ring ID of each broker."""
        return dict(zip(self.brokers, self.ids, strict=True))

    @cached_property
    def place_of(self) -> dict[str, int]:
        """The index of each broker in ``brokers``."""
        return {broker: place for place, broker in enumerate(self.brokers)}

    @cached_property
    def broker_at(self) -> tuple[str, ...]:
        """The broker at each position of the ring."""
        return tuple(broker for _, broker in sorted(zip(self.ids, self.brokers, strict=True)))

    @cached_property
    def position_of(self) -> dict[str, int]:
        """The position of each broker on the ring."""
        return {broker: position for position, broker in enumerate(self.broker_at)}

    def rendezvous(self, topic: str) -> str:
        """Return the broker responsible for a topic: the root of its tree, to which its publications go first."""
        return self.broker_at[self.ring.owner(ring_key(topic, self.bits))]

    def next_hop(self, broker: str, target_broker: str) -> str:
        """Return the next broker on the route to ``target_broker``, or the broker itself if it is the target."""
        position = self.position_of
        return self.broker_at[int(self.ring.next_hops[position[broker], position[target_broker]])]

    def parent(self, root_broker: str, broker: str) -> str | None:
        """Return the last broker before ``broker`` on the route from the root, or None for the root itself."""
        position = self.position_of
        parent = int(self.ring.parents[position[root_broker], position[broker]])
        return None if parent < 0 else self.broker_at[parent]

    def route(self, broker: str, target_broker: str) -> tuple[str, ...]:
        """Return the brokers on the route, both ends included."""
        position = self.position_of
        return tuple(self.broker_at[at] for at in self.ring.route(position[broker], position[target_broker]))

    def topic_route(self, topic: str, broker: str, *, is_up: bool) -> tuple[str, ...]:
        """Return the route from a broker up to a topic's rendezvous, or from the rendezvous down to the broker."""
        root = self.rendezvous(topic)
        return self.route(broker, root) if is_up else self.route(root, broker)

    @cached_property
    def neighbours(self) -> dict[str, tuple[str, ...]]:
        """Each broker's fingers and the brokers whose finger it is, sorted: messages travel only between these."""
        neighbours: dict[str, set[str]] = {broker: set() for broker in self.brokers}
        for position, fingers in enumerate(self.ring.fingers):
            broker = self.broker_at[position]
            for finger in set(fingers.tolist()) - {position}:
                neighbours[broker].add(self.broker_at[finger])
                neighbours[self.broker_at[finger]].add(broker)
        return {broker: tuple(sorted(peers)) for broker, peers in neighbours.items()}

    @cached_property
    def links(self) -> tuple[Link, ...]:
        """The links between neighbours, sorted."""
        return tuple(sorted({link(broker, peer) for broker, peers in self.neighbours.items() for peer in peers}))

    def same_routes_since(self, before: RingConfiguration, lost: frozenset[str] = frozenset()) -> NDArray[np.bool_]:
        """Return True for each pair of brokers whose route is the same as in ``before``, shape (from, to).

        Rows and columns follow the brokers of this ring. A route is not the same if it touches a broker that is on only
        one of the rings or whose earlier incarnation is lost. Cost O(brokers^2 log brokers), once; then cached.
        """
        key = before.brokers, before.ids, lost
        same = self._same_routes_since.get(key)
        if same is None:
            rings = (before.brokers, before.ids), (self.brokers, self.ids)
            same = self._same_routes_since[key] = _same_routes(self.bits, *rings, lost)
        return same

    @cached_property
    def _same_routes_since(self) -> dict[tuple[tuple[str, ...], tuple[int, ...], frozenset[str]], NDArray[np.bool_]]:
        return {}

    def replaced(
        self,
        epoch: int,
        id_moves: Iterable[IdMove],
        homes: Mapping[str, str] | None = None,
        change: BrokerChange = NO_CHANGE,
    ) -> RingConfiguration:
        """Return the configuration with IDs reassigned and the users of ``homes`` moved, at a later epoch.

        A joining broker has no ID before (OFF_RING), a departing broker none after; users whose home departs have no
        home. Raises ValueError if a broker does not have the ID it should give up, two brokers would share an ID, a
        broker of the result has no ID, ``change`` does not fit, or the epoch does not grow.
        """
        if epoch <= self.epoch:
            raise ValueError(f"epoch {epoch} does not follow the present epoch {self.epoch}")
        brokers, gone = tuple(sorted(change.of(self.brokers))), change.left | change.lost
        id_of = dict(self.id_of)
        for move in id_moves:
            if id_of.get(move.broker, OFF_RING) != move.id_from:
                position = id_of.get(move.broker, "none")
                raise ValueError(f"{move.broker} must give up ring ID {move.id_from}, but has {position}")
            id_of[move.broker] = move.id_to
        without = [broker for broker in brokers if id_of.get(broker, OFF_RING) == OFF_RING]
        if without:
            raise ValueError(f"{', '.join(without)} would have no ring ID")
        kept = {user: home for user, home in self.home_of.items() if home not in gone}
        placed = tuple(sorted((kept | dict(homes or {})).items()))
        return _shared(epoch, self.bits, brokers, tuple(id_of[broker] for broker in brokers), placed)

    def target_of(self, plan: Plan) -> RingConfiguration:
        """Return the ring that the plan leads to, without homes.

        Raises RingError if the IDs do not form a ring, ValueError if the plan leads to a tree or its ring is not over
        the target brokers.
        """
        if not plan.ring_target:
            raise ValueError(
                f"{plan.plan} leads to a tree, but the inventory's overlay is a ring: use the inventory that it "
                "was made for, or a different namespace"
            )
        target = {one.broker: one.ring_id for one in plan.ring_target}
        brokers = tuple(sorted(plan.brokers_target)) or self.brokers
        if tuple(sorted(target)) != brokers:
            raise ValueError(
                f"{plan.plan} leads to a ring of {len(target)} brokers, which are not the {len(brokers)} of "
                "the inventory: use the inventory that it was made for, or a different namespace"
            )
        return RingConfiguration.of(plan.epoch_to, self.bits, target)

    def target_of_prepare(self, command: Command) -> RingConfiguration:
        """Return the ring with the IDs reassigned and with the brokers that join or leave, as a prepare says."""
        return self.replaced(command.epoch_to, command.id_moves, change=self.change_of(command))

    def origin_of(self, plan: Plan, homes: Mapping[str, str]) -> RingConfiguration:
        """Return the ring from which the plan led to this one, with these homes."""
        id_of = self.id_of | {move.broker: move.id_from for move in plan.id_moves}
        placed = {broker: number for broker, number in id_of.items() if number != OFF_RING}
        return RingConfiguration.of(plan.epoch_from, self.bits, placed, homes)

    def as_target(self, plan: Plan, present: Self) -> Plan:
        """Return the plan completed to lead from ``present`` to this ring: its target and its reassigned IDs."""
        ring = tuple(RingId(broker, number) for broker, number in self.id_of.items())
        return msgspec.structs.replace(
            plan, id_moves=id_moves_between(present, self), ring_target=ring, brokers_target=self.brokers
        )

    def overlay_fields(self) -> dict[str, Any]:
        """Return the fields that describe the ring in an inventory's JSON."""
        return {"ring": {"bits": self.bits, "ids": self.ids}}

    @classmethod
    def of_fields(cls, brokers: Sequence[str], fields: Mapping[str, Any]) -> Self | None:
        """Return the ring of epoch 0 from an inventory's JSON, or None if it holds no ring.

        Raises KeyError, TypeError or ValueError if the IDs cannot be read or are not a ring.
        """
        if "ring" not in fields:
            return None
        bits, ids = int(fields["ring"]["bits"]), [int(number) for number in fields["ring"]["ids"]]
        id_of = dict(zip(brokers, ids, strict=True))
        return cls(0, bits, tuple(sorted(brokers)), tuple(id_of[broker] for broker in sorted(brokers)))

    def shown_fields(self) -> dict[str, Any]:
        """Return the ID of each broker and the number of bits of an ID."""
        return {"ring": tuple(self.id_of.items()), "ring_bits": self.bits}

    def reshaped(self, shown: Mapping[str, Any]) -> RingConfiguration:
        """Return the ring over the same brokers with the IDs of ``shown``, without homes."""
        return RingConfiguration.of(self.epoch, self.bits, {broker: int(number) for broker, number in shown["ring"]})

    @cached_property
    def digest(self) -> str:
        """A fingerprint of epoch, brokers and ring IDs, to check that two parties mean the same ring."""
        pairs = (f"{broker} {number}" for broker, number in zip(self.brokers, self.ids, strict=True))
        return fingerprint(str(self.epoch), str(self.bits), *pairs)


@lru_cache(maxsize=TARGETS_KEPT_MAX)
def _shared(
    epoch: int, bits: int, brokers: tuple[str, ...], ids: tuple[int, ...], homes: tuple[tuple[str, str], ...]
) -> RingConfiguration:
    """Return one value for all brokers of a process that a plan leads to this ring, so that they share its caches."""
    return RingConfiguration(epoch, bits, brokers, ids, homes)


@lru_cache(maxsize=SAME_ROUTES_KEPT_MAX)
def _same_routes(
    bits: int,
    ring_before: tuple[tuple[str, ...], tuple[int, ...]],
    ring_after: tuple[tuple[str, ...], tuple[int, ...]],
    lost: frozenset[str],
) -> NDArray[np.bool_]:
    (brokers_before, ids_before), (brokers_after, ids_after) = ring_before, ring_after
    before, after = _parents_by_broker(bits, ids_before), _parents_by_broker(bits, ids_after)
    if lost or brokers_before != brokers_after:
        before = _aligned(before, brokers_before, brokers_after, lost)
    same_parent = before == after
    same = same_parent
    np.fill_diagonal(after, np.arange(len(after)))  # The route of a broker to itself is empty.
    while True:  # A route is the same if its last hop and the route up to that hop are.
        further = same_parent & np.take_along_axis(same, after, axis=1)
        if np.array_equal(further, same):
            return np.asarray(same, dtype=np.bool_)
        same = further


def _aligned(
    parents: NDArray[np.intp], brokers_before: tuple[str, ...], brokers_after: tuple[str, ...], lost: frozenset[str]
) -> NDArray[np.intp]:
    """Return parents as indices of the later brokers; UNKNOWN if a broker is lost or was not on the ring."""
    place = {broker: at for at, broker in enumerate(brokers_before) if broker not in lost}
    place_after = {broker: at for at, broker in enumerate(brokers_after)}
    later = np.array([place_after.get(broker, UNKNOWN) if broker in place else UNKNOWN for broker in brokers_before])
    earlier = np.array([place.get(broker, UNKNOWN) for broker in brokers_after])
    places = np.maximum(earlier, 0)
    taken = parents[np.ix_(places, places)]
    aligned = np.where(taken < 0, taken, later[taken])
    is_new = earlier == UNKNOWN
    aligned[is_new, :] = UNKNOWN
    aligned[:, is_new] = UNKNOWN
    return np.asarray(aligned, dtype=np.intp)


def _parents_by_broker(bits: int, ids: tuple[int, ...]) -> NDArray[np.intp]:
    """Return the last broker before the target on each route, shape (from, to), in the order of ``ids``."""
    at_position = np.argsort(ids)
    position = np.empty_like(at_position)
    position[at_position] = np.arange(len(ids))
    parents = chord_ring(bits, tuple(sorted(ids))).parents[np.ix_(position, position)]
    return np.asarray(np.where(parents < 0, -1, at_position[parents]))


def id_moves_between(before: RingConfiguration, after: RingConfiguration) -> tuple[IdMove, ...]:
    """Return the changes of IDs, sorted by broker; OFF_RING if a broker is on only one of the rings."""
    old, new = before.id_of, after.id_of
    pairs = ((name, old.get(name, OFF_RING), new.get(name, OFF_RING)) for name in sorted({*old, *new}))
    return tuple(IdMove(name, was, becomes) for name, was, becomes in pairs if was != becomes)
