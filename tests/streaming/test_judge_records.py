"""What is used of telemetry and what is refused, and why: the work of Spark's first workers, without Spark."""

import copy
import dataclasses
import math
import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from regraft.infra.kafka.dead_letters import VALUE_BYTES_MAX
from regraft.schemas.bounds import RECORD_BYTES_MAX
from regraft.schemas.codec import SINGLE_OBJECT_MAGIC, UndecodableRecordError, decode, encode, header
from regraft.schemas.dead_letter import DeadLetter
from regraft.schemas.packed_cells import PackedSecond
from regraft.schemas.registry import latest_schema
from regraft.schemas.sampled_blocks import Sampling
from regraft.schemas.state import BrokerClock, StateRow, WindowClosed
from regraft.schemas.telemetry import ClientChange, Delivery, LinkProbe, QueueSample, TelemetryBatch
from regraft.schemas.topics import RESULTS, TELEMETRY
from regraft.streaming import judge_records
from regraft.streaming.close_windows import WindowRows, close_windows
from regraft.streaming.decode_columns import decode_columns
from regraft.streaming.keep_dead_letters import letter_of
from regraft.streaming.merge_parts import WindowParts, merge_parts
from regraft.streaming.open_windows import parts_of_window
from regraft.streaming.read_telemetry import LetterWriter, RowPacker, judge_of
from regraft.streaming.reference_aggregator import ReferenceAggregator, ReferenceWindow
from regraft.streaming.shard_rows import ShardRows, unpack_rows
from regraft.streaming.streaming_settings import EventBounds, StreamingSettings
from tests.controller.windows.sampled_traffic import batches_of, draw_traffic
from tests.overlay.small_overlays import brokers_named, inventory_of, line_of
from tests.schemas.encode_unchecked import encode_unchecked
from tests.schemas.old_versions import encode_as
from tests.streaming.random_telemetry import (
    BEGIN_MS,
    WINDOW_MS,
    as_dicts,
    lossy,
    random_telemetry,
    taken_times_ms,
    unpacked,
)

KAFKA_MS = BEGIN_MS + 20_000


def settings_of(path: Path, **changes: Any) -> StreamingSettings:
    return StreamingSettings(
        "none:1", path / "checkpoint", **{"window_ms": WINDOW_MS, "trigger_ms": 0, "shards": 2} | changes
    )


Written = tuple[int, tuple[StateRow, ...], dict[str, int], Any, Any]


def content(windows: Sequence[WindowRows | ReferenceWindow]) -> list[Written]:
    """Return rows and markers, without the late rows."""
    return [
        written_of(window.rows() if isinstance(window, WindowRows) else window.rows, window.marker)
        for window in windows
    ]


def written_of(rows: Sequence[StateRow], marker: WindowClosed) -> Written:
    counts = {kind: count for kind, count in marker.row_counts.items() if count}
    in_order = tuple(sorted(rows, key=lambda row: (row.kind, row.entity)))
    return marker.window_start_ms, in_order, counts, marker.brokers, marker.clocks


def reference_of(batches: Iterable[TelemetryBatch], bounds: EventBounds | None = None) -> ReferenceAggregator:
    """Return the reference after it took all batches; with bounds, each at the time that Kafka received it."""
    reference = ReferenceAggregator(WINDOW_MS, 0, bounds or EventBounds())
    for taken in as_dicts(batches):
        reference.take(taken, None if bounds is None else taken["time_ms"])
    return reference


