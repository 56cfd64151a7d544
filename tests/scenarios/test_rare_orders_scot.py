"""Rare orders of messages on a structured cyclic overlay that once broke the promise, each as short as possible."""

from __future__ import annotations

import pytest

from regraft.overlay.scot.scot_configuration import ScotConfiguration
from regraft.producers.brokers.broker_messages import (
    AdvertiseConfirmed,
    AdvertiseRequest,
    ArriveRequest,
    LeaveRequest,
    PublisherTaken,
    ReadyRequest,
    SubscribeRequest,
    SubscriberMoves,
    UnadvertiseRequest,
)
from regraft.schemas.command import CommandPhase, Outcome
from regraft.schemas.plan import ClientMove, HomeMove
from tests.scenarios.step_by_step import ALL, StepByStep

PAIR = ScotConfiguration(0, (("b0",), ("b1",)), ((0, 1),))
TARGET = PAIR.at_epoch(1)
PREPARE, ACTIVATE, RETIRE = CommandPhase.PREPARE, CommandPhase.ACTIVATE, CommandPhase.RETIRE


def subscriber_moves_to_its_publisher() -> StepByStep:
    """Return a prepared plan that moves subscriber m from b0 to b1, where the publisher and the subscriber s are."""
    overlay = StepByStep(PAIR)
    overlay.feed("b1", None, AdvertiseRequest("p", ALL))
    for broker, name in (("b0", "m"), ("b1", "s")):
        overlay.feed(broker, None, SubscribeRequest(name, name, ALL))
    overlay.run()
    for broker in overlay.brokers:
        overlay.command(broker, PREPARE, TARGET, emptied=(HomeMove("b0", "b1"),))
    assert overlay.effects_of(SubscriberMoves) == [SubscriberMoves("m", "b1", 1)]
    overlay.feed("b1", None, ArriveRequest(1, "m", "m", ALL))
    overlay.run()
    overlay.feed("b0", None, ReadyRequest(1, "m"))
    assert overlay.answered(Outcome.PREPARED) == {"b0", "b1"}
    return overlay


def test_the_next_home_of_a_subscriber_delivers_nothing_before_the_old_one_has_handed_over_everything() -> None:
    """It is drained while the last notification of the old epoch is still on its way to the old home."""
    overlay = subscriber_moves_to_its_publisher()
    overlay.command("b0", ACTIVATE, TARGET)
    overlay.publish("b1", "p", symbol="A")
    overlay.command("b1", ACTIVATE, TARGET)
    overlay.run(held=[("b1", "b0")])
    assert overlay.answered(Outcome.DRAINED) == {"b1"}
    overlay.publish("b1", "p", symbol="A")
    assert [one for one in overlay.got if one[0] == "s"] == [("s", "p", 0), ("s", "p", 1)]
    overlay.run()
    for broker in overlay.brokers:
        overlay.command(broker, RETIRE, TARGET)
    assert [one for one in overlay.got if one[0] == "m"] == [("m", "p", 0), ("m", "p", 1)]


@pytest.mark.parametrize("ends", [False, True])
def test_the_last_notifications_of_a_stay_are_taken_behind_a_plan_that_brings_the_next_one(ends: bool) -> None:
    """They and the end of that stay are still on their way to its home; the next stay may even have ended by then."""
    overlay = StepByStep(PAIR)
    overlay.feed("b1", None, AdvertiseRequest("p", ALL, 1))
    overlay.feed("b0", None, SubscribeRequest("s", "s", ALL))
    overlay.run()
    overlay.feed("b0", None, AdvertiseRequest("p", ALL, 2))
    overlay.run()
    overlay.execute(TARGET, (ClientMove("p", "b0", "b1"),), phases=(PREPARE,))
    if ends:
        overlay.feed("b0", None, UnadvertiseRequest("p", 2))
        overlay.run()
    for broker in ("b1", "b0"):
        overlay.command(broker, ACTIVATE, TARGET)
    overlay.publish("b1", "p", symbol="A")
    overlay.feed("b1", None, UnadvertiseRequest("p", 1))
    if not ends:
        overlay.feed("b0", None, LeaveRequest("p", 2))
        overlay.publish("b1", "p", symbol="A")
    overlay.run()
    overlay.execute(TARGET, phases=(RETIRE,))
    assert overlay.got == [("s", "p", number) for number in range(1 if ends else 2)]
    assert not overlay.cores["b1"].state.tables[1].earlier


def test_a_publisher_is_taken_by_a_broker_that_has_not_heard_of_the_end_of_its_earlier_stay_there() -> None:
    """The names are equal, the stays are not; the earlier stay's end is still on its way when all have activated."""
    overlay, moves = StepByStep(PAIR), (ClientMove("p", "b0", "b1"),)
    overlay.feed("b1", None, AdvertiseRequest("p", ALL, 1))
    overlay.run()
    overlay.feed("b0", None, AdvertiseRequest("p", ALL, 2))
    overlay.run()
    overlay.client_effects.clear()
    overlay.execute(TARGET, moves, phases=(PREPARE, ACTIVATE))
    assert overlay.effects_of(AdvertiseConfirmed) == []  # It is not at home at b1 yet, whatever b1's region knows.
    overlay.feed("b0", None, LeaveRequest("p", 2))
    overlay.feed("b1", None, UnadvertiseRequest("p", 1))
    overlay.run()
    overlay.execute(TARGET, phases=(RETIRE,))
    assert overlay.effects_of(PublisherTaken) == [PublisherTaken("p", 2)]
    assert {broker: list(core.state.tables[1].hosted) for broker, core in overlay.cores.items()} == {
        "b0": [],
        "b1": ["p"],
    }
