"""A tree is repaired after a death: orders that once lost, kept or repeated something, as short as they can be told."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from overlay.configuration import Configuration, link
from producers.brokers.broker_cores import core_of
from producers.brokers.broker_messages import (
    Advertise,
    AdvertiseAck,
    AdvertiseConfirmed,
    AdvertiseRequest,
    Dropped,
    End,
    Notification,
    PublisherTaken,
    SubscribeRequest,
    Unadvertise,
    UnadvertiseRequest,
)
from producers.brokers.two_epochs import FROM_THE_DEAD
from schemas.command import CommandPhase, Outcome
from schemas.plan import ClientMove
from tests.scenarios.step_by_step import ALL, StepByStep

PREPARE, ACTIVATE, RETIRE = CommandPhase.PREPARE, CommandPhase.ACTIVATE, CommandPhase.RETIRE
ABORT = CommandPhase.ABORT
LINE = Configuration.of(0, ("b0", "b1", "b2", "b3"), [("b0", "b1"), ("b1", "b2"), ("b2", "b3")])
WITHOUT_B1 = Configuration.of(1, ("b0", "b2", "b3"), [("b0", "b2"), ("b2", "b3")])
EXCHANGED = LINE.replaced(1, [link("b1", "b2")], [link("b0", "b2")])
WITHOUT_B1_LATER = Configuration.of(2, WITHOUT_B1.brokers, WITHOUT_B1.links)


class Repair(StepByStep):
    """A line of brokers, or what is told, of which b1 dies: what it holds and what is on its links is lost."""

    def __init__(self, configuration: Configuration = LINE) -> None:
        super().__init__(configuration)

    def die(self) -> None:
        """Let b1 die; nobody has noticed yet."""
        for pair in list(self.links):
            if "b1" in pair:
                del self.links[pair]

    def tell(self, phase: CommandPhase, target: Configuration = WITHOUT_B1, brokers: Sequence[str] = ()) -> None:
        """Let the survivors, or some, obey a command of the repair, each in turn and all that follows from it."""
        for broker in brokers or [one for one in self.brokers if one != "b1"]:
            self.command(broker, phase, target, lost_brokers=("b1",))
            self.links = type(self.links)(self.links.default_factory, self._alive())
            self.run()

    def _alive(self) -> dict[tuple[str, str], object]:
        return {pair: queue for pair, queue in self.links.items() if "b1" not in pair}


def repaired(overlay: Repair) -> None:
    """Carry the repair out."""
    for phase in (PREPARE, ACTIVATE, RETIRE):
        overlay.tell(phase)


def test_subscriptions_across_the_gap_are_whole_after_the_repair_without_any_client_acting() -> None:
    overlay = Repair()
    overlay.feed("b0", None, AdvertiseRequest("p", ALL))
    overlay.feed("b3", None, SubscribeRequest("s", "u", ALL))
    overlay.run()
    overlay.die()
    repaired(overlay)
    overlay.publish("b0", "p", symbol="A")
    overlay.run()
    assert overlay.got == [("s", "p", 0)]


def test_a_publisher_whose_advertisement_died_with_a_broker_is_known_everywhere_when_all_are_prepared() -> None:
    """It was confirmed without those beyond; their subscriptions come to it by the repair."""
    overlay = Repair()
    overlay.feed("b3", None, SubscribeRequest("s", "u", ALL))
    overlay.feed("b0", None, AdvertiseRequest("p", ALL))
    overlay.die()
    overlay.lose_peer("b0", "b1")
    assert overlay.told_of(AdvertiseConfirmed) == [AdvertiseConfirmed("p", 0)]
    assert overlay.publishers_at("b3") == {}
    overlay.tell(PREPARE)
    assert overlay.publishers_at("b3") == {"p": 0}
    overlay.tell(ACTIVATE)
    overlay.publish("b0", "p", symbol="A")
    overlay.run()
    assert overlay.got == [("s", "p", 0)]


def test_a_publisher_whose_end_died_with_a_broker_is_forgotten_beyond_the_gap() -> None:
    """Who is not told of it over the new link takes it for ended when the old epoch is retired."""
    overlay = Repair()
    overlay.feed("b0", None, AdvertiseRequest("p", ALL))
    overlay.run()
    overlay.feed("b0", None, UnadvertiseRequest("p", 0))
    overlay.die()
    assert overlay.publishers_at("b3") == {"p": 0}
    repaired(overlay)
    assert not any(overlay.publishers_at(broker) for broker in ("b0", "b2", "b3"))


def test_the_next_stay_takes_the_place_of_one_whose_end_died_with_a_broker() -> None:
    """Else it would wait for that end, and nobody would ever be prepared."""
    overlay = Repair()
    overlay.feed("b0", None, AdvertiseRequest("p", ALL))
    overlay.run()
    overlay.feed("b0", None, UnadvertiseRequest("p", 0))
    overlay.die()
    overlay.lose_peer("b0", "b1")
    overlay.feed("b0", None, AdvertiseRequest("p", ALL, 1))
    overlay.tell(PREPARE)
    assert overlay.said(Outcome.PREPARED) == {"b0", "b2", "b3"}
    assert overlay.publishers_at("b3") == {"p": 1}


def test_what_a_repair_told_is_taken_back_when_it_is_aborted() -> None:
    """Both what came and what had given way: no end of it would come over a link that there never was."""
    overlay = Repair()
    overlay.feed("b0", None, AdvertiseRequest("p", ALL))
    overlay.run()
    overlay.feed("b0", None, UnadvertiseRequest("p", 0))
    overlay.die()
    overlay.lose_peer("b0", "b1")
    overlay.feed("b0", None, AdvertiseRequest("p", ALL, 1))
    overlay.tell(PREPARE, brokers=("b0", "b2"))
    assert overlay.publishers_at("b2") == {"p": 1}
    overlay.tell(ABORT)
    assert (overlay.publishers_at("b2"), overlay.publishers_at("b3")) == ({"p": 0}, {"p": 0})


def test_what_is_told_twice_in_an_epoch_that_is_aborted_is_taken_back_all_the_same() -> None:
    """It hears of an end over two ways in the newer epoch, and of the abort before the older one says so, too."""
    overlay = StepByStep(LINE)
    overlay.feed("b0", None, AdvertiseRequest("p", ALL))
    overlay.run()
    target = LINE.replaced(1, [link("b2", "b3")], [link("b0", "b3")])
    overlay.carry_out(target, phases=(PREPARE,))
    overlay.feed("b0", None, UnadvertiseRequest("p", 0))
    for _ in range(2):
        overlay.feed("b3", "b0", Unadvertise(1, "p", 0))
    overlay.command("b3", ABORT, target)
    assert overlay.publishers_at("b3") == {"p": 0}
    overlay.feed("b3", "b2", Unadvertise(0, "p", 0))
    assert not overlay.publishers_at("b3")


def test_an_end_in_the_older_epoch_counts_where_the_newer_one_has_ended_and_told_of_the_stay_again() -> None:
    """What the newer epoch lets a broker know hides what it let it forget, which an abort would bring back."""
    overlay = StepByStep(LINE)
    overlay.feed("b0", None, AdvertiseRequest("p", ALL))
    overlay.run()
    target = LINE.replaced(1, [link("b2", "b3")], [link("b0", "b3")])
    overlay.carry_out(target, phases=(PREPARE,))
    overlay.feed("b3", "b0", Unadvertise(1, "p", 0))
    overlay.feed("b3", "b0", Advertise(1, "p", 0, "b0", ALL))
    overlay.feed("b3", "b2", Unadvertise(0, "p", 0))
    overlay.command("b3", ABORT, target)
    assert not overlay.publishers_at("b3")


@pytest.mark.parametrize("first", [0, 1])
def test_the_next_stay_comes_when_the_earlier_one_was_told_of_in_an_epoch_that_is_aborted(first: int) -> None:
    """It waited for the end of that, and had come in the older epoch, too, where nobody would tell of it again."""
    overlay = StepByStep(LINE)
    target = LINE.replaced(1, [link("b2", "b3")], [link("b0", "b3")])
    overlay.carry_out(target, phases=(PREPARE,))
    overlay.feed("b3", "b0", Advertise(1, "p", 0, "b0", ALL))
    for epoch in (first, 1 - first):
        overlay.feed("b3", "b0" if epoch else "b2", Advertise(epoch, "p", 1, "b2", ALL))
    overlay.command("b3", ABORT, target)
    assert overlay.publishers_at("b3") == {"p": 1}
    assert list(overlay.links["b3", "b2"]) == [AdvertiseAck(0, "p", 1)]


def test_the_next_stay_waits_on_when_what_it_waits_for_is_told_of_in_the_older_epoch() -> None:
    """It had come before that, from elsewhere, and nobody would tell of it again."""
    overlay = Repair(Configuration.of(0, (*LINE.brokers, "b4"), [*LINE.links, ("b2", "b4")]))
    overlay.die()
    overlay.tell(PREPARE, Configuration.of(1, ("b0", "b2", "b3", "b4"), [*WITHOUT_B1.links, ("b2", "b4")]))
    overlay.feed("b2", "b0", Advertise(1, "p", 0, "b3", ALL))
    overlay.feed("b2", "b4", Advertise(0, "p", 1, "b4", ALL))
    overlay.feed("b2", "b3", Advertise(0, "p", 0, "b3", ALL))
    overlay.feed("b2", "b3", Unadvertise(0, "p", 0))
    assert overlay.publishers_at("b2") == {"p": 1}


def test_whoever_told_of_a_publisher_waits_no_longer_when_it_has_ended_in_the_newer_epoch() -> None:
    """It may be aborted before the end comes in the older one, or the end may be lost there."""
    overlay = StepByStep(LINE)
    overlay.feed("b0", None, AdvertiseRequest("p", ALL))
    overlay.cross("b0", "b1")
    overlay.cross("b1", "b2")
    target = LINE.replaced(1, [link("b0", "b1")], [link("b0", "b2")])
    overlay.command("b2", PREPARE, target)
    overlay.feed("b2", "b0", Unadvertise(1, "p", 0))
    (bundle,) = overlay.links["b2", "b1"]
    assert AdvertiseAck(0, "p", 0) in bundle.messages


def test_publishers_at_home_at_the_dead_are_forgotten_and_may_come_again_elsewhere() -> None:
    """Their new stay waits where the old one is known, until the death is declared and the repair is over."""
    overlay = Repair()
    overlay.feed("b1", None, AdvertiseRequest("p", ALL))
    overlay.run()
    overlay.die()
    overlay.feed("b3", None, AdvertiseRequest("p", ALL, 1))
    assert overlay.publishers_at("b3") == {"p": 0}
    repaired(overlay)
    overlay.run()
    assert all(overlay.publishers_at(broker) == {"p": 1} for broker in ("b0", "b2", "b3"))


def test_nothing_of_a_life_that_is_over_is_taken() -> None:
    """The command has overtaken what the dead broker had sent."""
    overlay = Repair()
    overlay.feed("b0", None, AdvertiseRequest("p", ALL))
    overlay.feed("b3", None, SubscribeRequest("s", "u", ALL))
    overlay.run()
    overlay.publish("b0", "p", symbol="A")
    overlay.cross("b0", "b1")
    on_the_way = overlay.links["b1", "b2"].popleft()
    assert isinstance(on_the_way, Notification)
    overlay.die()
    overlay.tell(PREPARE)
    overlay.feed("b2", "b1", on_the_way)
    overlay.run()
    assert overlay.told_of(Dropped) == [Dropped(on_the_way, FROM_THE_DEAD)]
    assert overlay.got == []


def test_what_comes_over_new_links_waits_for_what_the_dead_had_passed_on() -> None:
    """By whichever neighbour of the dead it came: the publisher may have been elsewhere before."""
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
        overlay.tell(phase, brokers=("b0", "b3"))
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


def test_the_end_of_a_publisher_goes_over_new_links_too_as_a_death_may_cut_the_old_ones() -> None:
    """A plan without deaths exchanges a link; the end meets a death on its old way alone."""
    overlay = Repair()
    overlay.feed("b0", None, AdvertiseRequest("p", ALL))
    overlay.run()
    target = LINE.replaced(1, [link("b2", "b3")], [link("b0", "b3")])
    overlay.carry_out(target, phases=(PREPARE,))
    overlay.feed("b0", None, UnadvertiseRequest("p", 0))
    overlay.die()
    overlay.run()
    assert overlay.publishers_at("b3") == {}


def test_a_new_home_asks_again_whether_its_publisher_comes_when_a_broker_has_died_in_the_plan() -> None:
    """The end that it had said at its old home was lost on its way to the new one."""
    overlay = Repair()
    overlay.feed("b0", None, AdvertiseRequest("p", ALL))
    overlay.run()
    target = LINE.replaced(1, [], [])
    overlay.carry_out(target, (ClientMove("p", "b0", "b3"),), phases=(PREPARE,))
    overlay.tell(ACTIVATE, target, brokers=("b3", "b2"))
    overlay.feed("b0", None, UnadvertiseRequest("p", 0))
    overlay.die()
    for phase in (ACTIVATE, RETIRE):
        overlay.tell(phase, target)
    assert overlay.told_of(PublisherTaken) == [PublisherTaken("p", 0)] * 2
    overlay.feed("b3", None, UnadvertiseRequest("p", 0))
    overlay.run()
    assert (overlay.publishers_at("b2"), overlay.publishers_at("b3")) == ({}, {})


def test_a_new_home_asks_for_no_stay_that_the_plan_has_not_moved() -> None:
    """A later stay has begun at the old home in the new epoch; its client would go where nobody knows it."""
    overlay = Repair()
    overlay.feed("b0", None, AdvertiseRequest("p", ALL))
    overlay.run()
    overlay.carry_out(EXCHANGED, (ClientMove("p", "b0", "b3"),), phases=(PREPARE,))
    overlay.feed("b0", None, UnadvertiseRequest("p", 0))
    overlay.run()
    overlay.die()
    overlay.tell(ACTIVATE, EXCHANGED)
    overlay.tell(RETIRE, EXCHANGED, brokers=("b0",))
    overlay.feed("b0", None, AdvertiseRequest("p", ALL, 1))
    overlay.run()
    overlay.tell(RETIRE, EXCHANGED, brokers=("b2", "b3"))
    assert overlay.publishers_at("b3") == {"p": 1}
    assert overlay.told_of(PublisherTaken) == []


@pytest.mark.parametrize("peer", ["b0", "b3"])
def test_who_comes_back_is_dead_no_longer_wherever_it_joins(peer: str) -> None:
    """Its former neighbour told it of no publisher, and said that it was dead in every later answer."""
    overlay = Repair()
    overlay.feed("b0", None, AdvertiseRequest("p", ALL))
    overlay.run()
    overlay.die()
    overlay.lose_peer("b0", "b1")
    repaired(overlay)
    overlay.cores["b1"] = core_of("b1", WITHOUT_B1, 1)
    joined = Configuration.of(2, LINE.brokers, [*WITHOUT_B1.links, link("b1", peer)])
    overlay.carry_out(joined)
    overlay.carry_out(Configuration.of(3, LINE.brokers, [*WITHOUT_B1.links, link("b0", "b1")]))
    overlay.feed("b1", None, SubscribeRequest("s", "u", ALL))
    overlay.run()
    overlay.publish("b0", "p", symbol="A")
    overlay.run()
    assert (overlay.publishers_at("b1"), overlay.got) == ({"p": 0}, [("s", "p", 0)])
    assert overlay.cores["b0"].lost_peers == set()


def exchanged(overlay: Repair, target: Configuration = EXCHANGED) -> None:
    """Let b1 die when it has prepared the exchange of a link, which is carried out without it."""
    overlay.die()
    for broker in overlay.brokers:
        if broker != "b1":
            overlay.command(broker, PREPARE, target)
    for phase in (ACTIVATE, RETIRE):
        overlay.tell(phase, target)


def test_a_repair_tells_what_has_ended_over_links_of_the_plan_in_which_the_broker_died() -> None:
    """One end of such a link passed the end on before it prepared that plan, the other lost it with the dead."""
    overlay = Repair()
    for publisher in ("p", "q"):
        overlay.feed("b0", None, AdvertiseRequest(publisher, ALL))
    overlay.run()
    overlay.feed("b0", None, UnadvertiseRequest("p", 0))
    exchanged(overlay)
    assert overlay.publishers_at("b3") == {"p": 0, "q": 0}
    for phase in (PREPARE, ACTIVATE, RETIRE):
        overlay.tell(phase, WITHOUT_B1_LATER)
    assert [overlay.publishers_at(broker) for broker in WITHOUT_B1.brokers] == [{"q": 0}] * 3


def test_a_repair_tells_what_has_come_over_links_of_the_plan_in_which_the_broker_died() -> None:
    """The advertisement was confirmed without those behind the dead, when these had prepared that plan."""
    overlay = Repair()
    overlay.feed("b3", None, SubscribeRequest("s", "u", ALL))
    overlay.feed("b0", None, AdvertiseRequest("p", ALL))
    exchanged(overlay)
    assert overlay.publishers_at("b3") == {}
    for phase in (PREPARE, ACTIVATE):
        overlay.tell(phase, WITHOUT_B1_LATER)
    overlay.publish("b0", "p", symbol="A")
    overlay.run()
    assert overlay.got == [("s", "p", 0)]


def test_what_a_repair_tells_over_a_link_in_both_epochs_is_known_when_those_beyond_know_it() -> None:
    """The acknowledgement in the newer epoch comes at once, as it says nothing of those beyond."""
    five = Configuration.of(0, (*LINE.brokers, "b4"), [*LINE.links, ("b0", "b4")])
    overlay = Repair(five)
    exchanged(overlay, five.replaced(1, [link("b1", "b2")], [link("b0", "b2")]))
    target = Configuration.of(2, ("b0", "b2", "b3", "b4"), [("b0", "b2"), ("b2", "b3"), ("b0", "b4")])
    for broker in ("b2", "b0"):
        overlay.command(broker, PREPARE, target, lost_brokers=("b1",))
    overlay.feed("b3", None, AdvertiseRequest("p", ALL))
    overlay.run(held=[("b0", "b4")])
    assert overlay.publishers_at("b0") == {"p": 0}
    assert overlay.told_of(AdvertiseConfirmed) == []
    overlay.run()
    assert overlay.told_of(AdvertiseConfirmed) == [AdvertiseConfirmed("p", 0)]


def test_who_has_told_of_a_publisher_is_not_waited_for() -> None:
    """It is told so over the same link in the newer epoch, and it may take it for ended unless it is."""
    overlay = Repair()
    exchanged(overlay)
    target = Configuration.of(2, WITHOUT_B1.brokers, [("b0", "b3"), ("b0", "b2")])
    for broker in ("b2", "b0"):
        overlay.command(broker, PREPARE, target, lost_brokers=("b1",))
    overlay.feed("b3", None, AdvertiseRequest("p", ALL))
    overlay.command("b3", PREPARE, target, lost_brokers=("b1",))
    overlay.run()
    assert overlay.told_of(AdvertiseConfirmed) == [AdvertiseConfirmed("p", 0)]
    for phase in (ACTIVATE, RETIRE):
        overlay.tell(phase, target)
    assert [overlay.publishers_at(broker) for broker in WITHOUT_B1.brokers] == [{"p": 0}] * 3


def test_what_dies_with_a_broker_that_leaves_is_known_by_its_last_plan_as_no_repair_follows() -> None:
    """An end that was passed on to it before that plan was prepared has not gone over the links that take its place."""
    overlay = Repair()
    overlay.feed("b0", None, AdvertiseRequest("p", ALL))
    overlay.run()
    overlay.feed("b0", None, UnadvertiseRequest("p", 0))
    exchanged(overlay, WITHOUT_B1)
    assert [overlay.publishers_at(broker) for broker in WITHOUT_B1.brokers] == [{}] * 3
