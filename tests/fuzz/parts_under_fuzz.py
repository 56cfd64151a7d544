"""The parts that read records of others, each fed with spoiled and good records; the invariants are asserted here.

In: values of Kafka by topic. Out: how many were used and how many counted as bad. No part stops, no good
record is lost.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from regraft.alerts.alert_engine import AlertEngine
from regraft.alerts.read_rules import load_rules
from regraft.commands.members_command import member_row
from regraft.dashboard.read_view import ViewReader
from regraft.infra.kafka.dead_letters import RecordDecoder
from regraft.infra.kafka.decode_strictly import UnreadableRecordError, decode_strictly
from regraft.infra.process.stack_error import StackError
from regraft.overlay.inventory.inventory import InventoryError
from regraft.overlay.inventory.members import FleetView
from regraft.overlay.tree.tree_configuration import NotATreeError
from regraft.producers.recordings.read_recording import open_recording
from regraft.producers.recordings.record_topics import RECORD_TYPES
from regraft.producers.recordings.recording_files import RecordingError
from regraft.producers.recordings.write_recording import RecordingLimits, RecordingWriter
from regraft.schemas.announcement import Announcement
from regraft.schemas.audit import GivenOrder
from regraft.schemas.codec import CONFLUENT_HEADER_BYTES, UndecodableRecordError, decode, encode, header
from regraft.schemas.command import CommandResult
from regraft.schemas.dead_letter import DeadLetter
from regraft.schemas.member import BrokerFacts, Member
from regraft.schemas.member_life import why_member_order_refused
from regraft.schemas.order import Order, OrderKind
from regraft.schemas.plan import Plan
from regraft.schemas.registry import latest_schema
from regraft.schemas.state import StateRow, WindowClosed
from regraft.schemas.telemetry import TelemetryBatch
from regraft.schemas.topics import (
    ANNOUNCEMENTS,
    CLIENTS,
    DEAD_LETTERS,
    LEADER,
    MEMBERS,
    ORDERS,
    PLANS,
    RESULTS,
    STATE,
    TELEMETRY,
    WINDOWS,
    Topic,
)
from regraft.schemas.unpack_state import unpack_window
from regraft.streaming.close_windows import close_windows
from regraft.streaming.decode_columns import decode_columns
from regraft.streaming.merge_parts import merge_parts
from regraft.streaming.streaming_settings import StreamingSettings
from regraft.streaming.tabulate_batches import EventBounds, is_sane, tabulate_batches
from regraft.streaming.watch_members import MemberWatcher
from tests.controller.scripted_overlay import ScriptedOverlay, settings_of
from tests.controller.test_control_loop import INVENTORY, far_ends
from tests.fuzz.valid_records import valid_records
from tests.infra.kafka_message import kafka_message
from tests.producers.recorded_messages import START_MS, recorded_run
from tests.streaming.encoded_windows import encode_window
from tests.streaming.random_telemetry import WINDOW_MS, random_telemetry

TYPES: dict[Topic, type[msgspec.Struct]] = {**RECORD_TYPES, DEAD_LETTERS: DeadLetter}
RECORDS_PER_TICK = 25
LETTER_BYTES_MAX = 1_000_000
END_MS = 1 << 50
NO_FACTS = BrokerFacts()


@dataclass
class Border:
    """Decodes as every stage does: each value is used or becomes a dead letter that Kafka accepts."""

    letters: list[DeadLetter] = field(default_factory=list)
    used: int = 0

    def __post_init__(self) -> None:
        self.decoder = RecordDecoder(self.letters.append)

    def read(self, topic: Topic, value: bytes) -> Any:
        """Return the record, or None for a bad one."""
        record = self.decoder.decode(kafka_message(topic.suffix, value, time_ms=START_MS), TYPES[topic])
        self.used += record is not None
        return record

    def check(self, sent: int) -> None:
        """Assert that every value is accounted for."""
        assert self.used + self.decoder.undecodable.total() == sent
        assert self.decoder.undecodable.total() == len(self.letters)
        assert all(len(encode(letter)) < LETTER_BYTES_MAX for letter in self.letters)
        assert all(decode(encode(letter), DeadLetter) == letter for letter in self.letters)


def feed_controller(values: Sequence[tuple[Topic, bytes]]) -> Counter[str]:
    """Feed windows, results, orders, announcements and clients to a running overlay, which must then work as before."""
    overlay, border = ScriptedOverlay(INVENTORY, far_ends, settings_of()), Border()
    ports, deposed = overlay.ports, 0
    for start in range(0, len(values), RECORDS_PER_TICK):
        for topic, value in values[start : start + RECORDS_PER_TICK]:
            record = border.read(topic, value)
            if isinstance(record, StateRow | WindowClosed):
                ports.state.records.append(record)
            elif isinstance(record, CommandResult):
                ports.results.records.append(record)
            elif isinstance(record, Announcement):
                ports.announcements.records.append(record)
            elif isinstance(record, Order):
                ports.orders.records.append(GivenOrder(record))
            elif topic == CLIENTS and record is not None:
                ports.clients.put(record)
        overlay.tick()
        if overlay.loop.deposed_by_term:  # A result claimed so; the next leader has a higher number.
            deposed += 1
            overlay.term = overlay.loop.deposed_by_term + 1
            overlay.new_loop()
        ports.clients.registered.interests(INVENTORY.brokers)
    border.check(len(values))
    incomplete = ports.view.shown.windows_incomplete
    overlay.now_ms += overlay.settings.assembly.future_ms_max  # all claims about future windows are over by then
    overlay.now_ms -= overlay.now_ms % 1_000
    before = ports.view.shown.windows_closed
    overlay.run_windows(30)
    shown = ports.view.shown
    assert shown.window is not None
    assert shown.window.is_complete, shown.window.error
    assert shown.windows_closed >= before + 15
    assert {broker.broker for broker in shown.network.brokers} == set(INVENTORY.brokers)  # type: ignore[union-attr]
    json.loads(ports.view.text, parse_constant=_no_json)
    return Counter(used=border.used, refused=len(border.letters), incomplete=incomplete, deposed=deposed)


def feed_start(values: Sequence[tuple[Topic, bytes]]) -> Counter[str]:
    """Start a controller on each record that it must not ignore: it runs, or reports what it cannot start with."""
    found: Counter[str] = Counter()
    for topic, value in values:
        try:
            record = decode_strictly(kafka_message(topic.suffix, value, time_ms=START_MS), TYPES[topic])
        except UnreadableRecordError as error:
            found["refused"] += _names_place(error, topic)
            continue
        if isinstance(record, Plan | Member):
            overlay = ScriptedOverlay(INVENTORY, far_ends, settings_of())
            if isinstance(record, Plan):
                overlay.ports.plans.stored[record.plan] = record
            else:
                overlay.ports.plans.members[record.broker] = record
            try:
                overlay.run_windows(1)
            except (StackError, NotATreeError, InventoryError):  # Each ends the stage with its message.
                found["unfit"] += 1
                continue
        found["used"] += 1
    return found


def feed_members(values: Sequence[bytes]) -> Counter[str]:
    """Feed members to the job's watcher and the command line; every resulting fleet can be planned for."""
    watcher = MemberWatcher(StreamingSettings("127.0.0.1:9", Path("unused"), inventory_path=None))
    read: list[Member] = []
    for value in values:
        try:
            read.append(decode(value, Member))
        except UndecodableRecordError:
            assert not watcher.take_one(kafka_message(MEMBERS.suffix, value, time_ms=START_MS))
            continue
        watcher.take_one(kafka_message(MEMBERS.suffix, value, time_ms=START_MS))
    newest = {member.broker: member for member in read}
    assert watcher.agent_of == {name: one.facts.agent for name, one in newest.items() if one.facts is not None}
    fit = [one for one in read if not why_member_order_refused(OrderKind.ADD, one.broker, None, one.facts or NO_FACTS)]
    fleet = FleetView.of(INVENTORY, fit)
    assert {*fleet.members} == {*INVENTORY.brokers, *fleet.inventory.brokers}
    assert np.isfinite(fleet.inventory.link_cost).all()
    assert all(member_row(member) for member in fleet.members.values())
    return Counter(used=len(fit), unfit=len(read) - len(fit), refused=len(values) - len(read))


