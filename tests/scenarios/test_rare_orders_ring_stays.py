"""The next stay of a ring's publisher begins while a broker is dead, or a repair under way: when it may publish."""

from __future__ import annotations

from collections.abc import Sequence

from regraft.overlay.ring.ring_configuration import RingConfiguration, id_moves_between
from regraft.producers.brokers.broker_messages import (
    AdvertiseConfirmed,
    AdvertiseRequest,
    SubscribeRequest,
    UnadvertiseRequest,
)
from regraft.producers.emulator.user_clients import topic_filter
from regraft.schemas.command import CommandPhase, Outcome
from tests.scenarios.test_rare_orders_ring import topic_at
from tests.scenarios.test_rare_orders_ring_deaths import FIVE, DyingRing

PREPARE, ACTIVATE, RETIRE, ABORT = CommandPhase.PREPARE, CommandPhase.ACTIVATE, CommandPhase.RETIRE, CommandPhase.ABORT
LIVING = {"b0", "b1", "b2", "b3"}
# From b3 the path to b2 leads over b0. In the repair it is direct; those between b1 and b2 always are.
LONG = RingConfiguration.of(0, 6, {"b0": 25, "b1": 16, "b2": 33, "b3": 51, "b4": 0})
SHORT = RingConfiguration.of(1, 6, {"b0": 51, "b1": 16, "b2": 33, "b3": 25})
OLD_WAY, NEW_WAY = ("b0", "b2"), ("b3", "b2")
AT_B2 = topic_at(LONG, "b2")


class TwoStays(DyingRing):
    """A publisher whose first stay is at b3, and a user at b1 who gets its notifications over b2, in both epochs."""

    def __init__(self) -> None:
        super().__init__(LONG)
        self.feed("b3", None, AdvertiseRequest("p", topic_filter(AT_B2), 0))
        self.feed("b1", None, SubscribeRequest("s", "u", topic_filter(AT_B2)))
        self.run()

    def change(self, phase: CommandPhase, held: Sequence[tuple[str, str]] = (), brokers: Sequence[str] = ()) -> None:
        """Take the living brokers, or some, through one phase of the repair that also changes the path from b3."""
        for broker in brokers or self.brokers:
            self.command(broker, phase, SHORT, (), id_moves_between(LONG, SHORT), self.dead)
        self.run_alive(*held)

    def let_second_stay_wait(self) -> None:
        """Let b4 die, b1 ask for a second stay, and b3 publish in both epochs; what it sent first is under way."""
        self.publish("b3", "p", topic=AT_B2)
        self.cross("b3", "b0")
        self.kill("b4")
        self.notice()
        self.feed("b1", None, AdvertiseRequest("p", topic_filter(AT_B2), 1))
        self.run_alive(OLD_WAY)
        self.change(PREPARE, [OLD_WAY])
        self.change(ACTIVATE, [OLD_WAY], ["b3"])
        self.publish("b3", "p", topic=AT_B2)
        self.run_alive(OLD_WAY)


def confirmed(overlay: DyingRing) -> list[int]:
    """Return the stays of the publisher that may publish."""
    return [one.connection for one in overlay.effects_of(AdvertiseConfirmed)]


def test_stays_begin_in_order_although_they_register_for_a_repair_in_any() -> None:
    """The rendezvous b1 is dead; b4, its successor, is home to the later stay and hears of the earlier one from b2."""
    overlay = DyingRing(FIVE)
    topic = topic_at(FIVE, "b1")
    overlay.feed("b2", None, AdvertiseRequest("p", topic_filter(topic), 0))
    overlay.feed("b3", None, SubscribeRequest("s", "u", topic_filter(topic)))
    overlay.run()
    overlay.kill("b1")
    overlay.notice()
    overlay.feed("b4", None, AdvertiseRequest("p", topic_filter(topic), 1))
    overlay.run_alive()
    overlay.repair(PREPARE, ACTIVATE, RETIRE)
    assert overlay.answered(Outcome.RETIRED) == {"b0", "b2", "b3", "b4"}
    overlay.publish("b2", "p", topic=topic)
    overlay.feed("b2", None, UnadvertiseRequest("p", 0))
    assert confirmed(overlay) == [0]
    overlay.run_alive()
    assert confirmed(overlay) == [0, 1]
    overlay.publish("b4", "p", topic=topic)
    overlay.run_alive()
    assert overlay.got == [("s", "p", 0), ("s", "p", 1)]


