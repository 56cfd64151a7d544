"""The closing rule with which a query starts: the one in force, unless a micro-batch under another is uncommitted."""

from pathlib import Path

import pytest

from regraft.streaming.decide_closing import ClosingRule, starting_rule
from regraft.streaming.streaming_settings import StreamingSettings

LIVE, CATCH_UP = ClosingRule(2_000, True), ClosingRule(60_000, False)


@pytest.fixture
def job(tmp_path: Path) -> StreamingSettings:
    return StreamingSettings("none:1", tmp_path / "checkpoint")


def begin(job: StreamingSettings, log: str, batch: int) -> None:
    (job.query_directory / log).mkdir(parents=True, exist_ok=True)
    (job.query_directory / log / str(batch)).touch()
    (job.query_directory / log / f".{batch + 1}.crc").touch()


def test_an_uncommitted_micro_batch_keeps_its_rule_and_runs_alone(job: StreamingSettings) -> None:
    """It lasts until Spark has committed the micro-batch; batches are compared as numbers, not as texts."""
    for batch in (9, 10):
        begin(job, "offsets", batch)
    begin(job, "commits", 9)
    assert starting_rule(job, LIVE) == (LIVE, False)  # Nothing was kept: an earlier version wrote the checkpoint.
    assert starting_rule(job, CATCH_UP) == (LIVE, True)
    assert starting_rule(job, CATCH_UP) == (LIVE, True)
    assert starting_rule(job, LIVE) == (LIVE, False)  # It may continue: the rule is the same.
    begin(job, "commits", 10)
    assert starting_rule(job, CATCH_UP) == (CATCH_UP, False)
    begin(job, "offsets", 11)
    assert starting_rule(job, LIVE) == (CATCH_UP, True)


def test_a_new_checkpoint_or_a_corrupt_file_keeps_the_rule_in_force(job: StreamingSettings) -> None:
    """Without a known rule the one for the start applies."""
    assert starting_rule(job, CATCH_UP) == (CATCH_UP, False)
    begin(job, "offsets", 0)
    job.rule_file.write_text("rubbish")
    assert starting_rule(job, LIVE) == (LIVE, False)
