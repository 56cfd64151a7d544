"""What every kind of overlay is and answers: which brokers are linked, and where a plan leads.

A configuration is a value with an epoch. Code that is independent of the kind uses this class; everything else lives
with the kind (docs: "What a kind must answer").
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self

from regraft.schemas.command import Command
from regraft.schemas.plan import ClientMove, Plan

Link = tuple[str, str]


BETWEEN = "-"  # In a plan's digest it follows that of the overlay, which a broker can compute.
TREE = "tree"  # The kind whose links plans exchange; only its brokers have prices.


class LinkError(ValueError):
    """These brokers cannot be linked so; the message says why."""


def link(broker: str, peer: str) -> Link:
    """Return the undirected link between two brokers in canonical order. Raises LinkError for one broker twice."""
    if broker == peer:
        raise LinkError(f"a link joins two brokers, got {broker!r} twice")
    return (broker, peer) if broker < peer else (peer, broker)


@dataclass(frozen=True)
class BrokerChange:
    """The brokers that an overlay gains and loses on the way to a later one.

    ``lost`` are brokers that died or restarted empty; ``left`` are those that leave alive. A broker both lost and
    joined comes back, and keeps no link of its earlier incarnation.
    """

    joined: frozenset[str] = frozenset()
    left: frozenset[str] = frozenset()
    lost: frozenset[str] = frozenset()

    def of(self, brokers: Iterable[str]) -> frozenset[str]:
        """Return the brokers of the later overlay, given those of the earlier one.

        Raises ValueError if a broker to remove is not among ``brokers``, or one to join is among them and not lost.
        """
        present = frozenset(brokers)
        if outsiders := (self.left | self.lost) - present:
            raise ValueError(f"{', '.join(sorted(outsiders))} cannot leave or be lost: not in the overlay")
        if present_already := self.joined & (present - self.lost - self.left):
            raise ValueError(f"{', '.join(sorted(present_already))} cannot join: already in the overlay")
        return (present - self.left - self.lost) | self.joined

    @classmethod
    def between(cls, before: Iterable[str], after: Iterable[str], lost: Iterable[str] = ()) -> BrokerChange:
        """Return the change from one overlay's brokers to another's.

        Brokers in ``lost`` that are in ``after`` come back; those not in ``before`` are ignored.
        """
        present, target = frozenset(before), frozenset(after)
        gone = frozenset(lost) & present
        return cls(target - (present - gone), present - gone - target, gone)


NO_CHANGE = BrokerChange()


@dataclass(frozen=True)
class OverlayConfiguration(ABC):
    """Brokers, the links between them, and the homes of clients, numbered by the epoch, which grows with every plan.

    ``KIND`` names the kind of overlay, ``CLIENTS`` (a plural) the clients whose homes it knows and plans move.
    ``HAS_SLOTS`` is True if brokers have places in regions and clusters, as those of a ring have IDs. ``brokers``,
    ``links`` and ``homes`` are sorted, so that equal overlays are equal values. ``homes`` lists (client, home) for
    clients whose home is known.
    """

    KIND: ClassVar[str]
    CLIENTS: ClassVar[str]
    HAS_SLOTS: ClassVar[bool] = False

    epoch: int

    if TYPE_CHECKING:  # Fields of some kinds, which others compute; a property here would be such a field's default.

        @property
        @abstractmethod
        def brokers(self) -> tuple[str, ...]:
            """All brokers."""

        @property
        @abstractmethod
        def links(self) -> tuple[Link, ...]:
            """The links over which brokers exchange messages."""

        @property
        @abstractmethod
        def homes(self) -> tuple[tuple[str, str], ...]:
            """(client, home) of each client whose home is known."""

    @cached_property
    def home_of(self) -> dict[str, str]:
        """The home of each client whose home is known."""
        return dict(self.homes)

    @cached_property
    def neighbours(self) -> dict[str, tuple[str, ...]]:
        """Each broker's neighbours, sorted."""
        return joined(self.brokers, self.links)

    @cached_property
    def degree_max(self) -> int:
        """The largest number of links at any broker."""
        return max((len(peers) for peers in self.neighbours.values()), default=0)

    @property
    @abstractmethod
    def digest(self) -> str:
        """A fingerprint of the overlay without its homes, to check that two parties mean the same one."""

    def with_homes(self, homes: Mapping[str, str]) -> Self:
        """Return the same overlay with exactly these homes."""
        placed: dict[str, Any] = {"homes": tuple(sorted(homes.items()))}
        return replace(self, **placed)

    def at_epoch(self, epoch: int) -> Self:
        """Return the same overlay and homes with another epoch."""
        return replace(self, epoch=epoch)

    @abstractmethod
    def target_of(self, plan: Plan) -> Self:
        """Return the overlay of the same kind that the plan leads to, without homes.

        Raises ValueError if the plan's target is not an overlay of this kind over the plan's brokers.
        """

    @abstractmethod
    def target_of_prepare(self, command: Command) -> Self:
        """Return the overlay of the same kind that a prepare leads to; raise ValueError if that is impossible."""

    def agreed_target(self, command: Command) -> Self | str:
        """Return the overlay that a prepare leads to, or why it is impossible or not the one that its digest names."""
        try:
            target = self.target_of_prepare(command)
        except ValueError as error:
            return str(error)
        return digest_mismatch(command, target) or target

    def change_of(self, command: Command) -> BrokerChange:
        """Return which brokers a prepare adds and removes; lost ones that are not in the overlay are skipped."""
        lost = frozenset(command.lost_brokers).intersection(self.brokers)
        return BrokerChange(frozenset(command.brokers_joined), frozenset(command.brokers_left), lost)

    @abstractmethod
    def origin_of(self, plan: Plan, homes: Mapping[str, str]) -> Self:
        """Return the overlay from which the plan led to this one, with these homes."""

    @abstractmethod
    def as_target(self, plan: Plan, present: Self) -> Plan:
        """Return the plan completed to lead from ``present`` to this overlay: target and all changes but the moves."""

    def moves_known_to(self, broker: str, moves: Sequence[ClientMove]) -> tuple[ClientMove, ...]:
        """Return the moves of a plan that a broker must know to prepare: those from or to it, if no other matters."""
        return tuple(move for move in moves if broker in (move.home_from, move.home_to))

    @abstractmethod
    def overlay_fields(self) -> dict[str, Any]:
        """Return the fields of the overlay in an inventory's JSON, which :mod:`overlay.known_kinds` reads."""

    def shown_fields(self) -> dict[str, Any]:
        """Return what drawing takes besides brokers and links: fields of ``schemas.live_view.ShownConfiguration``."""
        return self.overlay_fields()

    @abstractmethod
    def reshaped(self, shown: Mapping[str, Any]) -> Self:
        """Return the overlay that ``shown`` describes (:meth:`shown_fields` and its links), without homes."""

    def _check_homes(self) -> None:
        """Raise ValueError if a home is not a broker."""
        outsiders = sorted(set(self.home_of.values()) - set(self.brokers))
        if outsiders:
            raise ValueError(f"{self.CLIENTS} have homes that are not in the overlay: {', '.join(outsiders)}")


