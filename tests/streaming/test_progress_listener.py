"""A progress report in Spark's own JSON."""

import json
from typing import Any

from regraft.streaming.progress_listener import observed_counts, progress_of
from regraft.streaming.window_job import OBSERVATION

SOURCE: dict[str, Any] = {
    "description": "KafkaV2",
    "startOffset": None,
    "endOffset": {"telemetry": {"0": 7}},
    "latestOffset": {"telemetry": {"0": 9}},
    "numInputRows": 7,
}
REPORT: dict[str, Any] = {
    "id": "c6a1f6a4-54f7-4d37-9d5f-1d5d2f0c2a11",
    "runId": "0b5f3a52-7e1e-4a04-9c05-0a5f4d9f4f10",
    "name": "windows",
    "timestamp": "2026-11-28T18:52:00.000Z",
    "batchId": 3,
    "batchDuration": 0,
    "durationMs": {"triggerExecution": 0},
    "numInputRows": 7,
    "stateOperators": [],
    "sources": [SOURCE],
    "sink": {"description": "ForeachBatchSink", "numOutputRows": -1},
    "observedMetrics": {OBSERVATION: {"records": 7, "dead": None}},
}


def test_rates_that_spark_leaves_out_are_zero() -> None:
    """Two triggers within a millisecond have rates that are not finite; the report counts all the same."""
    progress = progress_of(json.dumps(REPORT))
    assert (progress.inputRowsPerSecond, progress.processedRowsPerSecond) == (0.0, 0.0)
    assert progress.sources[0].inputRowsPerSecond == 0.0
    assert json.loads(progress.sources[0].endOffset) == {"telemetry": {"0": 7}}
    assert observed_counts(progress) == {"records": 7, "dead": 0}
