"""A tree is repaired after a death: orders that once lost, kept or repeated something, as short as possible."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from regraft.overlay.overlay_configuration import link
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.producers.brokers.broker_messages import (
    Advertise,
    AdvertiseConfirmed,
    AdvertiseRequest,
    Dropped,
    End,
    Notification,
    SubscribeRequest,
    Unadvertise,
    UnadvertiseRequest,
)
from regraft.producers.brokers.broker_reports import FROM_THE_DEAD
from regraft.producers.emulator.starting_point import core_of
from regraft.schemas.command import Command, Outcome
from tests.scenarios.step_by_step import ALL
from tests.scenarios.tree_repair import (
    ABORT,
    ACTIVATE,
    FIVE,
    FIVE_WITHOUT_B1,
    LINE,
    PREPARE,
    RETIRE,
    WITHOUT_B1,
    Repair,
)


def repaired(overlay: Repair) -> None:
    """Execute the repair."""
    for phase in (PREPARE, ACTIVATE, RETIRE):
        overlay.command_survivors(phase)


def test_subscriptions_across_the_gap_are_restored_by_the_repair_without_any_client() -> None:
    overlay = Repair()
    overlay.feed("b0", None, AdvertiseRequest("p", ALL))
    overlay.feed("b3", None, SubscribeRequest("s", "u", ALL))
    overlay.run()
    overlay.die()
    repaired(overlay)
    overlay.publish("b0", "p", symbol="A")
    overlay.run()
    assert overlay.got == [("s", "p", 0)]


def test_a_publisher_whose_advertisement_was_lost_with_a_broker_is_known_everywhere_once_all_are_prepared() -> None:
    """It was confirmed without the brokers beyond; the repair brings it their subscriptions."""
    overlay = Repair()
    overlay.feed("b3", None, SubscribeRequest("s", "u", ALL))
    overlay.feed("b0", None, AdvertiseRequest("p", ALL))
    overlay.die()
    overlay.lose_peer("b0", "b1")
    assert overlay.effects_of(AdvertiseConfirmed) == [AdvertiseConfirmed("p", 0)]
    assert overlay.publishers_at("b3") == {}
    overlay.command_survivors(PREPARE)
    assert overlay.publishers_at("b3") == {"p": 0}
    overlay.command_survivors(ACTIVATE)
    overlay.publish("b0", "p", symbol="A")
    overlay.run()
    assert overlay.got == [("s", "p", 0)]


def test_a_publisher_whose_end_was_lost_with_a_broker_is_forgotten_beyond_the_gap() -> None:
    """A broker that does not learn of it over the new link considers it ended when the old epoch is retired."""
    overlay = Repair()
    overlay.feed("b0", None, AdvertiseRequest("p", ALL))
    overlay.run()
    overlay.feed("b0", None, UnadvertiseRequest("p", 0))
    overlay.die()
    assert overlay.publishers_at("b3") == {"p": 0}
    repaired(overlay)
    assert not any(overlay.publishers_at(broker) for broker in ("b0", "b2", "b3"))


def test_the_next_stay_replaces_one_whose_end_was_lost_with_a_broker() -> None:
    """Otherwise it would wait for that end, and no broker would ever be prepared."""
    overlay = Repair()
    overlay.feed("b0", None, AdvertiseRequest("p", ALL))
    overlay.run()
    overlay.feed("b0", None, UnadvertiseRequest("p", 0))
    overlay.die()
    overlay.lose_peer("b0", "b1")
    overlay.feed("b0", None, AdvertiseRequest("p", ALL, 1))
    overlay.command_survivors(PREPARE)
    assert overlay.answered(Outcome.PREPARED) == {"b0", "b2", "b3"}
    assert overlay.publishers_at("b3") == {"p": 1}


def test_what_a_repair_reported_is_undone_if_it_is_aborted() -> None:
    """This covers both new stays and those they replaced: no end would come over a link that never existed."""
    overlay = Repair()
    overlay.feed("b0", None, AdvertiseRequest("p", ALL))
    overlay.run()
    overlay.feed("b0", None, UnadvertiseRequest("p", 0))
    overlay.die()
    overlay.lose_peer("b0", "b1")
    overlay.feed("b0", None, AdvertiseRequest("p", ALL, 1))
    overlay.command_survivors(PREPARE, brokers=("b0", "b2"))
    assert overlay.publishers_at("b2") == {"p": 1}
    overlay.command_survivors(ABORT)
    assert (overlay.publishers_at("b2"), overlay.publishers_at("b3")) == ({"p": 0}, {"p": 0})


def test_the_next_stay_waits_for_an_end_that_can_still_come_even_in_a_repair() -> None:
    """The end comes after the last notifications of the earlier stay, which would then follow those of the next."""
    overlay = Repair(FIVE)
    overlay.feed("b3", None, AdvertiseRequest("p", ALL))
    overlay.run()
    overlay.die()
    overlay.command_survivors(PREPARE, FIVE_WITHOUT_B1)
    overlay.feed("b2", "b4", Advertise(0, "p", 1, "b4", ALL))
    assert overlay.publishers_at("b2") == {"p": 0}
    overlay.feed("b2", "b3", Unadvertise(0, "p", 0))
    assert overlay.publishers_at("b2") == {"p": 1}


def test_an_end_that_crosses_a_report_over_a_new_link_ends_that_too() -> None:
    """A broker that knew the end from the older epoch gets the stay from one that did not, and its end again."""
    overlay = Repair(FIVE)
    overlay.feed("b2", None, AdvertiseRequest("p", ALL))
    overlay.run()
    overlay.die()
    target = TreeConfiguration.of(1, FIVE_WITHOUT_B1.brokers, [("b0", "b2"), ("b2", "b3"), ("b3", "b4")])
    for broker in ("b3", "b4"):
        overlay.command(broker, PREPARE, target, lost_brokers=("b1",))
    overlay.feed("b2", None, UnadvertiseRequest("p", 0))
    for source, broker in (("b2", "b4"), ("b3", "b4"), ("b4", "b3")):
        overlay.cross(source, broker)
    overlay.run()
    assert (overlay.publishers_at("b3"), overlay.publishers_at("b4")) == ({}, {})


def test_a_broker_waits_until_brokers_beyond_know_what_a_dead_broker_had_announced() -> None:
    """The publisher's home was notified that all know it except those behind the dead broker."""
    overlay = Repair()
    overlay.feed("b3", None, SubscribeRequest("s", "u", ALL))
    overlay.feed("b0", None, AdvertiseRequest("p", ALL))
    overlay.cross("b0", "b1")
    overlay.cross("b1", "b2")
    overlay.die()
    for broker in WITHOUT_B1.brokers:
        overlay.command(broker, PREPARE, WITHOUT_B1, lost_brokers=("b1",))
    overlay.run(held=[("b2", "b3"), ("b0", "b1"), ("b2", "b1")])
    assert overlay.answered(Outcome.PREPARED) == {"b0", "b3"}
    overlay.command_survivors(PREPARE)
    overlay.command_survivors(ACTIVATE)
    overlay.publish("b0", "p", symbol="A")
    overlay.run()
    assert overlay.got == [("s", "p", 0)]


