"""Rare orders of messages on a ring that once lost, blocked or leaked something, each as short as possible."""

from __future__ import annotations

import pytest

from regraft.overlay.ring.ring_configuration import RingConfiguration, id_moves_between
from regraft.producers.brokers.broker_messages import (
    AdvertiseConfirmed,
    AdvertiseRequest,
    CancelRequest,
    ClientDropped,
    Confirmed,
    SubscribeRequest,
    UnadvertiseRequest,
)
from regraft.producers.brokers.epoch_change import CLIENT_WAIT_MS_MAX
from regraft.producers.brokers.ring_messages import (
    AttachRequest,
    MoveAckRequest,
    MovedSubscription,
    UserDrained,
    UserMoves,
)
from regraft.producers.emulator.user_clients import topic_filter
from regraft.schemas.command import CommandPhase, Outcome
from regraft.schemas.plan import ClientMove
from tests.scenarios.step_by_step import StepByStep

PAIR = RingConfiguration.of(0, 6, {"b0": 3, "b1": 40})
THREE = RingConfiguration.of(0, 6, {"b0": 3, "b1": 20, "b2": 40})
# The path from b2 to b1 leads over b0, and is direct once these two have exchanged their IDs.
NEAR = RingConfiguration.of(0, 6, {"b0": 3, "b1": 12, "b2": 20})
DETOUR = RingConfiguration.of(1, 6, {"b0": 20, "b1": 12, "b2": 3})
# From b0 the path to b2 stays, the one to b1 leads over b2 once b1 and b3 have exchanged their IDs.
BEFORE = RingConfiguration.of(0, 6, {"b0": 12, "b1": 24, "b2": 29, "b3": 30})
AFTER = RingConfiguration.of(1, 6, {"b0": 12, "b1": 30, "b2": 29, "b3": 24})

PREPARE, ACTIVATE, RETIRE = CommandPhase.PREPARE, CommandPhase.ACTIVATE, CommandPhase.RETIRE


def topic_at(ring: RingConfiguration, broker: str) -> str:
    """Return a topic whose rendezvous is this broker."""
    return next(f"t{number}" for number in range(100) if ring.rendezvous(f"t{number}") == broker)


def test_the_end_of_an_earlier_stay_does_not_remove_the_next_one() -> None:
    """A publisher leaves b0 and reconnects at b1; its registration there overtakes the end of the earlier stay."""
    overlay = StepByStep(THREE)
    topic = topic_at(THREE, "b2")
    overlay.feed("b0", None, AdvertiseRequest("p", topic_filter(topic), 0))
    overlay.run()
    overlay.publish("b0", "p", topic=topic)
    overlay.feed("b0", None, UnadvertiseRequest("p", 0))
    slow = ("b0", overlay.cores["b0"].state.tables[0].next_hop("b2"))
    overlay.feed("b1", None, AdvertiseRequest("p", topic_filter(topic), 1))
    overlay.run(held=[slow])
    assert overlay.effects_of(AdvertiseConfirmed) == [AdvertiseConfirmed("p", 0)]  # Its earlier stay is not over yet.
    overlay.run()
    assert overlay.effects_of(AdvertiseConfirmed)[1:] == [AdvertiseConfirmed("p", 1)]
    assert overlay.cores["b2"].state.tables[0].registered[topic]["p"].home == "b1"


def test_a_stay_that_ends_before_its_turn_leaves_no_trace() -> None:
    """The order is the same, but the publisher leaves again at once."""
    overlay = StepByStep(THREE)
    topic = topic_at(THREE, "b2")
    overlay.feed("b0", None, AdvertiseRequest("p", topic_filter(topic), 0))
    overlay.run()
    overlay.feed("b0", None, UnadvertiseRequest("p", 0))
    slow = ("b0", overlay.cores["b0"].state.tables[0].next_hop("b2"))
    overlay.feed("b1", None, AdvertiseRequest("p", topic_filter(topic), 1))
    overlay.feed("b1", None, UnadvertiseRequest("p", 1))
    overlay.run(held=[slow])
    overlay.run()
    assert not overlay.cores["b2"].state.tables[0].registered
    overlay.feed("b0", None, SubscribeRequest("s", "u", topic_filter(topic)))
    overlay.run()
    assert overlay.got == []


