"""Which brokers join an emulated overlay while it runs, when, and what is known of them.

A text reads ``NAME at SECONDS by PEER=COST,PEER=COST``, or ``near X,Y`` instead of ``by``, followed by ``through
AGENT`` if it has its own agent: ``x01 at 30 by b03=2.5,b07=4 through north``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec
import numpy as np
from msgspec.structs import replace

from regraft.overlay.inventory.inventory import Inventory, InventoryError
from regraft.overlay.inventory.members import extended
from regraft.schemas.member import BrokerFacts, PeerCost, Position
from regraft.schemas.topics import AGENT_PATTERN

_TEXT = re.compile(
    rf"(\S+) at (\d+(?:\.\d+)?) (?:by ((?:\S+=\S+,)*\S+=\S+)|near ([^\s,]+),([^\s,]+))"
    rf"(?: through ({AGENT_PATTERN.pattern}))?"
)


@dataclass(frozen=True)
class Newcomer:
    """A broker that comes ``at_s`` after the start; a processing cost of 0 stands for the inventory's median."""

    broker: str
    at_s: float
    facts: BrokerFacts


def newcomer_of(text: str) -> Newcomer:
    """Return the newcomer that a text describes; raise ValueError if the text is invalid."""
    match = _TEXT.fullmatch(text.strip())
    wanted = f"newcomer {text!r}: write NAME at SECONDS by PEER=COST,... or near X,Y [through AGENT]"
    if match is None:
        raise ValueError(wanted)
    broker, at_s, links, x, y, agent = match.groups()
    try:
        pairs = [pair.rsplit("=", 1) for pair in links.split(",")] if links else []
        facts = BrokerFacts(
            link_costs=tuple(PeerCost(peer, float(cost)) for peer, cost in pairs),
            position=None if x is None else Position(float(x), float(y)),
            agent=agent or "",
        )
        checked = msgspec.convert(msgspec.to_builtins(facts), BrokerFacts)
    except ValueError as error:  # Includes msgspec's errors.
        raise ValueError(f"{wanted} ({error})") from error
    return Newcomer(broker, float(at_s), checked)


def with_newcomers(inventory: Inventory, newcomers: Iterable[Newcomer]) -> Inventory:
    """Return the inventory extended by these brokers; raise InventoryError if one is already in it.

    The costs of links to them are also the emulated delays.
    """
    median = float(np.median(inventory.processing_cost))
    facts_of = {
        one.broker: replace(one.facts, processing_cost=one.facts.processing_cost or median) for one in newcomers
    }
    if repeated := sorted(facts_of.keys() & set(inventory.brokers)):
        raise InventoryError(
            f"newcomers name {', '.join(repeated)}, which are already in the inventory: give them other names"
        )
    return extended(inventory, facts_of) if facts_of else inventory
