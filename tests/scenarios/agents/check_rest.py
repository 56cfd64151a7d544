"""What must hold once messages of a site of agents have stopped: nobody is on the way, everybody has one home."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from regraft.producers.brokers.broker_reports import BrokerPhase
from regraft.schemas.agent_names import client_of
from tests.scenarios.any_order_account import BrokenPromiseError
from tests.scenarios.any_order_leaders import STRANGER, TWIN

if TYPE_CHECKING:
    from tests.scenarios.agents.agents_site import AgentsSite


def homes_of(session: Any) -> set[str]:
    """Return the brokers at which a session's client is at home."""
    subscribed = {each.home for each in session.client.subscriptions.values()}
    return {session.homes.home, session.homes.subscribing, *subscribed}


def check_still(site: AgentsSite) -> str:
    """Return what is still on its way, "" for nothing."""
    waiting = [name for name, client in site.clients.items() if not client.is_answered]
    if waiting:
        return f"{waiting} wait for answers"
    for name, session in site.sessions.items():
        moves = session.moves
        parts = (moves.moving, moves._arrived, moves._before, moves._names, moves._since_s, moves._kept)
        left = (*parts, session._holds, session._tasks)
        if any(left) or moves._kept_bytes or session.publishing._is_moving:
            return f"{name} moves: {left}"
    for broker, node in site.nodes.items():
        agents = node.clients.agents
        if site.rival in (TWIN, STRANGER) and node.core.phase is not BrokerPhase.STEADY:
            continue  # Its controller has forgotten the plan; the next one ends it.
        if agents._moving or agents._left or len(agents._counted):
            moving = [*agents._moving, *agents._left.items()]
            return f"the node of {broker}, {node.core.phase} at {node.core.epoch}, moves {moving}"
    return ""


def sources(site: AgentsSite) -> Counter[tuple[str, str, int]]:
    """Return, by broker, client and number, how often a broker has a subscription beside an agent."""
    found: Counter[tuple[str, str, int]] = Counter()
    for broker, server in site.servers.items():
        for (client, number), count in site.kind.beside(server).items():
            found[broker, client, number] += count
    return found


def check_served(site: AgentsSite) -> None:
    """Check that each subscription beside an agent is at its home alone, and that no broker has any other."""
    expected: Counter[tuple[str, str, int]] = Counter()
    staying = {session.client.name for session in site.sessions.values() if session.client.stays_because}
    for name, session in site.sessions.items():
        connected, used = set(session.homes.upstreams), homes_of(session)
        if connected != used:
            raise BrokenPromiseError("connections", f"{name} has {connected}, uses {used}")
        at = {broker: site.kind.connected(server)[session.client.name] for broker, server in site.servers.items()}
        if {broker: count for broker, count in at.items() if count} != dict.fromkeys(connected, 1):
            raise BrokenPromiseError("connections", f"{name} has {connected}, brokers have {at}")
        for each in session.client.subscriptions.values():
            if each.number >= 0:
                expected[each.home, session.client.name, each.number] += 1
    if sources(site) != expected:
        differ = sources(site), expected
        raise BrokenPromiseError(
            "not one source", f"there are {differ[0] - differ[1]}, missing {differ[1] - differ[0]}"
        )
    registered = Counter(
        (each.home, name.partition("~")[0]) for name, each in site.register.connected.items() if "~" in name
    )
    homes = Counter((home, f"{client}.{number}") for home, client, number in expected)
    for counts in (registered, homes):  # What stays may be registered as any other subscription.
        for key in [each for each in counts if client_of(each[1]) in staying]:
            del counts[key]
    if registered != homes:
        raise BrokenPromiseError("register", f"has {registered - homes}, lacks {homes - registered}")


def check_left(site: AgentsSite) -> None:
    """Check that nothing is left of clients once all have gone."""
    for broker, node in site.nodes.items():
        beside, core = node.clients.agents, node.core
        names: list[Any] = [*node.clients._subjects, *core.routing.interests.locals]  # type: ignore[attr-defined]
        if beside._subscriptions or beside._clients or names:
            raise BrokenPromiseError("left over", f"{broker} keeps {[*beside._subscriptions, *names]}")
    left = [broker for broker, server in site.servers.items() if site.kind.connected(server)]
    if left:
        raise BrokenPromiseError("left over", f"connections to {left}")
    gone = [name for name in site.register.connected if "~" in name]
    if gone or sources(site):
        raise BrokenPromiseError("left over", f"registered {gone}, at brokers {sources(site)}")