def test_publishers_at_home_at_the_dead_are_forgotten_and_may_reconnect_elsewhere() -> None:
    """Their new stay waits wherever the old one is known, until the death is declared and the repair is over."""
    overlay = Repair()
    overlay.feed("b1", None, AdvertiseRequest("p", ALL))
    overlay.run()
    overlay.die()
    overlay.feed("b3", None, AdvertiseRequest("p", ALL, 1))
    assert overlay.publishers_at("b3") == {"p": 0}
    repaired(overlay)
    overlay.run()
    assert all(overlay.publishers_at(broker) == {"p": 1} for broker in ("b0", "b2", "b3"))


def test_nothing_of_a_past_life_is_taken() -> None:
    """The command has overtaken what the dead broker had sent."""
    overlay = Repair()
    overlay.feed("b0", None, AdvertiseRequest("p", ALL))
    overlay.feed("b3", None, SubscribeRequest("s", "u", ALL))
    overlay.run()
    overlay.publish("b0", "p", symbol="A")
    overlay.cross("b0", "b1")
    in_transit = overlay.links["b1", "b2"].popleft()
    assert isinstance(in_transit, Notification)
    overlay.die()
    overlay.command_survivors(PREPARE)
    overlay.feed("b2", "b1", in_transit)
    overlay.run()
    assert overlay.effects_of(Dropped) == [Dropped(in_transit, FROM_THE_DEAD)]
    assert overlay.got == []


