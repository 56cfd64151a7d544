"""The codec: what is written is read back, and bytes that cannot be read are refused with a reason."""

from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from regraft.schemas.bounds import field_bounds
from regraft.schemas.client import Client, PredicateRecord, Role
from regraft.schemas.codec import (
    CONFLUENT_MAGIC,
    SINGLE_OBJECT_MAGIC,
    UndecodableRecordError,
    UnencodableRecordError,
    accepted_ids,
    decode,
    encode,
    header,
    use_wire_ids,
)
from regraft.schemas.command import Command, CommandPhase, CommandResult, Outcome
from regraft.schemas.dead_letter import DeadLetter
from regraft.schemas.event import AdaptationEvent
from regraft.schemas.packed_cells import PackedSecond
from regraft.schemas.plan import Plan
from regraft.schemas.registry import SCHEMAS, latest_schema, older_ids
from regraft.schemas.state import LinkRtt, PublisherDelivery, StateRow, WindowClosed
from regraft.schemas.telemetry import ClientChange, Delivery, LinkProbe, QueueSample, TelemetryBatch
from regraft.schemas.topics import TOPICS
from tests.schemas.encode_unchecked import encode_unchecked
from tests.schemas.plausible_records import records_of

TYPES: dict[str, type[msgspec.Struct]] = {
    kind.__name__: kind
    for kind in (
        TelemetryBatch,
        StateRow,
        WindowClosed,
        Command,
        CommandResult,
        Plan,
        AdaptationEvent,
        Client,
        DeadLetter,
    )
}
SAMPLE = QueueSample("b2", 1, 2, 3, 4, 5, 6, 7, 8, 9)
BATCH = TelemetryBatch("b1", 1, 2, 3, 4, (Delivery("p", 5, 6, -7, 8, 9, -10),), (SAMPLE,))


@pytest.fixture(autouse=True)
def _fixed_ids() -> Iterator[None]:
    yield
    use_wire_ids({})


@pytest.mark.parametrize("name", sorted(TYPES))
def test_what_is_written_is_read_back(name: str) -> None:
    """Every record survives encoding and decoding unchanged."""
    kind = TYPES[name]

    @settings(max_examples=30, deadline=None)
    @given(records_of(kind))
    def check(record: object) -> None:
        assert isinstance(record, msgspec.Struct)
        assert decode(encode(record), kind) == record

    check()


def test_both_framings_hold_the_same_record() -> None:
    """A record is read from the Confluent frame and from Avro's single-object encoding alike."""
    framed = encode(BATCH)
    single = SINGLE_OBJECT_MAGIC + latest_schema("TelemetryBatch").fingerprint + framed[5:]
    assert framed[:5] == b"\x00" + (103).to_bytes(4, "big")
    assert decode(framed, TelemetryBatch) == decode(single, TelemetryBatch) == BATCH


@pytest.mark.parametrize("record", sorted(topic.record for topic in TOPICS))
def test_records_from_before_the_first_release_are_refused_with_what_to_do(record: str) -> None:
    """Their ids stay reserved, so the reason names the version and who must be upgraded."""
    for schema_id in older_ids(record):
        assert schema_id not in SCHEMAS
        reason = (
            f"{record} version {schema_id % 100} was written by a version of Regraft before 0.2.0, but this one reads "
            "from"
        )
        with pytest.raises(UndecodableRecordError, match=reason):
            decode(CONFLUENT_MAGIC + schema_id.to_bytes(4, "big") + b"any", TelemetryBatch)


