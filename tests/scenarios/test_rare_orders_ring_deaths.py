"""A broker of a ring dies and the ring is repaired: rare orders, each as short as possible."""

from __future__ import annotations

from regraft.overlay.overlay_configuration import BrokerChange
from regraft.overlay.ring.ring_configuration import RingConfiguration, id_moves_between
from regraft.producers.brokers.broker_messages import (
    AdvertiseConfirmed,
    AdvertiseRequest,
    Confirmed,
    Dropped,
    SubscribeRequest,
    UnadvertiseRequest,
)
from regraft.producers.brokers.broker_reports import BROKER_DIED, FROM_THE_DEAD
from regraft.producers.brokers.ring_messages import (
    AttachRequest,
    MoveAckRequest,
    MovedSubscription,
    Register,
    UserDrained,
    UserMoves,
)
from regraft.producers.emulator.starting_point import core_of
from regraft.producers.emulator.user_clients import topic_filter
from regraft.schemas.command import Command, CommandPhase, Outcome
from regraft.schemas.plan import ClientMove
from tests.scenarios.step_by_step import StepByStep
from tests.scenarios.test_rare_orders_ring import NEAR, PAIR, topic_at

PREPARE, ACTIVATE, RETIRE, ABORT = CommandPhase.PREPARE, CommandPhase.ACTIVATE, CommandPhase.RETIRE, CommandPhase.ABORT
# The path from b0 to b3 leads over b1 and b2, without b1 over b4; from b3 to b0 it is direct.
FIVE = RingConfiguration.of(0, 6, {"b0": 2, "b1": 37, "b2": 53, "b3": 1, "b4": 51})
TOPIC = topic_at(FIVE, "b3")
ALL = topic_filter(TOPIC)


class DyingRing(StepByStep):
    """Brokers of a ring that die one after the other, and the plans that repair it."""

    def __init__(self, ring: RingConfiguration) -> None:
        super().__init__(ring)
        self.ring = ring
        self.dead: tuple[str, ...] = ()

    def kill(self, broker: str) -> None:
        """Let a broker die; what it had sent is still on its way."""
        self.dead = (*self.dead, broker)
        self.brokers = tuple(name for name in self.brokers if name != broker)

    def notice(self, *brokers: str) -> None:
        """Let neighbours of the dead notice the death: all of them unless some are named."""
        for dead in self.dead:
            for broker in brokers or self.brokers:
                if dead in self.cores[broker].live_neighbours:
                    self.lose_peer(broker, dead)

    def run_alive(self, *held: tuple[str, str]) -> None:
        """Deliver everything except what is held up and what is on its way to the dead."""
        to_dead = [(source, target) for source, target in self.links if target in self.dead]
        for pair in to_dead:
            self.links[pair].clear()
        while ready := sorted(pair for pair, queue in self.links.items() if queue and pair not in held):
            if ready[0][1] in self.dead:
                self.links[ready[0]].clear()
            else:
                self.cross(*ready[0])

    def repair(
        self, *phases: CommandPhase, held: tuple[tuple[str, str], ...] = (), moves: tuple[ClientMove, ...] = ()
    ) -> None:
        """Take the remaining brokers through phases of the plan that removes the dead from the ring."""
        lost = tuple(name for name in self.dead if name in self.ring.brokers)
        target = self.ring.replaced(
            self.ring.epoch + 1, without(self.ring, lost), change=BrokerChange(lost=frozenset(lost))
        )
        for phase in phases:
            for broker in self.brokers:
                self.command(broker, phase, target, moves, id_moves_between(self.ring, target), lost)
            self.run_alive(*held)
        if RETIRE in phases:
            self.ring = target


def without(ring: RingConfiguration, lost: tuple[str, ...]) -> tuple:
    """Return the ID changes by which the lost give up their IDs."""
    kept = {broker: number for broker, number in ring.id_of.items() if broker not in lost}
    return id_moves_between(ring, RingConfiguration.of(ring.epoch + 1, ring.bits, kept))


def published_at_b0() -> DyingRing:
    """Return a ring with a publisher at b0 to whose topic a user at its rendezvous b3 subscribes."""
    overlay = DyingRing(FIVE)
    overlay.feed("b0", None, AdvertiseRequest("p", ALL))
    overlay.feed("b3", None, SubscribeRequest("s", "u", ALL))
    overlay.run()
    assert overlay.effects_of(AdvertiseConfirmed)
    assert overlay.effects_of(Confirmed)
    return overlay


