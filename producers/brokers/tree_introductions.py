"""What a broker of a tree tells neighbours that join with the plan under way: which publishers there are.

In: the plan, advertisements and ends of publishers as the older tree floods them. Out: the same for those that join,
who are no part of that tree. An advertisement that a broker knows when it prepares must be known to them before it is
prepared; one that comes later, before it is acknowledged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from producers.brokers.broker_messages import Advertise, AdvertiseAck, Effect, Send, Unadvertise
from producers.brokers.tree_tables import Advertisement, RoutingTables, TreePlanUnderWay
from producers.brokers.two_epochs import TwoEpochBroker


class TreeIntroductions:
    """The publishers that this broker makes known to those that join; ``advertisements`` are all it knows."""

    def __init__(
        self, core: TwoEpochBroker[RoutingTables, TreePlanUnderWay], advertisements: Mapping[str, Advertisement]
    ) -> None:
        self._core = core
        self._advertisements = advertisements

    def begin(self) -> list[Effect]:
        """Tell the neighbours that join with the plan under way of all publishers; they are waited for."""
        under_way = self._core.under_way
        assert under_way is not None
        effects: list[Effect] = []
        for known in self._advertisements.values():
            told = Advertise(under_way.epoch_from, known.publisher, known.connection, known.home, known.filter_)
            effects += self.tell(told)
            stay = known.publisher, known.connection
            under_way.introduced |= {(peer, *stay) for peer in under_way.joined}
        return effects

    def tell(self, message: Advertise | Unadvertise) -> list[Send]:
        """Tell the neighbours that join what the older tree floods: they are no part of that."""
        under_way = self._core.under_way
        if under_way is None or message.to_joined or message.epoch != under_way.epoch_from:
            return []
        told: Advertise | Unadvertise = replace(message, epoch=under_way.epoch_to, to_joined=True)
        if isinstance(told, Advertise):
            told = replace(told, home=self._core.tables[told.epoch].moved.get(told.publisher, told.home))
        return [Send(peer, told) for peer in sorted(under_way.joined)]

    def accept(self, source: str, message: AdvertiseAck) -> None:
        """All brokers beyond a neighbour know a publisher."""
        known, under_way = self._advertisements.get(message.publisher), self._core.under_way
        if known is not None and known.connection == message.connection:
            known.unanswered.discard(source)
        if under_way is not None:
            under_way.introduced.discard((source, message.publisher, message.connection))

    def await_no_longer(self, message: Unadvertise) -> None:
        """A publisher has ended, and nobody needs to know it any more."""
        under_way = self._core.under_way
        if under_way is not None:
            stay = message.publisher, message.connection
            under_way.introduced = {told for told in under_way.introduced if told[1:] != stay}

    def call_off(self, joined: frozenset[str]) -> None:
        """Wait no longer for neighbours that were to join with a plan that was aborted."""
        for known in self._advertisements.values():
            known.unanswered -= joined
