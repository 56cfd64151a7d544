"""The corpus: valid records of every topic, as a small overlay writes them, encoded in every version that is read."""

from __future__ import annotations

import random
from contextlib import suppress
from functools import cache

import msgspec

from regraft.schemas.alert import Alert, AlertDelivery, AlertStatus, DeliveryState
from regraft.schemas.announcement import Announcement
from regraft.schemas.audit import AuditEntry, AuditOutcome
from regraft.schemas.client import Client, PredicateRecord, Role
from regraft.schemas.codec import SINGLE_OBJECT_MAGIC, encode
from regraft.schemas.command import Command, CommandPhase
from regraft.schemas.dead_letter import DeadLetter
from regraft.schemas.event import Severity
from regraft.schemas.leader import LeaderTerm
from regraft.schemas.member import BrokerFacts, Member, MemberState, PeerCost, Position
from regraft.schemas.order import WHOLE_OVERLAY, Order, OrderKind
from regraft.schemas.registry import latest_schema, schema_ids_of
from regraft.schemas.sample_request import SampleRequest
from regraft.schemas.topics import (
    ALERTS,
    ANNOUNCEMENTS,
    AUDIT,
    CLIENTS,
    COMMANDS,
    DEAD_LETTERS,
    EVENTS,
    LEADER,
    MEMBERS,
    ORDERS,
    PLANS,
    RESULTS,
    SAMPLING,
    STATE,
    TELEMETRY,
    TOPICS,
    WINDOWS,
    Topic,
)
from regraft.streaming.reference_aggregator import ReferenceAggregator
from tests.controller.scripted_overlay import ScriptedOverlay, settings_of
from tests.controller.scripted_windows import WINDOW_MS as SCRIPTED_MS
from tests.controller.scripted_windows import marker_of, rows_of
from tests.controller.test_control_loop import INVENTORY, far_ends
from tests.schemas.old_versions import encode_as
from tests.schemas.packed_rows import packed_window
from tests.streaming.random_telemetry import WINDOW_MS, as_dicts, random_telemetry


@cache
def valid_records() -> dict[Topic, tuple[msgspec.Struct, ...]]:
    """Return some records of every topic."""
    batches = random_telemetry(random.Random(1), flushes=20)
    reference = ReferenceAggregator(WINDOW_MS, grace_ms=0)
    for batch in as_dicts(batches):
        reference.take(batch)
    windows = reference.finish()
    overlay = ScriptedOverlay(INVENTORY, far_ends, settings_of())
    results: list[msgspec.Struct] = []
    for _ in range(80):
        overlay.tick()
        results += overlay.ports.results.records
    starts_ms = range(0, 60_000, SCRIPTED_MS)
    scripted = {start_ms: rows_of(INVENTORY.brokers, start_ms, far_ends(start_ms)) for start_ms in starts_ms}
    found = {
        TELEMETRY: tuple(batches),
        STATE: (
            *(row for window in windows for row in window.rows),
            *(row for window in windows for row in packed_window(window.rows, window.marker, bytes_max=2_000)[0]),
            *(row for rows in scripted.values() for row in rows),
        ),
        WINDOWS: (
            *(window.marker for window in windows),
            *(marker_of(INVENTORY.brokers, start_ms, rows) for start_ms, rows in scripted.items()),
        ),
        COMMANDS: tuple(_commands(overlay)),
        RESULTS: tuple(results),
        PLANS: tuple(overlay.ports.plans.versions),
        LEADER: (LeaderTerm(7, "b00.example:4711", 5), LeaderTerm(8, "b01.example:12", 6)),
        MEMBERS: (
            Member("b00", MemberState.DEAD, 5, "silent", 1, None, (5,), 5_005, 0, 7),
            Member("x1", MemberState.JOINING, 6, "added", 0, BrokerFacts(1.0, (PeerCost("b00", 2.5),),
                   position=Position(1.0, 2.0)), term=7),
        ),
        ANNOUNCEMENTS: (Announcement("x2", BrokerFacts(1.0, (PeerCost("b00", 2.5),), agent="west"), 6),),
        SAMPLING: (SampleRequest(3, 6, "windows come late", is_raised=True, calm_windows=24, term=7),),
        EVENTS: tuple(overlay.ports.events.emitted),
        CLIENTS: _clients(),
        ORDERS: tuple(
            Order(
                WHOLE_OVERLAY if kind.scope == "adaptation" else "plan-1" if kind.scope == "plan" else "b00",
                kind, "me", "why", 1_000 * place, 0, kind is OrderKind.MAINTAIN,
            )
            for place, kind in enumerate(OrderKind)
        ),
        ALERTS: (
            Alert("congested", "b00", Severity.WARNING, AlertStatus.RAISED, 1, 2, "so", 3.0, ("b00",),
                  deliveries=(AlertDelivery("mail", DeliveryState.SENT, 3),)),
        ),
        DEAD_LETTERS: (DeadLetter("regraft.telemetry", 0, 7, "cut", b"\x00\x00", 5),),
        AUDIT: (AuditEntry("plan-1", "approve", "me", "why", AuditOutcome.ACCEPTED, "", 5, 4, 4, 3),),
    }  # fmt: skip
    assert set(found) == set(TOPICS)
    assert all(found.values())
    return found


@cache
def valid_values() -> dict[Topic, tuple[bytes, ...]]:
    """Return the same encoded: the newest version in both framings, and the older ones."""
    found = {}
    for topic, records in valid_records().items():
        values = [encode(record) for record in records]
        fingerprint = latest_schema(topic.record).fingerprint
        values += [SINGLE_OBJECT_MAGIC + fingerprint + value[5:] for value in values[:3]]
        for schema_id in schema_ids_of(topic.record):
            with suppress(ValueError):  # The oldest plans had other fields.
                values.append(encode_as(records[0], schema_id))
        found[topic] = tuple(values)
    return found


def _commands(overlay: ScriptedOverlay) -> list[msgspec.Struct]:
    (plan, *_) = overlay.ports.plans.versions
    return [
        Command(plan.plan, phase, broker, plan.epoch_from, plan.epoch_to, plan.links_removed, plan.links_added)
        for phase in CommandPhase
        for broker in INVENTORY.brokers
    ]


def _clients() -> tuple[Client, ...]:
    conditions = (PredicateRecord("topic", "eq", text="t1"), PredicateRecord("price", "lt", 3.0))
    return (
        Client("p1", Role.PUBLISHER, "b00", conditions, 4.0, 1),
        Client("s1", Role.SUBSCRIBER, "b01", conditions[1:], 0.0, 2),
        Client("u1", Role.SUBSCRIBER, "b02", (), 0.0, 3, ("t1", "t2")),
    )