def test_what_a_dead_broker_had_forwarded_comes_before_what_takes_the_path_around_it() -> None:
    """It is two brokers beyond the dead one when the new epoch is stamped; only these two know that it exists."""
    overlay = published_at_b0()
    overlay.publish("b0", "p", topic=TOPIC)
    overlay.cross("b0", "b1")
    overlay.cross("b1", "b2")
    overlay.kill("b1")
    overlay.notice()
    slow = ("b2", "b3")
    overlay.repair(PREPARE, ACTIVATE, held=(slow,))
    assert overlay.answered(Outcome.PREPARED) == {"b0", "b2", "b3", "b4"}
    overlay.publish("b0", "p", topic=TOPIC)
    overlay.run_alive(slow)
    assert overlay.got == []
    overlay.run_alive()
    assert overlay.got == [("s", "p", 0), ("s", "p", 1)]
    assert overlay.answered(Outcome.DRAINED) == {"b0", "b2", "b3", "b4"}


def test_the_end_after_the_last_dead_broker_of_a_path_is_enough() -> None:
    """What is passed on after b1 ends at b2, which is dead, too; b3 notices that itself."""
    overlay = published_at_b0()
    for dead in ("b1", "b2"):
        overlay.kill(dead)
    overlay.notice()
    overlay.run_alive()
    overlay.repair(PREPARE, ACTIVATE, RETIRE)
    assert overlay.answered(Outcome.RETIRED) == {"b0", "b3", "b4"}
    overlay.publish("b0", "p", topic=TOPIC)
    overlay.run_alive()
    assert overlay.got == [("s", "p", 0)]


def test_nothing_is_taken_from_a_declared_dead_broker_after_its_flow_has_ended() -> None:
    """A broker that has announced that nothing follows must let nothing follow."""
    overlay = published_at_b0()
    overlay.publish("b0", "p", topic=TOPIC)
    overlay.cross("b0", "b1")
    overlay.kill("b1")
    late = ("b1", "b2")
    overlay.repair(PREPARE, ACTIVATE, held=(late,))
    assert overlay.answered(Outcome.DRAINED) == {"b0", "b2", "b3", "b4"}
    overlay.publish("b0", "p", topic=TOPIC)
    overlay.run_alive(late)
    overlay.run_alive()
    assert overlay.got == [("s", "p", 1)]
    assert [(one.notification.sequence, one.reason) for one in overlay.effects_of(Dropped)] == [(0, FROM_THE_DEAD)]


def test_nothing_of_a_retired_epoch_is_taken_from_a_broker_that_died_in_the_next_one() -> None:
    """It was still on its way when b2 was declared dead; by then its publisher has begun its next stay at b3."""
    overlay = DyingRing(FIVE)
    overlay.feed("b2", None, AdvertiseRequest("p", ALL, 0))
    overlay.feed("b3", None, SubscribeRequest("s", "u", ALL))
    overlay.run()
    overlay.publish("b2", "p", topic=TOPIC)
    late = overlay.links["b2", "b3"].popleft()
    overlay.ring = FIVE.replaced(1, [])
    overlay.execute(overlay.ring)
    overlay.kill("b2")
    overlay.repair(ABORT)
    overlay.feed("b3", None, AdvertiseRequest("p", ALL, 1))
    overlay.publish("b3", "p", topic=TOPIC)
    overlay.feed("b3", "b2", late)
    assert overlay.got == [("s", "p", 1)]
    assert [(one.notification.sequence, one.reason) for one in overlay.effects_of(Dropped)] == [(0, FROM_THE_DEAD)]


def test_a_stay_of_a_publisher_ends_with_its_home_after_everything_it_published() -> None:
    """It reconnects at b4; what it published at b1 is still on its way to the rendezvous."""
    overlay = DyingRing(FIVE)
    overlay.feed("b1", None, AdvertiseRequest("p", ALL, 0))
    overlay.feed("b3", None, SubscribeRequest("s", "u", ALL))
    overlay.run()
    overlay.publish("b1", "p", topic=TOPIC)
    overlay.kill("b1")
    slow = ("b1", "b2")
    overlay.feed("b4", None, AdvertiseRequest("p", ALL, 1))
    overlay.run_alive(slow)
    registered = overlay.cores["b3"].state.tables[0].registered
    assert registered[TOPIC]["p"].home == "b1"
    overlay.run_alive()
    overlay.notice()
    overlay.run_alive()
    assert registered[TOPIC]["p"].home == "b4"
    overlay.repair(PREPARE, ACTIVATE, RETIRE)
    assert overlay.effects_of(AdvertiseConfirmed)[1:] == [AdvertiseConfirmed("p", 1)]
    overlay.publish("b4", "p", topic=TOPIC)
    overlay.run_alive()
    assert overlay.got == [("s", "p", 0), ("s", "p", 1)]


