"""Rare orders of a publisher's stays on a ring during a plan, each as short as possible."""

from __future__ import annotations

from regraft.overlay.ring.chord_configuration import RingConfiguration, id_moves_between
from regraft.producers.brokers.broker_messages import AdvertiseRequest, SubscribeRequest, UnadvertiseRequest
from regraft.producers.emulator.user_clients import topic_filter
from regraft.schemas.command import CommandPhase, Outcome
from tests.scenarios.step_by_step import StepByStep
from tests.scenarios.test_rare_orders_ring import THREE, topic_at

TURNED = RingConfiguration.of(1, 6, {"b0": 3, "b1": 40, "b2": 20})


def test_the_end_of_an_earlier_stay_does_not_undo_the_end_of_the_next_one() -> None:
    """It reaches the rendezvous late, after END of the stay at b2; END of the other publisher is still to come."""
    overlay = StepByStep(THREE)
    topic, slow = topic_at(THREE, "b2"), [("b0", "b2")]
    overlay.feed("b0", None, AdvertiseRequest("p", topic_filter(topic), 0))
    overlay.feed("b0", None, UnadvertiseRequest("p", 0))
    overlay.feed("b2", None, AdvertiseRequest("p", topic_filter(topic), 1))
    overlay.feed("b1", None, AdvertiseRequest("q", topic_filter(topic)))
    overlay.feed("b2", None, SubscribeRequest("s", "u", topic_filter(topic)))
    overlay.run(held=slow)
    for broker in THREE.brokers:
        overlay.command(broker, CommandPhase.PREPARE, TURNED, id_moves=id_moves_between(THREE, TURNED))
    overlay.run(held=slow)
    for broker in ("b0", "b2"):
        overlay.command(broker, CommandPhase.ACTIVATE, TURNED)
    overlay.run()
    overlay.command("b1", CommandPhase.ACTIVATE, TURNED)
    overlay.run()
    assert overlay.answered(Outcome.DRAINED) == set(THREE.brokers)
