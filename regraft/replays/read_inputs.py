"""Read from a recording what its controller knew in addition to the state rows, and its settings.

In: a recording. Out: DecisionInputs, and settings. Deciding on them belongs to :mod:`regraft.replays.replay_decisions`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import structlog

from regraft.infra.process.stack_error import StackError
from regraft.producers.recordings.read_recording import RecordedMessage, Recording
from regraft.replays.replay_decisions import DecisionInputs
from regraft.schemas.client import Client
from regraft.schemas.codec import UndecodableRecordError, decode
from regraft.schemas.command import CommandResult
from regraft.schemas.member import Member, MemberState
from regraft.schemas.order import Order
from regraft.schemas.plan import Plan
from regraft.schemas.state import WindowClosed
from regraft.schemas.topics import CLIENTS, MEMBERS, ORDERS, PLANS, RESULTS, WINDOWS
from regraft.settings.fixed_settings import fixed_values, with_recorded
from regraft.settings.read_sources import Flags, merged
from regraft.settings.recorded_settings import present_settings
from regraft.settings.run_settings import Settings, load_settings

APPLIED_SECTIONS = ("streaming", "controller")
# Settings that belong to the recorded machine and do not affect decisions.
LEFT_OUT = ("metrics_port", "metrics_host", "telemetry_topic", "status_file")
INPUT_TOPICS = (CLIENTS, RESULTS, ORDERS, PLANS, WINDOWS, MEMBERS)

Record = TypeVar("Record", bound=msgspec.Struct)

log = structlog.get_logger(__name__)


def _decisive(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in LEFT_OUT}


def recorded_settings(recording: Recording, flags: Flags, file: Path | None) -> tuple[Settings, list[str]]:
    """Return the settings of the recorded run, overridden by the flags, and recorded names that are no longer settings.

    If a settings file is given, it replaces the recorded settings. Raises SettingsError.
    """
    tables: dict[str, dict[str, Any]] = {}
    unknown: list[str] = []
    recorded: Mapping[str, Any] = {}
    if file is None:
        recorded = {section: _decisive(values) for section, values in recording.info.settings.items()}
        tables, unknown = present_settings(recorded, APPLIED_SECTIONS)
        if "seed" in recorded.get("run", {}):
            tables["run"] = {"seed": recorded["run"]["seed"]}
    for section, values in flags.items():
        tables[section] = merged(tables.get(section, {}), values)
    settings = load_settings(tables, file)
    constants = fixed_values(settings)
    return with_recorded(settings, recorded), [name for name in unknown if name not in constants]


def read_inputs(recording: Recording, from_ms: int | None = None, to_ms: int | None = None) -> DecisionInputs:
    """Return what the controller knew in a span of the recording; what was stored earlier is known from the start.

    Raises StackError if the recorded run had another clock speed than 1: Kafka's times are then not its event times.
    """
    speed = recording.info.settings.get("run", {}).get("clock_speed", 1.0)
    if speed != 1.0:
        raise StackError(
            f"{recording.path} was recorded at clock speed {speed:g}: its Kafka times are not its event times, "
            "so the time at which something became known cannot be determined: replay it without --run."
        )
    span_ms = recording.telemetry_span_ms
    begin_ms = from_ms if from_ms is not None else (span_ms[0] if span_ms else 0)
    reader = _InputReader(begin_ms)
    for message in recording.messages([topic.suffix for topic in INPUT_TOPICS], None, to_ms):
        reader.take(message)
    if reader.errors:
        log.warning("records_skipped", **reader.errors)
    return reader.inputs(is_answered=RESULTS.suffix in recording.info.topics)


class _InputReader:
    def __init__(self, begin_ms: int) -> None:
        self._begin_ms = begin_ms
        self._clients: list[tuple[int, str, Client | None]] = []
        self._results: list[tuple[int, CommandResult]] = []
        self._orders: list[tuple[int, Order]] = []
        self._known: dict[str, Plan] = {}
        self._members: dict[str, Member] = {}
        self._recorded: dict[str, Plan] = {}
        self._markers_ms: dict[int, int] = {}
        self.errors: Counter[str] = Counter()

    def take(self, message: RecordedMessage) -> None:
        """Process one message; count it in ``errors`` if it does not decode."""
        topic, time_ms = message.topic, message.time_ms
        if topic == CLIENTS.suffix:
            client = self._decoded(message, Client)
            if client is not None or message.value is None:
                name = message.key.decode(errors="replace") if client is None else client.client
                self._clients.append((time_ms, name, client))
        elif topic == PLANS.suffix and (plan := self._decoded(message, Plan)):
            self._recorded[plan.plan] = plan
            if time_ms < self._begin_ms:
                self._known[plan.plan] = plan
        elif topic == ORDERS.suffix and (order := self._decoded(message, Order)):
            self._orders.append((time_ms, order))
        elif time_ms < self._begin_ms:
            if topic == MEMBERS.suffix and (member := self._decoded(message, Member)):
                self._members[member.broker] = member
        elif topic == RESULTS.suffix and (result := self._decoded(message, CommandResult)):
            self._results.append((time_ms, result))
        elif topic == WINDOWS.suffix and (marker := self._decoded(message, WindowClosed)):
            self._markers_ms.setdefault(marker.window_end_ms, time_ms)

    def inputs(self, *, is_answered: bool) -> DecisionInputs:
        """Return the inputs read so far; ``is_answered``: the recording holds the brokers' answers."""
        return DecisionInputs(
            clients=self._clients,
            results=self._results if is_answered else None,
            orders=self._orders,
            recorded=self._recorded,
            plans_known=list(self._known.values()) if is_answered else [],
            members_known=list(self._members.values()) if is_answered else self._to_join(),
            markers_ms=self._markers_ms,
        )

    def _to_join(self) -> list[Member]:
        """Return added members that are in service as joining, for a loop that starts from the bootstrap overlay."""
        added = [member for member in self._members.values() if member.facts is not None and member.state.is_serving]
        return [msgspec.structs.replace(member, state=MemberState.JOINING, since_ms=0) for member in added]

    def _decoded(self, message: RecordedMessage, record_type: type[Record]) -> Record | None:
        if message.value is None:
            return None
        try:
            return decode(message.value, record_type)
        except UndecodableRecordError:
            self.errors[message.topic] += 1
            return None
