"""Rare orders in which a ring's user requests, ends and falls silent between two homes, each as short as possible."""

from __future__ import annotations

from regraft.producers.brokers.broker_messages import (
    AdvertiseRequest,
    CancelRequest,
    ClientDropped,
    Confirmed,
    SubscribeRequest,
)
from regraft.producers.brokers.epoch_change import CLIENT_WAIT_MS_MAX
from regraft.producers.brokers.ring_messages import (
    AttachRequest,
    DrainedRequest,
    GoneRequest,
    MoveAckRequest,
    MovedSubscription,
    UserDrained,
    UserTaken,
)
from regraft.producers.emulator.user_clients import topic_filter
from regraft.schemas.command import CommandPhase, Outcome
from regraft.schemas.plan import ClientMove
from tests.scenarios.step_by_step import StepByStep
from tests.scenarios.test_rare_orders_ring import PAIR, topic_at

PREPARE, ACTIVATE, RETIRE = CommandPhase.PREPARE, CommandPhase.ACTIVATE, CommandPhase.RETIRE
MOVE, TARGET = (ClientMove("u", "b0", "b1"),), PAIR.replaced(1, [])
AT_0, AT_1 = topic_at(PAIR, "b0"), topic_at(PAIR, "b1")


def between_homes(is_attached: bool = True) -> StepByStep:
    """Return a user with subscription "s" about to move from b0 to b1, and its publishers "p0" and "p1" at b1."""
    overlay = StepByStep(PAIR)
    for publisher, topic in (("p0", AT_0), ("p1", AT_1)):
        overlay.feed("b1", None, AdvertiseRequest(publisher, topic_filter(topic)))
    overlay.feed("b0", None, SubscribeRequest("s", "u", topic_filter(AT_1)))
    overlay.run()
    overlay.command("b0", PREPARE, TARGET, MOVE)
    overlay.feed("b0", None, MoveAckRequest("u", 0))
    if is_attached:
        overlay.command("b1", PREPARE, TARGET, MOVE)
        overlay.feed("b1", None, AttachRequest(1, "u", 0, (MovedSubscription("s", AT_1),)))
        overlay.run()
        assert overlay.answered(Outcome.PREPARED) == {"b0", "b1"}
    return overlay


def ask(overlay: StepByStep, subscription: str, topic: str) -> None:
    """Let the user request a subscription at both homes."""
    overlay.feed("b0", None, SubscribeRequest(subscription, "u", topic_filter(topic)))
    overlay.feed("b1", None, AttachRequest(1, "u", 0, (MovedSubscription(subscription, topic),)))


def activate(overlay: StepByStep, *brokers: str) -> None:
    """Let brokers obey this command, even repeatedly."""
    for broker in brokers:
        overlay.command(broker, ACTIVATE, TARGET)
    overlay.run()


def test_a_request_between_two_homes_is_confirmed_and_served_by_both_in_order() -> None:
    """The old home delivers the old epoch, the next one holds the new one back until that is done."""
    overlay = between_homes()
    ask(overlay, "new", AT_0)
    overlay.run()
    assert sorted(broker for broker, effect in overlay.client_effects if effect == Confirmed("new")) == ["b0", "b1"]
    overlay.publish("b1", "p0", topic=AT_0)
    activate(overlay, "b1")
    overlay.publish("b1", "p0", topic=AT_0)
    overlay.run()
    assert overlay.got == [("new", "p0", 0)]
    activate(overlay, "b0")
    assert set(overlay.effects_of(UserDrained)) == {UserDrained("u", "new", "b1"), UserDrained("u", "s", "b1")}
    overlay.feed("b1", None, DrainedRequest("new"))
    assert overlay.got == [("new", "p0", 0), ("new", "p0", 1)]


def test_a_request_after_end_gets_nothing_more_at_the_old_home() -> None:
    """The old home is not active yet, but knows that nothing of the topic follows in the old epoch."""
    overlay = between_homes()
    activate(overlay, "b1")
    assert overlay.effects_of(UserDrained) == [UserDrained("u", "s", "b1")]
    ask(overlay, "new", AT_1)
    overlay.run()
    assert overlay.effects_of(UserDrained)[1:] == [UserDrained("u", "new", "b1")]
    assert sorted(broker for broker, effect in overlay.client_effects if effect == Confirmed("new")) == ["b0", "b1"]


