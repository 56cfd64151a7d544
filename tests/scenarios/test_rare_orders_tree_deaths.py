"""A broker of a tree dies during a plan, or a plan is aborted: rare orders, as short as possible."""

from __future__ import annotations

import pytest

from regraft.overlay.overlay_configuration import link
from regraft.overlay.tree.configuration import TreeConfiguration
from regraft.producers.brokers.broker_messages import (
    Advertise,
    AdvertiseAck,
    AdvertiseConfirmed,
    AdvertiseRequest,
    LeaveRequest,
    PublisherTaken,
    SubscribeRequest,
    Unadvertise,
    UnadvertiseRequest,
)
from regraft.schemas.plan import ClientMove
from tests.scenarios.step_by_step import ALL, StepByStep
from tests.scenarios.tree_repair import (
    ABORT,
    ACTIVATE,
    EXCHANGED,
    FIVE,
    FIVE_WITHOUT_B1,
    LINE,
    PREPARE,
    RETIRE,
    WITHOUT_B1,
    WITHOUT_B1_LATER,
    Repair,
)


def test_an_end_reported_twice_in_an_aborted_epoch_is_undone() -> None:
    """A broker learns of an end over two paths in the newer epoch, and of the abort before the older one has it."""
    overlay = StepByStep(LINE)
    overlay.feed("b0", None, AdvertiseRequest("p", ALL))
    overlay.run()
    target = LINE.replaced(1, [link("b2", "b3")], [link("b0", "b3")])
    overlay.execute(target, phases=(PREPARE,))
    overlay.feed("b0", None, UnadvertiseRequest("p", 0))
    for _ in range(2):
        overlay.feed("b3", "b0", Unadvertise(1, "p", 0))
    overlay.command("b3", ABORT, target)
    assert overlay.publishers_at("b3") == {"p": 0}
    overlay.feed("b3", "b2", Unadvertise(0, "p", 0))
    assert not overlay.publishers_at("b3")


def test_an_end_in_the_older_epoch_counts_although_the_newer_one_announced_the_stay_again() -> None:
    """What the newer epoch announces hides what it removed, which an abort would restore."""
    overlay = StepByStep(LINE)
    overlay.feed("b0", None, AdvertiseRequest("p", ALL))
    overlay.run()
    target = LINE.replaced(1, [link("b2", "b3")], [link("b0", "b3")])
    overlay.execute(target, phases=(PREPARE,))
    overlay.feed("b3", "b0", Unadvertise(1, "p", 0))
    overlay.feed("b3", "b0", Advertise(1, "p", 0, "b0", ALL))
    overlay.feed("b3", "b2", Unadvertise(0, "p", 0))
    overlay.command("b3", ABORT, target)
    assert not overlay.publishers_at("b3")


@pytest.mark.parametrize("first", [0, 1])
def test_the_next_stay_begins_although_the_earlier_one_was_announced_in_an_aborted_epoch(first: int) -> None:
    """It waited for the end of that stay, and was also announced in the older epoch, which would not be repeated."""
    overlay = StepByStep(LINE)
    target = LINE.replaced(1, [link("b2", "b3")], [link("b0", "b3")])
    overlay.execute(target, phases=(PREPARE,))
    overlay.feed("b3", "b0", Advertise(1, "p", 0, "b0", ALL))
    for epoch in (first, 1 - first):
        overlay.feed("b3", "b0" if epoch else "b2", Advertise(epoch, "p", 1, "b2", ALL))
    overlay.command("b3", ABORT, target)
    assert overlay.publishers_at("b3") == {"p": 1}
    assert list(overlay.links["b3", "b2"]) == [AdvertiseAck(0, "p", 1)]


def test_the_next_stay_keeps_waiting_if_its_predecessor_is_announced_in_the_older_epoch() -> None:
    """It had been announced before that, from elsewhere, and that would not be repeated."""
    overlay = Repair(FIVE)
    overlay.die()
    overlay.command_survivors(PREPARE, FIVE_WITHOUT_B1)
    overlay.feed("b2", "b0", Advertise(1, "p", 0, "b3", ALL))
    overlay.feed("b2", "b4", Advertise(0, "p", 1, "b4", ALL))
    overlay.feed("b2", "b3", Advertise(0, "p", 0, "b3", ALL))
    overlay.feed("b2", "b3", Unadvertise(0, "p", 0))
    assert overlay.publishers_at("b2") == {"p": 1}


def test_a_publisher_that_ended_in_the_newer_epoch_is_not_waited_for() -> None:
    """The newer epoch may be aborted before the end comes in the older one, or the end may be lost there."""
    overlay = StepByStep(LINE)
    overlay.feed("b0", None, AdvertiseRequest("p", ALL))
    overlay.cross("b0", "b1")
    overlay.cross("b1", "b2")
    target = LINE.replaced(1, [link("b0", "b1")], [link("b0", "b2")])
    overlay.command("b2", PREPARE, target)
    overlay.feed("b2", "b0", Unadvertise(1, "p", 0))
    (bundle,) = overlay.links["b2", "b1"]
    assert AdvertiseAck(0, "p", 0) in bundle.messages