def test_the_end_of_another_stay_changes_nothing_at_the_home() -> None:
    """Numbers distinguish stays in any order of arrival."""
    overlay = StepByStep(PAIR)
    topic = topic_at(PAIR, "b1")
    overlay.feed("b0", None, AdvertiseRequest("p", topic_filter(topic), 1))
    overlay.run()
    overlay.feed("b0", None, UnadvertiseRequest("p", 0))
    overlay.run()
    assert overlay.cores["b1"].state.tables[0].registered[topic]["p"].connection == 1


def test_a_topic_dropped_and_requested_again_during_a_preparation_is_served_in_the_next_epoch() -> None:
    """In the old epoch b0 leaves the tree and returns; in the new one it never left, and b1 must know that."""
    overlay = StepByStep(PAIR)
    topic = topic_at(PAIR, "b1")
    overlay.feed("b1", None, AdvertiseRequest("p", topic_filter(topic)))
    overlay.feed("b0", None, SubscribeRequest("old", "u", topic_filter(topic)))
    overlay.run()
    target = PAIR.replaced(1, [])
    overlay.command("b0", PREPARE, target)
    overlay.feed("b0", None, CancelRequest("old"))
    overlay.run()
    overlay.feed("b0", None, SubscribeRequest("new", "v", topic_filter(topic)))
    overlay.run()
    overlay.command("b1", PREPARE, target)
    overlay.run()
    assert overlay.effects_of(Confirmed) == [Confirmed("old"), Confirmed("new")]
    overlay.execute(target, phases=(ACTIVATE, RETIRE))
    for _ in range(3):
        overlay.publish("b1", "p", topic=topic)
        overlay.run()
    assert overlay.got == [("new", "p", sequence) for sequence in range(3)]


def test_a_subscription_to_a_drained_broker_is_confirmed_with_the_retirement() -> None:
    """It needs no place in the old epoch, so nothing can undrain its broker; until then it is owed nothing."""
    overlay = StepByStep(PAIR)
    topic = topic_at(PAIR, "b1")
    target = RingConfiguration.of(1, 6, {"b0": 40, "b1": 3})
    ids = id_moves_between(PAIR, target)
    overlay.feed("b0", None, AdvertiseRequest("p", topic_filter(topic)))
    overlay.feed("b1", None, SubscribeRequest("other", "w", topic_filter(topic)))
    overlay.run()
    overlay.execute(target, id_moves=ids, phases=(PREPARE, ACTIVATE))
    assert overlay.answered(Outcome.DRAINED) == {"b0", "b1"}
    overlay.feed("b0", None, SubscribeRequest("new", "u", topic_filter(topic)))
    overlay.run()
    overlay.publish("b0", "p", topic=topic)
    assert Confirmed("new") not in overlay.effects_of(Confirmed)
    overlay.execute(target, phases=(RETIRE,))
    assert Confirmed("new") in overlay.effects_of(Confirmed)
    overlay.publish("b0", "p", topic=topic)
    overlay.run()
    assert overlay.got == [("other", "p", 0), ("new", "p", 1), ("other", "p", 1)]


def moving_user(overlay: StepByStep, topic: str) -> tuple[RingConfiguration, tuple[ClientMove, ...]]:
    """Return a plan that moves a user with one subscription from b0 to b1, where the publisher is."""
    overlay.feed("b1", None, AdvertiseRequest("p", topic_filter(topic)))
    overlay.feed("b0", None, SubscribeRequest("s", "u", topic_filter(topic)))
    overlay.run()
    return PAIR.replaced(1, []), (ClientMove("u", "b0", "b1"),)


