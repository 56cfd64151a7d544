"""Names by which agents and nodes know the clients beside an agent. Pure.

A client is ``AGENT.RUN-COUNT``: the agent's name, the agent's incarnation and which of its connections it is. Its
subscriptions add a number, ``AGENT.RUN-COUNT.NUMBER``; the overlay's subscription adds which stay it is, behind ``~``.
The agent subscribes at the broker in a queue group of that name, so the broker's own report of interest identifies the
subscription, and its end. Where a client publishes much, its messages name it, so that it is a publisher.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

AGENT_NAME_LENGTH_MAX = 40
GROUP_PREFIX = "regraft-agent."
ORDERS = "_REGRAFT.agent."  # Where agents write notes; nodes of 0.3.0, too.
PRIVATE = "_REGRAFT.to."  # Where nodes write notes to agents, and hand over messages for one subscription alone.
FLUSH = "REGRAFT_FLUSH."  # Where agents write behind what a client has published, and read it elsewhere.
PUBLISHER_HEADER = b"Regraft-Publisher"  # Of messages whose publisher is not the broker.
PUBLISHER_PREFIX = ".p."  # Behind a node's incarnation, in the name of a publisher that a header names.
ALL_AGENTS = f"{ORDERS}all"  # Where a node reaches every agent; no client has this name.
_AGENT = re.compile(rf"[A-Za-z0-9_-]{{1,{AGENT_NAME_LENGTH_MAX}}}")
_CLIENT = rf"(?P<client>{_AGENT.pattern}\.[0-9a-z]{{1,12}}-[0-9]{{1,10}})"
_NAME = re.compile(_CLIENT)
_SUBSCRIPTION = re.compile(rf"{_CLIENT}\.[0-9]{{1,10}}(~[0-9a-z-]{{1,40}})?")
_PUBLISHER = re.compile(rf"{re.escape(PUBLISHER_PREFIX)}{_CLIENT}$")
_GROUP = re.compile(
    rf"{re.escape(GROUP_PREFIX)}{_CLIENT}"
    r"\.(?P<number>[0-9]{1,10})(?P<stay>~[0-9a-z-]{1,40})?(?:@(?P<epoch>[0-9]{1,15}))?"
)


@dataclass(frozen=True, slots=True)
class AgentSubscription:
    """A subscription as its queue group names it; ``epoch`` is that of the plan which brings it, -1 if none does."""

    client: str
    number: int
    stay: str
    epoch: int

    @property
    def name(self) -> str:
        """The overlay's name of it; without its stay until a node has given it one."""
        return f"{self.client}.{self.number}{self.stay}"


def is_agent_name(text: str) -> bool:
    """Return True if an agent may have this name."""
    return _AGENT.fullmatch(text) is not None


def client_of(subscription: str) -> str:
    """Return the client that a subscription beside an agent belongs to; any other name is its own client."""
    name = subscription.partition("~")[0]
    return name.rpartition(".")[0] or name


def is_client(name: str) -> bool:
    """Return True if a client beside an agent has this name."""
    return _NAME.fullmatch(name) is not None


def client_beside(subscription: str) -> str:
    """Return the client beside an agent that a subscription belongs to, "" for any other subscription."""
    match = _SUBSCRIPTION.fullmatch(subscription)
    return match["client"] if match else ""


def publishing_client(publisher: str) -> str:
    """Return the client beside an agent that a publisher is, "" for any other publisher."""
    match = _PUBLISHER.search(publisher) if PUBLISHER_PREFIX in publisher else None
    return match["client"] if match else ""


def number_in(subscription: str) -> int:
    """Return the number that the agent has given a subscription, -1 if it is none of an agent."""
    number = subscription.partition("~")[0].rpartition(".")[2]
    return int(number) if number.isascii() and number.isdigit() else -1


def group_for(subscription: str, epoch: int = -1) -> str:
    """Return the queue group of a subscription at a broker to which the plan to ``epoch`` brings it."""
    return f"{GROUP_PREFIX}{subscription}" + (f"@{epoch}" if epoch >= 0 else "")


def agent_subscription(group: str) -> AgentSubscription | None:
    """Return what a queue group of an agent names, None for any other group."""
    match = _GROUP.fullmatch(group) if group.startswith(GROUP_PREFIX) else None
    if match is None:
        return None
    epoch = match["epoch"]
    return AgentSubscription(match["client"], int(match["number"]), match["stay"] or "", int(epoch) if epoch else -1)
