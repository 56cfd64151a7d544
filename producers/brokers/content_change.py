"""How brokers that route by content learn of deaths, on a tree and on a structured cyclic overlay alike.

In: reports of a link or of the controller. Out: which broker's life is over in which epoch. The consequences belong to
the kind's own change: :mod:`producers.brokers.tree_change`, :mod:`producers.brokers.scot_change`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection
from typing import Generic, Protocol, TypeVar

from regraft.producers.brokers.broker_messages import Effect, Notification
from regraft.producers.brokers.epoch_change import EpochTables, PlanUnderWay
from regraft.producers.brokers.two_epochs import TwoEpochBroker
from regraft.schemas.command import Command


class ContentTables(EpochTables, Protocol):
    """Everything that a broker knows for one epoch, including which brokers are lost and dead in it."""

    lost: frozenset[str]
    dead: set[str]


Tables = TypeVar("Tables", bound=ContentTables)
Plan = TypeVar("Plan", bound=PlanUnderWay)


class ContentChange(Generic[Tables, Plan]):
    """The part of a :class:`producers.brokers.epoch_change.EpochChange` that both kinds share."""

    def __init__(self, core: TwoEpochBroker[Tables, Plan]) -> None:
        self._core = core
        self.broker = core.broker
        self._links_to_end: set[str] = set()  # To neighbours that the controller reported dead.

    def lose_peer(self, peer: str, now_ms: float) -> list[Effect]:
        """Treat everything from a dead neighbour as ended, and wait for none of its answers.

        If the controller has already reported the death, the link's report does not concern a later life.
        """
        is_of_old = peer in self._links_to_end
        self._links_to_end.discard(peer)
        live = self._core.tables.items()
        return self._note_deaths({(epoch, peer) for epoch, one in live if not (is_of_old and peer in one.lost)}, now_ms)

    def note_deaths(self, command: Command, now_ms: float) -> list[Effect]:
        """Accept which brokers the controller reports dead, in the epochs that the report covers.

        A broker that the prepare of an epoch names as lost and that is in its overlay rejoins by that plan: it lives in
        that epoch, unless a later command of the plan says that this life is over, too.
        """
        deaths = {
            (epoch, peer)
            for epoch, tables in self._core.tables.items()
            for peer in set(command.lost_brokers) - tables.dead - {self.broker}
            if epoch < command.epoch_to or (epoch == command.epoch_to and peer not in tables.lost)
        }
        neighbours = set(self._core.epochs()[0].neighbours) - self._core.lost_peers
        self._links_to_end |= {peer for epoch, peer in deaths if epoch == min(self._core.tables)} & neighbours
        return self._note_deaths(deaths, now_ms) if deaths else []

    @abstractmethod
    def _note_deaths(self, deaths: Collection[tuple[int, str]], now_ms: float) -> list[Effect]:
        """Treat the lives of brokers as over; ``deaths`` holds epoch and broker."""

    def kept_notifications(self) -> list[Notification]:
        """Return nothing: only deliveries wait on these overlays."""
        return []

    def release_waiting(self, under_way: Plan) -> list[Effect]:
        """Return nothing: only deliveries wait on these overlays."""
        return []
