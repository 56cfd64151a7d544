"""Announcement: a broker that is not a member asks to join, in the name of its agent.

It is repeated until the topic of members says that the broker is one. Acting on it belongs to the controller.
"""

from collections.abc import Container

from msgspec import Struct

from regraft.schemas.bounds import Name, TimeMs
from regraft.schemas.member import BrokerFacts, Member, MemberState
from regraft.schemas.topics import ANNOUNCEMENTS, NO_AGENT, topic_name

LINKS_MAX = 1_000  # That one announcement may name: the nearest are enough, and all who ask are kept in memory.
CAPABILITIES_MAX = 100
ADDRESS_LENGTH_MAX = 256
REPEAT_MS = 60_000
STANDS_MS = 10 * REPEAT_MS  # One that was not repeated for this long is over: its writer is gone.


class Announcement(Struct, frozen=True):
    """One broker that runs and wants to be a member, with its ``facts``, at ``time_ms`` of its own clock."""

    broker: Name
    facts: BrokerFacts
    time_ms: TimeMs


def announcement_fault(namespace: str, name: str, announcement: Announcement, agent: str | None) -> str:
    """Return why an announcement may not stand in the topic of this name, empty when it may.

    ``agent`` is who is known to speak for the broker, None if it is not known at all. Kafka's rules keep agents to
    their own topics, so who announces a broker of another's is found out here.
    """
    broker, facts = announcement.broker, announcement.facts
    if name != topic_name(ANNOUNCEMENTS, namespace, facts.agent):
        return (
            f"it announces {broker} for {_agent_text(facts.agent)}, but not in that agent's topic {name}: correct its "
            "agent"
        )
    if agent is not None and agent != facts.agent:
        return (
            f"it announces {broker} for {_agent_text(facts.agent)}, but {_agent_text(agent)} speaks for it: stop the "
            "process that writes there"
        )
    for what, count, most in (
        ("links", len(facts.link_costs), LINKS_MAX),
        ("capabilities", len(facts.capabilities), CAPABILITIES_MAX),
        ("characters of an address", len(facts.address), ADDRESS_LENGTH_MAX),
    ):
        if count > most:
            return f"it announces {broker} with {count:,} {what}, but at most {most:,} are allowed: list fewer"
    return ""


def against_announced(announcement: Announcement, brokers: Container[str]) -> str:
    """Return why an announced broker has no place among these, empty when it has: its links could not be priced."""
    facts = announcement.facts
    if facts.position is not None or any(link.peer in brokers for link in facts.link_costs):
        return ""
    named = "the brokers that it names are unknown" if facts.link_costs else "it names no links"
    return f"its link costs are unknown: {named}, and it gives no position"


def way_in(announcement: Announcement, brokers: Container[str], *, has_left: bool) -> str:
    """Return what a person can do to let an announced broker in among these; ``has_left``: it was a member before."""
    broker = announcement.broker
    if has_left:
        return f"it has left: `regraft members readmit {broker}` lets it rejoin"
    if against := against_announced(announcement, brokers):
        return f"{against}: `regraft members add {broker} --link PEER=COST` admits it"
    return f"`regraft members add {broker}` admits it"


def may_ask(member: Member | None) -> bool:
    """Return True if an announcement of a broker is relevant: it is not a member, or was one that has left."""
    return member is None or member.state is MemberState.LEFT


def _agent_text(agent: str) -> str:
    return f"agent {agent!r}" if agent != NO_AGENT else "no agent"
