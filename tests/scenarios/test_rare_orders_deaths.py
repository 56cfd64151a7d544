"""A broker dies while something is under way: the remaining ones continue, each order as short as possible."""

from __future__ import annotations

from regraft.producers.brokers.broker_messages import AdvertiseConfirmed, AdvertiseRequest, Confirmed, SubscribeRequest
from regraft.producers.brokers.ring_messages import AttachRequest, MoveAckRequest, MovedSubscription, UserDrained
from regraft.producers.emulator.user_clients import topic_filter
from regraft.schemas.command import CommandPhase, Outcome
from regraft.schemas.plan import ClientMove
from tests.scenarios.step_by_step import ALL, StepByStep
from tests.scenarios.test_rare_orders_ring import NEAR, THREE, moving_user, topic_at
from tests.scenarios.test_rare_orders_ring import PAIR as RING_PAIR
from tests.scenarios.test_rare_orders_tree import PAIR

PREPARE, ACTIVATE, RETIRE = CommandPhase.PREPARE, CommandPhase.ACTIVATE, CommandPhase.RETIRE


def test_a_subscription_is_confirmed_without_the_acknowledgement_of_a_dead_neighbour() -> None:
    """What is published beyond that neighbour is lost anyway."""
    overlay = StepByStep(PAIR)
    overlay.feed("b0", None, AdvertiseRequest("p", ALL))
    overlay.run()
    overlay.feed("b1", None, SubscribeRequest("s", "u", ALL))
    assert overlay.effects_of(Confirmed) == []
    overlay.lose_peer("b1", "b0")
    assert overlay.effects_of(Confirmed) == [Confirmed("s")]


def test_a_publisher_may_publish_without_the_answer_of_a_dead_neighbour() -> None:
    """Brokers beyond that neighbour are unreachable anyway."""
    overlay = StepByStep(PAIR)
    overlay.feed("b0", None, AdvertiseRequest("p", ALL))
    assert overlay.effects_of(AdvertiseConfirmed) == []
    overlay.lose_peer("b0", "b1")
    assert overlay.effects_of(AdvertiseConfirmed) == [AdvertiseConfirmed("p", 0)]


def test_the_flow_of_a_dead_neighbour_has_ended_and_what_waited_for_it_is_delivered() -> None:
    """A publisher has moved away from it and publishes here; its old home died before it had switched."""
    overlay = StepByStep(PAIR)
    overlay.feed("b0", None, AdvertiseRequest("p", ALL))
    overlay.feed("b1", None, SubscribeRequest("s", "u", ALL))
    overlay.run()
    target = PAIR.replaced(1, [], [])
    overlay.execute(target, (ClientMove("p", "b0", "b1"),), phases=(PREPARE,))
    overlay.command("b1", ACTIVATE, target)
    overlay.publish("b1", "p", symbol="A")
    assert overlay.got == []
    overlay.lose_peer("b1", "b0")
    assert overlay.got == [("s", "p", 0)]
    assert overlay.answered(Outcome.DRAINED) == {"b1"}


def test_what_is_held_for_a_user_whose_old_home_has_died_is_delivered() -> None:
    """By then it has got everything that it could get there."""
    overlay = StepByStep(RING_PAIR)
    topic = topic_at(RING_PAIR, "b1")
    target, moves = moving_user(overlay, topic)
    overlay.execute(target, moves, phases=(PREPARE,))
    overlay.feed("b0", None, MoveAckRequest("u", 0))
    overlay.feed("b1", None, AttachRequest(1, "u", 0, (MovedSubscription("s", topic),)))
    overlay.lose_peer("b1", "b0")
    overlay.command("b1", ACTIVATE, target)
    overlay.publish("b1", "p", topic=topic)
    assert overlay.got == [("s", "p", 0)]
    overlay.feed("b1", None, MoveAckRequest("u", 0))
    overlay.command("b1", RETIRE, target)
    assert overlay.answered(Outcome.RETIRED) == {"b1"}


def test_publishers_whose_home_is_dead_are_not_waited_for() -> None:
    """The rendezvous sends END of their topics without them, so a user's old home hands over and the plan continues."""
    overlay = StepByStep(THREE)
    topic = topic_at(THREE, "b2")
    overlay.feed("b0", None, AdvertiseRequest("p", topic_filter(topic)))
    overlay.feed("b1", None, SubscribeRequest("s", "u", topic_filter(topic)))
    overlay.run()
    target = THREE.replaced(1, [])
    overlay.execute(target, (ClientMove("u", "b1", "b2"),), phases=(PREPARE,))
    overlay.feed("b1", None, MoveAckRequest("u", 0))
    overlay.feed("b2", None, AttachRequest(1, "u", 0, (MovedSubscription("s", topic),)))
    overlay.run()
    for broker in ("b1", "b2"):
        overlay.lose_peer(broker, "b0")
        overlay.command(broker, ACTIVATE, target)
    overlay.run()
    assert overlay.effects_of(UserDrained) == [UserDrained("u", "s", "b2")]


def test_a_topic_behind_a_dead_parent_is_not_waited_for() -> None:
    """A user that moves away from below it is notified that it has everything."""
    overlay = StepByStep(NEAR)  # The path from b2 to b1 leads over b0.
    topic = topic_at(NEAR, "b2")
    overlay.feed("b1", None, SubscribeRequest("s", "u", topic_filter(topic)))
    overlay.run()
    target = NEAR.replaced(1, [])
    overlay.execute(target, (ClientMove("u", "b1", "b2"),), phases=(PREPARE,))
    overlay.feed("b1", None, MoveAckRequest("u", 0))
    overlay.feed("b2", None, AttachRequest(1, "u", 0, (MovedSubscription("s", topic),)))
    overlay.run()
    for broker in ("b1", "b2"):
        overlay.lose_peer(broker, "b0")
    overlay.command("b1", ACTIVATE, target)
    assert overlay.effects_of(UserDrained) == [UserDrained("u", "s", "b2")]


def test_a_subscription_behind_a_dead_parent_blocks_no_plan() -> None:
    """Nothing can reach it, so nothing is waited for before it is confirmed."""
    overlay = StepByStep(NEAR)
    for broker in ("b1", "b2"):
        overlay.lose_peer(broker, "b0")
    overlay.feed("b1", None, SubscribeRequest("s", "u", topic_filter(topic_at(NEAR, "b2"))))
    assert overlay.effects_of(Confirmed) == [Confirmed("s")]
    overlay.command("b1", PREPARE, NEAR.replaced(1, []))
    assert overlay.answered(Outcome.PREPARED) == {"b1"}


def test_a_broker_leaves_a_tree_once_its_last_child_has_died() -> None:
    """No broker below it wants the topic any more."""
    overlay = StepByStep(NEAR)
    topic = topic_at(NEAR, "b2")
    overlay.feed("b1", None, SubscribeRequest("s", "u", topic_filter(topic)))
    overlay.run()
    assert topic in overlay.cores["b0"].state.tables[0].topics
    for broker in ("b0", "b2"):
        overlay.lose_peer(broker, "b1")
    overlay.run(held=[("b0", "b1"), ("b2", "b1")])
    assert not any(overlay.cores[broker].state.tables[0].topics for broker in ("b0", "b2"))
