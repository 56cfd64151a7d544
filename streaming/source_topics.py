"""Which topics hold telemetry, and whose: one for each agent of the brokers, or the one named in the settings.

Refusing records belongs to :mod:`streaming.refuse_batches`.
"""

from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

import msgspec

from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.read_inventory import load_inventory
from regraft.schemas.broker_topics import BrokerTopics
from regraft.schemas.topics import NO_AGENT, TELEMETRY
from regraft.streaming.streaming_settings import StreamingSettings

Place = tuple[str, int]  # topic and partition
Offsets = dict[Place, int]  # The next offset of each.


def source_topics(settings: StreamingSettings) -> tuple[str, ...]:
    """Return the names of the topics that are read. Raises InventoryError."""
    if settings.telemetry_topic:
        return (settings.telemetry_topic,)
    return broker_topics(settings).names(TELEMETRY)


def broker_topics(settings: StreamingSettings) -> BrokerTopics:
    """Return which topic each broker's telemetry is in; without agents, or with a topic in the settings, it may be any.

    Raises InventoryError.
    """
    if settings.telemetry_topic or settings.inventory_path is None:
        return BrokerTopics(settings.namespace)
    inventory, added = inventory_at(settings.inventory_path), added_brokers(settings)
    if not inventory.agent_of and not any(added.values()):
        return BrokerTopics(settings.namespace)
    default_agents = dict.fromkeys(inventory.brokers, NO_AGENT)
    return BrokerTopics(settings.namespace, default_agents | dict(inventory.agent_of) | added)


def known_brokers(settings: StreamingSettings) -> tuple[str, ...]:
    """Return the brokers of the inventory and those added since; none if any broker's telemetry is accepted.

    Raises InventoryError.
    """
    if settings.inventory_path is None:
        return ()
    return tuple(sorted({*inventory_at(settings.inventory_path).brokers, *added_brokers(settings)}))


def added_brokers(settings: StreamingSettings) -> dict[str, str]:
    """Return the agent of each broker with facts in the topic of members, as the job last stored them."""
    path = settings.members_file
    return _added(path, path.stat().st_mtime_ns) if path.exists() else {}


def inventory_at(path: Path) -> Inventory:
    """Return the file's inventory, cached until it changes: micro-batches ask repeatedly. Raises InventoryError."""
    return _loaded(path, path.stat().st_mtime_ns if path.exists() else 0)


def slot_text(place: Place, source_topic: str) -> str:
    """Return a partition's name for people, with its topic unless that is ``source_topic``."""
    topic, partition = place
    return f"partition {partition}" if topic == source_topic else f"partition {partition} of {topic}"


def topics_of(places: Iterable[Place]) -> list[str]:
    """Return the topics that the partitions belong to, sorted."""
    return sorted({topic for topic, _ in places})


@lru_cache(maxsize=1)
def _added(path: Path, _mtime_ns: int) -> dict[str, str]:
    return msgspec.json.decode(path.read_bytes(), type=dict[str, str])


@lru_cache(maxsize=1)
def _loaded(path: Path, _mtime_ns: int) -> Inventory:
    return load_inventory(path)