def test_the_end_of_a_publisher_crosses_new_links_too_because_a_death_may_cut_the_old_ones() -> None:
    """A plan without deaths exchanges a link; the end meets a death only on its old path."""
    overlay = Repair()
    overlay.feed("b0", None, AdvertiseRequest("p", ALL))
    overlay.run()
    target = LINE.replaced(1, [link("b2", "b3")], [link("b0", "b3")])
    overlay.execute(target, phases=(PREPARE,))
    overlay.feed("b0", None, UnadvertiseRequest("p", 0))
    overlay.die()
    overlay.run()
    assert overlay.publishers_at("b3") == {}


def test_a_new_home_asks_again_for_its_publisher_if_a_broker_died_in_the_plan() -> None:
    """The end that the publisher requested at its old home was lost on its way to the new one."""
    overlay = Repair()
    overlay.feed("b0", None, AdvertiseRequest("p", ALL))
    overlay.run()
    target = LINE.replaced(1, [], [])
    overlay.execute(target, (ClientMove("p", "b0", "b3"),), phases=(PREPARE,))
    overlay.command_survivors(ACTIVATE, target, brokers=("b3", "b2"))
    overlay.feed("b0", None, UnadvertiseRequest("p", 0))
    overlay.die()
    for phase in (ACTIVATE, RETIRE):
        overlay.command_survivors(phase, target)
    assert overlay.effects_of(PublisherTaken) == [PublisherTaken("p", 0)] * 2
    overlay.feed("b3", None, UnadvertiseRequest("p", 0))
    overlay.run()
    assert (overlay.publishers_at("b2"), overlay.publishers_at("b3")) == ({}, {})


def test_a_new_home_does_not_ask_for_a_stay_that_the_plan_has_not_moved() -> None:
    """A later stay has begun at the old home in the new epoch; its client would go where it is unknown."""
    overlay = Repair()
    overlay.feed("b0", None, AdvertiseRequest("p", ALL))
    overlay.run()
    overlay.execute(EXCHANGED, (ClientMove("p", "b0", "b3"),), phases=(PREPARE,))
    overlay.feed("b0", None, UnadvertiseRequest("p", 0))
    overlay.run()
    overlay.die()
    overlay.command_survivors(ACTIVATE, EXCHANGED)
    overlay.command_survivors(RETIRE, EXCHANGED, brokers=("b0",))
    overlay.feed("b0", None, AdvertiseRequest("p", ALL, 1))
    overlay.run()
    overlay.command_survivors(RETIRE, EXCHANGED, brokers=("b2", "b3"))
    assert overlay.publishers_at("b3") == {"p": 1}
    assert overlay.effects_of(PublisherTaken) == []


def exchanged(overlay: Repair, target: TreeConfiguration = EXCHANGED) -> None:
    """Let b1 die after preparing the exchange of a link, which is executed without it."""
    overlay.die()
    for broker in overlay.brokers:
        if broker != "b1":
            overlay.command(broker, PREPARE, target)
    for phase in (ACTIVATE, RETIRE):
        overlay.command_survivors(phase, target)


def test_a_repair_reports_ends_over_links_of_the_plan_in_which_the_broker_died() -> None:
    """One end of such a link passed the end on before it prepared that plan, the other lost it with the dead broker."""
    overlay = Repair()
    for publisher in ("p", "q"):
        overlay.feed("b0", None, AdvertiseRequest(publisher, ALL))
    overlay.run()
    overlay.feed("b0", None, UnadvertiseRequest("p", 0))
    exchanged(overlay)
    assert overlay.publishers_at("b3") == {"p": 0, "q": 0}
    for phase in (PREPARE, ACTIVATE, RETIRE):
        overlay.command_survivors(phase, WITHOUT_B1_LATER)
    assert [overlay.publishers_at(broker) for broker in WITHOUT_B1.brokers] == [{"q": 0}] * 3


def test_a_repair_reports_stays_over_links_of_the_plan_in_which_the_broker_died() -> None:
    """The advertisement was confirmed without the brokers beyond the dead one, after these had prepared that plan."""
    overlay = Repair()
    overlay.feed("b3", None, SubscribeRequest("s", "u", ALL))
    overlay.feed("b0", None, AdvertiseRequest("p", ALL))
    exchanged(overlay)
    assert overlay.publishers_at("b3") == {}
    for phase in (PREPARE, ACTIVATE):
        overlay.command_survivors(phase, WITHOUT_B1_LATER)
    overlay.publish("b0", "p", symbol="A")
    overlay.run()
    assert overlay.got == [("s", "p", 0)]


