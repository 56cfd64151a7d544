"""The home of a ring's publisher dies while a plan is under way: what its rendezvous keeps of it, and until when."""

from __future__ import annotations

import pytest

from regraft.overlay.ring.chord_configuration import RingConfiguration, id_moves_between
from regraft.producers.brokers.broker_messages import (
    AdvertiseConfirmed,
    AdvertiseRequest,
    Cancelled,
    CancelRequest,
    SubscribeRequest,
)
from regraft.producers.emulator.user_clients import topic_filter
from regraft.schemas.command import CommandPhase, Outcome
from tests.scenarios.test_rare_orders_ring import topic_at
from tests.scenarios.test_rare_orders_ring_deaths import DyingRing

PREPARE, ACTIVATE, RETIRE = CommandPhase.PREPARE, CommandPhase.ACTIVATE, CommandPhase.RETIRE
# From b3 the path to b2 leads over b0, and is direct once these two have exchanged their IDs; from b1 it stays.
LONG = RingConfiguration.of(0, 6, {"b0": 25, "b1": 16, "b2": 33, "b3": 51})
SHORT = RingConfiguration.of(1, 6, {"b0": 51, "b1": 16, "b2": 33, "b3": 25})
# From b0 the path to b1 leads over b2, and is direct once these two have exchanged their IDs.
OVER = RingConfiguration.of(0, 6, {"b0": 3, "b1": 41, "b2": 36})
DIRECT = RingConfiguration.of(1, 6, {"b0": 3, "b1": 36, "b2": 41})


class ChangingRing(DyingRing):
    """A ring that changes to another one, and in which a broker dies meanwhile."""

    def __init__(self, ring: RingConfiguration, target: RingConfiguration) -> None:
        super().__init__(ring)
        self.target = target

    def change(self, *phases: CommandPhase, held: tuple[tuple[str, str], ...] = ()) -> None:
        """Take the remaining brokers through phases of the plan."""
        for phase in phases:
            for broker in self.brokers:
                id_moves = id_moves_between(self.ring, self.target)
                self.command(broker, phase, self.target, (), id_moves, self.dead if phase is not PREPARE else ())
            self.run_alive(*held)
        if RETIRE in phases:
            self.ring = self.target


def published_at_b3() -> tuple[ChangingRing, str]:
    """Return a ring with a publisher at b3, a subscriber at b1 to its topic of b2, and its notification at b0."""
    overlay = ChangingRing(LONG, SHORT)
    topic = topic_at(LONG, "b2")
    overlay.feed("b3", None, AdvertiseRequest("p", topic_filter(topic)))
    overlay.feed("b1", None, SubscribeRequest("s", "u", topic_filter(topic)))
    overlay.run()
    overlay.publish("b3", "p", topic=topic)
    overlay.cross("b3", "b0")
    return overlay, topic


def test_what_a_dead_home_had_published_arrives_although_its_newer_path_has_ended_before() -> None:
    """If the newer epoch forgot it at once, no probe would keep the subscription until the older path has ended."""
    overlay, _ = published_at_b3()
    long_way, down = ("b0", "b2"), ("b2", "b1")
    overlay.change(PREPARE, held=(long_way,))
    overlay.kill("b3")
    overlay.notice()
    overlay.run_alive(long_way)
    overlay.feed("b1", None, CancelRequest("s"))
    overlay.change(ACTIVATE, held=(long_way,))
    overlay.run_alive(down)
    assert overlay.answered(Outcome.DRAINED) == {"b0", "b1", "b2"}
    overlay.change(RETIRE, held=(down,))
    assert overlay.answered(Outcome.RETIRED) == {"b0", "b1", "b2"}
    overlay.run_alive()
    assert overlay.got == [("s", "p", 0)]


def test_a_dead_home_is_forgotten_in_the_newer_epoch_once_its_older_path_has_ended() -> None:
    """Subscriptions that end then are released while the plan is under way, without asking a dead home."""
    overlay, _ = published_at_b3()
    long_way = ("b0", "b2")
    overlay.change(PREPARE, held=(long_way,))
    overlay.kill("b3")
    overlay.notice()
    overlay.run_alive(long_way)
    overlay.change(ACTIVATE, held=(long_way,))
    overlay.run_alive()
    overlay.feed("b1", None, CancelRequest("s"))
    overlay.run_alive()
    assert overlay.got == [("s", "p", 0)]
    assert overlay.effects_of(Cancelled) == [Cancelled("s")]


def test_a_dead_home_is_forgotten_when_the_epoch_of_its_unfinished_path_is_retired() -> None:
    """Its rendezvous is another one in the newer epoch and waits for nothing there; the next stay begins at b2."""
    overlay = ChangingRing(OVER, DIRECT)
    topics = [f"t{number}" for number in range(100)]
    topic = next(one for one in topics if (OVER.rendezvous(one), DIRECT.rendezvous(one)) == ("b2", "b1"))
    overlay.feed("b0", None, AdvertiseRequest("p", topic_filter(topic), 0))
    overlay.run()
    overlay.change(PREPARE)
    overlay.kill("b0")
    overlay.notice()
    long_way = ("b2", "b1")
    overlay.change(ACTIVATE, RETIRE, held=(long_way,))
    assert overlay.answered(Outcome.RETIRED) == {"b1", "b2"}
    overlay.feed("b2", None, AdvertiseRequest("p", topic_filter(topic), 1))
    overlay.run_alive()
    assert overlay.effects_of(AdvertiseConfirmed)[1:] == [AdvertiseConfirmed("p", 1)]


@pytest.mark.parametrize("dead", ["b3", "b0"], ids=["the home", "one on its way"])
def test_a_flush_whose_probe_is_lost_with_a_broker_is_requested_again_by_the_repair(dead: str) -> None:
    """Ended subscriptions are kept until then, as it is unknown what is still under way for them, and no longer."""
    overlay, _ = published_at_b3()
    overlay.run()
    overlay.feed("b1", None, CancelRequest("s"))
    overlay.cross("b1", "b2")
    overlay.kill(dead)
    overlay.notice()
    overlay.run_alive()
    assert overlay.cores["b1"].ended_count == 1
    overlay.repair(PREPARE, ACTIVATE, RETIRE)
    assert overlay.answered(Outcome.RETIRED) == {"b0", "b1", "b2", "b3"} - {dead}
    assert overlay.effects_of(Cancelled) == [Cancelled("s")]
    assert overlay.cores["b1"].ended_count == 0
