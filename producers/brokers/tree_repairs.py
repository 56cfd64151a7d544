"""What a broker of a tree announces and forgets of publishers in a repair: a plan that names lost brokers.

In: the plan under way, the known publishers. Out: messages over the new links. A death cuts the floods of
advertisements and of their ends in two: one side knows what the other does not. So every broker that knows a publisher
announces it over each new link that leads away from its home, and also over each link that came with the older epoch: a
death in the plan to that epoch may have cut off what one end of the link had passed on before it prepared, which thus
never crossed the link. A publisher whose home lies beyond such a link, and that is not announced this way before the
older epoch is retired, has ended. Ends go over new links in every plan: a death may cut off what the older tree
carries. An abort reverts what was announced in the newer epoch.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from regraft.producers.brokers.broker_messages import Advertise, AdvertiseAck, Send, Unadvertise
from regraft.producers.brokers.tree_tables import Advertisement, TreePlanUnderWay, TreeState


class TreeRepairs:
    """What one broker notes of its publishers, ``known``, in a repair, and what it must announce."""

    def __init__(self, state: TreeState, known: Mapping[str, Advertisement]) -> None:
        self._state = state
        self._known = known
        self.ended: list[tuple[str, str, int]] = []  # Neighbour over the new link towards its home, publisher, stay.
        # Stays announced after a later one, without an end so far: other brokers may still know them.
        self.announced_late: dict[tuple[str, int], Advertise] = {}

    @property
    def repair(self) -> TreePlanUnderWay | None:
        """The plan under way, if brokers join, leave or are lost in it."""
        under_way = self._state.under_way
        return under_way if under_way is not None and under_way.announces else None

    def _may_differ(self, plan: TreePlanUnderWay) -> frozenset[str]:
        """Return the neighbours in the newer epoch that may know other publishers than this broker."""
        return self._state.tables[plan.epoch_to].fresh | plan.doubtful

    # --- announcements -----------------------------------------------------------------------------------------------

    def flood(self, message: Advertise | Unadvertise, source: str) -> list[Send]:
        """Send a message to the living neighbours in the tree of its epoch, except the one it came from."""
        tables = self._state.tables[message.epoch]
        return [Send(peer, message) for peer in tables.neighbours if peer != source and peer not in tables.dead]

    def forward(self, message: Advertise | Unadvertise) -> list[Send]:
        """Send a message of the older epoch over the new links of the newer one, too.

        An advertisement is not sent towards its home.
        """
        plan = self.repair if isinstance(message, Advertise) else self._state.under_way
        if plan is None or message.epoch != plan.epoch_from:
            return []
        tables = self._state.tables[plan.epoch_to]
        peers, forwarded = self._may_differ(plan) - tables.dead, replace(message, epoch=tables.epoch)
        if isinstance(forwarded, Advertise):
            peers -= {tables.next_hop.get(forwarded.home)}
            forwarded = replace(forwarded, home=tables.moved.get(forwarded.publisher, forwarded.home))
        return [Send(peer, forwarded) for peer in sorted(peers)]

    def return_end(self, source: str, end: Unadvertise) -> list[Send]:
        """Return an end that came over a new link: this broker's announcement over that link may have crossed it."""
        plan = self._state.under_way
        if plan is None or end.epoch != plan.epoch_to or source not in self._may_differ(plan):
            return []
        return [Send(source, end)]

    def accept_ack(self, source: str, ack: AdvertiseAck) -> None:
        """Note that a neighbour knows a publisher and, if it was asked in that epoch, that the brokers beyond it do.

        A broker that got the advertisement in both epochs answers in the newer one as soon as the older one's replaces
        it; the brokers beyond know it only once the answer in the older one comes.
        """
        plan, advertisement = self._state.under_way, self._known.get(ack.publisher)
        if plan is not None:
            plan.unacknowledged.discard((source, ack.publisher, ack.connection))
        if advertisement is None or advertisement.connection != ack.connection:
            return
        tables = self._state.tables.get(advertisement.epoch)
        # One that died in the older epoch and rejoins is asked in the newer one alone, over whatever link.
        is_asked = tables is not None and source in tables.neighbours and source not in tables.dead
        if ack.epoch <= advertisement.epoch or not is_asked:
            advertisement.unanswered.discard(source)

    # --- what is known -----------------------------------------------------------------------------------------------

    def note_announced(self, message: Advertise) -> None:
        """Note that a neighbour in the newer epoch knows a publisher."""
        repair = self.repair
        if repair is not None and message.epoch == repair.epoch_to:
            repair.vouched.add((message.publisher, message.connection))

    def pass_late_announcement(self, known: Advertisement, message: Advertise, source: str) -> list[Send]:
        """Pass on a stay that is announced after a later one, and remember it until its end comes.

        Its announcer knows it. If a death cuts off its end, a repair finds that it has ended.
        """
        stay = message.publisher, message.connection
        if message.connection == known.connection or stay in self.announced_late:
            return []
        if message.epoch > min(self._state.tables):
            return []  # Its end may have come in the older epoch; an abort reverts this.
        self.announced_late[stay] = message
        return self.flood(message, source)

    def forget_announced_late(self, homes: Collection[str]) -> None:
        """Forget the stays that ended with their homes."""
        self.announced_late = {stay: one for stay, one in self.announced_late.items() if one.home not in homes}

    def supersedes(self, earlier: Advertisement, message: Advertise) -> bool:
        """Return True if the announcement replaces a known one without waiting for the end of that.

        One of the older epoch replaces the same stay of the newer one, because no abort reverts it. In a repair, a
        later stay replaces an earlier one whose end was to come through the dead.
        """
        if earlier.connection == message.connection:
            return earlier.epoch > message.epoch  # Also outside repairs: a rival's plan for that epoch may be one.
        repair = self.repair
        if repair is None:
            return False
        return earlier.connection < message.connection and earlier.home not in repair.near

    def keep_for_abort(self, known: Advertisement, epoch: int) -> None:
        """Remember a publisher that a message of the newer epoch made this broker forget: an abort restores it."""
        plan = self._state.under_way
        if plan is not None and epoch == plan.epoch_to > known.epoch:
            plan.superseded[known.publisher] = known

    def forget(self, publisher: str, connection: int) -> None:
        """Stop waiting for neighbours to acknowledge a stay."""
        plan = self._state.under_way
        if plan is not None:
            plan.unacknowledged = {one for one in plan.unacknowledged if one[1:] != (publisher, connection)}

    def note_end(self, end: Unadvertise) -> None:
        """Note an end, so that an abort does not restore a stay that has ended in the older epoch as well."""
        plan = self._state.under_way
        self.announced_late.pop((end.publisher, end.connection), None)
        kept = None if plan is None else plan.superseded.get(end.publisher)
        if plan is not None and kept is not None and (end.epoch, end.connection) == (plan.epoch_from, kept.connection):
            del plan.superseded[end.publisher]

    # --- the end of the plan -----------------------------------------------------------------------------------------

    def find_ended(self) -> None:
        """Find the stays that have ended beyond new links; called just before the older epoch is retired."""
        repair = self.repair
        if repair is None:
            return
        tables, otherwise = self._state.tables[repair.epoch_to], self._may_differ(repair)
        stays = {(name, known.connection): (known.epoch, known.home) for name, known in self._known.items()}
        stays |= {stay: (one.epoch, one.home) for stay, one in self.announced_late.items()}
        self.ended = [
            (peer, name, connection)
            for (name, connection), (epoch, home) in sorted(stays.items())
            if epoch < repair.epoch_to
            and (name, connection) not in repair.vouched
            and (peer := tables.next_hop.get(home, "")) in otherwise
        ]
        # The others' ends come as usual, or other brokers have found them.
        self.announced_late = {stay: one for stay, one in self.announced_late.items() if one.home in repair.near}
