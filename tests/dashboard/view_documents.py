"""Documents as the controller writes them, from a real loop on the virtual clock, and a function that stores them."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Mapping
from copy import deepcopy
from functools import cache
from typing import Any

import msgspec
import redis

from regraft.controller.ports.write_live_view import ValkeyView
from regraft.overlay.inventory.inventory import Inventory
from regraft.producers.emulator.place_overlay import place_overlay
from regraft.producers.workloads.stock_settings import WorkloadSettings
from regraft.schemas.live_view import LiveView
from tests.scenarios.closed_loop import ClosedLoop

BROKERS = 12
SEED = 1
RUN_MS = 40_000
TIMES_FROM_MS = 100_000  # larger numbers named _ms are times, smaller ones are spans
WORKLOAD = WorkloadSettings(publisher_count=8, interested_broker_count=4, lifetime_s_mean=10.0)


@cache
def small_inventory() -> Inventory:
    """Return the inventory of the loop."""
    return place_overlay(BROKERS, 6, random.Random(SEED))


@cache
def _written_document() -> dict[str, Any]:
    loop = ClosedLoop(small_inventory(), WORKLOAD, SEED)
    loop.run_for(RUN_MS)
    document: dict[str, Any] = json.loads(loop.ports.view.text)
    assert document["plans"]
    return document


def written_document() -> dict[str, Any]:
    """Return a document that a real loop wrote, with at least one plan; the caller may change it."""
    return deepcopy(_written_document())


def proposed_document() -> dict[str, Any]:
    """Return the same document, but its last plan that changes links still waits for approval."""
    document = written_document()
    plan = next(plan for plan in reversed(document["plans"]) if plan["links_removed"])
    document["plans"] = [
        {
            **plan,
            "phase": "proposed",
            "history": [{"phase": "proposed", "time_ms": document["time_ms"], "reason": "waits for approval"}],
            "cost_observed_per_s": None,
        }
    ]
    links = {tuple(pair) for pair in document["configuration"]["links"]}
    links -= {tuple(pair) for pair in plan["links_added"]}
    links |= {tuple(pair) for pair in plan["links_removed"]}
    document["configuration"]["links"] = sorted(map(list, links))
    return document


def view_texts(document: Mapping[str, Any], namespace: str = "regraft") -> dict[str, bytes]:
    """Return the texts that the controller would write for a document, by key."""
    kept: dict[str, bytes] = {}

    class Keeper:
        def mset(self, mapping: dict[str, bytes]) -> None:
            kept.update({key.rpartition(":")[2]: text for key, text in mapping.items()})

    ValkeyView(Keeper(), namespace).publish(msgspec.convert(document, LiveView), 0)
    return kept


def moved_in_time(value: Any, shift_ms: int) -> Any:
    """Return a document's value with all its times shifted."""
    if isinstance(value, dict):
        return {
            name: one + shift_ms
            if name.endswith("_ms") and isinstance(one, int) and one > TIMES_FROM_MS
            else moved_in_time(one, shift_ms)
            for name, one in value.items()
        }
    return [moved_in_time(one, shift_ms) for one in value] if isinstance(value, (list, tuple)) else value


def publish(url: str, document: Mapping[str, Any], alerts: Mapping[str, Any] | None = None) -> None:
    """Store a document with all its times shifted so that it is current."""
    store_document(url, moved_in_time(document, time.time_ns() // 1_000_000 - document["time_ms"]), alerts)


def store_document(url: str, document: Mapping[str, Any], alerts: Mapping[str, Any] | None = None) -> None:
    """Store a document as the controller does, written now."""
    with redis.Redis.from_url(url) as client:
        view = msgspec.convert({**document, "time_ms": time.time_ns() // 1_000_000}, LiveView)
        ValkeyView(client, "regraft").publish(view, 0)
        if alerts is not None:
            client.set("regraft:live:alerts", json.dumps(alerts))
