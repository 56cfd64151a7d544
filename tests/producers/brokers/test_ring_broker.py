"""One broker of a ring: what it sends and answers for each message, in small steps."""

from __future__ import annotations

import pytest

from regraft.overlay.ring.ring_configuration import RingConfiguration
from regraft.producers.brokers import ring_trees as chord_trees
from regraft.producers.brokers.broker_messages import (
    UNSTAMPED_EPOCH,
    AdvertiseRequest,
    Answer,
    Cancelled,
    CancelRequest,
    Confirmed,
    Deliver,
    Dropped,
    Notification,
    Published,
    Send,
    SubscribeRequest,
)
from regraft.producers.brokers.broker_reports import ProtocolError
from regraft.producers.brokers.match_content import Operator, Predicate
from regraft.producers.brokers.ring_messages import (
    AskFlush,
    GrantFlush,
    Join,
    JoinAck,
    Leave,
    NotComing,
    Register,
    UserMoves,
)
from regraft.producers.brokers.ring_routing import RingBroker, ring_broker
from regraft.producers.emulator.user_clients import topic_filter
from regraft.schemas.command import Command, CommandPhase, Outcome
from regraft.schemas.plan import ClientMove, IdMove

RING = RingConfiguration.of(0, 3, {f"n{number}": number for number in range(8)})
TOPIC = next(f"t{number}" for number in range(100) if RING.rendezvous(f"t{number}") == "n1")


def note(sequence: int, epoch: int = UNSTAMPED_EPOCH, *, down: bool = False, publish_ms: float = 10.0) -> Notification:
    return Notification("p", sequence, publish_ms, "n0", epoch, {"topic": TOPIC}, 100, down)


def core(broker: str) -> RingBroker:
    return ring_broker(broker, RING, 0)


def prepare(target: RingConfiguration, broker: str, *moves: ClientMove, ids: tuple[IdMove, ...] = ()) -> Command:
    return Command(
        "plan-1", CommandPhase.PREPARE, broker, 0, target.epoch, digest=target.digest, moves=moves, id_moves=ids
    )


def test_a_notification_goes_to_the_rendezvous_and_down_the_tree() -> None:
    """Zhao13, Fig. 2: t1 has its root at ID 1; ID 0 is reached over 5 and 7."""
    home, root, relay = core("n4"), core("n1"), core("n5")
    published, sent = home.handle(None, note(0), 11)
    assert isinstance(published, Published)
    assert isinstance(sent, Send)
    assert (sent.peer, sent.message.epoch) == ("n0", 0)
    assert root.handle("n5", Join(0, TOPIC, 0), 1) == [Send("n5", JoinAck(0, TOPIC))]
    (down,) = root.handle("n0", note(0, 0), 12)
    assert down == Send("n5", note(0, 0, down=True))
    relay.handle("n7", Join(0, TOPIC, 0), 1)
    assert relay.handle("n1", note(0, 0, down=True), 13) == [Send("n7", note(0, 0, down=True))]


def test_a_relay_joins_for_others_and_confirms_once_the_path_is_established() -> None:
    relay = core("n5")
    assert relay.handle("n7", Join(0, TOPIC, 0), 1) == [Send("n1", Join(0, TOPIC, 0))]
    assert relay.handle("n1", JoinAck(0, TOPIC), 2) == [Send("n7", JoinAck(0, TOPIC))]
    assert relay.handle("n7", Leave(0, TOPIC, 0), 3) == [Send("n1", Leave(0, TOPIC, 0))]
    assert not relay.state.tables[0].topics


def test_a_broker_leaves_only_after_everything_published_before_has_arrived() -> None:
    broker = core("n5")
    broker.handle(None, SubscribeRequest("s", "u", topic_filter(TOPIC)), 1)
    assert broker.handle("n1", JoinAck(0, TOPIC), 2) == [Confirmed("s")]
    (asked,) = broker.handle(None, CancelRequest("s"), 20)
    assert asked == Send("n1", AskFlush(0, "n1", TOPIC, "n5"))
    late = note(0, 0, down=True, publish_ms=19.0)
    assert broker.handle("n1", late, 21) == [Deliver(late, ("s",))]
    ahead = note(1, 0, down=True, publish_ms=99.0)  # Its publisher's clock is fast.
    assert broker.handle("n1", ahead, 22) == [Deliver(ahead, ("s",))]
    effects = broker.handle("n1", GrantFlush(0, "n5", TOPIC), 23)
    assert effects[-1] == Send("n1", Leave(0, TOPIC, 0))
    assert not broker.state.locals


