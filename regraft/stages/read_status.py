"""Read the stages' last output: the live view if one is configured and answers, else the status files."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import msgspec
import redis

from regraft.infra.kafka.check_kafka import missing_to_do, missing_topics, why_closed
from regraft.infra.kafka.create_topics import TopicMismatchError, check_topics
from regraft.infra.live.ask_server import open_client, why_refused
from regraft.infra.live.redis_access import RedisAccess
from regraft.infra.process.stack_error import StackError
from regraft.overlay.inventory.inventory import InventoryError
from regraft.schemas.live_view import VIEW_KEYS, LiveView, LiveViewError, decode_keys
from regraft.schemas.texts import name_some
from regraft.settings.place_demo import agents_of
from regraft.settings.run_settings import Settings
from regraft.stages.judge_status import Document, ServiceState
from regraft.stages.observe_run import parse_ledger, read_status, read_view

CONTROLLER = "controller"
ALERTS, EMULATOR = "alerts", "emulator"
OTHERS = ("streaming", EMULATOR, ALERTS, "dashboard")
TIMEOUT_S = 1.0
TOPICS_SHOWN = 5


@dataclass(frozen=True, slots=True)
class FoundStatus:
    """The result; ``source`` describes where the view is from, and why not from the server if one is configured."""

    source: str
    services: dict[str, ServiceState]
    view: LiveView | None
    alerts: Document


def find_status(settings: Settings) -> FoundStatus:
    """Return what the stages have written, which may be nothing."""
    services, damaged = _read_files(settings.run.directory)
    shown = _find_view(settings, services)
    return replace(shown, source=f"{shown.source} ({'; '.join(damaged)})") if damaged else shown


def _find_view(settings: Settings, services: dict[str, ServiceState]) -> FoundStatus:
    alerts = services[ALERTS].document if ALERTS in services else {}
    if settings.redis.access is None:
        return _from_files(settings.run.directory, services, alerts)
    try:
        keys = _read_keys(settings.redis.access, settings.kafka.namespace)
    except redis.RedisError as error:
        return _from_files(settings.run.directory, services, alerts, f"the live view cannot be reached: {error}")
    except (LiveViewError, msgspec.DecodeError) as error:
        return _from_files(settings.run.directory, services, alerts, f"the live view cannot be read: {error}")
    if keys is None:
        empty = f"the live view of {settings.kafka.namespace} is empty"
        return _from_files(settings.run.directory, services, alerts, empty)
    view, shown_alerts = keys
    age_s = max(settings.run.clock.wall_s(settings.run.clock.now_ms() - view.time_ms), 0.0)
    controller, detail = ServiceState(age_s), ""
    if controller.is_silent:
        refusal = why_refused(settings.redis.access, TIMEOUT_S)
        because = f", because the server refuses writes: {refusal}" if refusal else ""
        old = f"last written {age_s:.0f} s ago{because}"
        shown = _from_files(settings.run.directory, services, alerts, f"the live view was {old}")
        if shown.view is not None and not shown.view.is_standby and not shown.services[CONTROLLER].is_silent:
            return shown
        detail = f" ({old})" if refusal else ""
    source = f"the live view{detail}"
    return FoundStatus(source, {CONTROLLER: controller, **services}, view, shown_alerts or alerts)


def topic_errors(settings: Settings) -> list[str]:
    """Return which topics were deleted or are not as needed, and what to do; nothing if Kafka does not show it.

    A topic that Kafka creates by itself for a client, after it was deleted, is not as needed.
    """
    kafka, namespace, is_replay = settings.kafka.access, settings.kafka.namespace, settings.streaming.create_time
    if why_closed(kafka, TIMEOUT_S) is not None:
        return []
    try:
        agents = agents_of(settings)
        missing = missing_topics(kafka, namespace, agents, TIMEOUT_S)
        check_topics(kafka, namespace, agents, is_replay=is_replay, timeout_s=TIMEOUT_S)
    except TopicMismatchError as error:
        return [str(error)]
    except (InventoryError, StackError):
        return []
    to_do = missing_to_do(missing)
    return [f"Kafka lacks {name_some(missing, TOPICS_SHOWN)}: {to_do[0].lower()}{to_do[1:]}"] if missing else []


def _from_files(directory: Path, services: dict[str, ServiceState], alerts: Document, why: str = "") -> FoundStatus:
    """Return the status with the view from the controller's file; ``why``: the reason not to use the server."""
    file, view, reasons = directory / f"{CONTROLLER}.json", None, [why] if why else []
    try:
        view = read_view(file)
    except LiveViewError as error:
        reasons.append(f"{file.name} cannot be read: {error}")
    if view is not None:
        services = {CONTROLLER: ServiceState(_age_s(file)), **services}
    detail = f" ({'; '.join(reasons)})" if reasons else ""
    return FoundStatus(f"the status files in {directory}{detail}", services, view, alerts)


def _read_files(directory: Path) -> tuple[dict[str, ServiceState], list[str]]:
    """Return what stages other than the controller have written, and which files hold no status."""
    services, damaged = dict[str, ServiceState](), list[str]()
    for name in OTHERS:
        file = directory / f"{name}.json"
        document = read_status(file)
        if document is not None and _has_form(name, document):
            services[name] = ServiceState(_age_s(file), document, is_over=document.get("phase") == "ended")
        elif file.exists():
            damaged.append(f"{file.name} cannot be read")
    return services, damaged


def _has_form(name: str, document: Document) -> bool:
    """Return True if what a verdict needs of a stage's status can be read."""
    try:
        if name == EMULATOR:
            parse_ledger(document)
        if name == ALERTS:
            msgspec.convert(document.get("active"), list[dict[str, Any]] | None)
    except (TypeError, msgspec.ValidationError):
        return False
    return True


def _age_s(file: Path) -> float:
    return max(time.time() - file.stat().st_mtime, 0.0)


def _read_keys(access: RedisAccess, namespace: str) -> tuple[LiveView, Document] | None:
    """Return the live view and the alerts; None if neither was ever written. Raises RedisError, LiveViewError."""
    names = (*VIEW_KEYS, ALERTS)
    with open_client(access, TIMEOUT_S) as client:
        texts = cast(list[bytes | None], client.mget([f"{namespace}:live:{name}" for name in names]))
    texts_by_key = {name: text for name, text in zip(names, texts, strict=True) if text is not None}
    alerts = msgspec.json.decode(texts_by_key.pop(ALERTS, b"{}"), type=dict[str, Any])
    if not _has_form(ALERTS, alerts):
        raise LiveViewError("its alerts cannot be read")
    return (decode_keys(texts_by_key), alerts) if texts_by_key else None
