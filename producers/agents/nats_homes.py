"""The brokers to which an agent is connected for one client of NATS, and what happens when one is lost.

In: where subscriptions are. Out: connections. Which messages count belongs to :mod:`producers.agents.nats_moves`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import structlog

from regraft.producers.agents.agent_session import Session
from regraft.producers.agents.nats_client import Subscription, unsub_line
from regraft.producers.agents.nats_upstream import BrokerAddress, Upstream, UpstreamError

log = structlog.get_logger(__name__)

RETRY_S, RETRY_S_MAX = 0.1, 5.0
REASON_LENGTH_MAX = 500


class NatsHomes:
    """``home`` is where the client publishes; ``brokers`` are all that it may be taken to."""

    def __init__(self, session: Session, brokers: Mapping[str, BrokerAddress], home: str) -> None:
        self.brokers, self.home = dict(brokers), home
        self.upstreams: dict[str, Upstream] = {}
        self._session = session

    async def open_first(self) -> dict[str, Any] | None:
        """Connect to the client's home or, if it cannot be reached, to the next broker; return that one's facts.

        The client ends if no broker can be reached.
        """
        reasons = []
        for broker in self._in_turn():
            upstream = Upstream(self.brokers[broker], self._session)
            try:
                await upstream.open()
            except UpstreamError as error:
                reasons.append(str(error))
                continue
            self.home, self.upstreams[broker] = broker, upstream
            return upstream.facts
        self._session.end(f"no broker can be reached: {'; '.join(reasons)[:REASON_LENGTH_MAX]}")
        return None

    def _in_turn(self) -> list[str]:
        names = list(self.brokers)
        at = names.index(self.home)
        return names[at:] + names[:at]

    async def connect_to(self, broker: str) -> Upstream:
        """Return the client's connection to a broker, new or not; raise UpstreamError if there can be none."""
        upstream = self.upstreams.get(broker)
        if upstream is not None:
            return upstream
        upstream = Upstream(self.brokers[broker], self._session)
        await upstream.open()
        try:
            refusal = await upstream.introduce(self._session.client.introduction())
            if refusal:
                raise UpstreamError(f"{broker} refuses: {refusal}")
            if broker in self.upstreams or self._session.is_over:
                raise UpstreamError(f"{broker} is no longer needed")
        except UpstreamError:
            upstream.is_ready = False  # Nobody has to know that it ends.
            upstream.close()
            raise
        self.upstreams[broker] = upstream
        return upstream

    def subscribe(self, subscription: Subscription) -> None:
        """Subscribe at a subscription's home, as one that no plan has brought there."""
        upstream = self.upstreams.get(subscription.home)
        if upstream is not None:
            upstream.write(self._session.client.sub_line(subscription))

    def leave_unused(self) -> None:
        """Close connections to brokers that are nobody's home; publish where all subscriptions are."""
        session = self._session
        homes = {each.home for each in session.client.subscriptions.values()}
        if not session.moves.brokers:
            session.publishing.follow(homes)
        used = homes | {self.home} | session.moves.brokers
        for broker in [name for name in self.upstreams if name not in used]:
            self.upstreams.pop(broker).close()

    def lose(self, upstream: Upstream, reason: str) -> None:
        """Note that a broker is gone: its subscriptions restart elsewhere, in new stays."""
        session, lost = self._session, upstream.broker
        if self.upstreams.get(lost) is not upstream or session.is_over:
            return
        del self.upstreams[lost]
        session.release(f"slow {lost}")
        session.counts["brokers_lost"] += 1
        log.warning("broker_lost", client=session.client.name, broker=lost, reason=reason)
        session.moves.lose(lost)
        is_stranded = any(each.home == lost for each in session.client.subscriptions.values())
        if is_stranded or self.home == lost:
            session.hold("reconnecting")
            session.run(self._reconnect(lost))

    async def _reconnect(self, lost: str) -> None:
        pause_s = RETRY_S
        while not self._session.is_over:
            for broker in [*self.upstreams, *[name for name in self._in_turn() if name not in self.upstreams]]:
                try:
                    upstream = await self.connect_to(broker)
                except UpstreamError as error:
                    log.debug("broker_not_reached", client=self._session.client.name, reason=str(error))
                    continue
                self._restart_at(lost, upstream.broker)
                return
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, RETRY_S_MAX)

    def _restart_at(self, lost: str, broker: str) -> None:
        if self.home == lost:
            self.home = broker
        self.restart([each for each in self._session.client.subscriptions.values() if each.home == lost], broker)
        self._session.counts["reconnected"] += 1
        self._session.release("reconnecting")

    def restart(self, subscriptions: list[Subscription], broker: str) -> None:
        """Let subscriptions restart at a broker, as new ones."""
        for subscription in subscriptions:
            for upstream in self.upstreams.values():  # A plan may have brought it elsewhere by half.
                upstream.write(unsub_line(subscription.sid))
            subscription.home = broker
            if subscription.number >= 0:
                self._session.client.renumber(subscription)
            self.subscribe(subscription)
