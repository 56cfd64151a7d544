"""What every kind of overlay answers about itself, as a protocol: which brokers are linked, where a plan leads.

A configuration is a value with an epoch. Everything that does not care about the kind takes this protocol; what cares
lives with the kind (docs: "What a kind must answer").
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self

from regraft.schemas.plan import ClientMove, Plan

Link = tuple[str, str]


@dataclass(frozen=True)
class BrokerChange:
    """Which brokers an overlay gains and gives up on its way to a later one.

    ``lost`` are those whose life in the earlier overlay is over, dead or restarted empty; ``left`` go alive. A broker
    both lost and joined comes back: it keeps no link of its earlier life.
    """

    joined: frozenset[str] = frozenset()
    left: frozenset[str] = frozenset()
    lost: frozenset[str] = frozenset()

    def of(self, brokers: Iterable[str]) -> frozenset[str]:
        """Return the brokers of the later overlay.

        Raises ValueError if one to remove is not among ``brokers``, or one to join is among them and not lost.
        """
        present = frozenset(brokers)
        if strangers := (self.left | self.lost) - present:
            raise ValueError(f"{', '.join(sorted(strangers))} cannot leave or be lost: not in the overlay")
        if known := self.joined & (present - self.lost - self.left):
            raise ValueError(f"{', '.join(sorted(known))} cannot join: in the overlay already")
        return (present - self.left - self.lost) | self.joined

    @classmethod
    def between(cls, before: Iterable[str], after: Iterable[str], lost: Iterable[str] = ()) -> BrokerChange:
        """Return the change from the brokers of one overlay to those of another; the lost no longer in it are gone."""
        present, target = frozenset(before), frozenset(after)
        gone = frozenset(lost) & present
        return cls(target - (present - gone), present - gone - target, gone)


NO_CHANGE = BrokerChange()


class OverlayConfiguration(Protocol):
    """Brokers, the links between them and the homes of clients, numbered by the epoch.

    ``KIND`` names the kind of overlay, ``CLIENTS`` the clients whose homes it knows and plans move (a plural).
    ``HAS_PLACES``: brokers have places in regions and clusters where those of a ring have IDs.
    ``brokers``, ``links`` and ``homes`` are sorted, so that equal overlays are equal values. ``homes`` names
    (client, home) where it is known.
    """

    KIND: ClassVar[str]
    CLIENTS: ClassVar[str]
    HAS_PLACES: ClassVar[bool]

    @property
    def epoch(self) -> int:
        """The number of the configuration; it grows with every plan."""
        ...

    @property
    def brokers(self) -> tuple[str, ...]:
        """All brokers."""
        ...

    @property
    def links(self) -> tuple[Link, ...]:
        """The links that messages between brokers cross."""
        ...

    @property
    def homes(self) -> tuple[tuple[str, str], ...]:
        """(client, home) of each client whose home is known."""
        ...

    @property
    def home_of(self) -> dict[str, str]:
        """The home of each client whose home is known."""
        ...

    @property
    def neighbours(self) -> dict[str, tuple[str, ...]]:
        """Each broker's neighbours, sorted."""
        ...

    @property
    def degree_max(self) -> int:
        """The largest number of links at one broker."""
        ...

    @property
    def digest(self) -> str:
        """A fingerprint of the overlay without its homes, for checking that two parties mean the same one."""
        ...

    def with_homes(self, homes: Mapping[str, str]) -> Self:
        """Return the same overlay with exactly these homes."""
        ...

    def at_epoch(self, epoch: int) -> Self:
        """Return the same overlay and homes with another number."""
        ...

    def target_of(self, plan: Plan) -> Self:
        """Return the overlay of the same kind that the plan leads to, without homes.

        Raises ValueError when what the plan intends is not an overlay of this kind over the plan's brokers.
        """
        ...

    def origin_of(self, plan: Plan, homes: Mapping[str, str]) -> Self:
        """Return the overlay from which the plan led to this one, with these homes."""
        ...

    def as_target(self, plan: Plan, present: Self) -> Plan:
        """Return the plan leading from ``present`` to this overlay: the target and all changes but the moves."""
        ...

    def moves_known_to(self, broker: str, moves: Sequence[ClientMove]) -> tuple[ClientMove, ...]:
        """Return which moves of a plan a broker must know of to prepare."""
        ...

    def overlay_fields(self) -> dict[str, Any]:
        """Return what an inventory's JSON holds of the overlay; :mod:`overlay.kinds` is the way back."""
        ...

    def shown_fields(self) -> dict[str, Any]:
        """Return what a picture needs besides brokers and links: fields of ``schemas.live_view.ShownConfiguration``."""
        ...

    def reshaped(self, shown: Mapping[str, Any]) -> Self:
        """Return the overlay over the same brokers that was shown, without homes; ``shown`` holds its links, too."""
        ...