def _names_place(error: UnreadableRecordError, topic: Topic) -> bool:
    assert f"(topic {topic.suffix}, partition 0, offset 7, key 'k': " in str(error)
    return True


def feed_alerts(values: Sequence[tuple[Topic, bytes]]) -> Counter[str]:
    """Feed everything that the alert stage reads; every resulting alert can be stored."""
    engine, border = AlertEngine(load_rules(), START_MS), Border()
    for place, (topic, value) in enumerate(values):
        record, now_ms = border.read(topic, value), START_MS + place * 50
        changed = [] if record is None else engine.take(record, now_ms, now_ms)
        if place % RECORDS_PER_TICK == 0:
            changed = [*changed, *engine.tick(now_ms)]
        for alert in changed:
            assert decode(encode(alert), type(alert)) == alert
    border.check(len(values))
    return Counter(used=border.used, refused=len(border.letters))


def feed_job(values: Sequence[bytes]) -> Counter[str]:
    """Feed telemetry through the job's aggregation; the rows of good brokers stay as they are without the others."""
    rng, prefix = random.Random(len(values)), header(TELEMETRY.record)
    good = [
        msgspec.structs.replace(batch, broker=f"good-{batch.broker}")
        for batch in random_telemetry(random.Random(7), flushes=30)
    ]
    accepted, refused = [], 0
    for value in values:
        try:
            accepted.append(decode(value, TelemetryBatch))
        except UndecodableRecordError:
            refused += 1
    columns = [value for value in values if value.startswith(prefix)]
    by_columns, by_codec = _sane_bodies(columns), {value for value in columns if _is_read(value)}
    differing = [value.hex() for value in by_codec ^ by_columns]
    assert not differing, "columns and codec take different records"
    mixed = [*good, *accepted]
    rng.shuffle(mixed)
    alone, together = _rows_of_job(good), _rows_of_job(mixed)
    assert alone <= together
    assert {key for key in together - alone if "good-" in key[0]} == set()
    return Counter(used=len(accepted), refused=refused)


