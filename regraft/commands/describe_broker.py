"""Convert between a broker's facts and text: command-line options to facts, a record to a table row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from regraft.overlay.read_inventory import load_inventory
from regraft.schemas.announcement import Announcement, how_to_admit
from regraft.schemas.bounds import TIME_MS_MAX
from regraft.schemas.left_behind import Subscribers
from regraft.schemas.member import BrokerFacts, Member, PeerCost, Position
from regraft.schemas.stay_reasons import reasons_text
from regraft.schemas.texts import time_text

LINKS_SHOWN = 5


class FactsError(ValueError):
    """The facts given about a broker are wrong; the message says how, and what is expected."""


def facts_of(
    links: Sequence[str],
    position: str | None,
    processing: float | None,
    load_max_per_s: float,
    agent: str,
    address: str,
    capabilities: Sequence[str],
    inventory: Path,
    announced: BrokerFacts | None = None,
) -> BrokerFacts:
    """Return the facts that were typed, completed from the broker's own announcement.

    The processing cost defaults to the inventory's median. Raises FactsError.
    """
    from regraft.schemas.topics import AGENT_PATTERN

    own = announced or BrokerFacts()
    if not links and position is None and not own.link_costs and own.position is None:
        raise FactsError(
            "the cost of its links is unknown: give --link PEER=COST, repeated if needed, or --position X,Y"
        )
    if agent and not AGENT_PATTERN.fullmatch(agent):
        raise FactsError(f"--agent is {agent!r}: 1 to 64 letters, digits, _ or -")
    costs = tuple(sorted(map(_peer_cost, links)))
    peers = [cost.peer for cost in costs]
    if twice := sorted({peer for peer in peers if peers.count(peer) > 1}):
        raise FactsError(f"--link names {twice[0]} twice: a link has one cost")
    cost = processing if processing is not None else own.processing_cost if announced else _median_processing(inventory)
    facts = BrokerFacts(
        cost,
        costs or own.link_costs,
        load_max_per_s or own.load_max_per_s,
        own.position if position is None else _position(position),
        agent or own.agent,
        address or own.address,
        tuple(capabilities) or own.capabilities,
    )
    try:
        return msgspec.convert(msgspec.to_builtins(facts), BrokerFacts)
    except msgspec.ValidationError as error:
        raise FactsError(f"its description is invalid: {error}") from error


def member_row(member: Member) -> tuple[str, str, str, str]:
    """Return a member as a table row: name, state, since when, and details such as the reason."""
    parts = [member.reason]
    if len(member.deaths_ms) > 1:
        parts.append(f"{len(member.deaths_ms)} recent deaths")
    if member.returns_ms >= TIME_MS_MAX:
        parts.append("does not rejoin automatically")
    elif member.returns_ms:
        parts.append(f"may rejoin from {time_text(member.returns_ms)}")
    if member.facts is not None and member.facts.address:
        parts.append(member.facts.address)
    return member.broker, str(member.state).replace("_", " "), since_text(member.since_ms), "; ".join(parts)


def facts_text(facts: BrokerFacts) -> str:
    """Return the known facts about a broker as text."""
    links = [f"{link.peer}={link.cost:g}" for link in facts.link_costs[:LINKS_SHOWN]]
    more = len(facts.link_costs) - len(links)
    parts = [f"links {', '.join(links)}" + (f" and {more} more" if more else "")] if links else []
    parts += [f"at {facts.position.x:g},{facts.position.y:g}"] if facts.position is not None else []
    parts.append(f"processing {facts.processing_cost:g}")
    parts += [f"load at most {facts.load_max_per_s:g} /s"] if facts.load_max_per_s else []
    parts += [f"{what} {value}" for what, value in (("agent", facts.agent), ("address", facts.address)) if value]
    return ", ".join(parts)


def _peer_cost(text: str) -> PeerCost:
    peer, sign, cost = text.partition("=")
    try:
        return PeerCost(peer.strip(), float(cost)) if peer.strip() and sign else _refuse_link(text)
    except ValueError:
        return _refuse_link(text)


def _refuse_link(text: str) -> PeerCost:
    raise FactsError(f"--link is {text!r}: write PEER=COST, for example b07=2.5")


def _position(text: str) -> Position:
    try:
        x, y = (float(part) for part in text.split(","))
    except ValueError:
        raise FactsError(f"--position is {text!r}: write X,Y, for example 11.6,48.1") from None
    return Position(x, y)


def _median_processing(path: Path) -> float:
    import numpy as np

    if not path.exists():
        raise FactsError(
            f"the processing cost of a notification is unknown, because there is no {path}: give --processing COST"
        )
    return float(np.median(load_inventory(path).processing_cost))


def since_text(time_ms: int) -> str:
    """Return a time as text, empty for 0."""
    return time_text(time_ms) if time_ms else ""


def announced_row(one: Announcement, known: Mapping[str, Member]) -> tuple[str, str, str, str]:
    """Return a broker that asks to join as a table row: name, state, time of the last request, and how to admit it."""
    parts = [f"agent {one.facts.agent}"] if one.facts.agent else []
    parts += [one.facts.address] if one.facts.address else []
    parts.append(how_to_admit(one, known, has_left=one.broker in known))
    return one.broker, "asks to join", since_text(one.time_ms), "; ".join(parts)


def movable_text(subscribers: Subscribers | None) -> str:
    """Describe how many subscribers of a broker may move, and why others stay; "" if unknown."""
    if subscribers is None:
        return ""
    total, movable, staying = subscribers
    return f"{movable} of {total}{reasons_text(staying, total - movable)}"


def subscribers_json(subscribers: Subscribers | None) -> dict[str, Any]:
    """Return the subscribers of a broker as the list shows them in JSON; empty if unknown."""
    if subscribers is None:
        return {}
    return {"subscribers": subscribers.total, "may_move": subscribers.movable, "staying": dict(subscribers.staying)}
