"""Read what the stages last wrote: the live view where one is configured and answers, else the status files.

In: settings. Out: the newest document of each stage with its age, and where they come from. Judging them does not
belong here.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from regraft.settings.run_settings import Settings
from regraft.stages.judge_status import Document, ServiceState
from regraft.stages.observe_run import read_status
from schemas.live_view import COUNTS, VIEW_KEYS

STAGES = ("controller", "streaming", "emulator", "alerts", "dashboard")
ALERTS = "alerts"
TIMEOUT_S = 1.0


@dataclass(frozen=True, slots=True)
class FoundStatus:
    """What was found: ``source`` says where the controller's document is from, and why not from the live view."""

    source: str
    services: dict[str, ServiceState]
    alerts: Document


def find_status(settings: Settings) -> FoundStatus:
    """Return what there is; nothing being there is no error."""
    services = {name: state for name in STAGES if (state := _read_file(settings.run.directory / f"{name}.json"))}
    files = f"the status files in {settings.run.directory}"
    alerts = services["alerts"].document if "alerts" in services else {}
    if settings.redis.url is None:
        return FoundStatus(files, services, alerts)
    try:
        view = _read_view(settings.redis.url, settings.kafka.namespace)
    except (redis.RedisError, ValueError) as error:
        return FoundStatus(f"{files} (the live view does not answer: {error})", services, alerts)
    if view is None:
        return FoundStatus(f"{files} (the live view of {settings.kafka.namespace} is empty)", services, alerts)
    document, shown_alerts = view
    age_s = max(settings.run.clock.wall_s(settings.run.clock.now_ms() - document["time_ms"]), 0.0)
    services["controller"] = ServiceState(age_s, document)
    return FoundStatus("the live view", services, shown_alerts or alerts)


def _read_file(file: Path) -> ServiceState | None:
    document = read_status(file)
    if document is None:
        return None
    age_s = max(time.time() - file.stat().st_mtime, 0.0)
    return ServiceState(age_s, document, is_over=document.get("phase") == "ended")


def _read_view(url: str, namespace: str) -> tuple[dict[str, Any], Document] | None:
    """Return the controller's document, put together again, and the alerts; None where nothing was ever written."""
    once = Retry(NoBackoff(), 0)
    names = (*VIEW_KEYS, ALERTS)
    client = redis.Redis.from_url(url, socket_timeout=TIMEOUT_S, socket_connect_timeout=TIMEOUT_S, retry=once)
    with client:
        texts = cast(list[bytes | None], client.mget([f"{namespace}:live:{name}" for name in names]))
    parts = {name: json.loads(text) for name, text in zip(names, texts, strict=True) if text is not None}
    if COUNTS not in parts:
        return None
    alerts = parts.pop(ALERTS, {})
    return {**parts.pop(COUNTS), **parts}, alerts
