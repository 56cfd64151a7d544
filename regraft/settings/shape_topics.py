"""Create the topics of a run: those of each agent, with as many partitions for telemetry as its brokers need.

How a topic is created belongs to :mod:`infra.kafka.create_topics`, the rule to :mod:`streaming.size_job`.
"""

from __future__ import annotations

from collections import Counter

from regraft.infra.kafka.create_topics import create_topics
from regraft.overlay.read_inventory import load_inventory
from regraft.schemas.topics import NO_AGENT, TELEMETRY, Topic
from regraft.settings.place_demo import agents_of
from regraft.settings.run_settings import Settings


def create_run_topics(settings: Settings, agents: tuple[str, ...] = ()) -> list[str]:
    """Create missing topics for the given agents, by default the inventory's; return the names of those created.

    Raises StackError, and InventoryError if the file is not an inventory.
    """
    kafka = settings.kafka
    return create_topics(
        kafka.access,
        namespace=kafka.namespace,
        agents=agents or agents_of(settings),
        partitions=telemetry_partitions(settings),
    )


def telemetry_partitions(settings: Settings) -> dict[Topic, int]:
    """Return the number of partitions for new telemetry topics: as set, else by the most brokers that share one.

    Raises InventoryError if the file is not an inventory.
    """
    from regraft.streaming.size_job import telemetry_partitions_of

    file = settings.controller.inventory_path
    if settings.kafka.telemetry_partitions or not file.exists():
        return {TELEMETRY: settings.kafka.telemetry_partitions or TELEMETRY.partitions}
    inventory = load_inventory(file)
    by_agent = Counter(inventory.agent_of.get(broker, NO_AGENT) for broker in inventory.brokers)
    return {TELEMETRY: telemetry_partitions_of(max(by_agent.values(), default=0))}