def batch_of(
    values: Sequence[bytes | None], times_ms: Sequence[int] | None = None, topics: Sequence[str] | None = None
) -> pa.RecordBatch:
    """Return records as a worker gets them from Java."""
    sizes = [None if value is None else len(value) for value in values]
    cut = [value[:VALUE_BYTES_MAX] if value and len(value) > RECORD_BYTES_MAX else value for value in values]
    columns = {
        "topic": pa.array(topics or ["regraft.telemetry"] * len(values), pa.string()),
        "partition": pa.array([0] * len(values), pa.int32()),
        "offset": pa.array(range(len(values)), pa.int64()),
        "key": pa.array([b"b1"] * len(values), pa.binary()),
        "time_ms": pa.array(times_ms or [KAFKA_MS] * len(values), pa.int64()),
        "value": pa.array(cut, pa.binary()),
        "size": pa.array(sizes, pa.int32()),
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def letters(batch: pa.RecordBatch, job: StreamingSettings) -> list[DeadLetter]:
    """Return the dead letters of the refused records."""
    refused = LetterWriter(judge_of(job), {})([batch])
    return [letter_of(row) for each in refused for row in each.to_pylist()]


def windows_of(batch: pa.RecordBatch, job: StreamingSettings) -> list[WindowRows]:
    """Return the windows of all good records, merged and closed at once."""
    found = pa.Table.from_batches(RowPacker(judge_of(job), job.window_ms, 1, {})([batch]))
    rows = unpack_rows([packed for packed in found["packed"].to_pylist() if packed is not None])
    return close_windows(merge_parts(parts_of_rows(rows)), WINDOW_MS)


def parts_of_rows(rows: ShardRows) -> WindowParts:
    """Return the parts of the only shard."""
    return WindowParts.joined(
        [
            parts_of_window(start_ms, [segment.parts for segment in segments], WINDOW_MS)
            for start_ms, segments in rows.segments.items()
        ]
    )


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32))
def test_judging_and_the_reference_give_the_same_rows(tmp_path: Path, seed: int) -> None:
    """With loss, repeats and disorder the rows equal the reference's one by one, also for brokers that sample."""
    rng = random.Random(seed)
    traffic = draw_traffic(rng, 4, 6, count_max=200, start_ms=BEGIN_MS)
    sampled = batches_of(traffic, lambda broker: Sampling(1 + traffic.brokers.index(broker) % 3, 5, run=4))
    batches = lossy(rng, [*random_telemetry(rng, flushes=60), *sampled])
    reference = reference_of(batches)
    records = batch_of([encode(batch) for batch in batches])
    found = windows_of(records, settings_of(tmp_path, future_ms_max=None))
    assert content(found) == content(reference.finish())


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32))
def test_the_judge_and_the_reference_judge_clocks_alike(tmp_path: Path, seed: int) -> None:
    """With clocks ahead and behind, both refuse the same, measure the same, and keep the same of the rest."""
    rng = random.Random(seed)
    batches = lossy(rng, random_telemetry(rng, flushes=30))
    times_ms = taken_times_ms(rng, batches)
    job = settings_of(tmp_path)
    reference = ReferenceAggregator(WINDOW_MS, grace_ms=0, bounds=job.bounds)
    for taken, time_ms in zip(as_dicts(batches), times_ms, strict=True):
        reference.take(taken, time_ms)
    found = windows_of(batch_of([encode(batch) for batch in batches], times_ms), job)
    assert content(found) == content(reference.finish())
    assert any(window.marker.clocks for window in found)