def test_a_user_that_misses_its_move_ends_and_blocks_no_plan() -> None:
    """Its home ends its stay after some time, and the plan continues without it."""
    overlay = StepByStep(PAIR)
    target, moves = moving_user(overlay, topic_at(PAIR, "b1"))
    overlay.execute(target, moves, phases=(PREPARE,))
    assert overlay.effects_of(UserMoves) == [UserMoves("u", 0, "b1", 1)]
    assert overlay.answered(Outcome.PREPARED) == set()
    overlay.now_ms += int(CLIENT_WAIT_MS_MAX) + 1
    overlay.execute(target, moves)
    assert overlay.effects_of(ClientDropped) == [ClientDropped("u", 0, is_over=True)]
    assert overlay.answered(Outcome.RETIRED) == {"b0", "b1"}
    assert not any(core.state.locals for core in overlay.cores.values())


def test_a_user_that_never_reports_that_it_is_drained_ends_and_blocks_no_plan() -> None:
    """Its old home has sent it everything; its new one waits only for some time."""
    overlay = StepByStep(PAIR)
    topic = topic_at(PAIR, "b1")
    target, moves = moving_user(overlay, topic)
    overlay.execute(target, moves, phases=(PREPARE,))
    overlay.feed("b0", None, MoveAckRequest("u", 0))
    overlay.feed("b1", None, AttachRequest(1, "u", 0, (MovedSubscription("s", topic),)))
    overlay.execute(target, phases=(ACTIVATE,))
    overlay.feed("b1", None, MoveAckRequest("u", 0))
    assert overlay.effects_of(UserDrained) == [UserDrained("u", "s", "b1")]
    assert overlay.answered(Outcome.DRAINED) == {"b0"}
    overlay.now_ms += int(CLIENT_WAIT_MS_MAX) + 1
    overlay.execute(target, phases=(ACTIVATE, RETIRE))
    assert overlay.effects_of(ClientDropped) == [ClientDropped("u", 0, is_over=True)]
    assert overlay.answered(Outcome.RETIRED) == {"b0", "b1"}
    assert not any(core.state.locals for core in overlay.cores.values())


def test_a_user_is_waited_for_while_its_old_home_serves_one_of_its_topics() -> None:
    """Its time to report that it is drained begins when it has got everything, not with the first of its topics."""
    overlay = StepByStep(PAIR)
    quick, slow = topic_at(PAIR, "b0"), topic_at(PAIR, "b1")
    overlay.feed("b1", None, AdvertiseRequest("p", topic_filter(slow)))
    overlay.feed("b0", None, SubscribeRequest("s-quick", "u", topic_filter(quick)))
    overlay.feed("b0", None, SubscribeRequest("s-slow", "u", topic_filter(slow)))
    overlay.run()
    target = PAIR.replaced(1, [])
    overlay.execute(target, (ClientMove("u", "b0", "b1"),), phases=(PREPARE,))
    overlay.feed("b0", None, MoveAckRequest("u", 0))
    brought = (MovedSubscription("s-quick", quick), MovedSubscription("s-slow", slow))
    overlay.feed("b1", None, AttachRequest(1, "u", 0, brought))
    overlay.run()
    for broker in overlay.brokers:
        overlay.command(broker, ACTIVATE, target)
    overlay.feed("b1", None, MoveAckRequest("u", 0))
    overlay.run(held=[("b1", "b0")])
    assert overlay.effects_of(UserDrained) == [UserDrained("u", "s-quick", "b1")]
    overlay.now_ms += int(CLIENT_WAIT_MS_MAX) + 1
    overlay.command("b1", ACTIVATE, target)
    overlay.run()
    assert overlay.effects_of(ClientDropped) == []
    assert overlay.effects_of(UserDrained)[1:] == [UserDrained("u", "s-slow", "b1")]


