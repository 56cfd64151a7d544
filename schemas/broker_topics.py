"""The agent and the topics of each broker: no agent needs another one's topics."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from regraft.schemas.member import Member
from regraft.schemas.topics import NO_AGENT, TOPICS, Topic, topic_name, topic_names

# Takes broker, agent and topic; Spark formats it as well.
NO_AGENT_TEXT = "no agent"
WRONG_AGENT_TEXT = (
    "it claims to come from a broker of another agent: %s belongs to %s, not to the topic %s; stop the process that "
    "writes there in its name, or "
    "correct the agents in the inventory"
)


@dataclass(frozen=True, slots=True)
class BrokerTopics:
    """The topics of a namespace by broker.

    ``agent_of`` maps each broker to its agent, NO_AGENT if it has none; empty if there are no agents at all.
    """

    namespace: str
    agent_of: Mapping[str, str] = field(default_factory=dict)

    @property
    def agents(self) -> tuple[str, ...]:
        """The agents of these brokers, sorted; includes NO_AGENT if a broker has none."""
        return tuple(sorted(set(self.agent_of.values()))) or (NO_AGENT,)

    def of_agents(self, agents: Collection[str]) -> BrokerTopics:
        """Return only the brokers and topics of these agents."""
        return BrokerTopics(self.namespace, {name: agent for name, agent in self.agent_of.items() if agent in agents})

    def with_members(self, members: Iterable[Member]) -> BrokerTopics:
        """Return the topics updated with these members' facts, which determine the agents of their brokers."""
        agents = {member.broker: member.facts.agent for member in members if member.facts is not None}
        is_same = all(self.agent_of.get(broker, NO_AGENT) == agent for broker, agent in agents.items())
        return self if is_same else BrokerTopics(self.namespace, {**self.agent_of, **agents})

    def represents(self, broker: str) -> bool:
        """Return True if a holder of these topics may represent the broker; without agents, anybody may."""
        return not self.agent_of or broker in self.agent_of

    def name(self, topic: Topic, broker: str) -> str:
        """Return the name of the topic that holds this broker's records."""
        return topic_name(topic, self.namespace, self.agent_of.get(broker, NO_AGENT))

    def names(self, topic: Topic) -> tuple[str, ...]:
        """Return the names of the topic: one for each agent if it is split by agent."""
        return topic_names(topic, self.namespace, self.agents)

    def error(self, name: str, broker: str) -> str:
        """Return why a record of this broker may not be in the topic with this name, "" if it may."""
        if not self.agent_of or name in {self.name(topic, broker) for topic in TOPICS if topic.is_by_agent}:
            return ""
        agent = self.agent_of.get(broker, NO_AGENT)
        return WRONG_AGENT_TEXT % (broker, agent or NO_AGENT_TEXT, name)