def test_a_broker_that_stays_requests_a_flush_for_ended_subscriptions() -> None:
    """One flush at a time; subscriptions that end meanwhile wait for the next one."""
    broker = core("n5")
    for name in ("s", "t", "u"):
        broker.handle(None, SubscribeRequest(name, name, topic_filter(TOPIC)), 1)
    broker.handle("n1", JoinAck(0, TOPIC), 2)
    ask = Send("n1", AskFlush(0, "n1", TOPIC, "n5"))
    assert broker.handle(None, CancelRequest("s"), 20) == [ask]
    assert broker.handle(None, CancelRequest("t"), 21) == []
    first = note(0, 0, down=True)
    assert broker.handle("n1", first, 22) == [Deliver(first, ("s", "t", "u"))]
    assert broker.handle("n1", GrantFlush(0, "n5", TOPIC), 23) == [Cancelled("s"), ask]
    broker.handle("n1", GrantFlush(0, "n5", TOPIC), 24)
    assert sorted(broker.state.locals) == ["u"]


def test_a_publisher_registers_at_its_rendezvous() -> None:
    assert core("n4").handle(None, AdvertiseRequest("p", topic_filter(TOPIC)), 1) == [
        Send("n0", Register(0, "n1", TOPIC, "p", 0, "n4"))
    ]


def test_a_filter_without_a_topic_is_refused_with_a_reason() -> None:
    with pytest.raises(ProtocolError, match="a ring routes by topic"):
        core("n4").handle(None, SubscribeRequest("s", "u", (Predicate("price", Operator.LT, 3.0),)), 1)


def test_a_prepare_for_another_ring_is_refused() -> None:
    target = RING.replaced(1, (IdMove("n2", 2, 3), IdMove("n3", 3, 2)))
    (answer,) = core("n5").handle(None, prepare(target, "n5", ids=(IdMove("n2", 2, 4), IdMove("n4", 4, 2))), 1)
    assert isinstance(answer, Answer)
    assert answer.result.outcome is Outcome.REFUSED
    assert "digest" in answer.result.reason
    (answer,) = core("n5").handle(None, prepare(target, "n5", ids=(IdMove("n2", 7, 3),)), 1)
    assert isinstance(answer, Answer)
    assert "must give up ring ID 7" in answer.result.reason


def test_a_user_that_is_not_at_home_is_not_waited_for() -> None:
    """The home that the plan wrongly assumes notifies the other one; the user stays where it is."""
    target = RING.replaced(1, ())
    effects = core("n4").handle(None, prepare(target, "n4", ClientMove("u", "n4", "n6")), 1)
    assert Send("n6", NotComing(1, "n6", "u")) in effects
    there = core("n6")
    assert there.handle(None, prepare(target, "n6", ClientMove("u", "n4", "n6")), 1) == []
    (answer,) = there.handle("n4", NotComing(1, "n6", "u"), 2)
    assert isinstance(answer, Answer)
    assert answer.result.outcome is Outcome.PREPARED


def test_a_user_at_home_is_asked_to_move_and_not_served_in_the_next_epoch() -> None:
    home = core("n1")
    home.handle(None, SubscribeRequest("s", "u", topic_filter(TOPIC), 3), 1)
    effects = home.handle(None, prepare(RING.replaced(1, ()), "n1", ClientMove("u", "n1", "n6")), 2)
    assert UserMoves("u", 3, "n6", 1) in effects
    assert "s" in home.state.tables[0].topics[TOPIC].subscriptions
    assert TOPIC not in home.state.tables[1].topics


def test_a_notification_on_a_topic_that_the_broker_has_left_is_ignored() -> None:
    assert core("n5").handle("n1", note(0, 0, down=True), 1) == []


def test_a_notification_of_an_unknown_epoch_is_dropped_and_reported() -> None:
    stray = note(0, 3, down=True)
    assert core("n5").handle("n1", stray, 1) == [Dropped(stray, "epoch_unknown")]


def test_ended_subscriptions_that_are_never_flushed_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the rendezvous has died, no flush arrives: the oldest are dropped, the newest are still owed notifications."""
    monkeypatch.setattr(chord_trees, "ENDED_KEPT_MAX", 3)
    broker = core("n5")
    for number in range(6):
        broker.handle(None, SubscribeRequest(f"s{number}", "u", topic_filter(TOPIC)), 1)
        broker.handle("n1", JoinAck(0, TOPIC), 2)
        broker.handle(None, CancelRequest(f"s{number}"), 20)
    assert broker.ended_count == 3
    assert sorted(broker.state.locals) == ["s3", "s4", "s5"]
