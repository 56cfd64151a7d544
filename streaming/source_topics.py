"""Which topics hold telemetry, and whose: one for each agent of the inventory, or the one that the settings name.

In: settings. Out: names of topics, and the brokers that may stand in each. What is wrong with a record belongs to
:mod:`streaming.refuse_batches`.
"""

from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from overlay.inventory import Inventory
from schemas.broker_topics import BrokerTopics
from schemas.topics import TELEMETRY
from streaming.streaming_settings import StreamingSettings

Place = tuple[str, int]  # topic and partition
Offsets = dict[Place, int]  # The next offset of each.


def source_topics(settings: StreamingSettings) -> tuple[str, ...]:
    """Return the names of the topics that are read. Raises InventoryError."""
    if settings.telemetry_topic:
        return (settings.telemetry_topic,)
    return broker_topics(settings).names(TELEMETRY)


def broker_topics(settings: StreamingSettings) -> BrokerTopics:
    """Return whose telemetry stands where; without agents, or in a topic that is named, anybody's stands anywhere.

    Raises InventoryError.
    """
    if settings.telemetry_topic or settings.inventory_path is None:
        return BrokerTopics(settings.namespace)
    return inventory_at(settings.inventory_path).broker_topics(settings.namespace)


def known_brokers(inventory_path: Path) -> tuple[str, ...]:
    """Return the brokers of the inventory. Raises InventoryError."""
    return inventory_at(inventory_path).brokers


def inventory_at(path: Path) -> Inventory:
    """Return the inventory as the file has it now; each micro-batch with dead letters asks. Raises InventoryError."""
    return _loaded(path, path.stat().st_mtime_ns if path.exists() else 0)


def place_text(place: Place, source_topic: str) -> str:
    """Return a partition for people, with its topic where that is another than the one of all."""
    topic, partition = place
    return f"partition {partition}" if topic == source_topic else f"partition {partition} of {topic}"


def topics_of(places: Iterable[Place]) -> list[str]:
    """Return the topics that the partitions belong to, sorted."""
    return sorted({topic for topic, _ in places})


@lru_cache(maxsize=1)
def _loaded(path: Path, _mtime_ns: int) -> Inventory:
    return Inventory.load(path)
