"""Clients that arrive for plans that a broker does not know take no room from neighbours, and block no other plan."""

from __future__ import annotations

from typing import Any

import pytest

from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.producers.brokers import broker_state
from regraft.producers.brokers.broker_messages import Advertise, Answer, ArriveRequest, CancelRequest
from regraft.producers.brokers.match_content import Operator, Predicate
from regraft.producers.emulator.starting_point import core_of
from regraft.schemas.command import Command, CommandPhase, Outcome

TREE = TreeConfiguration.of(3, "abc", [("a", "b"), ("b", "c")])
FILTER = (Predicate("topic", Operator.EQ, "A"),)


def outcome_of_next(core: Any) -> Outcome:
    """Let a broker prepare a plan that changes nothing, and return its answer."""
    target = TREE.at_epoch(4)
    prepare = Command("next", CommandPhase.PREPARE, "b", 3, 4, digest=target.digest, term=1)
    (answer,) = [effect for effect in core.handle(None, prepare, 5) if isinstance(effect, Answer)]
    return answer.result.outcome


@pytest.mark.parametrize("epoch", [4, 9])
def test_forged_arrivals_leave_room_for_neighbours(epoch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are dropped beyond their own bound; each that is kept may end, once."""
    monkeypatch.setattr(broker_state, "EARLY_MESSAGES_MAX", 20)
    monkeypatch.setattr(broker_state, "ARRIVALS_MAX", 10)
    core: Any = core_of("b", TREE, 0)
    for number in range(50):
        core.handle(None, ArriveRequest(epoch, f"s{number}", "forged", FILTER), 1)
    for number in range(50):
        for _ in range(2):
            core.handle(None, CancelRequest(f"s{number}"), 1)
    assert len(core.state.early) == 20
    core.handle("a", Advertise(4, "p", 0, "a", FILTER), 1)
    assert outcome_of_next(core) is Outcome.PREPARED
    assert "p" in core.routing.interests.advertisements


def test_a_flood_of_neighbours_is_known_before_the_next_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was dropped may have belonged to it, so it is refused; the one after that is not."""
    monkeypatch.setattr(broker_state, "EARLY_MESSAGES_MAX", 20)
    core: Any = core_of("b", TREE, 0)
    for number in range(21):
        core.handle("a", Advertise(4, f"p{number}", 0, "a", FILTER), 1)
    assert [outcome_of_next(core), outcome_of_next(core)] == [Outcome.REFUSED, Outcome.PREPARED]