def feed_recorder(values: Sequence[tuple[Topic, bytes]], path: Path, rng: random.Random) -> Counter[str]:
    """Record everything and read it back unchanged; then spoil the file: a message, or fewer records."""
    types = {topic.suffix: kind for topic, kind in RECORD_TYPES.items()}
    writer = RecordingWriter(path, recorded_run(), types, RecordingLimits(), START_MS)
    for place, (topic, value) in enumerate(values):
        writer.write(topic.suffix, START_MS + place, 0, place, b"k", value, place / 100)
        writer.tick(place / 100)
    writer.close()
    found = list(open_recording(path).messages())
    assert len(found) == len(values)
    for message, (topic, value) in zip(found, values, strict=True):
        try:
            expected: Any = decode(value, TYPES[topic])
        except UndecodableRecordError:
            continue  # Stored as it is, or with the same body: its reader reports the error.
        assert decode(message.value, TYPES[topic]) == expected
    whole = path.read_bytes()
    for _ in range(20):
        spoiled = bytearray(whole)
        for _ in range(rng.choice((1, 5, 50))):
            spoiled[rng.randrange(len(spoiled))] = rng.randrange(256)
        path.write_bytes(spoiled[: rng.choice((len(spoiled), rng.randrange(len(spoiled))))])
        try:
            assert len(list(open_recording(path).messages())) <= len(values)
        except RecordingError:
            continue
    path.unlink()
    unread = writer.counts.unread.total()
    return Counter(used=len(values) - unread, refused=unread)


def feed_dashboard(texts: Sequence[dict[str, bytes | None]]) -> Counter[str]:
    """Feed spoiled texts of the live view: each part is shown or reported as unreadable, and pages get JSON."""
    reader = ViewReader(50)
    found: Counter[str] = Counter()
    for text in texts:
        shown = reader.read(text)
        json.loads(msgspec.json.encode(shown), parse_constant=_no_json)
        found["used"] += not reader.errors
        found["refused"] += bool(reader.errors)
    return found


def good_values(topic: Topic) -> Sequence[bytes]:
    """Return the good values of the corpus."""
    return [encode(record) for record in valid_records()[topic]]


def _rows_of_job(batches: Sequence[TelemetryBatch]) -> set[tuple[str, StateRow]]:
    """Return the job's rows with their names, without common interest, as its readers take them from its messages."""
    schema = json.loads(latest_schema(TELEMETRY.record).text)
    data = [encode(batch)[CONFLUENT_HEADER_BYTES:] for batch in batches]
    ends = np.cumsum([len(body) for body in data])
    starts = ends - np.array([len(body) for body in data])
    rows = decode_columns(b"".join(data), starts, ends, schema).rows
    found: set[tuple[str, StateRow]] = set()
    for window in close_windows(merge_parts(tabulate_batches(rows, WINDOW_MS, 0, END_MS)), WINDOW_MS):
        encoded = encode_window(window)
        marker = decode(encoded.marker["value"], WindowClosed)
        written, counted = unpack_window([decode(message["value"], StateRow) for message in encoded.rows], marker)
        assert counted.row_counts == window.marker.row_counts
        found |= {(f"{row.window_start_ms}/{row.kind}/{row.entity}", row) for row in written if row.interest is None}
    return found


def _sane_bodies(values: Sequence[bytes]) -> set[bytes]:
    """Return the values that the columnar reader accepts."""
    schema = json.loads(latest_schema(TELEMETRY.record).text)
    bodies = [value[CONFLUENT_HEADER_BYTES:] for value in values]
    ends = np.cumsum([len(body) for body in bodies], dtype=np.int64)
    starts = ends - np.array([len(body) for body in bodies], dtype=np.int64)
    found = decode_columns(b"".join(bodies), starts, ends, schema)
    sane = is_sane(found.rows, np.zeros(len(found.rows), dtype=np.int64), EventBounds(None, None))
    return {values[place] for place in found.places[sane].tolist()}


def _is_read(value: bytes) -> bool:
    try:
        decode(value, TelemetryBatch)
    except UndecodableRecordError:
        return False
    return True


def _no_json(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


START_READS = (PLANS, MEMBERS, ORDERS, LEADER)
CONTROLLER_READS = (STATE, WINDOWS, RESULTS, ORDERS, CLIENTS, ANNOUNCEMENTS)
