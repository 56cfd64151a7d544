"""The recipe for brokers of other kinds: what it writes to Kafka is telemetry, from which windows close."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from regraft.infra.kafka.create_topics import create_topics
from regraft.infra.local.kafka_server import RunningKafka
from regraft.run_records.read_topics import read_whole
from regraft.schemas.telemetry import TelemetryBatch
from regraft.schemas.topics import TELEMETRY
from regraft.streaming.reference_aggregator import ReferenceAggregator

RECIPE = Path(__file__).parents[2] / "docs" / "recipes" / "report_telemetry.py"
LINES_MAX = 60
SECONDS = 17
COUNT = SECONDS * 4  # More than the 64 notifications of a block.


def test_the_recipe_is_short_and_stands_alone() -> None:
    text = RECIPE.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= LINES_MAX
    assert "regraft." not in text.replace('"regraft.telemetry"', "")


@pytest.mark.stack
def test_what_a_broker_of_another_kind_reports_closes_windows(kafka: RunningKafka) -> None:
    """Every notification is in a mask, however often its cell was sent."""
    create_topics(kafka.access, namespace="regraft")
    subprocess.run([sys.executable, RECIPE, kafka.bootstrap, "f1", str(SECONDS)], check=True, timeout=100)
    written = read_whole(kafka.access, "regraft", {TELEMETRY: TelemetryBatch}, 30.0)
    batches = [batch for batch in written if batch.broker == "f1"]
    assert [batch.sequence for batch in batches] == list(range(COUNT))
    masks: dict[int, int] = {}
    for cell in (cell for batch in batches for cell in batch.cells()):
        assert (cell.publisher, cell.published) == ("p", cell.mask)
        masks[cell.block] = masks.get(cell.block, 0) | cell.mask % 2**64
    assert masks == {0: 2**64 - 1, 1: 2 ** (COUNT - 64) - 1}
    aggregator = ReferenceAggregator(5_000, 1_000)
    for batch in msgspec.to_builtins(batches, builtin_types=(bytes,)):
        aggregator.take(batch)
    windows = aggregator.advance()
    assert len(windows) >= SECONDS // 5 - 1
    assert all(window.rows for window in windows)
