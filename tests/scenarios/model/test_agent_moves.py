"""In no order of events does a client beside an agent lose or repeat messages, or end up nowhere, as it moves."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from regraft.producers.agents.client_moves import ClientMoves
from regraft.producers.agents.move_subscription import MovingSubscription
from tests.scenarios.model.agent_moves import SCENARIOS, explore

BY_NAME = {each.name: each for each in SCENARIOS}


@pytest.mark.parametrize("name", [each.name for each in SCENARIOS if not each.is_large])
def test_no_order_of_events_breaks_the_promise(name: str) -> None:
    """Both ends of the plan, brokers that refuse, brokers and nodes that die: whatever happens first."""
    found = explore(BY_NAME[name])
    assert not found.fault, (found.fault, found.way)
    assert found.worlds > 100
    assert found.endings > 0


@pytest.mark.parametrize(
    ("name", "part", "method", "answer", "fault"),
    [
        ("old_dies", MovingSubscription, "is_complete", property(lambda _move: False), "not at rest"),
        ("mqtt_old", ClientMoves, "_is_owed", lambda *_: True, "came twice"),
        ("refused", ClientMoves, "_refuse", lambda *_: None, "is preparing"),
        ("new_dies", ClientMoves, "lose", lambda *_: None, "not at rest"),
        ("new_node_dies", ClientMoves, "_note_home", lambda *_: None, "not at rest"),
    ],
)
def test_without_a_safeguard_promises_break(
    name: str, part: type, method: str, answer: Callable[..., object], fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search finds what happens without each of these."""
    monkeypatch.setattr(part, method, answer)
    assert fault in explore(BY_NAME[name]).fault
