"""A broker above its cap is reported with what can relieve it."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from regraft.controller.loop.take_windows import WINDOWS_IN_A_ROW, WatchCaps
from regraft.controller.ports.memory_ports import MemoryEvents
from regraft.controller.state.closed_window import ClosedWindow
from tests.controller.published_windows import queue_of
from tests.controller.scripted_overlay import settings_of
from tests.overlay.small_overlays import inventory_of, line_of, sets_of

LINE = line_of(2)


@pytest.mark.parametrize(
    ("clients_stay", "movable", "relief"),
    [
        (False, {}, "(load_max_per_s): --planner pack_drop moves subscribers away"),
        (True, {"web1.k3-1.1": "b00", "web1.k3-1.2": "b01"}, "1 of its 3 subscribers may move: --planner pack_drop"),
        (True, {"web1.k3-1.2": "b01"}, "0 of its 3 subscribers may move, so the links must relieve it"),
    ],
)
def test_what_relieves_a_broker_depends_on_who_may_move(
    clients_stay: bool, movable: dict[str, str], relief: str
) -> None:
    assert relief in reported(clients_stay, window_over_its_cap(movable))


def window_over_its_cap(movable: dict[str, str]) -> ClosedWindow:
    return ClosedWindow(
        0, 5_000, sets_of(LINE.brokers, []), queues=(queue_of("b00", "", per_s=30.0),), epoch_min=0, epoch_max=0,
        movable=movable, subscribers_at={"b00": 3, "b01": 1},
    )  # fmt: skip


def reported(clients_stay: bool, window: ClosedWindow) -> str:
    inventory = replace(inventory_of(LINE, {}), clients_stay=clients_stay, load_max_per_s=np.array([10.0, 10.0]))
    events = MemoryEvents()
    watch = WatchCaps(settings_of(), events)
    state: Any = SimpleNamespace(taken=[window] * WINDOWS_IN_A_ROW, fleet=SimpleNamespace(inventory=inventory))
    watch(state, window.end_ms)
    (event,) = events.emitted
    return event.text


def test_the_event_says_why_subscribers_stay() -> None:
    window = replace(window_over_its_cap({"web1.k3-1.1": "b00"}), staying={"b00": {"qos_2": 1}, "b01": {"rights": 1}})
    assert "1 of its 3 subscribers may move, others stay (1 qos 2, 1 other): --planner" in reported(True, window)
    window = replace(window, movable={})
    assert "may move, others stay (1 qos 2, 2 other), so the links must" in reported(True, window)
