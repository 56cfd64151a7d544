"""How a notification goes down its topic's tree on a Chord ring, and which of its deliveries wait."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from regraft.producers.brokers.broker_messages import Deliver, Effect, Notification, Send
from regraft.producers.brokers.epoch_change import deliver_or_hold
from regraft.producers.brokers.ring_broker_state import RingState
from regraft.producers.brokers.ring_tables import TOPIC, RingTables


class TopicDescent:
    """The way down the trees of one broker's topics."""

    def __init__(self, state: RingState) -> None:
        self._state = state

    def pass_down(self, tables: RingTables, notification: Notification) -> list[Effect]:
        """Pass on a notification that has come to the rendezvous of its topic, or down from it."""
        entry = tables.topics.get(str(notification.content[TOPIC]))
        if entry is None:
            return []
        if not notification.from_rendezvous:
            notification = replace(notification, from_rendezvous=True)
        children: Iterable[str] = entry.children
        if notification.epoch < min(self._state.tables):
            # A child whose path has changed since then got it over its old one.
            epoch, topic = notification.epoch, entry.topic
            children = [peer for peer in children if self._state.downward_unchanged(epoch, topic, peer)]
        effects: list[Effect] = [Send(peer, notification) for peer in children]
        if entry.subscriptions:
            self._hand_over(notification, tuple(entry.subscriptions), effects)
        return effects

    def _hand_over(self, notification: Notification, names: tuple[str, ...], effects: list[Effect]) -> None:
        local = self._state.locals
        wanted = tuple(name for name in names if local[name].wants(notification))
        if len(self._state.tables) == 1:
            if wanted:
                effects.append(Deliver(notification, wanted))
            return
        at_once = []
        for name in wanted:  # Those that moved here wait for other ENDs.
            if self._state.may_get_older(notification, name):
                deliver_or_hold(self._state, self._state.must_hold, Deliver(notification, (name,)), effects)
            else:
                at_once.append(name)
        if at_once:
            effects.append(Deliver(notification, tuple(at_once)))
