"""A recording through real Kafka and Spark: the same state rows, the same plans byte for byte, recorded again."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from regraft.infra.local.kafka_server import RunningKafka
from regraft.producers.recordings.read_recording import open_recording
from regraft.replays.read_inputs import recorded_settings
from regraft.run_records.read_topics import read_whole
from regraft.schemas.codec import encode
from regraft.schemas.state import StateRow, WindowClosed
from regraft.schemas.topics import STATE, WINDOWS
from regraft.schemas.unpack_state import unpack_window
from tests.regraft.make_small_recording import SMALL, SMALL_PLANS, reference_rows, small_inventory

CHECKOUT = Path(__file__).parents[3]
NAMESPACE = "replayed"

pytestmark = [pytest.mark.stack, pytest.mark.spark]


def regraft(*arguments: str, code: int = 0) -> Any:
    command = [sys.executable, "-m", "regraft", *arguments]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, cwd=CHECKOUT)
    assert answer.returncode == code, answer.stderr[-4000:]
    return json.loads(answer.stdout)


def unpacked(records: list[StateRow | WindowClosed]) -> Iterator[StateRow | WindowClosed]:
    """Yield rows and markers with single delivery rows, as the reference makes them."""
    for marker in [record for record in records if isinstance(record, WindowClosed)]:
        rows = [row for row in records if isinstance(row, StateRow) and row.window_start_ms == marker.window_start_ms]
        single, counted = unpack_window(rows, marker)
        yield from (*single, counted)


def test_a_replay_gives_the_same_rows_and_plans(kafka: RunningKafka, tmp_path: Path) -> None:
    """Spark's rows of the replayed telemetry are the reference's of the recording; the plans are the stored ones."""
    address = ("--bootstrap", kafka.bootstrap)
    found = regraft("replay", str(SMALL), *address, "--namespace", NAMESPACE, "--run", "--out", str(tmp_path), "--json")
    recording = open_recording(SMALL)
    topics = {STATE: StateRow, WINDOWS: WindowClosed}
    rows = sorted(encode(row) for row in unpacked(list(read_whole(kafka.access, NAMESPACE, topics, 60.0))))
    assert rows == sorted(encode(row) for row in reference_rows(recording, recorded_settings(recording, {}, None)[0]))
    assert (tmp_path / "plans.json").read_bytes() == SMALL_PLANS.read_bytes()
    assert found["plans_same"] == found["plans_recorded"] == len(found["plans"])
    assert (found["first_difference"], found["warnings"], found["brokers_imagined_from_ms"]) == ("", [], None)

    small_inventory().save(tmp_path / "inventory.json")
    again = tmp_path / "again.avro"
    description = regraft(
        *("record", "--out", str(again), *address, "--from-start", "--duration", "4", "--json"),
        *("--set", f"kafka.namespace={NAMESPACE}", "--set", f"run.directory={tmp_path}"),
    )
    assert description["topics"] == found["topics"]
    wanted = list(recording.messages(["telemetry", "clients"]))
    assert list(open_recording(again).messages(["telemetry", "clients"])) == wanted
