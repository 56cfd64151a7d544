"""A node that is not a member yet asks to join: it announces where it listens and what links to others would cost.

The controller or an operator admits it (docs/members.md).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping

import structlog

from regraft.producers.emulator.emulator_ports import MembershipPort
from regraft.schemas.announcement import REPEAT_MS, Announcement
from regraft.schemas.member import BrokerFacts, PeerCost
from regraft.schemas.units import SECOND_MS

log = structlog.get_logger(__name__)

CHECK_S = 1.0
TRIES = 3
CONNECT_S_MAX = 5.0
CAPABILITY = "node"


async def ask_to_join(
    broker: str, addresses: Mapping[str, tuple[str, int]], membership: MembershipPort, now_ms: Callable[[], float]
) -> None:
    """Announce the broker every ``REPEAT_MS`` until it is a member, then return."""
    announced_ms = -float(REPEAT_MS)
    while not membership.is_member(broker):
        if now_ms() - announced_ms >= REPEAT_MS:
            announced_ms = now_ms()
            costs = await measured_costs(broker, addresses)
            facts = BrokerFacts(
                link_costs=costs, address="{}:{}".format(*addresses[broker]), capabilities=(CAPABILITY,)
            )
            membership.announce(Announcement(broker, facts, int(now_ms())))
            log.info("join_asked", broker=broker, links=len(costs))
        await asyncio.sleep(CHECK_S)
    log.info("broker_admitted", broker=broker)


async def measured_costs(broker: str, addresses: Mapping[str, tuple[str, int]]) -> tuple[PeerCost, ...]:
    """Return what links to others would cost, in ms: half the time that connecting takes.

    Peers out of reach are left out. Nodes refuse a stranger's links, but connecting alone shows the round trip.
    """
    peers = sorted(set(addresses) - {broker})
    round_trips_ms = await asyncio.gather(*(_round_trip_ms(*addresses[peer]) for peer in peers))
    return tuple(
        PeerCost(peer, rtt_ms / 2) for peer, rtt_ms in zip(peers, round_trips_ms, strict=True) if rtt_ms is not None
    )


async def _round_trip_ms(host: str, port: int) -> float | None:
    """Return the shortest of ``TRIES`` times to connect, in ms; None if one fails."""
    shortest_s = CONNECT_S_MAX
    for _ in range(TRIES):
        began_s = time.perf_counter()
        try:
            async with asyncio.timeout(CONNECT_S_MAX):
                _, writer = await asyncio.open_connection(host, port)
        except (OSError, TimeoutError):
            return None
        shortest_s = min(shortest_s, time.perf_counter() - began_s)
        writer.transport.abort()
    return shortest_s * SECOND_MS