@pytest.mark.parametrize("comes_first", [False, True])
def test_a_user_whose_stay_its_home_has_ended_is_not_attached(comes_first: bool) -> None:
    """Its attachment was under way when its old home released the next one from waiting, or had arrived before."""
    overlay = StepByStep(PAIR)
    topic = topic_at(PAIR, "b1")
    target, moves = moving_user(overlay, topic)
    overlay.execute(target, moves, phases=(PREPARE,))
    attach = AttachRequest(1, "u", 0, (MovedSubscription("s", topic),))
    if comes_first:
        overlay.feed("b1", None, attach)
    overlay.now_ms += int(CLIENT_WAIT_MS_MAX) + 1
    overlay.execute(target, moves, phases=(PREPARE,))
    assert overlay.effects_of(ClientDropped) == [ClientDropped("u", 0, is_over=True)]
    if not comes_first:
        overlay.feed("b1", None, attach)
    assert not overlay.cores["b1"].state.locals


def test_end_is_sent_only_if_a_path_changes_or_a_user_moves() -> None:
    """A plan that moves one user sends END of that user's topic only."""
    overlay = StepByStep(PAIR)
    topics = [f"t{number}" for number in range(20)]
    for topic in topics:
        overlay.feed("b0", None, AdvertiseRequest(f"p-{topic}", topic_filter(topic)))
        for broker in overlay.brokers:
            overlay.feed(
                broker, None, SubscribeRequest(f"{topic}-{broker}", f"u-{topic}-{broker}", topic_filter(topic))
            )
    overlay.run()
    moves = (ClientMove("u-t7-b1", "b1", "b0"),)
    target = PAIR.replaced(1, [])
    overlay.execute(target, moves, phases=(PREPARE,))
    overlay.feed("b1", None, MoveAckRequest("u-t7-b1", 0))
    overlay.feed("b0", None, AttachRequest(1, "u-t7-b1", 0, (MovedSubscription("t7-b1", "t7"),)))
    overlay.run()
    sent_before = sum(core.control_messages_sent for core in overlay.cores.values())
    overlay.execute(target, phases=(ACTIVATE,))
    sent = sum(core.control_messages_sent for core in overlay.cores.values()) - sent_before
    assert overlay.effects_of(UserDrained) == [UserDrained("u-t7-b1", "t7-b1", "b0")]
    assert sent <= 3  # END of its publisher, END of the topic, and that the old home has handed over everything.


@pytest.mark.parametrize("slow", [("b2", "b0"), ("b2", "b1")])
def test_the_end_of_a_publisher_does_not_overtake_its_notifications(slow: tuple[str, str]) -> None:
    """It ends over two paths, either of which may be slower; a user that ends meanwhile is owed what was published."""
    overlay = StepByStep(NEAR)
    topic = topic_at(NEAR, "b1")
    overlay.feed("b2", None, AdvertiseRequest("p", topic_filter(topic)))
    overlay.feed("b1", None, SubscribeRequest("s", "u", topic_filter(topic)))
    overlay.run()
    overlay.execute(DETOUR, id_moves=id_moves_between(NEAR, DETOUR), phases=(PREPARE,))
    for broker in overlay.brokers:
        overlay.command(broker, ACTIVATE, DETOUR)
    overlay.publish("b2", "p", topic=topic)
    overlay.feed("b2", None, UnadvertiseRequest("p"))
    overlay.run(held=[slow])
    overlay.feed("b1", None, CancelRequest("s"))
    overlay.run(held=[slow])
    assert overlay.got == []
    overlay.run()
    assert overlay.got == [("s", "p", 0)]
    assert not overlay.cores["b1"].state.tables[1].registered


def test_the_end_of_a_publisher_that_overtakes_its_registration_leaves_no_trace() -> None:
    """It registers over the old epoch's longer path and ends over the new one's shorter path, where it was derived."""
    overlay = StepByStep(NEAR)
    topic = topic_at(NEAR, "b1")
    slow = ("b2", "b0")
    overlay.feed("b2", None, AdvertiseRequest("p", topic_filter(topic)))
    overlay.run(held=[slow])
    ids = id_moves_between(NEAR, DETOUR)
    for broker in overlay.brokers:
        overlay.command(broker, PREPARE, DETOUR, id_moves=ids)
    overlay.feed("b2", None, UnadvertiseRequest("p"))
    overlay.run(held=[slow])
    assert overlay.links[slow]
    overlay.run()
    assert not any(tables.registered for tables in overlay.cores["b1"].state.tables.values())
    overlay.execute(DETOUR, phases=(ACTIVATE, RETIRE))
    assert overlay.answered(Outcome.RETIRED) == set(overlay.brokers)