def test_the_reserved_ids_are_those_of_versions_that_existed() -> None:
    """No id below the first that is read has been forgotten."""
    counts = {topic.record: len(older_ids(topic.record)) for topic in TOPICS if older_ids(topic.record)}
    assert counts == {
        "TelemetryBatch": 1,
        "StateRow": 2,
        "WindowClosed": 1,
        "Command": 4,
        "CommandResult": 2,
        "Plan": 5,
        "Client": 1,
        "Order": 2,
    }


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "empty"),
        (b"", "empty"),
        (b"\x00\x00\x00\x0f\xff" + encode(BATCH)[5:], "schema id 4095 is unknown"),
        (
            b"\x00\x00\x00\x00\x68" + encode(BATCH)[5:],
            r"TelemetryBatch version 4 was written by a newer version of Regraft, but this one reads up to version 3: "
            r"upgrade recorder, streaming first \(docs/upgrades.md\)",
        ),
        (
            b"\x00\x00\x00\x00\x65" + encode(BATCH)[5:],
            r"TelemetryBatch version 1 was written by a version of Regraft before 0\.2\.0, but this one reads from "
            r"version 2: "
            r"upgrade brokers \(docs/upgrades.md\)",
        ),
        (SINGLE_OBJECT_MAGIC + bytes(8) + encode(BATCH)[5:], "fingerprint 0000000000000000 is unknown"),
        (b"{}", "starts with 7b7d"),
        (b"\x00\x00", "starts with 0000"),
        (encode(BATCH)[:-3], "the body is not a TelemetryBatch"),
        (encode(BATCH)[:9], "the body is not a TelemetryBatch"),
        (encode(BATCH) + b"xy", "2 bytes follow"),
        (encode(DeadLetter("t", 0, 0, "r", b"", 0)), "schema id 901 is a DeadLetter"),
    ],
)
def test_bad_bytes_are_refused_with_the_reason(value: bytes | None, reason: str) -> None:
    """Empty, wrongly framed, unknown, cut and overlong records each have their reason."""
    with pytest.raises(UndecodableRecordError, match=reason):
        decode(value, TelemetryBatch)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60))
def test_the_codec_raises_no_other_error_for_any_body(body: bytes) -> None:
    """Any bytes after a valid header are decoded, or refused by the codec's own error."""
    try:
        decode(header("TelemetryBatch") + body, TelemetryBatch)
    except UndecodableRecordError:
        return


def test_a_wrong_enum_value_is_refused() -> None:
    """A command with a phase that this version does not know is refused, not read as text."""
    command = Command("plan-1", CommandPhase.PREPARE, "b1", 1, 2)
    value = encode(command).replace(b"prepare", b"prepArE")
    with pytest.raises(UndecodableRecordError, match="prepArE"):
        decode(value, Command)
    result = CommandResult("plan-1", CommandPhase.PREPARE, "b1", 2, Outcome.PREPARED, "", 0, 0)
    client = Client("c", Role.PUBLISHER, "b", (PredicateRecord("a", "present"),), 1.0, 0)
    assert decode(encode(result), CommandResult) == result
    assert decode(encode(client), Client) == client


def test_ids_of_a_registry_are_written_and_read() -> None:
    """With a registry's ids the frame carries them, and records with the fixed ids are still read."""
    fixed = encode(BATCH)
    use_wire_ids({103: 7})
    assert encode(BATCH)[:5] == b"\x00\x00\x00\x00\x07"
    assert decode(encode(BATCH), TelemetryBatch) == decode(fixed, TelemetryBatch) == BATCH
    assert accepted_ids(103) == (7, 103)


def test_a_registrys_id_takes_precedence_over_an_equal_fixed_id() -> None:
    """If a registry gave one of the fixed ids to another schema, that schema is meant."""
    fixed = encode(BATCH)
    use_wire_ids({103: 203, 203: 103, **{i: i + 5_000 for i in SCHEMAS if i not in (103, 203)}})
    assert decode(encode(BATCH), TelemetryBatch) == BATCH
    with pytest.raises(UndecodableRecordError, match="is a StateRow"):
        decode(fixed, TelemetryBatch)
    assert accepted_ids(103) == (203,)