def test_a_registration_that_was_lost_with_a_broker_is_repeated_by_the_repair() -> None:
    """The rendezvous is the same in both rings, and has never heard of the publisher."""
    overlay = DyingRing(FIVE)
    overlay.feed("b3", None, SubscribeRequest("s", "u", ALL))
    overlay.run()
    overlay.kill("b1")
    overlay.feed("b0", None, AdvertiseRequest("p", ALL))
    overlay.run_alive()
    overlay.notice()
    overlay.run_alive()
    assert overlay.effects_of(AdvertiseConfirmed) == []
    overlay.repair(PREPARE, ACTIVATE, RETIRE)
    assert overlay.effects_of(AdvertiseConfirmed) == [AdvertiseConfirmed("p", 0)]
    overlay.publish("b0", "p", topic=TOPIC)
    overlay.run_alive()
    assert overlay.got == [("s", "p", 0)]


def test_a_publisher_whose_end_was_lost_with_a_broker_is_forgotten_by_the_repair() -> None:
    """No other broker would notify the rendezvous, and a later plan would wait for its END."""
    overlay = published_at_b0()
    overlay.kill("b1")
    overlay.feed("b0", None, UnadvertiseRequest("p", 0))
    overlay.run_alive()
    overlay.repair(PREPARE, ACTIVATE, RETIRE)
    assert not any(core.state.tables[1].registered for name, core in overlay.cores.items() if name != "b1")


def test_a_next_stay_that_waits_in_both_epochs_begins_in_both() -> None:
    """Its earlier one ends in the old epoch, and by that in the new one."""
    overlay = DyingRing(FIVE)
    overlay.feed("b4", None, AdvertiseRequest("p", ALL, 0))
    overlay.run()
    overlay.feed("b4", None, UnadvertiseRequest("p", 0))
    slow = ("b4", "b3")
    overlay.feed("b3", None, AdvertiseRequest("p", ALL, 1))
    overlay.kill("b1")
    overlay.repair(PREPARE, held=(slow,))
    assert overlay.answered(Outcome.PREPARED) == {"b0", "b2", "b3", "b4"}
    overlay.run_alive()
    registered = [overlay.cores["b3"].state.tables[epoch].registered for epoch in (0, 1)]
    assert [one[TOPIC]["p"].connection for one in registered] == [1, 1]
    overlay.repair(ACTIVATE, RETIRE)
    assert overlay.effects_of(AdvertiseConfirmed)[1:] == [AdvertiseConfirmed("p", 1)]


def test_homes_send_end_unasked_after_a_death() -> None:
    """In the new epoch b2's request for it would lead over b0, which is dead; so b1 is never asked."""
    overlay = DyingRing(NEAR)
    topic = topic_at(NEAR, "b2")
    overlay.feed("b1", None, AdvertiseRequest("p", topic_filter(topic)))
    overlay.feed("b2", None, SubscribeRequest("s", "u", topic_filter(topic)))
    overlay.run()
    target = NEAR.replaced(1, [])
    moves = (ClientMove("u", "b2", "b1"),)
    for broker in overlay.brokers:
        overlay.command(broker, PREPARE, target, moves)
    overlay.feed("b2", None, MoveAckRequest("u", 0))
    overlay.feed("b1", None, AttachRequest(1, "u", 0, (MovedSubscription("s", topic),)))
    overlay.run([("b2", "b0")])
    overlay.kill("b0")
    overlay.run_alive()
    overlay.notice()
    for broker in overlay.brokers:
        overlay.command(broker, ACTIVATE, target)
    overlay.run_alive()
    assert overlay.effects_of(UserDrained) == [UserDrained("u", "s", "b1")]


def test_a_user_is_notified_of_its_move_before_it_is_drained() -> None:
    """Nothing follows on a path that a death has cut; in the other order its next home would not know what is meant."""
    overlay = DyingRing(NEAR)
    topic = topic_at(NEAR, "b2")
    overlay.feed("b1", None, SubscribeRequest("s", "u", topic_filter(topic)))
    overlay.run()
    overlay.kill("b0")  # On the path from b2 to b1.
    overlay.notice()
    lost = ("b0",)
    target = NEAR.replaced(1, without(NEAR, lost), change=BrokerChange(lost=frozenset(lost)))
    moves = (ClientMove("u", "b1", "b2"),)
    overlay.command("b1", PREPARE, target, moves, id_moves_between(NEAR, target), lost)
    effects = [effect for _, effect in overlay.client_effects if isinstance(effect, UserMoves | UserDrained)]
    assert effects == [UserMoves("u", 0, "b2", 1), UserDrained("u", "s", "b2")]