def test_what_waits_at_a_rendezvous_reaches_subscriptions_that_end_meanwhile() -> None:
    """It was published before the end. Each following message is counted once."""
    overlay = StepByStep(NEAR)
    topic = topic_at(NEAR, "b1")
    overlay.feed("b2", None, AdvertiseRequest("p", topic_filter(topic)))
    overlay.feed("b1", None, SubscribeRequest("stays", "v", topic_filter(topic)))
    overlay.feed("b1", None, SubscribeRequest("ends", "u", topic_filter(topic)))
    overlay.run()
    overlay.execute(DETOUR, id_moves=id_moves_between(NEAR, DETOUR), phases=(PREPARE,))
    for broker in overlay.brokers:
        overlay.command(broker, ACTIVATE, DETOUR)
    overlay.publish("b2", "p", topic=topic)
    overlay.run(held=[("b2", "b0")])
    overlay.feed("b1", None, CancelRequest("ends"))
    overlay.run()
    assert overlay.got == [("stays", "p", 0), ("ends", "p", 0)]
    assert sum(core.control_messages_sent for core in overlay.cores.values()) == overlay.control_count


def test_a_late_notification_is_forwarded_only_if_its_path_is_the_old_one() -> None:
    """b1 got it over its old path; b2, whose path stays, gets it when it has retired the old epoch and b1 has not."""
    overlay = StepByStep(BEFORE)
    topic = topic_at(BEFORE, "b0")
    assert AFTER.rendezvous(topic) == "b0"
    overlay.feed("b0", None, AdvertiseRequest("p", topic_filter(topic)))
    for broker in ("b1", "b2"):
        overlay.feed(broker, None, SubscribeRequest(f"s-{broker}", f"u-{broker}", topic_filter(topic)))
    overlay.run()
    overlay.publish("b0", "p", topic=topic)
    ids, slow = id_moves_between(BEFORE, AFTER), ("b0", "b2")
    for phase in (PREPARE, ACTIVATE):
        for broker in overlay.brokers:
            overlay.command(broker, phase, AFTER, id_moves=ids)
        overlay.run(held=[slow])
    assert overlay.answered(Outcome.DRAINED) == set(overlay.brokers)
    overlay.command("b2", RETIRE, AFTER)
    assert overlay.got == [("s-b1", "p", 0)]
    overlay.run()
    overlay.execute(AFTER, phases=(RETIRE,))
    assert overlay.got == [("s-b1", "p", 0), ("s-b2", "p", 0)]


def test_a_changing_rendezvous_is_drained_once_its_publishers_are_even_without_subscribers() -> None:
    """A later subscriber to the topic in the new epoch gets nothing of the old one out of order."""
    overlay = StepByStep(PAIR)
    topic = topic_at(PAIR, "b1")
    target = RingConfiguration.of(1, 6, {"b0": 40, "b1": 3})
    overlay.feed("b0", None, AdvertiseRequest("p", topic_filter(topic)))
    overlay.feed("b1", None, SubscribeRequest("gone", "u", topic_filter(topic)))
    overlay.run()
    overlay.feed("b1", None, CancelRequest("gone"))
    overlay.run()
    overlay.execute(target, id_moves=id_moves_between(PAIR, target), phases=(PREPARE,))
    overlay.publish("b0", "p", topic=topic)
    for broker in overlay.brokers:
        overlay.command(broker, ACTIVATE, target)
    overlay.feed("b0", None, SubscribeRequest("new", "v", topic_filter(topic)))
    assert overlay.answered(Outcome.DRAINED) == {"b0"}
    overlay.run()
    overlay.execute(target, phases=(RETIRE,))
    overlay.publish("b0", "p", topic=topic)
    overlay.run()
    assert overlay.got == [("new", "p", 1)]