def test_a_request_at_an_active_old_home_takes_no_new_place_in_the_old_epoch() -> None:
    """It gets nothing there, and is confirmed when the old epoch is over."""
    overlay = between_homes()
    activate(overlay, "b0")
    ask(overlay, "new", AT_0)
    overlay.run()
    assert ("b0", UserDrained("u", "new", "b1")) in overlay.client_effects
    assert ("b1", Confirmed("new")) in overlay.client_effects
    activate(overlay, "b1")
    overlay.feed("b1", None, MoveAckRequest("u", 0))
    overlay.feed("b1", None, DrainedRequest("new"))
    overlay.feed("b1", None, DrainedRequest("s"))
    overlay.run()
    assert ("b0", Confirmed("new")) not in overlay.client_effects
    overlay.command("b0", RETIRE, TARGET)
    assert ("b0", Confirmed("new")) in overlay.client_effects
    assert not overlay.cores["b0"].state.locals


def test_the_next_home_is_not_drained_before_a_user_knows_that_it_is_taken() -> None:
    """Until then the user may also have requested something at the old home that is still to be handed over."""
    overlay = between_homes()
    activate(overlay, "b0", "b1")
    overlay.feed("b1", None, DrainedRequest("s"))
    assert overlay.effects_of(UserTaken) == [UserTaken("u")]
    assert overlay.answered(Outcome.DRAINED) == {"b0"}
    overlay.feed("b1", None, MoveAckRequest("u", 0))
    assert overlay.answered(Outcome.DRAINED) == {"b0", "b1"}


def test_a_user_that_misses_that_it_is_taken_ends_and_blocks_no_plan() -> None:
    """Its new home waits only for some time."""
    overlay = between_homes()
    activate(overlay, "b0", "b1")
    overlay.feed("b1", None, DrainedRequest("s"))
    overlay.now_ms += int(CLIENT_WAIT_MS_MAX) + 1
    activate(overlay, "b1")
    assert overlay.effects_of(ClientDropped) == [ClientDropped("u", 0, is_over=True)]
    assert overlay.answered(Outcome.DRAINED) == {"b0", "b1"}
    ask(overlay, "late", AT_1)
    assert "late" not in overlay.cores["b1"].state.locals


def test_a_subscription_ended_before_the_old_home_confirmed_it_is_not_waited_for() -> None:
    """It is owed nothing there, so no END will announce that nothing follows."""
    overlay = between_homes()
    topic = next(name for name in (f"other{number}" for number in range(100)) if PAIR.rendezvous(name) == "b1")
    ask(overlay, "new", topic)  # The answer to b0 is under way.
    for broker in ("b0", "b1"):
        overlay.feed(broker, None, CancelRequest("new"))
    assert ("b0", Confirmed("new")) not in overlay.client_effects
    assert ("b0", UserDrained("u", "new", "b1")) in overlay.client_effects
    overlay.run()
    activate(overlay, "b0", "b1")
    overlay.feed("b1", None, MoveAckRequest("u", 0))
    for drained in overlay.effects_of(UserDrained):
        overlay.feed("b1", None, DrainedRequest(drained.subscription))
    assert overlay.answered(Outcome.DRAINED) == {"b0", "b1"}


def test_a_user_is_waited_for_only_once_its_old_home_takes_no_more_requests() -> None:
    """Its old home is slow to activate: what it has handed over until then may not be everything."""
    overlay = between_homes()
    activate(overlay, "b1")
    overlay.feed("b1", None, MoveAckRequest("u", 0))
    assert overlay.effects_of(UserDrained) == [UserDrained("u", "s", "b1")]
    ask(overlay, "new", AT_0)
    overlay.run()
    overlay.feed("b1", None, DrainedRequest("s"))
    overlay.now_ms += int(CLIENT_WAIT_MS_MAX) + 1
    activate(overlay, "b1")
    assert overlay.effects_of(ClientDropped) == []
    activate(overlay, "b0")
    overlay.feed("b1", None, DrainedRequest("new"))
    assert overlay.answered(Outcome.DRAINED) == {"b0", "b1"}


def test_a_user_that_connects_and_leaves_before_its_next_home_is_prepared_is_not_waited_for() -> None:
    """Its attachment is kept until then, and its later messages after it."""
    overlay = between_homes(is_attached=False)
    overlay.feed("b1", None, AttachRequest(1, "u", 0, (MovedSubscription("s", AT_1),)))
    for broker in ("b0", "b1"):
        overlay.feed(broker, None, CancelRequest("s"))
        overlay.feed(broker, None, GoneRequest("u", 0))
    overlay.command("b1", PREPARE, TARGET, MOVE)
    overlay.run()
    assert overlay.answered(Outcome.PREPARED) == {"b0", "b1"}
    activate(overlay, "b0", "b1")
    for drained in overlay.effects_of(UserDrained):
        overlay.feed("b1", None, DrainedRequest(drained.subscription))
    assert overlay.effects_of(UserTaken) == []
    assert overlay.answered(Outcome.DRAINED) == {"b0", "b1"}
