"""Brokers that have had no clients for minutes are reported; nothing else makes a broker idle."""

from dataclasses import replace

import pytest

from regraft.controller.decide.loop_state import LoopState
from regraft.controller.loop.watch_idle import IDLE_S_MIN, WatchIdle
from regraft.controller.ports.memory_ports import MemoryEvents
from regraft.controller.settings.controller_settings import ControllerSettings
from regraft.overlay.inventory.inventory import Inventory
from regraft.schemas.event import EventKind
from tests.controller.decide.test_decide_moves import INVENTORY, window_of
from tests.controller.scripted_overlay import settings_of
from tests.controller.small_kinds import tree_kind

WINDOWS_IDLE = int(IDLE_S_MIN)  # of a second
COUNTS = {"b01": 2, "b03": 0}  # p and q publish at b00, r at b02.


def idle_after(
    windows: int, counts: dict[str, int] | None, inventory: Inventory = INVENTORY, **changes: object
) -> tuple[LoopState, list[str]]:
    settings: ControllerSettings = settings_of()
    kind = tree_kind(inventory)
    state = LoopState.at_start(inventory)
    events = MemoryEvents()
    watch = WatchIdle(settings, kind, events)
    for at in range(windows):
        window = replace(window_of(1000 * at), subscribers_at=counts, **changes)
        state.newest, state.taken = window, (window,)
        watch(state, window.end_ms)
    return state, [event.text for event in events.emitted if event.kind is EventKind.BROKERS_CLOSABLE]


def test_a_broker_without_clients_for_minutes_is_reported_once() -> None:
    """b03 and b04 have neither publishers nor subscribers; one event names them and the command."""
    assert idle_after(WINDOWS_IDLE - 1, COUNTS)[0].closable == ()
    assert idle_after(WINDOWS_IDLE - 1, COUNTS)[1] == []
    state, texts = idle_after(WINDOWS_IDLE + 3, COUNTS)
    assert state.closable == ("b03", "b04")
    (text,) = texts
    assert text.startswith("2 brokers serve no clients and could be removed: b03, b04")
    assert "regraft members drain b03" in text


def test_of_many_idle_brokers_a_few_are_named() -> None:
    """A line in a terminal has room for three names; the others are counted."""
    everywhere = {"local_deliveries": {}, "homes": {}}
    state, (text,) = idle_after(WINDOWS_IDLE, dict.fromkeys(INVENTORY.brokers, 0), **everywhere)
    assert len(state.closable) == len(INVENTORY.brokers) == 5
    assert ": b00, b01, b02 and 2 more (`regraft members drain b00`)" in text


@pytest.mark.parametrize(
    ("counts", "inventory", "changes"),
    [
        (None, INVENTORY, {}),
        (COUNTS, replace(INVENTORY, clients_stay=True), {}),
        (COUNTS, INVENTORY, {"error": "rows missing"}),
        (COUNTS, INVENTORY, {"local_deliveries": {("p", "b03"): 1, ("p", "b04"): 5}}),
    ],
)
def test_unknown_clients_make_no_broker_idle(
    counts: dict[str, int] | None, inventory: Inventory, changes: dict[str, object]
) -> None:
    """No register, clients of real brokers, an incomplete window, or deliveries that no register explains."""
    assert idle_after(WINDOWS_IDLE + 1, counts, inventory, **changes)[0].closable == ()