def test_end_of_a_stay_that_waits_does_not_end_the_earlier_one() -> None:
    """That of the later stay comes from b1, while the last notification of the older epoch is on its way from b3."""
    overlay = TwoStays()
    overlay.let_second_stay_wait()
    overlay.change(ACTIVATE, [OLD_WAY])
    overlay.publish("b3", "p", topic=AT_B2)
    overlay.run_alive(OLD_WAY)
    assert overlay.got == []
    overlay.run_alive()
    assert overlay.got == [("s", "p", 0), ("s", "p", 1), ("s", "p", 2)]
    assert overlay.answered(Outcome.DRAINED) == LIVING


def test_the_end_of_a_stay_that_waits_releases_nothing_of_the_earlier_one() -> None:
    """It comes from b1 in the older epoch, ahead of the last notification that the earlier stay published there."""
    overlay = TwoStays()
    overlay.let_second_stay_wait()
    overlay.feed("b1", None, UnadvertiseRequest("p", 1))
    overlay.run_alive(OLD_WAY)
    assert overlay.got == []
    overlay.change(ACTIVATE, [OLD_WAY])
    overlay.run_alive()
    assert overlay.got == [("s", "p", 0), ("s", "p", 1)]
    assert overlay.answered(Outcome.DRAINED) == LIVING


def test_a_stay_that_begins_in_the_older_epoch_waits_in_the_newer_one() -> None:
    """The earlier one ends in both; in the newer epoch, over another path, its last notification is still to come."""
    overlay = TwoStays()
    overlay.kill("b4")
    overlay.notice()
    overlay.feed("b2", None, AdvertiseRequest("p", topic_filter(AT_B2), 1))
    overlay.change(PREPARE)
    overlay.change(ACTIVATE)
    overlay.publish("b3", "p", topic=AT_B2)
    overlay.feed("b3", None, UnadvertiseRequest("p", 0))
    overlay.run_alive(NEW_WAY)
    overlay.change(RETIRE, held=[NEW_WAY])
    assert overlay.answered(Outcome.RETIRED) == LIVING
    assert confirmed(overlay) == [0]
    overlay.run_alive()
    assert confirmed(overlay) == [0, 1]
    overlay.publish("b2", "p", topic=AT_B2)
    overlay.run_alive()
    assert overlay.got == [("s", "p", 0), ("s", "p", 1)]


def test_a_stay_that_ends_while_it_waits_does_not_begin() -> None:
    """Its home b1 has retired the older epoch and ends it in the newer one; its turn in the older one comes later."""
    overlay = TwoStays()
    overlay.kill("b4")
    overlay.notice()
    overlay.feed("b1", None, AdvertiseRequest("p", topic_filter(AT_B2), 1))
    overlay.run_alive()
    overlay.change(PREPARE)
    overlay.change(ACTIVATE)
    overlay.feed("b3", None, UnadvertiseRequest("p", 0))
    overlay.change(RETIRE, [OLD_WAY, NEW_WAY], ["b1"])
    overlay.feed("b1", None, UnadvertiseRequest("p", 1))
    overlay.run_alive(OLD_WAY, NEW_WAY)
    overlay.run_alive(OLD_WAY)
    overlay.run_alive()
    overlay.change(RETIRE)
    assert overlay.answered(Outcome.RETIRED) == LIVING
    assert not overlay.cores["b2"].state.tables[1].registered
    assert confirmed(overlay) == [0]


def test_a_stay_that_ends_before_its_home_is_prepared_does_not_wait_any_more() -> None:
    """The rendezvous let it wait in the newer epoch, which b1, its home, does not know yet."""
    overlay = TwoStays()
    overlay.change(PREPARE, [NEW_WAY], ["b2", "b3", "b0"])
    overlay.feed("b3", None, UnadvertiseRequest("p", 0))
    overlay.feed("b1", None, AdvertiseRequest("p", topic_filter(AT_B2), 1))
    overlay.run_alive(NEW_WAY)
    overlay.feed("b1", None, UnadvertiseRequest("p", 1))
    overlay.run_alive(NEW_WAY)
    overlay.run_alive()
    tables = overlay.cores["b2"].state.tables
    assert not any(tables[epoch].registered or tables[epoch].successors for epoch in (0, 1))


def test_a_stay_confirmed_during_a_repair_begins_when_that_is_over() -> None:
    """The rendezvous confirms it in the older epoch only; if the repair is aborted, that is enough."""
    overlay = TwoStays()
    overlay.feed("b3", None, UnadvertiseRequest("p", 0))
    overlay.run()
    overlay.kill("b4")
    overlay.notice()
    overlay.feed("b1", None, AdvertiseRequest("p", topic_filter(AT_B2), 1))
    overlay.change(PREPARE, [("b1", "b2")], ["b1"])
    overlay.run_alive()
    assert overlay.cores["b2"].state.tables[0].registered[AT_B2]["p"].connection == 1
    assert confirmed(overlay) == [0]
    overlay.change(ABORT)
    assert confirmed(overlay) == [0, 1]
