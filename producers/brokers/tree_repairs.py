"""What a broker of a tree announces and forgets of publishers in a repair: a plan that names lost brokers.

In: the plan under way, what is known of publishers. Out: messages over the links that are new. A death cuts the floods
of advertisements and of their ends in two: one side knows of what the other does not. So every broker that knows a
publisher announces it over each new link that leads away from its home, and over each that the older epoch had brought:
a death in the plan to that epoch may have cut off what one end of the link had passed on before it prepared, which so
never crossed the link. A publisher not announced this way before the older epoch is retired, though its home lies
beyond such a link, has ended. Ends go over new links in every plan: a death may cut what the older tree carries. An
abort reverts what was announced in the newer epoch.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from regraft.producers.brokers.broker_messages import Advertise, AdvertiseAck, Effect, Send, Unadvertise
from regraft.producers.brokers.tree_tables import Advertisement, RoutingTables, TreePlanUnderWay
from regraft.producers.brokers.two_epochs import TwoEpochBroker


class TreeRepairs:
    """The publishers of one broker across a repair; ``interests`` knows them (TreeInterests)."""

    def __init__(self, core: TwoEpochBroker[RoutingTables, TreePlanUnderWay], interests: Any) -> None:
        self._core = core
        self._interests = interests
        self._ended: list[tuple[str, str, int]] = []  # The new link towards its home, publisher, stay.
        # Stays announced while a later one was known here, without an end so far: others may still know them.
        self.outrun: dict[tuple[str, int], Advertise] = {}

    @property
    def _known(self) -> Mapping[str, Advertisement]:
        known: Mapping[str, Advertisement] = self._interests.advertisements
        return known

    @property
    def _repair(self) -> TreePlanUnderWay | None:
        """The plan under way, if brokers join or leave by it or are lost."""
        under_way = self._core.under_way
        return under_way if under_way is not None and under_way.announces else None

    def _may_know_otherwise(self, plan: TreePlanUnderWay) -> frozenset[str]:
        """Return the neighbours in the newer epoch who may know other publishers than this broker."""
        return self._core.tables[plan.epoch_to].fresh | plan.doubtful

    # --- announcements -----------------------------------------------------------------------------------------------

    def begin(self) -> list[Effect]:
        """Announce all known publishers over new links, and drop earlier stays whose end cannot come any more."""
        repair = self._repair
        if repair is None:
            return []
        effects: list[Effect] = []
        for known in list(self._known.values()):
            if known.successor is not None and known.home not in repair.near:
                effects += self._interests.learn_advertisement(*known.successor)
        for name, known in sorted(self._known.items()):
            sends = self.forward(Advertise(repair.epoch_from, name, known.connection, known.home, known.filter_))
            repair.unacknowledged |= {(send.peer, name, known.connection) for send in sends}
            effects += sends
        return effects

    def forward(self, message: Advertise | Unadvertise) -> list[Send]:
        """Send over new links, in the newer epoch, what goes over those of the older; never towards its home."""
        plan = self._repair if isinstance(message, Advertise) else self._core.under_way
        if plan is None or message.epoch != plan.epoch_from:
            return []
        tables = self._core.tables[plan.epoch_to]
        peers, forwarded = self._may_know_otherwise(plan) - tables.dead, replace(message, epoch=tables.epoch)
        if isinstance(forwarded, Advertise):
            peers -= {tables.next_hop.get(forwarded.home)}
            forwarded = replace(forwarded, home=tables.moved.get(forwarded.publisher, forwarded.home))
        return [Send(peer, forwarded) for peer in sorted(peers)]

    def return_end(self, source: str, end: Unadvertise) -> list[Send]:
        """Answer an end over a new link with the same: this broker's announcement over it may have crossed that."""
        plan = self._core.under_way
        if plan is None or end.epoch != plan.epoch_to or source not in self._may_know_otherwise(plan):
            return []
        return [Send(source, end)]

    def accept_ack(self, source: str, ack: AdvertiseAck) -> None:
        """Note that a neighbour knows a publisher and, where it was asked in that epoch, that those beyond it do.

        A broker that got it in both epochs answers in the newer one as soon as the older one's takes its place; those
        beyond know it only when the answer in the older one comes.
        """
        plan, known = self._core.under_way, self._known.get(ack.publisher)
        if plan is not None:
            plan.unacknowledged.discard((source, ack.publisher, ack.connection))
        if known is None or known.connection != ack.connection:
            return
        tables = self._core.tables.get(known.epoch)
        if ack.epoch <= known.epoch or tables is None or source not in tables.neighbours:
            known.unanswered.discard(source)

    # --- what is known -----------------------------------------------------------------------------------------------

    def note_announced(self, message: Advertise) -> None:
        """Note that a neighbour in the newer epoch knows a publisher."""
        repair = self._repair
        if repair is not None and message.epoch == repair.epoch_to:
            repair.vouched.add((message.publisher, message.connection))

    def pass_outrun(self, known: Advertisement, message: Advertise, source: str) -> list[Send]:
        """Pass on a stay announced after a later one, and remember it until its end comes.

        Its announcer knows it. Should a death cut off its end, a repair finds that it has ended.
        """
        stay = message.publisher, message.connection
        if message.connection == known.connection or stay in self.outrun:
            return []
        if message.epoch > min(self._core.tables):
            return []  # Its end may have come in the older epoch, and an abort reverts what the newer one announces.
        self.outrun[stay] = message
        sends: list[Send] = self._interests.flood_on(message, source)
        return sends

    def forget_outrun(self, homes: Collection[str]) -> None:
        """Forget the stays that ended with their homes."""
        self.outrun = {stay: one for stay, one in self.outrun.items() if one.home not in homes}

    def supersedes(self, earlier: Advertisement, message: Advertise) -> bool:
        """Return True if the announcement replaces what is known, whose end is not awaited.

        That of the older epoch does, which an abort does not revert. So does that of a later stay where the end of
        the earlier one was to come through the dead.
        """
        if earlier.connection == message.connection:
            return earlier.epoch > message.epoch  # Also without a repair: a rival's plan for that epoch may be one.
        repair = self._repair
        if repair is None:
            return False
        return earlier.connection < message.connection and earlier.home not in repair.near

    def keep_for_abort(self, known: Advertisement, epoch: int) -> None:
        """Remember what a message of the newer epoch lets this broker forget: an abort restores it."""
        plan = self._core.under_way
        if plan is not None and epoch == plan.epoch_to > known.epoch:
            plan.superseded[known.publisher] = known

    def forget(self, publisher: str, connection: int) -> None:
        """Wait no longer for anybody to know a stay."""
        plan = self._core.under_way
        if plan is not None:
            plan.unacknowledged = {one for one in plan.unacknowledged if one[1:] != (publisher, connection)}

    def take_end(self, end: Unadvertise) -> None:
        """Let an abort bring back nothing that has ended in the older epoch, too."""
        plan = self._core.under_way
        self.outrun.pop((end.publisher, end.connection), None)
        kept = None if plan is None else plan.superseded.get(end.publisher)
        if plan is not None and kept is not None and (end.epoch, end.connection) == (plan.epoch_from, kept.connection):
            del plan.superseded[end.publisher]

    # --- the end of the plan -----------------------------------------------------------------------------------------

    def find_ended(self) -> None:
        """Find what has ended beyond new links, when the older epoch is about to be retired."""
        repair = self._repair
        if repair is None:
            return
        tables, otherwise = self._core.tables[repair.epoch_to], self._may_know_otherwise(repair)
        stays = {(name, known.connection): (known.epoch, known.home) for name, known in self._known.items()}
        stays |= {stay: (one.epoch, one.home) for stay, one in self.outrun.items()}
        self._ended = [
            (peer, name, connection)
            for (name, connection), (epoch, home) in sorted(stays.items())
            if epoch < repair.epoch_to
            and (name, connection) not in repair.vouched
            and (peer := tables.next_hop.get(home, "")) in otherwise
        ]
        # The end of the others comes as ever, or others have found it.
        self.outrun = {stay: one for stay, one in self.outrun.items() if one.home in repair.near}

    def let_go(self) -> list[Effect]:
        """Forget what has ended, on all brokers that know it."""
        effects: list[Effect] = []
        for peer, name, connection in self._ended:
            end = Unadvertise(self._core.epoch, name, connection)
            effects += self._interests.forget_advertisement(peer, end)
        self._ended = []
        return effects

    def call_off(self, gone: RoutingTables, under_way: TreePlanUnderWay) -> list[Effect]:
        """Revert what was announced in an aborted epoch; stays of the older one that waited for it come."""
        waiting: list[tuple[str, Advertise]] = []
        for name, known in list(self._known.items()):
            if known.successor is not None and known.successor[1].epoch == gone.epoch:
                known.successor = None
            if known.epoch == gone.epoch:
                self._interests.forget_stay(name)
                waiting += [] if known.successor is None else [known.successor]
            known.unanswered -= gone.fresh
        for name, known in under_way.superseded.items():
            if name not in self._known:
                self._interests.know_again(known)
        return [effect for one in waiting for effect in self._interests.learn_advertisement(*one)]
