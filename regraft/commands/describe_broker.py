"""A broker as people type it and as they read it: options of the command line to facts, a record to a row.

In: texts, or a record. Out: facts or a sentence what is wrong with them; cells of a table.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from schemas.bounds import TIME_MS_MAX
from schemas.member import BrokerFacts, Member, PeerCost, Position


class FactsError(ValueError):
    """Say what is wrong with what was typed about a broker, and what is wanted."""


def facts_of(
    links: Sequence[str],
    position: str | None,
    processing: float | None,
    load_max_per_s: float,
    agent: str,
    address: str,
    capabilities: Sequence[str],
    inventory: Path,
) -> BrokerFacts:
    """Return the facts that were typed; the processing cost is the inventory's median where none is said.

    Raises FactsError.
    """
    from schemas.topics import AGENT_PATTERN

    if not links and position is None:
        raise FactsError("what its links cost is not known: say --link PEER=COST, once or more, or --position X,Y")
    if agent and not AGENT_PATTERN.fullmatch(agent):
        raise FactsError(f"--agent is {agent!r}: 1 to 64 letters, digits, _ or -")
    costs = tuple(sorted(map(_peer_cost, links)))
    peers = [cost.peer for cost in costs]
    if twice := sorted({peer for peer in peers if peers.count(peer) > 1}):
        raise FactsError(f"--link names {twice[0]} twice: a link has one cost")
    cost = _median_processing(inventory) if processing is None else processing
    place = None if position is None else _position(position)
    facts = BrokerFacts(cost, costs, load_max_per_s, place, agent, address, tuple(capabilities))
    try:
        return msgspec.convert(msgspec.to_builtins(facts), BrokerFacts)
    except msgspec.ValidationError as error:
        raise FactsError(f"what is said of it is not plausible: {error}") from error


def member_row(member: Member) -> tuple[str, str, str, str]:
    """Return what a table says of a member: name, state, since when, and why with what else is known."""
    said = [member.reason]
    if len(member.deaths_ms) > 1:
        said.append(f"{len(member.deaths_ms)} deaths lately")
    if member.returns_ms >= TIME_MS_MAX:
        said.append("does not come back by itself")
    elif member.returns_ms:
        said.append(f"may return from {time_text(member.returns_ms)}")
    if member.facts is not None and member.facts.address:
        said.append(member.facts.address)
    return member.broker, str(member.state).replace("_", " "), time_text(member.since_ms), "; ".join(said)


def _peer_cost(text: str) -> PeerCost:
    peer, sign, cost = text.partition("=")
    try:
        return PeerCost(peer.strip(), float(cost)) if peer.strip() and sign else _refuse_link(text)
    except ValueError:
        return _refuse_link(text)


def _refuse_link(text: str) -> PeerCost:
    raise FactsError(f"--link is {text!r}: PEER=COST is wanted, b07=2.5 for example")


def _position(text: str) -> Position:
    try:
        x, y = (float(part) for part in text.split(","))
    except ValueError:
        raise FactsError(f"--position is {text!r}: X,Y is wanted, 11.6,48.1 for example") from None
    return Position(x, y)


def _median_processing(path: Path) -> float:
    import numpy as np

    from overlay.inventory import Inventory

    if not path.exists():
        raise FactsError(f"what a notification costs there is not known, as {path} is not here: say --processing COST")
    return float(np.median(Inventory.load(path).processing_cost))


def time_text(time_ms: int) -> str:
    """Return a time for people, empty for none."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S") if time_ms else ""
