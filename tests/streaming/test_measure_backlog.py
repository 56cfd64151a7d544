"""How much telemetry waits to be read, and the grace with which the job starts because of it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from regraft.infra.kafka.kafka_access import KafkaAccess
from regraft.streaming import run_job
from regraft.streaming.job_metrics import JobHealth, JobMetrics
from regraft.streaming.measure_backlog import batch_records_max, records_behind, recreated_topics
from regraft.streaming.size_job import heap_mb
from regraft.streaming.source_topics import Offsets
from regraft.streaming.streaming_settings import StreamingSettings
from tests.mock_kafka import mock_kafka
from tests.overlay.small_overlays import inventory_of, line_of
from tests.wait_until import PATIENCE_S

TOPIC, OTHER = "telemetry", "telemetry.west"
RECORDS, OTHERS = 30, 7
FLUSHES_PER_S = 4  # Every broker sends a batch each 250 ms.


@pytest.fixture
def bootstrap(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Yield the address of a mock cluster whose topics hold ``RECORDS`` and ``OTHERS`` records in partition 0."""
    monkeypatch.setattr("regraft.streaming.measure_backlog.ASK_TIMEOUT_S", PATIENCE_S)
    with mock_kafka() as (owner, address):
        for topic, count in ((TOPIC, RECORDS), (OTHER, OTHERS)):
            for number in range(count):
                owner.produce(topic, str(number).encode(), partition=0)
        assert owner.flush(PATIENCE_S) == 0
        yield address


@pytest.mark.parametrize(
    ("next_offsets", "behind"),
    [
        ({}, RECORDS + OTHERS),
        ({(TOPIC, 0): 10}, RECORDS - 10 + OTHERS),
        ({(TOPIC, 0): RECORDS, (TOPIC, 1): 0, (OTHER, 0): 0}, OTHERS),
        ({(TOPIC, 0): RECORDS + 5, (OTHER, 0): OTHERS}, 0),
    ],
)
def test_the_backlog_is_what_no_micro_batch_covered(bootstrap: str, next_offsets: Offsets, behind: int) -> None:
    """It counts from the last run's offsets, or from the beginning if there are none, and is never negative."""
    assert records_behind(KafkaAccess(bootstrap), (TOPIC, OTHER), next_offsets) == behind


def test_a_topic_that_ends_before_the_read_offset_is_another_one(bootstrap: str) -> None:
    """Of several agents' topics that one is named; the others are unaffected."""
    topics, read = (TOPIC, OTHER), {(TOPIC, 0): RECORDS, (OTHER, 0): OTHERS + 1, ("gone", 0): 9}
    assert recreated_topics(KafkaAccess(bootstrap), topics, read) == [OTHER]
    assert recreated_topics(KafkaAccess(bootstrap), topics, {}) == []


def test_without_kafka_the_backlog_is_unknown(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A Kafka that does not answer in time gives no count, and no page of connection errors."""
    monkeypatch.setattr("regraft.streaming.measure_backlog.ASK_TIMEOUT_S", 0.3)
    assert records_behind(KafkaAccess("127.0.0.1:1"), (TOPIC,), {}) is None
    assert "FAIL" not in capfd.readouterr().err


class NoWriter:
    """Takes the place of the writer to Kafka."""

    def write_dead_letters(self, _letters: object) -> None:
        pytest.fail("nothing is read yet")


def brokers_in(directory: Path, count: int) -> Path:
    """Write the inventory of a line of this many brokers."""
    tree = line_of(count)
    file = directory / "inventory.json"
    inventory_of(tree, {}).save(file)
    return file


@pytest.mark.parametrize(("count", "records"), [(40, 60_000), (1_000, 120_000)])
def test_half_a_minute_of_any_fleet_is_no_backlog(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, records: int
) -> None:
    """What arrives while a query starts is one micro-batch, of 40 brokers as of 1,000; minutes of it are caught up."""
    settings = StreamingSettings("none:1", tmp_path, inventory_path=brokers_in(tmp_path, count))
    assert batch_records_max(settings) == records
    assert records >= 30 * count * FLUSHES_PER_S
    assert heap_mb(batch_records_max(settings)) == {60_000: 1_024, 120_000: 1_224}[records]
    nothing: Any = None
    writer: Any = NoWriter()
    for behind_s, catching_up in ((5, False), (30, False), (600, True)):
        monkeypatch.setattr(run_job, "records_behind", answer(behind_s * count * FLUSHES_PER_S))
        job = run_job._Job(nothing, settings, nothing, writer, JobMetrics(), JobHealth(180.0))
        assert job.status.catching_up is catching_up


def answer(behind: int | None) -> Callable[..., int | None]:
    return lambda *_: behind


@pytest.mark.parametrize(("behind", "catching_up"), [(0, False), (500, False), (501, True), (None, True)])
def test_only_a_backlog_of_several_micro_batches_gets_the_longer_grace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, behind: int | None, catching_up: bool
) -> None:
    """A single micro-batch is read as a whole, so it needs no catch-up grace; an unknown backlog gets it."""
    monkeypatch.setattr(run_job, "records_behind", answer(behind))
    settings = StreamingSettings("none:1", tmp_path, records_per_trigger_max=500)
    nothing: Any = None
    writer: Any = NoWriter()
    job = run_job._Job(nothing, settings, nothing, writer, JobMetrics(), JobHealth(180.0))
    assert job.status.catching_up is catching_up