def test_a_returning_publisher_is_confirmed_once_every_rendezvous_knows_of_its_earlier_end() -> None:
    """Its rendezvous in the next epoch knows no earlier stay, the one in the present epoch does."""
    overlay = StepByStep(THREE)
    topic = topic_at(THREE, "b2")
    target = RingConfiguration.of(1, 6, {"b0": 3, "b1": 40, "b2": 20})
    slow = ("b0", overlay.cores["b0"].state.tables[0].next_hop("b2"))
    overlay.feed("b0", None, AdvertiseRequest("p", topic_filter(topic), 0))
    overlay.run()
    overlay.feed("b0", None, UnadvertiseRequest("p", 0))
    overlay.feed("b1", None, AdvertiseRequest("p", topic_filter(topic), 1))
    overlay.command("b1", PREPARE, target, id_moves=id_moves_between(THREE, target))
    overlay.run(held=[slow])
    assert overlay.effects_of(AdvertiseConfirmed) == [AdvertiseConfirmed("p", 0)]
    overlay.run()
    assert overlay.effects_of(AdvertiseConfirmed) == [AdvertiseConfirmed("p", 0), AdvertiseConfirmed("p", 1)]


def test_a_subscription_is_confirmed_once_its_place_in_the_next_epoch_is_established_too() -> None:
    """Its parent is in the tree for a user that is about to move away, and has already left that of the next epoch."""
    overlay = StepByStep(NEAR)  # The path from b2 to b1 leads over b0.
    topic, slow = topic_at(NEAR, "b2"), [("b0", "b2")]
    overlay.feed("b2", None, AdvertiseRequest("p", topic_filter(topic)))
    overlay.feed("b0", None, SubscribeRequest("moves", "u", topic_filter(topic)))
    overlay.run()
    target, moves = NEAR.replaced(1, []), (ClientMove("u", "b0", "b2"),)
    for broker in ("b0", "b2"):
        overlay.command(broker, PREPARE, target, moves)
    overlay.feed("b0", None, MoveAckRequest("u", 0))
    overlay.feed("b2", None, AttachRequest(1, "u", 0, (MovedSubscription("moves", topic),)))
    overlay.run()
    assert overlay.answered(Outcome.PREPARED) == {"b0", "b2"}
    overlay.feed("b1", None, SubscribeRequest("s", "v", topic_filter(topic)))
    overlay.run(held=slow)
    assert overlay.effects_of(Confirmed) == [Confirmed("moves")]
    overlay.run()
    assert overlay.effects_of(Confirmed) == [Confirmed("moves"), Confirmed("s")]


def test_a_late_notification_over_an_old_path_is_not_delivered_to_new_subscriptions() -> None:
    """It was sent to b1 before b0 knew that b1 had left the tree; what follows comes over b2, and is faster."""
    overlay = StepByStep(BEFORE)
    topic, slow = topic_at(BEFORE, "b0"), [("b0", "b1")]
    overlay.feed("b0", None, AdvertiseRequest("p", topic_filter(topic)))
    overlay.feed("b1", None, SubscribeRequest("gone", "u", topic_filter(topic)))
    overlay.run()
    overlay.feed("b1", None, CancelRequest("gone"))
    overlay.run(held=slow)
    overlay.publish("b0", "p", topic=topic)
    overlay.cross("b0", "b1")  # The end of the flush: b1 leaves the tree.
    ids = id_moves_between(BEFORE, AFTER)
    for phase in (PREPARE, ACTIVATE, RETIRE):
        for broker in overlay.brokers:
            overlay.command(broker, phase, AFTER, id_moves=ids)
        overlay.run(held=slow)
        if phase is ACTIVATE:
            overlay.feed("b1", None, SubscribeRequest("new", "v", topic_filter(topic)))
    assert overlay.answered(Outcome.RETIRED) == set(overlay.brokers)
    overlay.publish("b0", "p", topic=topic)
    overlay.run(held=slow)
    overlay.run()
    assert overlay.got == [("new", "p", 1)]