RTT_ROW = StateRow(0, 5_000, "rtt", "b1|b2", rtt=LinkRtt("b1", "b2", 3.0, 4.0))
PUBLISHED = PublisherDelivery("p", "b1", 1, 1, 1, (0,), (1,), (0,))


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (replace(RTT_ROW, rtt=LinkRtt("b1", "b2", float("nan"), 4.0)), "rtt_ms_min"),
        (replace(RTT_ROW, rtt=LinkRtt("b1", "b2", 3.0, float("inf"))), "rtt_ms_last"),
        (replace(RTT_ROW, rtt=LinkRtt("b1", "b2", -1e300, 4.0)), "rtt_ms_min"),
        (replace(RTT_ROW, entity="b1|b2\n"), "entity"),
        (replace(BATCH, broker=""), "broker"),
        (replace(BATCH, broker="b\x00"), "broker"),
        (replace(BATCH, broker="b\u202e1"), "broker"),
        (replace(BATCH, broker="b" * 257), "broker"),
        (replace(BATCH, sequence=-1), "sequence"),
        (replace(BATCH, time_ms=1 << 62), "time_ms"),
        (replace(BATCH, queues=(replace(SAMPLE, bytes_out=-(2**60)),)), "bytes_out"),
        (replace(BATCH, deliveries=(Delivery("p", -5, 6, 7, 8, 9),)), "block"),
        (replace(BATCH, deliveries=(Delivery("p", 1 << 62, 6, 7, 8, 9),)), "block"),
    ],
)
def test_implausible_values_are_refused_by_reader_and_writer(record: msgspec.Struct, reason: str) -> None:
    """NaN, infinities, negative counters and unprintable names: the reason names the field."""
    with pytest.raises(UndecodableRecordError, match=f"is invalid.*{reason}"):
        decode(encode_unchecked(record), type(record))
    with pytest.raises(UnencodableRecordError, match=f"is invalid.*{reason}"):
        encode(record)


@pytest.mark.parametrize("value", [1 << 64, -(1 << 63) - 1, "\ud800"])
def test_a_value_that_avro_cannot_hold_is_refused_by_the_writer(value: object) -> None:
    """Masks and reasons have no narrower bound than 64 bits and UTF-8: those are kept, too."""
    delivery = replace(BATCH, deliveries=(Delivery("p", 1, 6, value, 8, 9),))
    record = delivery if isinstance(value, int) else DeadLetter("t", 0, 0, str(value), b"", 0)
    with pytest.raises(UnencodableRecordError, match="is invalid"):
        encode(record)


def test_a_record_that_no_reader_takes_for_its_size_is_refused_by_the_writer() -> None:
    """The limit is the reader's."""
    with pytest.raises(UnencodableRecordError, match="bytes, but at most 8388608 are read"):
        encode(DeadLetter("t", 0, 0, "r", bytes(8 << 20), 0))


def test_a_row_needs_the_body_of_its_kind_and_a_window_of_positive_length() -> None:
    """Otherwise aggregation would find no body, or divide by zero."""
    for values, reason in (
        ({"kind": "churn"}, "of kind 'churn'"),
        ({"kind": "rtt", "rtt": None}, "has the bodies"),
        ({"window_end_ms": 0}, "window goes from 0 to 0"),
        ({"window_end_ms": 1 << 40}, "window goes from"),
    ):
        with pytest.raises(ValueError, match=reason):
            replace(RTT_ROW, **values)
    with pytest.raises(ValueError, match="3 blocks, 1 masks"):
        replace(PUBLISHED, blocks=(0, 1, 2))


def test_a_record_of_50_mb_is_refused_before_it_is_decoded() -> None:
    """The size is checked first, so nothing of that size is built."""
    with pytest.raises(UndecodableRecordError, match="52428800 bytes, but at most 8388608"):
        decode(encode(BATCH)[:5] + bytes(50 * 1024 * 1024 - 5), TelemetryBatch)


def test_every_field_of_telemetry_but_the_masks_is_bounded() -> None:
    """Neither the codec nor the columns of the Spark job would check a field without a bound."""
    bounded = {bound.name for bound in field_bounds(TelemetryBatch)}
    fields = {*TelemetryBatch.__struct_fields__}
    for name, part in (
        ("deliveries", Delivery),
        ("queues", QueueSample),
        ("probes", LinkProbe),
        ("clients", ClientChange),
        ("seconds", PackedSecond),
    ):
        fields |= {f"{name}.{field}" for field in part.__struct_fields__}
    # In a packed second any bytes of the right length are plausible; lengths and names are checked together.
    packed = {f"seconds.{field}" for field in PackedSecond.__struct_fields__ if field != "second"}
    assert fields - bounded == {"deliveries.mask", "deliveries.published"} | packed
