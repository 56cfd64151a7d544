"""Rare orders of messages on a ring that once lost, blocked or leaked something, each as short as it can be told."""

from __future__ import annotations

from overlay.chord_configuration import ChordConfiguration
from producers.broker_messages import AdvertiseConfirmed, AdvertiseRequest, SubscribeRequest, UnadvertiseRequest
from producers.user_clients import topic_filter
from tests.scenarios.step_by_step import StepByStep

PAIR = ChordConfiguration.of(0, 6, {"b0": 3, "b1": 40})
THREE = ChordConfiguration.of(0, 6, {"b0": 3, "b1": 20, "b2": 40})


def topic_at(ring: ChordConfiguration, broker: str) -> str:
    """Return a topic whose rendezvous is this broker."""
    return next(f"t{number}" for number in range(100) if ring.rendezvous(f"t{number}") == broker)


def test_the_end_of_an_earlier_stay_does_not_forget_the_next_one() -> None:
    """A publisher leaves b0 and comes again at b1; its registration there overtakes the end of the earlier stay."""
    overlay = StepByStep(THREE)
    topic = topic_at(THREE, "b2")
    overlay.feed("b0", None, AdvertiseRequest("p", topic_filter(topic), 0))
    overlay.run()
    overlay.publish("b0", "p", topic=topic)
    overlay.feed("b0", None, UnadvertiseRequest("p", 0))
    slow = ("b0", overlay.cores["b0"].tables[0].next_hop("b2"))
    overlay.feed("b1", None, AdvertiseRequest("p", topic_filter(topic), 1))
    overlay.run(held=[slow])
    assert overlay.told_of(AdvertiseConfirmed) == [AdvertiseConfirmed("p", 0)]  # Its earlier stay is not over yet.
    overlay.run()
    assert overlay.told_of(AdvertiseConfirmed)[1:] == [AdvertiseConfirmed("p", 1)]
    assert overlay.cores["b2"].tables[0].registered[topic]["p"].home == "b1"


def test_a_stay_that_ends_before_its_turn_came_leaves_no_trace() -> None:
    """The same, but the publisher leaves again at once."""
    overlay = StepByStep(THREE)
    topic = topic_at(THREE, "b2")
    overlay.feed("b0", None, AdvertiseRequest("p", topic_filter(topic), 0))
    overlay.run()
    overlay.feed("b0", None, UnadvertiseRequest("p", 0))
    slow = ("b0", overlay.cores["b0"].tables[0].next_hop("b2"))
    overlay.feed("b1", None, AdvertiseRequest("p", topic_filter(topic), 1))
    overlay.feed("b1", None, UnadvertiseRequest("p", 1))
    overlay.run(held=[slow])
    overlay.run()
    assert not overlay.cores["b2"].tables[0].registered
    overlay.feed("b0", None, SubscribeRequest("s", "u", topic_filter(topic)))
    overlay.run()
    assert overlay.got == []
