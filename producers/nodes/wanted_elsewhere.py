"""What other brokers want: a connector asks its broker for nothing else, and before a subscription is confirmed.

Until then they wait, in order, so to the protocol it looks like a slower link.

The broker then knows what nobody wants: RabbitMQ returns mandatory messages and uses alternate exchanges, NATS reports
that there are no responders, and local traffic does not pass the node.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from regraft.producers.brokers.broker_messages import Bundle, Message, Subscribe
from regraft.producers.nodes.connectors.connector import Connector
from regraft.producers.nodes.connectors.groups_once import GroupHandlers
from regraft.producers.nodes.connectors.subject_filters import subject_of_filter
from regraft.producers.nodes.node_kinds import ListedSubscription, wishes_in

ASK_S_MAX = 2.0  # A broker that does not answer holds up no link for longer.
REFRESH_S = 10.0  # Between two comparisons with what the core knows: what is wanted no longer ends then.
HELD_MAX = 10_000  # Messages of one peer; further ones wait for nothing.


class WantedElsewhere:
    """The wishes of other brokers at one node. ``serve`` handles a message, ``groups`` learns of their groups."""

    def __init__(self, connector: Connector, serve: Callable[[str, Message], None], groups: GroupHandlers) -> None:
        self.guard: Callable[[Callable[[str], None]], Callable[[str], None]] = lambda call: call
        self._connector, self._serve, self._groups = connector, serve, groups
        self._held: dict[str, deque[Message]] = {}
        self._refresh_s = 0.0
        self._wanted_before: set[str] = set()
        connector.ask_only(())

    def take(self, peer: str, message: Message) -> None:
        """Handle a peer's message, now or once the connector has asked for what it subscribes."""
        held = self._held.get(peer)
        if held is None:
            self._hold_or_serve(peer, deque((message,)))
        else:
            held.append(message)
            if len(held) > HELD_MAX:
                self.release(peer)

    def release(self, peer: str) -> None:
        """Handle at once whatever waits of a peer."""
        for message in self._held.pop(peer, ()):
            self._serve(peer, message)

    def void(self) -> None:
        """Forget what waits: the incarnation in which it was sent is over."""
        self._held.clear()

    def refresh(self, entries: Callable[[], Iterable[ListedSubscription]]) -> None:
        """Compare with what the core knows, once in a while: ask for what is missing, and no longer for the rest."""
        now_s = time.monotonic()
        if now_s - self._refresh_s > REFRESH_S and not self._held:
            self._refresh_s = now_s
            listed = list(entries())
            wanted = {subject_of_filter(entry.filter_) for entry in listed if entry.is_elsewhere}
            self._groups.replace((entry.name, entry.home, entry.filter_) for entry in listed)
            self._connector.ask_only(wanted | self._wanted_before)
            self._wanted_before = wanted  # Kept once more: a message that the core keeps for a plan is in no table.

    def _hold_or_serve(self, peer: str, messages: deque[Message]) -> None:
        contents = [one for message in messages for one in _contents(message)]
        subjects = {subject_of_filter(filter_) for filter_ in wishes_in(contents)}
        for one in contents:
            if isinstance(one, Subscribe):
                self._groups.note(one.subscription, one.home, one.filter_)
        asked = self._connector.ask_for(subjects) if subjects else None
        if asked is None:
            for message in messages:
                self._serve(peer, message)
            return
        self._held[peer] = messages
        due_count = len(messages)

        def resume(peer: str) -> None:
            held = self._held.get(peer)
            if held is not messages:  # Released, or void.
                return
            due = [held.popleft() for _ in range(due_count)]
            self._held[peer] = deque()  # What the messages below cause to arrive waits behind them.
            for message in due:
                self._serve(peer, message)
            held.extend(self._held.pop(peer, ()))
            if held:
                self._hold_or_serve(peer, deque(held))  # Another one: an answer that comes late is not for these.

        guarded = self.guard(resume)
        timer = asyncio.get_running_loop().call_later(ASK_S_MAX, guarded, peer)

        def answered(_: object) -> None:
            timer.cancel()
            guarded(peer)

        asked.add_done_callback(answered)


def _contents(message: Message) -> Sequence[Message]:
    return message.messages if isinstance(message, Bundle) else (message,)