def test_what_comes_over_new_links_waits_for_what_the_dead_had_forwarded() -> None:
    """It may come by any neighbour of the dead broker: the publisher may have been elsewhere before."""
    overlay = Repair()
    overlay.feed("b0", None, AdvertiseRequest("p", ALL))
    overlay.feed("b3", None, SubscribeRequest("s", "u", ALL))
    overlay.run()
    overlay.publish("b0", "p", symbol="A")
    overlay.cross("b0", "b1")
    overlay.cross("b1", "b2")
    slow = overlay.links["b2", "b3"].popleft()
    overlay.die()
    for phase in (PREPARE, ACTIVATE):
        overlay.command_survivors(phase, brokers=("b0", "b3"))
        overlay.command("b2", phase, WITHOUT_B1, lost_brokers=("b1",))
        overlay.run(held=[("b2", "b3")] if phase is ACTIVATE else ())
    end = overlay.links["b2", "b3"].popleft()
    assert end == End(0)
    overlay.publish("b0", "p", symbol="A")
    overlay.run()
    assert overlay.got == []
    overlay.feed("b3", "b2", slow)
    overlay.feed("b3", "b2", end)
    assert overlay.got == [("s", "p", 0), ("s", "p", 1)]


@pytest.mark.parametrize("peer", ["b0", "b3"])
def test_a_returning_broker_is_no_longer_dead_wherever_it_joins(peer: str) -> None:
    """Once, its former neighbour announced no publishers to it, and called it dead in every later answer."""
    overlay = Repair()
    overlay.feed("b0", None, AdvertiseRequest("p", ALL))
    overlay.run()
    overlay.die()
    overlay.lose_peer("b0", "b1")
    repaired(overlay)
    overlay.cores["b1"] = core_of("b1", WITHOUT_B1, 1)
    joined = TreeConfiguration.of(2, LINE.brokers, [*WITHOUT_B1.links, link("b1", peer)])
    overlay.execute(joined)
    overlay.execute(TreeConfiguration.of(3, LINE.brokers, [*WITHOUT_B1.links, link("b0", "b1")]))
    overlay.feed("b1", None, SubscribeRequest("s", "u", ALL))
    overlay.run()
    overlay.publish("b0", "p", symbol="A")
    overlay.run()
    assert (overlay.publishers_at("b1"), overlay.got) == ({"p": 0}, [("s", "p", 0)])
    assert overlay.cores["b0"].state.lost_peers == set()


def test_a_broker_that_rejoins_at_its_old_link_acknowledges_a_publisher_that_comes_meanwhile() -> None:
    """It is dead in the older epoch, so it is asked in the newer one alone, and its answer there counts."""
    star, names = TreeConfiguration.of(0, ("b0", "b1", "b2"), [("b0", "b1"), ("b0", "b2")]), ("b0", "b1", "b2")
    overlay = Repair(star)
    overlay.lose_peer("b0", "b1")
    overlay.cores["b1"] = core_of("b1", star, 2, is_outside=True)
    link_again = (("b0", "b1"),)
    prepare = Command(
        "plan-1", PREPARE, "b0", 0, 1, link_again, link_again, star.at_epoch(1).digest, lost_brokers=("b1",),
        brokers_joined=("b1",),
    )  # fmt: skip
    for broker in ("b0", "b1"):
        overlay.feed(broker, None, msgspec.structs.replace(prepare, broker=broker))
        overlay.run()
    overlay.feed("b2", None, AdvertiseRequest("p", ALL))
    overlay.run()
    overlay.feed("b2", None, msgspec.structs.replace(prepare, broker="b2"))
    overlay.run()
    assert overlay.answered(Outcome.PREPARED) == set(names)
    assert overlay.effects_of(AdvertiseConfirmed) == [AdvertiseConfirmed("p")]
    assert not any(one.unanswered for core in overlay.cores.values() for one in _known_at(core).values())


def _known_at(core: Any) -> dict[str, Any]:
    known: dict[str, Any] = core.routing.interests.advertisements
    return known