GOOD = TelemetryBatch("b1", 1, 0, KAFKA_MS, 1, (Delivery("p", 0, KAFKA_MS // 1_000, 1, 1, 1),))


BODY = encode(GOOD)[5:]


def test_both_framings_are_accepted(tmp_path: Path) -> None:
    """A record in Avro's single-object encoding is as good as one in the Confluent frame."""
    single = SINGLE_OBJECT_MAGIC + latest_schema("TelemetryBatch").fingerprint + BODY
    job = settings_of(tmp_path)
    assert letters(batch_of([encode(GOOD), single]), job) == []
    assert content(windows_of(batch_of([single]), job)) == content(windows_of(batch_of([encode(GOOD)]), job))


def test_a_fleet_during_an_upgrade_from_version_2_to_3_gives_the_same_rows(tmp_path: Path) -> None:
    """Each boot of a broker sends one version, single cells or packed ones; the rows are complete in any case."""
    rng = random.Random(33)
    batches = random_telemetry(rng, flushes=30)
    boots = {(batch.broker, batch.boot) for batch in batches}
    assert len(boots) > len({batch.broker for batch in batches})  # Some are upgraded meanwhile.
    is_new = dict(zip(sorted(boots), (place % 2 == 1 for place in range(len(boots))), strict=True))
    values: list[bytes | None] = [
        encode(unpacked(batch).packed()) if is_new[batch.broker, batch.boot] else encode_as(unpacked(batch), 102)
        for batch in batches
    ]
    assert len({value[:5] for value in values}) == 2
    found = windows_of(batch_of(values), settings_of(tmp_path, future_ms_max=None))
    assert content(found) == content(reference_of(batches).finish())


# An Avro string and an array that claim 2 GB: without limits they would end the JVM.
BOMB = header("TelemetryBatch") + bytes.fromhex("feffffff0f") + b"x"


ARRAY_BOMB = header("TelemetryBatch") + b"\x02b\x00\x00\x00\x00" + bytes.fromhex("feffffff0f") + b"x"


BAD: list[tuple[bytes | None, str]] = [
    (None, "the record is empty"),
    (b"", "the record is empty"),
    (b"hello", "the record starts with 6865, expected 00 (Confluent) or c301 (Avro)"),
    (b"\x00\x00\x00\x0f\xff" + BODY, "schema id 4095 is unknown: use one of 102, 103"),
    (b"\x00\x00\x00\x03\x85" + BODY, "schema id 901 is a DeadLetter, a TelemetryBatch was expected"),
    (
        b"\x00\x00\x00\x00\x65" + BODY,
        "TelemetryBatch version 1 was written by a version of Regraft before 0.2.0, but this one reads from version 2: "
        "upgrade brokers (docs/upgrades.md)",
    ),
    (
        b"\x00\x00\x00\x00\x68" + BODY,
        "TelemetryBatch version 4 was written by a newer version of Regraft, but this one reads up to version 3: "
        "upgrade recorder, streaming first",
    ),
    (SINGLE_OBJECT_MAGIC + bytes(8) + BODY, "schema fingerprint 0000000000000000 is unknown"),
    (encode(GOOD)[:-4], "the body is not a TelemetryBatch"),
    (BOMB, "the body is not a TelemetryBatch"),
    (ARRAY_BOMB, "the body is not a TelemetryBatch"),
]


def test_an_undecodable_record_becomes_a_dead_letter(tmp_path: Path) -> None:
    """Empty, unknown, cut and forged records are kept entirely with the reason; the good one among them is used."""
    values = [value for value, _ in BAD]
    job = settings_of(tmp_path)
    found = letters(batch_of([*values, encode(GOOD)]), job)
    assert [letter.offset for letter in found] == list(range(len(BAD)))
    for letter, (value, reason) in zip(found, BAD, strict=True):
        assert letter.value == (value or b"")
        assert letter.reason.startswith(reason)
        assert letter.time_ms == KAFKA_MS
    [window] = windows_of(batch_of([*values, encode(GOOD)]), job)
    assert window.marker.brokers[0].received == 1


def test_columns_refuse_what_the_codec_refuses(tmp_path: Path) -> None:
    """Of records with bytes changed at random, the judge accepts exactly those that the codec accepts."""
    rng = random.Random(2)
    values: list[bytes | None] = []
    for number in range(400):
        value = bytearray(encode(GOOD.packed() if number % 2 else GOOD))
        for _ in range(rng.randrange(1, 3)):
            value[rng.randrange(len(value))] = rng.randrange(256)
        values.append(bytes(value[: rng.choice((len(value), len(value), rng.randrange(len(value))))]))
    job = settings_of(tmp_path, future_ms_max=None, past_ms_max=None)
    refused = {letter.offset: letter.reason for letter in letters(batch_of(values), job)}
    refusals: dict[int, str] = {}
    for offset, value in enumerate(values):
        try:
            decode(value, TelemetryBatch)
        except UndecodableRecordError as error:
            refusals[offset] = str(error)
    assert refused == refusals


def second_of(second: int) -> TelemetryBatch:
    return TelemetryBatch("b1", 1, 0, KAFKA_MS, 1, (*GOOD.deliveries, Delivery("p", 0, second, 1, 1, 1)))


def replace_unchecked(second: PackedSecond, **changes: object) -> PackedSecond:
    """Return a packed second with other columns, whether they fit or not."""
    torn = copy.copy(second)
    for name, value in changes.items():
        msgspec.structs.force_setattr(torn, name, value)
    return torn


SAMPLE = QueueSample("", 1, 1, 1, 1, 1, 1, 1, 1)


PACKED = GOOD.packed()


PACKED_COLUMNS = ("blocks", "masks", "published", "local_deliveries", "bytes")


NONSENSE: list[tuple[bytes, str]] = [
    (
        encode_unchecked(TelemetryBatch("b1", 1, 0, 2**63 - 1, 1)),
        "Expected `int` <= 253402300799999 - at `$.time_ms`, it is 9223372036854775807",
    ),
    (encode_unchecked(TelemetryBatch("b1", 1, 0, -1, 1)), "Expected `int` >= 0 - at `$.time_ms`, it is -1"),
    (encode_unchecked(second_of(2**63 - 1)), "at `$.deliveries[1].second`, it is 9223372036854775807"),
    (encode_unchecked(second_of(-(2**63))), "at `$.deliveries[1].second`, it is -9223372036854775808"),
    (encode_unchecked(TelemetryBatch("b1", 1, -1, KAFKA_MS, 1)), "at `$.sequence`, it is -1"),
    (encode_unchecked(GOOD).replace(b"b1", b"b\xff"), "'utf-8' codec can't decode byte 0xff"),
    (encode_unchecked(GOOD).replace(b"\x02p", b"\x02\xff"), "'utf-8' codec can't decode byte 0xff"),
    (
        encode_unchecked(GOOD).replace(b"b1", b"b\n"),
        "at `$.broker`, it is 'b\\n'",
    ),
    (encode_unchecked(replace(GOOD, broker="b" * 257)), "Expected `str` of length <= 256 - at `$.broker`"),
    (
        encode_unchecked(replace(GOOD, clients=(ClientChange("", 1, "came"),))),
        "Expected `str` of length >= 1 - at `$.clients[0].client`",
    ),
    *(
        (
            encode_unchecked(replace(GOOD, probes=(LinkProbe("b2", rtt_ms), LinkProbe("b2", 1.0)))),
            f"at `$.probes[0].rtt_ms`, it is {shown}",
        )
        for rtt_ms, shown in ((math.nan, "nan"), (math.inf, "inf"), (-math.inf, "-inf"), (-1e300, "-1e+300"))
    ),
    (
        encode_unchecked(replace(GOOD, queues=(SAMPLE, replace(SAMPLE, bytes_out=-1)))),
        "at `$.queues[1].bytes_out`, it is -1",
    ),
    (
        encode_unchecked(replace(GOOD, queues=(replace(SAMPLE, queue_length=-1),))),
        "at `$.queues[0].queue_length`, it is -1",
    ),
    *(
        (encode_unchecked(replace(PACKED, seconds=(torn,))), "- at `$.seconds[0]`")
        for torn in (
            *(replace_unchecked(PACKED.seconds[0], **{name: bytes(6)}) for name in PACKED_COLUMNS),
            *(replace_unchecked(PACKED.seconds[0], publishers=names) for names in ("", "p\nq", "p" * 257)),
        )
    ),
    (
        encode_unchecked(replace(PACKED, seconds=(replace(PACKED.seconds[0], second=-1),))),
        "at `$.seconds[0].second`, it is -1",
    ),
    (
        encode_unchecked(GOOD)[:5] + bytes(9 << 20),
        "the record has 9437189 bytes, but at most 8388608 are read (the first 900000",
    ),
]


def test_implausible_telemetry_becomes_a_dead_letter(tmp_path: Path) -> None:
    """Numbers that would overflow and names that are not text are refused even if any time is allowed."""
    job = settings_of(tmp_path, future_ms_max=None, past_ms_max=None)
    values = [value for value, _ in NONSENSE]
    found = letters(batch_of([*values, encode(GOOD)]), job)
    assert [letter.offset for letter in found] == list(range(len(NONSENSE)))
    for letter, (_, reason) in zip(found, NONSENSE, strict=True):
        assert reason in letter.reason
        assert len(encode(letter)) < 1_000_000
    assert len(windows_of(batch_of([*values, encode(GOOD)]), job)) == 1


def test_brokers_outside_the_inventory_give_no_rows(tmp_path: Path) -> None:
    """Telemetry from an unknown broker, or about an unknown neighbour, is refused: no window names it."""
    brokers = brokers_named(3)
    path = tmp_path / "inventory.json"
    inventory_of(line_of(3), {}).save(path)
    known = replace(GOOD, broker=brokers[0], queues=(SAMPLE, replace(SAMPLE, peer=brokers[1])))
    values = [
        encode(replace(known, broker="invented")),
        encode(replace(known, probes=(LinkProbe("invented", 1.0),))),
        encode(replace(known, queues=(replace(SAMPLE, peer="invented"),))),
        encode(known),
    ]
    job = settings_of(tmp_path, inventory_path=path)
    found = letters(batch_of(values), job)
    assert [letter.offset for letter in found] == [0, 1, 2]
    assert found[0].reason.startswith("broker invented is not in the inventory")
    [window] = windows_of(batch_of(values), job)
    assert [entry.broker for entry in window.marker.brokers] == [brokers[0]]
    assert len(letters(batch_of(values), settings_of(tmp_path))) == 0


def test_an_agent_cannot_speak_for_a_broker_of_another(tmp_path: Path) -> None:
    """Records in another agent's topic are refused with every reader's reason; the windows are as without them."""
    inventory = dataclasses.replace(
        inventory_of(line_of(4), {}), agent_of={"b00": "west", "b01": "west", "b02": "east"}
    )
    inventory.save(tmp_path / "inventory.json")
    job = settings_of(tmp_path, inventory_path=tmp_path / "inventory.json")
    topics, rng = inventory.broker_topics(job.namespace), random.Random(3)
    good = [replace(GOOD, broker=broker, sequence=number) for number in range(3) for broker in inventory.brokers]
    sent = [(topics.name(TELEMETRY, batch.broker), batch) for batch in good]
    sent += [
        (name, replace(GOOD, broker=broker, sequence=50, boot=1))
        for broker in inventory.brokers
        for name in (*topics.names(TELEMETRY), topics.name(RESULTS, broker))
        if name != topics.name(TELEMETRY, broker)
    ]
    rng.shuffle(sent)
    records = batch_of([encode(batch) for _, batch in sent], topics=[name for name, _ in sent])
    reasons = {letter.offset: letter.reason for letter in letters(records, job)}
    errors = ((offset, topics.error(name, batch.broker)) for offset, (name, batch) in enumerate(sent))
    own = {topics.name(TELEMETRY, broker) for broker in inventory.brokers}
    assert {offset: why for offset, why in reasons.items() if sent[offset][0] in own} == {
        offset: why for offset, why in errors if why
    }
    assert len(reasons) == len(sent) - len(good)
    assert content(windows_of(records, job)) == content(reference_of(good, job.bounds).finish())


@pytest.mark.parametrize("distance_ms", [-3_600_001, 1_001])
def test_records_from_far_away_in_time_have_no_effect(tmp_path: Path, distance_ms: int) -> None:
    """A batch far from its Kafka time is refused, opens no window, and is counted in the window of its Kafka time."""
    far_batch = TelemetryBatch("b9", 1, 0, KAFKA_MS + distance_ms, 1)
    values: list[bytes | None] = [encode(batch) for batch in (far_batch, GOOD)]
    job = settings_of(tmp_path)
    [letter] = letters(batch_of(values), job)
    side = "after" if distance_ms > 0 else "before"
    assert letter.offset == 0
    assert letter.reason.startswith(f"its time is {abs(distance_ms)} ms {side} the record's Kafka time, but at most ")
    assert letter.reason.endswith("check the clock of broker b9")
    [window] = windows_of(batch_of(values), job)
    assert window.window.start_ms == KAFKA_MS
    assert window.marker.clocks == (BrokerClock("b1", 0, 0), BrokerClock("b9", -distance_ms, 1))
    assert [entry.broker for entry in window.marker.brokers] == ["b1"]
    unchecked = settings_of(tmp_path, future_ms_max=None, past_ms_max=None)
    assert letters(batch_of(values), unchecked) == []


@pytest.mark.parametrize("distance_s", [-3_601, 2])
def test_a_delivery_from_far_away_in_time_leaves_its_batch_good(tmp_path: Path, distance_s: int) -> None:
    """The publish time is by another broker's clock: only that delivery is left out."""
    second = KAFKA_MS // 1_000 + distance_s
    batch = TelemetryBatch("b1", 1, 0, KAFKA_MS, 1, (Delivery("p", 0, second, 2, 1, 1), *GOOD.deliveries))
    job = settings_of(tmp_path)
    assert letters(batch_of([encode(batch)]), job) == []
    [window] = windows_of(batch_of([encode(batch)]), job)
    assert content([window]) == content(windows_of(batch_of([encode(GOOD)]), job))


def test_a_record_that_cannot_be_judged_costs_no_other_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception would end the query, again after each restart; the record becomes a dead letter."""

    def failing(data: bytes, *arguments: Any) -> Any:
        if b"poison" in data:
            raise OverflowError("too large")
        return decode_columns(data, *arguments)

    monkeypatch.setattr(judge_records, "decode_columns", failing)
    values = [encode(GOOD), encode(replace(GOOD, broker="poison")), encode(replace(GOOD, broker="b2"))]
    job = settings_of(tmp_path)
    [letter] = letters(batch_of(values), job)
    assert (letter.offset, letter.reason) == (1, judge_records.UNREADABLE)
    [window] = windows_of(batch_of(values), job)
    assert [entry.broker for entry in window.marker.brokers] == ["b1", "b2"]