def joined(brokers: Iterable[str], links: Iterable[Link]) -> dict[str, tuple[str, ...]]:
    """Return each broker's neighbours over the links, sorted."""
    neighbours: dict[str, list[str]] = {broker: [] for broker in brokers}
    for a, b in links:
        neighbours[a].append(b)
        neighbours[b].append(a)
    return {broker: tuple(sorted(peers)) for broker, peers in neighbours.items()}


def fingerprint(*lines: str) -> str:
    """Return a digest of these lines."""
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def plan_digest(plan: Plan, target: OverlayConfiguration) -> str:
    """Return the digest of a plan that leads to ``target``, without the plan's term, phase and costs.

    Commands carry it, so that brokers and controllers mean the same plan: those that lead to the same overlay have
    different digests if they begin at different epochs, move different clients, list different lost brokers, or were
    begun by different controllers. What an operator approves is another one, ``Plan.approval_digest``.
    """
    moves = sorted(f"{move.client} {move.home_from} {move.home_to}" for move in plan.moves)
    moves += sorted(f"{move.home_from} {move.home_to}" for move in plan.subscribers_moved)
    text = "\n".join([str(plan.epoch_from), plan.begun_by, " ".join(sorted(plan.brokers_lost)), *moves])
    return target.digest + BETWEEN + fingerprint(text)


def digest_mismatch(command: Command, target: OverlayConfiguration) -> str:
    """Return how the target's digest, as computed by a broker, differs from the command's; empty if it does not."""
    given = overlay_digest(command.digest)
    if given == target.digest:
        return ""
    return f"the target's digest is {target.digest} here, {given or 'missing'} in the command"


def overlay_digest(digest: str) -> str:
    """Return the part of a plan's digest that is the digest of the overlay it leads to."""
    return digest.partition(BETWEEN)[0]
