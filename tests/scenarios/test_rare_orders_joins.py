"""A broker joins a tree: rare orders, each as short as possible."""

from __future__ import annotations

from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.producers.brokers.broker_messages import AdvertiseRequest, Confirmed, SubscribeRequest
from regraft.producers.emulator.starting_point import core_of
from regraft.schemas.command import CommandPhase, Outcome
from tests.scenarios.step_by_step import ALL, StepByStep

PREPARE, ACTIVATE, RETIRE = CommandPhase.PREPARE, CommandPhase.ACTIVATE, CommandPhase.RETIRE
PAIR = TreeConfiguration.of(0, ("b0", "b1"), [("b0", "b1")])
WITH_B2 = TreeConfiguration.of(1, ("b0", "b1", "b2"), [("b0", "b1"), ("b1", "b2")])


def test_a_broker_has_joined_once_it_knows_all_publishers() -> None:
    """Otherwise it would confirm its first client's request although no publisher's home knows of it."""
    overlay = StepByStep(PAIR)
    overlay.cores["b2"] = core_of("b2", PAIR, 0)
    overlay.brokers = WITH_B2.brokers
    overlay.feed("b0", None, AdvertiseRequest("p", ALL))
    overlay.run()
    for broker in overlay.brokers:
        overlay.command(broker, PREPARE, WITH_B2)
    overlay.run([("b1", "b2")])
    assert overlay.answered(Outcome.PREPARED) == {"b0", "b2"}
    overlay.run()
    overlay.execute(WITH_B2, phases=(ACTIVATE, RETIRE))
    assert overlay.answered(Outcome.RETIRED) == {"b0", "b1", "b2"}
    overlay.feed("b2", None, SubscribeRequest("s", "u", ALL))
    overlay.run()
    assert overlay.effects_of(Confirmed) == [Confirmed("s")]
    overlay.publish("b0", "p", symbol="A")
    overlay.run()
    assert overlay.got == [("s", "p", 0)]