def test_what_was_on_its_way_to_a_dead_rendezvous_does_not_go_to_the_next_one() -> None:
    """The old epoch is over before it reaches b0: no path leads to a subscription any more."""
    overlay = DyingRing(NEAR)
    topic = topic_at(NEAR, "b1")
    overlay.feed("b2", None, AdvertiseRequest("p", topic_filter(topic)))  # The path to b1 leads over b0.
    overlay.run()
    overlay.publish("b2", "p", topic=topic)
    overlay.kill("b1")
    overlay.notice()
    slow = ("b2", "b0")
    early = overlay.links[slow].popleft()
    overlay.repair(PREPARE, ACTIVATE, RETIRE)
    assert overlay.answered(Outcome.RETIRED) == {"b0", "b2"}
    overlay.feed("b2", None, SubscribeRequest("s", "u", topic_filter(topic)))
    overlay.publish("b2", "p", topic=topic)
    overlay.run_alive()
    overlay.feed("b0", "b2", early)
    overlay.run_alive()
    assert overlay.got == [("s", "p", 1)]
    assert [one.reason for one in overlay.effects_of(Dropped)] == [BROKER_DIED]


def test_a_user_whose_home_is_lost_reaches_the_next_one_like_any_other() -> None:
    """The plan gives the place without a wait: the user learns its new home when the repair is in force."""
    overlay = DyingRing(FIVE)
    overlay.feed("b1", None, SubscribeRequest("s", "u", ALL))
    overlay.run()
    overlay.kill("b1")
    overlay.notice()
    overlay.repair(PREPARE, ACTIVATE, RETIRE, moves=(ClientMove("u", "b1", "b4"),))
    assert overlay.answered(Outcome.RETIRED) == {"b0", "b2", "b3", "b4"}
    overlay.feed("b4", None, SubscribeRequest("t", "u", ALL, 1))
    overlay.run_alive()
    assert overlay.effects_of(Confirmed) == [Confirmed("s"), Confirmed("t")]


def test_nothing_is_derived_from_the_earlier_life_of_a_returning_broker() -> None:
    """It has its old ID but none of its old knowledge: b0 registers and joins at it again."""
    overlay = DyingRing(PAIR)
    topic = topic_at(PAIR, "b1")
    overlay.feed("b0", None, AdvertiseRequest("p", topic_filter(topic)))
    overlay.feed("b0", None, SubscribeRequest("s", "u", topic_filter(topic)))
    overlay.run()
    overlay.kill("b1")
    target = PAIR.at_epoch(1)
    returned = ("b1",)
    prepare = Command(
        "plan-1", PREPARE, "b0", 0, 1, digest=target.digest, lost_brokers=returned, brokers_joined=returned
    )
    overlay.feed("b0", None, prepare)
    assert overlay.answered(Outcome.PREPARED) == set()
    sent = [one for message in overlay.links["b0", "b1"] for one in getattr(message, "messages", (message,))]
    assert {type(one).__name__ for one in sent} == {"Join", "Register"}
    assert any(isinstance(one, Register) and one.epoch == 1 for one in sent)
    overlay.feed("b0", None, prepare)  # Again: its reports of b1 were about the incarnation before.
    tables = overlay.cores["b0"].state.tables
    assert (tables[0].dead, tables[1].dead) == ({"b1"}, set())


def test_a_returning_broker_is_on_all_paths_again_and_its_earlier_life_on_none() -> None:
    """One plan loses and admits it; what it had sent before arrives when that is long over."""
    overlay = published_at_b0()
    overlay.publish("b0", "p", topic=TOPIC)
    overlay.cross("b0", "b1")
    late = overlay.links["b1", "b2"].popleft()
    overlay.kill("b1")
    overlay.notice()
    overlay.run_alive()
    overlay.cores["b1"] = core_of("b1", FIVE, 1, is_outside=True)
    overlay.brokers, overlay.dead = FIVE.brokers, ()
    target, returned = FIVE.at_epoch(1), ("b1",)
    for broker in overlay.brokers:
        prepare = Command(
            "plan-1", PREPARE, broker, 0, 1, digest=target.digest, lost_brokers=returned, brokers_joined=returned
        )
        overlay.feed(broker, None, prepare)
    overlay.run()
    assert overlay.answered(Outcome.PREPARED) == set(FIVE.brokers)
    overlay.execute(target, phases=(ACTIVATE, RETIRE))
    assert overlay.answered(Outcome.RETIRED) == set(FIVE.brokers)
    overlay.publish("b0", "p", topic=TOPIC)
    overlay.run()
    overlay.feed("b2", "b1", late)
    overlay.run()
    assert overlay.got == [("s", "p", 1)]
    assert [(one.notification.sequence, one.reason) for one in overlay.effects_of(Dropped)] == [(0, FROM_THE_DEAD)]
    assert not any(core.state.lost_peers for core in overlay.cores.values())
