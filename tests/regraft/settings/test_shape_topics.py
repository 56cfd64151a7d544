"""The number of partitions with which topics of telemetry are created."""

from dataclasses import replace
from pathlib import Path

import pytest

from regraft.schemas.topics import TELEMETRY
from regraft.settings.run_settings import Settings, SettingsError, load_settings
from regraft.settings.shape_topics import telemetry_partitions
from regraft.streaming import size_job
from tests.overlay.small_overlays import inventory_of, line_of


def settings(directory: Path, partitions: int = 0) -> Settings:
    return load_settings({"run": {"directory": directory}, "kafka": {"telemetry_partitions": partitions}})


def test_partitions_follow_the_number_of_brokers_in_a_topic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent with the most brokers counts, as each has its own topic; a configured number overrides this."""
    monkeypatch.setattr(size_job, "BROKERS_PER_SHARD", 1)
    assert telemetry_partitions(settings(tmp_path)) == {TELEMETRY: 4}
    inventory = inventory_of(line_of(12), {})
    inventory.save(tmp_path / "inventory.json")
    assert telemetry_partitions(settings(tmp_path)) == {TELEMETRY: 12}
    agent_of = dict.fromkeys(inventory.brokers[:7], "west") | dict.fromkeys(inventory.brokers[7:], "east")
    replace(inventory, agent_of=agent_of).save(tmp_path / "inventory.json")
    assert telemetry_partitions(settings(tmp_path)) == {TELEMETRY: 7}
    assert telemetry_partitions(settings(tmp_path, 5)) == {TELEMETRY: 5}


def test_fewer_partitions_than_in_the_table_are_refused(tmp_path: Path) -> None:
    """Such a topic would be refused by every check."""
    with pytest.raises(SettingsError, match="telemetry_partitions is 3: must be at least 4, or 0"):
        settings(tmp_path, 3)
