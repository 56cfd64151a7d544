"""In small overlays no order of messages, commands and clients' steps breaks the promise: all orders are tried."""

from __future__ import annotations

import math

import pytest

from regraft.producers.brokers.command_fence import CommandFence
from regraft.producers.brokers.ring_broker_state import RingState
from regraft.producers.brokers.scot_interests import ScotInterests
from regraft.producers.brokers.tree_change import TreeChange
from regraft.producers.brokers.tree_interests import TreeInterests
from regraft.producers.brokers.tree_repairs import TreeRepairs
from regraft.schemas.command import Refusal
from tests.scenarios.model.ring_detours import OPEN
from tests.scenarios.model.ring_scenarios import RINGS
from tests.scenarios.model.scot_scenarios import SCOTS
from tests.scenarios.model.search_states import Bounds, Search
from tests.scenarios.model.tell_traces import trace_lines
from tests.scenarios.model.tree_scenarios import TREES

BY_NAME = {scenario.name: scenario for scenario in TREES + RINGS + SCOTS}
SMALL = [name for name, scenario in BY_NAME.items() if not scenario.is_large]
BOUNDS = Bounds(states_max=2_000_000, seconds_max=math.inf)


@pytest.mark.parametrize("name", SMALL)
def test_no_order_breaks_the_promise(name: str) -> None:
    """In every order all that is owed is delivered once and in order, all parts settle, and nothing is left behind."""
    model, first = BY_NAME[name].model()
    result = Search(name, model, first, BOUNDS).run()
    assert not result.fault, "\n".join(trace_lines(model, first, result.moves, result.fault))
    assert result.is_complete, f"cut after {result.states} states and {result.seconds:.0f} s"
    assert result.endings


def test_no_order_loses_what_was_published_before_an_end() -> None:
    """Nothing published before a user ends is lost, even if the publisher ends, too."""
    model, first = OPEN.model()
    result = Search(OPEN.name, model, first, BOUNDS).run()
    assert not result.fault, "\n".join(trace_lines(model, first, result.moves, result.fault))


@pytest.mark.parametrize(
    "name", ["tree_move_subscribe", "tree_move_end", "tree_swap_advertise", "ring_move_elsewhere", "ring_turn_end"]
)
def test_the_reduction_loses_no_ending(name: str) -> None:
    """The moves that are left out lead to no other endings: the same ones are reached with and without them."""
    model, first = BY_NAME[name].model()
    reduced, full = (
        Search(name, model, first, Bounds(BOUNDS.states_max, BOUNDS.seconds_max, is_reduced=is_reduced))
        for is_reduced in (True, False)
    )
    fewer, all_of_them = reduced.run(), full.run()
    assert fewer.states < all_of_them.states
    assert set(reduced.endings) == set(full.endings)


@pytest.mark.parametrize(
    ("name", "core", "method", "answer", "fault"),
    [
        ("tree_move", TreeChange, "must_hold", False, "lost or out of order"),
        ("ring_move", RingState, "may_get_older", False, "lost or out of order"),
        ("tree_swap_subscribe", TreeInterests, "is_ready", True, "lost"),
        ("tree_death_stays", TreeRepairs, "find_ended", None, "may never publish"),
        ("scot_abort", ScotInterests, "leave_epoch", [], "never confirmed"),
        ("tree_two_controllers", CommandFence, "refusal_of", (Refusal.NONE, ""), "waits in"),
        ("ring_two_controllers_turn", CommandFence, "refusal_of", (Refusal.NONE, ""), "waits in"),
    ],
)
def test_without_a_safeguard_of_the_protocol_promises_break(
    name: str, core: type, method: str, answer: object, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search finds the faults without the hold, the wait until all are prepared, or one plan per epoch.

    It also finds that of a repair that does not end what has ended beyond the dead, and that of subscriptions that wait
    for an aborted epoch.
    """
    monkeypatch.setattr(core, method, lambda *_: answer)
    model, first = BY_NAME[name].model()
    result = Search(name, model, first, BOUNDS).run()
    assert fault in result.fault
