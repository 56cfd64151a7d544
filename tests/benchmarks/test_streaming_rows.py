"""bench_streaming compares what programs wrote, however they packed it, and measures by what was completed."""

import pytest

from benchmarks.bench_streaming import Measured, errors_of
from benchmarks.streaming_input import BATCHES_PER_S, BROKERS, WINDOW_MS, Telemetry, Written
from benchmarks.streaming_programs import JOB, ResourceUse
from benchmarks.streaming_rows import Outcome, differences, outcome_of
from regraft.schemas.codec import decode, encode
from regraft.schemas.state import WindowClosed
from regraft.schemas.telemetry import TelemetryBatch
from regraft.streaming.build_rows import state_key
from regraft.streaming.close_windows import close_windows
from regraft.streaming.merge_parts import merge_parts
from regraft.streaming.reference_aggregator import ReferenceAggregator
from tests.streaming.encoded_windows import encode_window
from tests.streaming.random_telemetry import as_dicts, parts_of


def test_outcome_is_the_same_for_packed_and_single_rows_and_adds_up_to_the_input() -> None:
    """The job's packed rows and the plain loop's single rows of the same batches, some sent twice, are equal."""
    telemetry, batches = Telemetry(2), list[TelemetryBatch]()
    for flush in range(2 * BATCHES_PER_S):
        for broker in range(BROKERS):
            batches.append(decode(telemetry.batch(broker, flush), TelemetryBatch))
            telemetry.count_batch()
    written = telemetry.written()
    plain = ReferenceAggregator(WINDOW_MS, grace_ms=0)
    for batch in as_dicts(batches + batches[::7]):
        plain.take(batch)
    single = plain.finish()
    encoded = [encode_window(each) for each in close_windows(merge_parts(parts_of(batches)), WINDOW_MS)]
    rows = {state_key(row.window_start_ms, row.kind, row.entity): encode(row) for each in single for row in each.rows}
    plainly = outcome_of(rows, [each.marker for each in single], has_markers=True)
    messages = {message["key"]: message["value"] for each in encoded for message in each.rows}
    packed = outcome_of(messages, [decode(each.marker["value"], WindowClosed) for each in encoded], has_markers=True)
    assert len(messages) < len(rows)
    assert packed == plainly
    assert plainly.local_deliveries == written.local_deliveries > 0
    assert plainly.announced == len(plainly.digests) == len(rows)
    assert written.windows == len(single)


def test_differences_name_rows() -> None:
    """Rows that only one program wrote and rows that differ are counted, with an example; order does not matter."""
    first = {b"5/delivery/p|a": b"1", b"5/delivery/p|b": b"2", b"5/delivery/p|c": b"3"}
    second = {b"5/delivery/p|c": b"4", b"5/delivery/p|a": b"1", b"5/delivery/p|d": b"5"}
    assert differences(first, dict(reversed(first.items()))) == []
    assert differences(first, second) == [
        "only the first has 1 rows, for example 5/delivery/p|b",
        "only the second has 1 rows, for example 5/delivery/p|d",
        "they disagree on 1 rows, for example 5/delivery/p|c",
    ]


@pytest.mark.parametrize(
    ("progress", "rate", "cpu"),
    [
        ([(1.0, 20, 3.0), (2.0, 50, 5.0), (4.0, 100, 7.0)], 50 / 3, 5 / 50),
        ([(1.0, 20, 3.0), (4.0, 100, 7.0)], 80 / 4, 7 / 80),  # nothing completed in between
        ([(4.0, 100, 7.0)], 100 / 5, 10 / 100),
    ],
)
def test_rate_is_of_what_was_completed(progress: list[tuple[float, int, float]], rate: float, cpu: float) -> None:
    """The rate runs from the first progress with 40 % of the cells completed until the last row is written."""
    noted = [(at_s, cells, {"a": used_s - 1.0, "b": 1.0}) for at_s, cells, used_s in progress]
    resources = ResourceUse(9.0, 5.0, 0, noted, {"a": 8.0, "b": 2.0}, {})
    assert resources.completed_per_s(100) == pytest.approx(rate)
    assert sum(resources.completed_cpu_s(100).values()) / resources.completed_cells(100) == pytest.approx(cpu)


def test_a_program_with_a_different_outcome_is_reported() -> None:
    """A wrong row, a lost delivery, a late row and a marker with a wrong count are errors of either program."""
    resources = ResourceUse(1.0, 1.0, 0, [], {}, {})
    row = {b"5/delivery/p|a": b"1"}
    job = Measured(resources, Outcome({**row, b"5/interest/a": b"2"}, 7, 2))
    written = Written(records=1, cells=1, local_deliveries=7, windows=1)
    assert errors_of({JOB: job, "good": Measured(resources, Outcome(row, None, None))}, written) == []
    late = ResourceUse(1.0, 1.0, 3, [], {}, {})
    wrong = Measured(late, Outcome({b"5/delivery/p|a": b"3"}, 6, 4))
    assert errors_of({JOB: job, "bad": wrong}, written) == [
        "bad accounts for 6 of 7 deliveries",
        "bad dropped 3 rows as late",
        "bad: the markers announce 4 rows, 1 were written",
        "spark and bad: they disagree on 1 rows, for example 5/delivery/p|a",
    ]
