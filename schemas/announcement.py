"""Announcement: a broker that is not a member asks to join, in the name of its agent.

It is repeated until the topic of members lists the broker. Acting on it belongs to the controller.
"""

from collections.abc import Container

from msgspec import Struct

from regraft.schemas.bounds import Name, TimeMs
from regraft.schemas.member import BrokerFacts, Member, MemberState
from regraft.schemas.topics import ANNOUNCEMENTS, NO_AGENT, topic_name

LINKS_MAX = 1_000  # Per announcement: the nearest peers are enough, and all announcements are kept in memory.
CAPABILITIES_MAX = 100
ADDRESS_LENGTH_MAX = 256
REPEAT_MS = 60_000
EXPIRY_MS = 10 * REPEAT_MS  # An announcement not repeated for this long has expired: its writer is gone.


class Announcement(Struct, frozen=True):
    """A running broker that wants to be a member, with its ``facts``; ``time_ms`` is by its own clock."""

    broker: Name
    facts: BrokerFacts
    time_ms: TimeMs


def announcement_error(namespace: str, name: str, announcement: Announcement, agent: str | None) -> str:
    """Return why an announcement may not be in the topic with this name, "" if it may.

    ``agent`` is the known agent of the broker, None if the broker is unknown. Kafka's rights restrict agents to their
    own topics, so this check detects announcements of another agent's broker.
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


def why_not_admitted(announcement: Announcement, brokers: Container[str]) -> str:
    """Return why an announced broker cannot join these brokers, "" if it can: its links could not be priced."""
    facts = announcement.facts
    if facts.position is not None or any(link.peer in brokers for link in facts.link_costs):
        return ""
    named = "the brokers that it names are unknown" if facts.link_costs else "it names no links"
    return f"its link costs are unknown: {named}, and it gives no position"


def how_to_admit(announcement: Announcement, brokers: Container[str], *, has_left: bool) -> str:
    """Return how an operator can admit an announced broker; ``has_left`` if it was a member before."""
    broker = announcement.broker
    if has_left:
        return f"it has left: `regraft members readmit {broker}` lets it rejoin"
    if reason := why_not_admitted(announcement, brokers):
        return f"{reason}: `regraft members add {broker} --link PEER=COST` admits it"
    return f"`regraft members add {broker}` admits it"


def may_announce(member: Member | None) -> bool:
    """Return True if the broker may announce itself: it is not a member, or was one that has left."""
    return member is None or member.state is MemberState.LEFT


def _agent_text(agent: str) -> str:
    return f"agent {agent!r}" if agent != NO_AGENT else "no agent"
