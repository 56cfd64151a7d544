"""The topics of each agent, and the brokers that may appear in them."""

import pytest

from regraft.schemas.broker_topics import BrokerTopics
from regraft.schemas.member import BrokerFacts, Member, MemberState
from regraft.schemas.topics import COMMANDS, NO_AGENT, PLANS, RESULTS, TELEMETRY

ALL_NAMED = BrokerTopics("live", {"b1": "west", "b2": "east", "b3": "west"})
SOME_NAMED = BrokerTopics("live", {"b1": "west", "b2": ""})


def test_without_agents_all_brokers_share_the_topics() -> None:
    """A writer to a shared topic may speak for any broker, known or not."""
    plain = BrokerTopics("live")
    assert plain.names(RESULTS) == ("live.results",)
    assert plain.name(COMMANDS, "b1") == "live.commands"
    assert plain.error("live.results", "anybody") == ""


def test_each_agent_has_its_own_topics() -> None:
    """Only the topics between agents and stages are separate; plans have one topic."""
    assert ALL_NAMED.names(RESULTS) == ("live.results.east", "live.results.west")
    assert (ALL_NAMED.name(COMMANDS, "b2"), ALL_NAMED.name(COMMANDS, "b3")) == (
        "live.commands.east",
        "live.commands.west",
    )
    assert SOME_NAMED.names(TELEMETRY) == ("live.telemetry", "live.telemetry.west")
    assert ALL_NAMED.names(PLANS) == ("live.plans",)
    assert SOME_NAMED.names(RESULTS) == ("live.results", "live.results.west")


@pytest.mark.parametrize(
    ("topics", "name", "broker", "is_taken"),
    [
        (ALL_NAMED, "live.results.west", "b1", True),
        (ALL_NAMED, "live.results.west", "b3", True),
        (ALL_NAMED, "live.results.west", "b2", False),
        (ALL_NAMED, "live.results.west", "b9", False),
        (ALL_NAMED, "live.commands.east", "b1", False),
        (ALL_NAMED, "live.telemetry.east", "b1", False),
        (SOME_NAMED, "live.results", "b2", True),
        (SOME_NAMED, "live.results", "b1", False),
        (SOME_NAMED, "live.results.west", "b2", False),
    ],
)
def test_an_agent_cannot_speak_for_a_broker_of_another_agent(
    topics: BrokerTopics, name: str, broker: str, is_taken: bool
) -> None:
    """The reason names the broker."""
    error = topics.error(name, broker)
    assert (not error) == is_taken
    assert is_taken or (broker in error and "a broker of another agent" in error)


def test_members_determine_their_agents() -> None:
    """Facts of a member override the inventory; a member without facts changes nothing."""
    first = BrokerTopics("live", {"b00": "west", "b01": "east"})
    dead = Member("b00", MemberState.DEAD, 5, "silent")
    moved = Member("b01", MemberState.IN_SERVICE, 5, "", facts=BrokerFacts(agent="west"))
    added = Member("b41", MemberState.JOINING, 5, "", facts=BrokerFacts(agent="north"))
    assert first.with_members([dead]) is first
    found = first.with_members([dead, moved, added])
    assert found.agent_of == {"b00": "west", "b01": "west", "b41": "north"}
    assert found.with_members([added, moved]) is found
    alone = Member("b41", MemberState.JOINING, 5, "", facts=BrokerFacts())
    assert BrokerTopics("live").with_members([alone]).agents == (NO_AGENT,)