def test_what_a_repair_reports_over_a_link_in_both_epochs_is_known_once_brokers_beyond_know_it() -> None:
    """The acknowledgement in the newer epoch comes at once, as it does not cover brokers beyond."""
    five = TreeConfiguration.of(0, (*LINE.brokers, "b4"), [*LINE.links, ("b0", "b4")])
    overlay = Repair(five)
    exchanged(overlay, five.replaced(1, [link("b1", "b2")], [link("b0", "b2")]))
    target = TreeConfiguration.of(2, ("b0", "b2", "b3", "b4"), [("b0", "b2"), ("b2", "b3"), ("b0", "b4")])
    for broker in ("b2", "b0"):
        overlay.command(broker, PREPARE, target, lost_brokers=("b1",))
    overlay.feed("b3", None, AdvertiseRequest("p", ALL))
    overlay.run(held=[("b0", "b4")])
    assert overlay.publishers_at("b0") == {"p": 0}
    assert overlay.effects_of(AdvertiseConfirmed) == []
    overlay.run()
    assert overlay.effects_of(AdvertiseConfirmed) == [AdvertiseConfirmed("p", 0)]


def test_a_broker_that_has_announced_a_publisher_is_not_waited_for() -> None:
    """It gets that over the same link in the newer epoch, and may consider the publisher ended otherwise."""
    overlay = Repair()
    exchanged(overlay)
    target = TreeConfiguration.of(2, WITHOUT_B1.brokers, [("b0", "b3"), ("b0", "b2")])
    for broker in ("b2", "b0"):
        overlay.command(broker, PREPARE, target, lost_brokers=("b1",))
    overlay.feed("b3", None, AdvertiseRequest("p", ALL))
    overlay.command("b3", PREPARE, target, lost_brokers=("b1",))
    overlay.run()
    assert overlay.effects_of(AdvertiseConfirmed) == [AdvertiseConfirmed("p", 0)]
    for phase in (ACTIVATE, RETIRE):
        overlay.command_survivors(phase, target)
    assert [overlay.publishers_at(broker) for broker in WITHOUT_B1.brokers] == [{"p": 0}] * 3


def test_what_is_lost_with_a_leaving_broker_is_reported_by_its_last_plan_as_no_repair_follows() -> None:
    """An end passed on to it before that plan was prepared has not crossed the links that replace its own."""
    overlay = Repair()
    overlay.feed("b0", None, AdvertiseRequest("p", ALL))
    overlay.run()
    overlay.feed("b0", None, UnadvertiseRequest("p", 0))
    exchanged(overlay, WITHOUT_B1)
    assert [overlay.publishers_at(broker) for broker in WITHOUT_B1.brokers] == [{}] * 3


@pytest.mark.parametrize("is_dead", [False, True])
def test_a_publisher_that_moves_from_a_dead_home_may_publish_at_the_next_one(is_dead: bool) -> None:
    """All brokers know it, but the old home may have died before it said so."""
    overlay = Repair()
    overlay.feed("b1", None, AdvertiseRequest("p", ALL))
    overlay.run()
    target, move = LINE.at_epoch(1), (ClientMove("p", "b1", "b2"),)
    overlay.execute(target, move, phases=(PREPARE,))
    before = len(overlay.effects_of(AdvertiseConfirmed))
    lost = ("b1",) if is_dead else ()
    if is_dead:
        overlay.die()
        for broker in ("b0", "b2"):
            overlay.lose_peer(broker, "b1")
    for phase in (ACTIVATE, RETIRE):
        for broker in ("b0", "b2", "b3") if is_dead else overlay.brokers:
            overlay.command(broker, phase, target, lost_brokers=lost)
            if phase is ACTIVATE and broker == "b1":
                overlay.feed("b1", None, LeaveRequest("p", 0))
            overlay.run()
    assert PublisherTaken("p", 0) in overlay.effects_of(PublisherTaken)
    confirmed = overlay.effects_of(AdvertiseConfirmed)[before:]
    assert confirmed == ([AdvertiseConfirmed("p", 0)] if is_dead else [])


@pytest.mark.parametrize("is_active", [False, True])
def test_a_publisher_announced_late_to_the_home_it_moves_to_is_asked_whether_it_comes(is_active: bool) -> None:
    """It ended at its old home, which died: only the announcement arrives, once the plan is over at its next home."""
    overlay = StepByStep(LINE)
    move = (ClientMove("p", "b1", "b2"),)
    overlay.execute(LINE.at_epoch(1), move, phases=(PREPARE, ACTIVATE, RETIRE) if is_active else (PREPARE,))
    overlay.feed("b2", "b3", Advertise(1, "p", 0, "b2", ALL))
    assert overlay.effects_of(PublisherTaken) == ([PublisherTaken("p", 0)] if is_active else [])
    if is_active:
        overlay.feed("b2", None, UnadvertiseRequest("p", 0))
        assert not overlay.publishers_at("b2")
        assert Unadvertise(1, "p", 0) in overlay.links["b2", "b3"]
