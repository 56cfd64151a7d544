"""What a broker may announce, in which topic, and whether its links have a cost."""

import pytest

from regraft.schemas.announcement import LINKS_MAX, Announcement, announcement_error, why_not_admitted
from regraft.schemas.member import BrokerFacts, PeerCost, Position

OWN, SHARED = "live.announcements.west", "live.announcements"
MANY = tuple(PeerCost(f"p{number}", 1.0) for number in range(LINKS_MAX + 1))


@pytest.mark.parametrize(
    ("name", "facts", "known_agent", "why"),
    [
        (OWN, BrokerFacts(agent="west"), None, ""),
        (OWN, BrokerFacts(agent="west"), "west", ""),
        (SHARED, BrokerFacts(), None, ""),
        (SHARED, BrokerFacts(), "", ""),
        (
            OWN,
            BrokerFacts(agent="east"),
            None,
            "for agent 'east', but not in that agent's topic live.announcements.west",
        ),
        (OWN, BrokerFacts(), None, "for no agent, but not in that agent's topic"),
        (SHARED, BrokerFacts(agent="west"), None, "but not in that agent's topic live.announcements"),
        (OWN, BrokerFacts(agent="west"), "east", "but agent 'east' speaks for it"),
        (OWN, BrokerFacts(agent="west"), "", "but no agent speaks for it"),
        (OWN, BrokerFacts(agent="west", link_costs=MANY), None, "with 1,001 links, but at most 1,000"),
        (SHARED, BrokerFacts(address="a" * 257), None, "257 characters of an address, but at most 256"),
    ],
)
def test_an_agent_announces_only_its_own_brokers(
    name: str, facts: BrokerFacts, known_agent: str | None, why: str
) -> None:
    """A writer to an agent's topic announces brokers of that agent only, and no more facts than are kept."""
    found = announcement_error("live", name, Announcement("x1", facts, 0), known_agent)
    assert why in found
    assert bool(found) is bool(why)


@pytest.mark.parametrize(
    ("facts", "has_place"),
    [
        (BrokerFacts(link_costs=(PeerCost("b0", 1.0),)), True),
        (BrokerFacts(link_costs=(PeerCost("b0", 1.0), PeerCost("stranger", 1.0))), True),
        (BrokerFacts(position=Position(1.0, 2.0)), True),
        (BrokerFacts(), False),
        (BrokerFacts(link_costs=(PeerCost("stranger", 1.0),)), False),
    ],
)
def test_a_broker_has_a_place_if_its_links_can_be_priced(facts: BrokerFacts, *, has_place: bool) -> None:
    """A cost to a known broker or a position is enough."""
    assert (why_not_admitted(Announcement("x1", facts, 0), ("b0", "b1")) == "") is has_place
