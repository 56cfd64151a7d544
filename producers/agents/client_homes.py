"""The brokers to which an agent is connected for one client, and what happens when one is lost.

In: where subscriptions are. Out: connections. Which messages count belongs to :mod:`producers.agents.client_moves`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Generic, cast

import structlog

from regraft.producers.agents.agent_session import AnUpstream, Session, Subscription
from regraft.producers.agents.broker_address import BrokerAddress, UpstreamError
from regraft.schemas.agent_note import AgentNote, NoteKind

log = structlog.get_logger(__name__)

RETRY_S, RETRY_S_MAX = 0.1, 5.0


class ClientHomes(Generic[AnUpstream]):
    """``home`` is where the client publishes, ``subscribing`` where its next subscriptions begin.

    ``brokers`` are all that it may be taken to.
    """

    def __init__(self, session: Session, brokers: Mapping[str, BrokerAddress], home: str) -> None:
        self.brokers, self.home, self.subscribing = dict(brokers), home, home
        self.upstreams: dict[str, AnUpstream] = {}
        self._session = session
        self._nearest, self._reached = "", cast(tuple[str, ...], ())
        self._said = ("", self._nearest, self._reached)  # The home whose node knows both, and what it knows.
        self._lost: set[str] = set()  # Brokers whose subscriptions have yet to restart.

    def begin(self, broker: str, upstream: AnUpstream) -> None:
        """Note the connection to the broker at which the client begins."""
        self.home = self.subscribing = broker
        self.upstreams[broker] = upstream

    def note_near(self, nearest: str, reached: tuple[str, ...]) -> None:
        """Note the broker that is nearest to the client and those that it can be taken to, as far as they are known.

        The node at its home learns of them. While the client is not at the nearest one, this is repeated: a node may
        have been restarted.
        """
        is_repeated = (nearest, reached) == (self._nearest, self._reached)
        self._nearest, self._reached = nearest, reached
        self._say_near(is_repeated=is_repeated)

    def _say_near(self, *, is_repeated: bool = False) -> None:
        client, said = self._session.client, (self.home, self._nearest, self._reached)
        is_new = said != self._said or (is_repeated and self._nearest != self.home)
        if is_new and self._reached and client.subscriptions and not client.stays_because:
            self._said = said
            note = AgentNote(NoteKind.NEAREST, broker=self._nearest, brokers=self._reached)
            self._session.write_note(self.home, note)

    def in_turn(self) -> list[str]:
        """Return all brokers in the order in which they are tried: the client's home first."""
        names = list(self.brokers)
        at = names.index(self.home)
        return names[at:] + names[:at]

    async def connect_to(self, broker: str) -> AnUpstream:
        """Return the client's connection to a broker, new or not; raise UpstreamError if there can be none."""
        if broker in self.upstreams:
            return self.upstreams[broker]
        upstream: AnUpstream = self._session.new_upstream(self.brokers[broker])
        is_kept = False
        try:
            await self._session.log_in(upstream)
            is_kept = upstream.is_ready and not (broker in self.upstreams or self._session.is_over)
        finally:
            if not is_kept:  # Also if the client has left meanwhile, or the broker has let it in but refuses notes.
                upstream.is_ready = False  # Nobody has to know that it ends.
                upstream.close()
        if is_kept:
            self.upstreams[broker] = upstream
            self._session.note_connected(upstream)
        if broker not in self.upstreams:
            raise UpstreamError(f"{broker} is no longer needed")
        return self.upstreams[broker]

    def subscribe(self, subscription: Subscription) -> None:
        """Subscribe at a subscription's home, as one that no plan has brought there."""
        upstream = self.upstreams.get(subscription.home)
        if upstream is not None:
            self._session.subscribe(upstream, subscription)
            self._say_near()

    def leave_unused(self) -> None:
        """Close connections to brokers that are nobody's home; publish where subscriptions have moved."""
        session = self._session
        homes = {each.home for each in session.client.subscriptions.values()}
        if not session.moves.brokers:
            session.publishing.follow()
        used = homes | {self.home, self.subscribing} | session.moves.brokers
        for broker in [name for name in self.upstreams if name not in used]:
            self.upstreams.pop(broker).close()
            session.publishing.lose(broker)
            session.release(f"slow {broker}")
        self._say_near()

    def lose(self, upstream: AnUpstream, reason: str) -> None:
        """Note that a broker is gone: its subscriptions restart elsewhere, in new stays."""
        session, lost = self._session, upstream.broker
        if self.upstreams.get(lost) is not upstream or session.is_over:
            return
        del self.upstreams[lost]
        session.counts["brokers_lost"] += 1
        log.warning("broker_lost", client=session.client.name, broker=lost, reason=reason)
        is_reconnecting = bool(self._lost)
        self._lost.add(lost)
        session.moves.lose(lost)
        session.publishing.lose(lost)
        if not (lost in (self.home, self.subscribing) or self._stranded()):
            self._lost.discard(lost)
        elif not is_reconnecting:
            session.hold("reconnecting")
            session.run(self._reconnect())
        session.release(f"slow {lost}")

    def _stranded(self) -> list[Subscription]:
        """Return the subscriptions whose broker is gone."""
        return [each for each in self._session.client.subscriptions.values() if each.home in self._lost]

    async def _reconnect(self) -> None:
        pause_s = RETRY_S
        while not self._session.is_over:
            for broker in [*self.upstreams, *[name for name in self.in_turn() if name not in self.upstreams]]:
                try:
                    upstream = await self.connect_to(broker)
                except UpstreamError as error:
                    log.debug("broker_not_reached", client=self._session.client.name, reason=str(error))
                    continue
                self._restart_at(upstream.broker)
                return
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, RETRY_S_MAX)

    def _restart_at(self, broker: str) -> None:
        if self.home in self._lost:
            self.home = broker
        if self.subscribing in self._lost:
            self.subscribing = broker
        self.restart(self._stranded(), broker)
        self._lost.clear()
        self._session.counts["reconnected"] += 1
        self._session.release("reconnecting")

    def restart(self, subscriptions: Sequence[Subscription], broker: str) -> None:
        """Let subscriptions restart at a broker, as new ones; without a connection to it they wait for one to any."""
        for subscription in subscriptions if broker in self.upstreams else ():
            for upstream in self.upstreams.values():  # A plan may have brought it elsewhere by half.
                self._session.unsubscribe(upstream, subscription)
            subscription.home = broker
            if subscription.number >= 0:
                self._session.client.renumber(subscription)
            self.subscribe(subscription)
