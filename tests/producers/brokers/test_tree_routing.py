"""One broker's core, message by message: the worked cases behind the tests of rare orders."""

import msgspec
import pytest

from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.producers.brokers.broker_messages import (
    UNSTAMPED_EPOCH,
    Advertise,
    AdvertiseAck,
    AdvertiseConfirmed,
    AdvertiseRequest,
    Answer,
    Cancelled,
    CancelRequest,
    Confirmed,
    Deliver,
    Dropped,
    Effect,
    End,
    Notification,
    Published,
    Send,
    Subscribe,
    SubscribeAck,
    SubscribeRequest,
    SubscriberMoves,
    Unadvertise,
    UnadvertiseRequest,
    Unsubscribe,
    UnsubscribeAck,
)
from regraft.producers.brokers.broker_reports import BrokerPhase
from regraft.producers.brokers.match_content import Operator, Predicate
from regraft.producers.brokers.tree_routing import TreeBroker, tree_broker
from regraft.schemas.command import Command, CommandPhase, Outcome
from regraft.schemas.plan import ClientMove

IBM = (Predicate("symbol", Operator("eq"), "IBM"),)
CHAIN = TreeConfiguration.of(0, ("a", "b", "c"), [("a", "b"), ("b", "c")])
TURNED = TreeConfiguration.of(1, ("a", "b", "c"), [("a", "c"), ("b", "c")])


def quote(sequence: int, publish_ms: float = 10.0, epoch: int = UNSTAMPED_EPOCH, home: str = "c") -> Notification:
    """Return a quote of IBM."""
    return Notification("IBM", sequence, publish_ms, home, epoch, {"symbol": "IBM", "open": 1.0}, 100)


def command(phase: CommandPhase, broker: str) -> Command:
    """Return a command of the plan that removes a-b and adds a-c."""
    if phase is CommandPhase.PREPARE:
        return Command("plan-1", phase, broker, 0, 1, (("a", "b"),), (("a", "c"),), TURNED.digest)
    return Command("plan-1", phase, broker, 0, 1, digest=TURNED.digest)


def outcomes(effects: list[object]) -> list[Outcome]:
    """Return the outcomes that a broker answered."""
    return [effect.result.outcome for effect in effects if isinstance(effect, Answer)]


def subscribed_middle() -> TreeBroker:
    """Return b of a-b-c: a publisher is at c, and a subscription from a has passed b."""
    core = tree_broker("b", CHAIN, 0)
    core.handle("c", Advertise(0, "IBM", 0, "c", IBM), 1)
    core.handle("a", AdvertiseAck(0, "IBM", 0), 1)
    core.handle("a", Subscribe(0, "s", "a", IBM, 0), 2)
    core.handle("c", SubscribeAck(0, "s"), 3)
    return core


def subscribed_end() -> TreeBroker:
    """Return a of a-b-c with a subscription to a publisher at c, after it has switched: END of b is yet to come."""
    core = tree_broker("a", CHAIN, 0)
    core.handle("b", Advertise(0, "IBM", 0, "c", IBM), 1)
    core.handle(None, SubscribeRequest("s", "client", IBM), 2)
    core.handle("b", SubscribeAck(0, "s"), 3)
    core.handle(None, command(CommandPhase.PREPARE, "a"), 4)
    core.handle("c", SubscribeAck(1, "s"), 5)
    core.handle(None, command(CommandPhase.ACTIVATE, "a"), 6)
    return core


def test_a_subscription_travels_to_the_advertisement_and_is_then_confirmed() -> None:
    """The home waits for the acknowledgement of the last broker on the path."""
    core = tree_broker("a", CHAIN, 0)
    core.handle("b", Advertise(0, "IBM", 0, "c", IBM), 1)
    sent = core.handle(None, SubscribeRequest("s", "client", IBM), 2)
    assert sent == [Send("b", Subscribe(0, "s", "a", IBM, 0))]
    assert core.handle("b", SubscribeAck(0, "s"), 5) == [Confirmed("s")]


def test_a_subscription_without_a_publisher_is_confirmed_at_once() -> None:
    """No publisher matches it, so it can miss nothing."""
    core = tree_broker("a", CHAIN, 0)
    assert core.handle(None, SubscribeRequest("s", "client", IBM), 2) == [Confirmed("s")]


def test_a_middle_broker_acknowledges_only_after_the_next_one() -> None:
    """An acknowledgement means that the entire rest of the path is installed."""
    core = tree_broker("b", CHAIN, 0)
    core.handle("c", Advertise(0, "IBM", 0, "c", IBM), 1)
    assert core.handle("a", Subscribe(0, "s", "a", IBM, 0), 2) == [Send("c", Subscribe(0, "s", "a", IBM, 0))]
    assert core.handle("c", SubscribeAck(0, "s"), 3) == [Send("a", SubscribeAck(0, "s"))]


def test_a_publisher_is_confirmed_once_all_brokers_know_it() -> None:
    """The advertisement floods the tree, and its acknowledgements return."""
    core = tree_broker("b", CHAIN, 0)
    sent = core.handle(None, AdvertiseRequest("IBM", IBM), 1)
    assert sent == [Send("a", Advertise(0, "IBM", 0, "b", IBM)), Send("c", Advertise(0, "IBM", 0, "b", IBM))]
    assert core.handle("a", AdvertiseAck(0, "IBM", 0), 2) == []
    assert core.handle("c", AdvertiseAck(0, "IBM", 0), 3) == [AdvertiseConfirmed("IBM", 0)]


def test_the_home_stamps_the_epoch_of_a_notification() -> None:
    """It replaces any earlier stamp; a notification that waited here has the one of its beginning."""
    core = tree_broker("b", CHAIN, 0)
    core.handle(None, AdvertiseRequest("IBM", IBM), 1)
    core.handle("a", Subscribe(0, "s", "a", IBM, 0), 2)
    for number, epoch in enumerate((UNSTAMPED_EPOCH, 0, 7)):
        stamped = quote(number, epoch=0, home="b")
        sent = core.handle(None, quote(number, epoch=epoch, home="b"), 3)
        assert sent == [Published(stamped), Send("a", stamped)]


def test_the_end_of_a_publisher_goes_to_all_brokers() -> None:
    """The end is flooded onwards even if its stay is unknown here: other brokers may know it."""
    core = subscribed_middle()
    assert core.handle("c", Unadvertise(0, "IBM", 7), 5) == [Send("a", Unadvertise(0, "IBM", 7))]
    assert core.handle("c", Unadvertise(0, "IBM", 0), 5) == [Send("a", Unadvertise(0, "IBM", 0))]
    assert core.routing.interests.advertisements == {}
    home = tree_broker("c", CHAIN, 0)
    home.handle(None, AdvertiseRequest("IBM", IBM), 1)
    assert home.handle(None, UnadvertiseRequest("IBM"), 2) == [Send("b", Unadvertise(0, "IBM", 0))]


def test_the_next_stay_of_a_publisher_waits_for_the_end_of_the_one_before() -> None:
    """After that end nothing of the earlier stay can arrive, so notifications keep their order across stays."""
    core = subscribed_middle()
    again = Advertise(0, "IBM", 1, "a", IBM)
    assert core.handle("a", again, 5) == []
    assert core.routing.interests.advertisements["IBM"].connection == 0
    effects = core.handle("c", Unadvertise(0, "IBM", 0), 6)
    assert effects[:2] == [Send("a", Unadvertise(0, "IBM", 0)), Send("c", again)]
    assert core.routing.interests.advertisements["IBM"].connection == 1


def test_the_newer_of_two_waiting_stays_comes_next() -> None:
    """The client has reconnected since, so the older stay publishes nothing."""
    core = subscribed_middle()
    core.handle("a", Advertise(0, "IBM", 2, "a", IBM), 5)
    core.handle("a", Advertise(0, "IBM", 1, "a", IBM), 6)
    core.handle("c", Unadvertise(0, "IBM", 0), 7)
    assert core.routing.interests.advertisements["IBM"].connection == 2


def test_a_stay_that_ends_while_it_waits_never_begins() -> None:
    """Its end arrives before that of the stay it waits for."""
    core = subscribed_middle()
    core.handle("a", Advertise(0, "IBM", 1, "a", IBM), 5)
    core.handle("a", Unadvertise(0, "IBM", 1), 6)
    assert core.routing.interests.advertisements["IBM"].connection == 0
    core.handle("c", Unadvertise(0, "IBM", 0), 7)
    assert not core.routing.interests.advertisements


def test_notifications_follow_subscriptions_only() -> None:
    """A notification goes towards the homes that want it, and not back to where it came from."""
    core = subscribed_middle()
    assert core.handle("c", quote(0, epoch=0), 5) == [Send("a", quote(0, epoch=0))]
    other = Notification("DEC", 0, 5.0, "c", 0, {"symbol": "DEC"}, 100)
    assert core.handle("c", other, 5) == []


def test_a_notification_in_flight_is_owed_to_a_subscription_that_is_ending() -> None:
    """Everything that arrives until the publishers' side has released it is delivered, whatever the clocks say."""
    core = tree_broker("a", CHAIN, 0)
    core.handle("b", Advertise(0, "IBM", 0, "c", IBM), 1)
    core.handle(None, SubscribeRequest("s", "client", IBM), 2)
    core.handle("b", SubscribeAck(0, "s"), 5)
    assert core.handle(None, CancelRequest("s"), 22) == [Send("b", Unsubscribe(0, "s"))]
    assert core.handle("b", quote(0, publish_ms=19.0, epoch=0), 23) == [Deliver(quote(0, 19.0, 0), ("s",))]
    ahead = quote(1, publish_ms=99.0, epoch=0)  # Its publisher's clock is fast.
    assert core.handle("b", ahead, 24) == [Deliver(ahead, ("s",))]
    assert core.handle("b", UnsubscribeAck(0, "s"), 25) == [Cancelled("s")]
    assert core.handle("b", quote(2, epoch=0), 26) == []


def test_a_middle_broker_keeps_forwarding_until_the_end_is_acknowledged() -> None:
    """Notifications that the publisher's side sent before it knew of the end still pass."""
    core = subscribed_middle()
    assert core.handle("a", Unsubscribe(0, "s"), 5) == [Send("c", Unsubscribe(0, "s"))]
    assert core.handle("c", quote(0, epoch=0), 6) == [Send("a", quote(0, epoch=0))]
    assert core.handle("c", UnsubscribeAck(0, "s"), 7) == [Send("a", UnsubscribeAck(0, "s"))]
    assert core.state.tables[0].entries == {}


def test_a_broker_off_the_changed_path_prepares_without_a_message() -> None:
    """If the path to the home is the same in both trees, the table is derived and not sent again."""
    chain = TreeConfiguration.of(0, ("a", "b", "c", "d"), [("a", "b"), ("b", "c"), ("c", "d")])
    turned = TreeConfiguration.of(1, chain.brokers, [("a", "b"), ("b", "c"), ("b", "d")])
    core = tree_broker("a", chain, 0)
    core.handle("b", Advertise(0, "IBM", 0, "b", IBM), 1)
    core.handle(None, SubscribeRequest("s", "client", IBM), 2)
    core.handle("b", SubscribeAck(0, "s"), 3)
    prepare = Command("plan-1", CommandPhase.PREPARE, "a", 0, 1, (("c", "d"),), (("b", "d"),), turned.digest)
    effects = core.handle(None, prepare, 4)
    assert outcomes(effects) == [Outcome.PREPARED]
    assert not [effect for effect in effects if isinstance(effect, Send)]
    assert core.state.tables[1].entries["s"].forwarded == {"b"}


def test_a_broker_on_the_changed_path_is_prepared_once_its_subscriptions_have_travelled() -> None:
    """The new path is installed and acknowledged before the broker answers that it is prepared."""
    core = tree_broker("a", CHAIN, 0)
    core.handle("b", Advertise(0, "IBM", 0, "c", IBM), 1)
    core.handle(None, SubscribeRequest("s", "client", IBM), 2)
    core.handle("b", SubscribeAck(0, "s"), 3)
    effects = core.handle(None, command(CommandPhase.PREPARE, "a"), 4)
    assert effects == [Send("c", Subscribe(1, "s", "a", IBM, 0))]
    assert core.phase is BrokerPhase.PREPARING
    assert outcomes(core.handle("c", SubscribeAck(1, "s"), 5)) == [Outcome.PREPARED]
    assert core.phase is BrokerPhase.PREPARED


def test_commands_are_idempotent() -> None:
    """A repeated command gets the same answer and changes nothing."""
    core = tree_broker("a", CHAIN, 0)
    for phase, expected in [
        (CommandPhase.PREPARE, [Outcome.PREPARED]),
        (CommandPhase.ACTIVATE, [Outcome.ACTIVATED]),
    ]:
        assert outcomes(core.handle(None, command(phase, "a"), 1)) == expected
        assert outcomes(core.handle(None, command(phase, "a"), 2)) == expected
    assert outcomes(core.handle("b", End(0), 3)) == [Outcome.DRAINED]
    assert outcomes(core.handle(None, command(CommandPhase.ACTIVATE, "a"), 4)) == [Outcome.ACTIVATED, Outcome.DRAINED]
    assert outcomes(core.handle(None, command(CommandPhase.RETIRE, "a"), 5)) == [Outcome.RETIRED]
    assert outcomes(core.handle(None, command(CommandPhase.RETIRE, "a"), 6)) == [Outcome.RETIRED]
    assert core.phase is BrokerPhase.STEADY


def test_a_prepare_from_another_epoch_is_refused_with_the_reason() -> None:
    """A broker that holds another epoch, or computes another target, refuses."""
    core = tree_broker("a", CHAIN, 0)
    wrong_epoch = Command("plan-9", CommandPhase.PREPARE, "a", 8, 9, (("a", "b"),), (("a", "c"),), "")
    wrong_digest = Command("plan-9", CommandPhase.PREPARE, "a", 0, 1, (("a", "b"),), (("a", "c"),), "0000")
    not_a_tree = Command("plan-9", CommandPhase.PREPARE, "a", 0, 1, (), (("a", "c"),), "0000")
    for bad, reason in [(wrong_epoch, "holds epoch 0"), (wrong_digest, "digest"), (not_a_tree, "links over 3 brokers")]:
        (effect,) = core.handle(None, bad, 1)
        assert isinstance(effect, Answer)
        assert effect.result.outcome is Outcome.REFUSED
        assert reason in effect.result.reason


def test_an_abort_undoes_a_plan_and_bars_a_late_prepare() -> None:
    """After an abort the broker is as before, and a prepare that arrives late is refused."""
    core = tree_broker("a", CHAIN, 0)
    core.handle(None, command(CommandPhase.PREPARE, "a"), 1)
    assert outcomes(core.handle(None, command(CommandPhase.ABORT, "a"), 2)) == [Outcome.ABORTED]
    assert sorted(core.state.tables) == [0]
    assert core.phase is BrokerPhase.STEADY
    assert outcomes(core.handle(None, command(CommandPhase.PREPARE, "a"), 3)) == [Outcome.REFUSED]


def test_an_unprepared_broker_cannot_activate_and_an_active_one_cannot_abort() -> None:
    """These two commands would lose notifications."""
    core = tree_broker("a", CHAIN, 0)
    assert outcomes(core.handle(None, command(CommandPhase.ACTIVATE, "a"), 1)) == [Outcome.REFUSED]
    core.handle(None, command(CommandPhase.PREPARE, "a"), 2)
    core.handle(None, command(CommandPhase.ACTIVATE, "a"), 3)
    assert outcomes(core.handle(None, command(CommandPhase.ABORT, "a"), 4)) == [Outcome.REFUSED]
    assert outcomes(core.handle(None, command(CommandPhase.RETIRE, "a"), 5)) == [Outcome.REFUSED]


def test_an_end_is_forwarded_once_all_other_old_links_have_ended() -> None:
    """The marker sweeps the old tree: 2(n-1) messages, one each way over each link."""
    core = tree_broker("b", CHAIN, 0)
    core.handle(None, command(CommandPhase.PREPARE, "b"), 1)
    assert [
        effect for effect in core.handle(None, command(CommandPhase.ACTIVATE, "b"), 2) if isinstance(effect, Send)
    ] == []
    assert core.handle("a", End(0), 3) == [Send("c", End(0))]
    effects = core.handle("c", End(0), 4)
    assert effects[0] == Send("a", End(0))
    assert outcomes(effects) == [Outcome.DRAINED]


def test_notifications_of_the_new_epoch_wait_for_the_end_of_the_old_path() -> None:
    """A notification that overtook older ones on a new link is delivered after them."""
    core = subscribed_end()
    newer, older = quote(1, 11.0, epoch=1), quote(0, 10.0, epoch=0)
    assert core.handle("c", newer, 12) == []
    assert core.handle("b", older, 13) == [Deliver(older, ("s",))]
    effects = core.handle("b", End(0), 14)
    assert effects[0] == Deliver(newer, ("s",))
    assert core.held_count_max == 1


def test_a_retirement_that_gives_up_waiting_hands_over_what_was_held() -> None:
    """A broker died behind the neighbour whose END is awaited, which may never come: what waits for it is delivered."""
    core = subscribed_end()
    newer = quote(1, 11.0, epoch=1)
    assert core.handle("c", newer, 12) == []
    retire = msgspec.structs.replace(command(CommandPhase.RETIRE, "a"), lost_brokers=("c",))
    effects = core.handle(None, retire, 13)
    assert Deliver(newer, ("s",)) in effects
    assert outcomes(effects) == [Outcome.RETIRED]


@pytest.mark.parametrize(("home", "moved"), [("c", []), ("a", [SubscriberMoves("s", "b", 1)])])
def test_only_the_home_that_a_plan_names_gives_a_subscription_away(home: str, moved: list[Effect]) -> None:
    """The client may have subscribed at another broker since the plan was made; there it stays."""
    core = tree_broker("a", CHAIN, 0)
    assert core.handle(None, SubscribeRequest("s", "client", IBM), 1) == [Confirmed("s")]
    prepare = msgspec.structs.replace(command(CommandPhase.PREPARE, "a"), moves=(ClientMove("s", home, "b"),))
    effects = core.handle(None, prepare, 2)
    assert [effect for effect in effects if isinstance(effect, SubscriberMoves)] == moved


def test_publications_are_stamped_with_the_epoch_of_their_home() -> None:
    """The stamp determines the tables that route a notification to its end."""
    core = tree_broker("c", CHAIN, 0)
    core.handle(None, AdvertiseRequest("IBM", IBM), 0)
    core.handle("b", AdvertiseAck(0, "IBM", 0), 0)
    assert core.handle(None, quote(0), 1) == [Published(quote(0, epoch=0))]
    core.handle(None, command(CommandPhase.PREPARE, "c"), 2)
    assert core.handle(None, quote(1), 3) == [Published(quote(1, epoch=0))]
    core.handle(None, command(CommandPhase.ACTIVATE, "c"), 4)
    assert core.handle(None, quote(2), 5) == [Published(quote(2, epoch=1))]


def test_a_notification_of_an_unknown_epoch_is_dropped_and_reported() -> None:
    """A broker that returned without its tables keeps running; what it cannot route is counted."""
    stray = quote(0, epoch=7)
    assert tree_broker("a", CHAIN, 0).handle("b", stray, 1) == [Dropped(stray, "epoch_unknown")]


def test_a_publisher_that_connects_during_a_transition_is_advertised_after_it() -> None:
    """Its advertisement waits at its home, so no broker enters it into only one of its tables."""
    core = tree_broker("a", CHAIN, 0)
    core.handle(None, command(CommandPhase.PREPARE, "a"), 1)
    assert core.handle(None, AdvertiseRequest("IBM", IBM), 2) == []
    effects = core.handle(None, command(CommandPhase.ABORT, "a"), 3)
    assert Send("b", Advertise(0, "IBM", 0, "a", IBM)) in effects


def test_forwards_that_covering_would_save_are_counted_but_sent() -> None:
    """A narrower subscription to the same symbol follows a wider one: it is counted as covered, not suppressed."""
    core = tree_broker("a", CHAIN, 0)
    core.handle("b", Advertise(0, "IBM", 0, "c", IBM), 1)
    narrow = (*IBM, Predicate("open", Operator("<"), 5.0))
    core.handle(None, SubscribeRequest("wide", "client", IBM), 2)
    sent = core.handle(None, SubscribeRequest("narrow", "client", narrow), 3)
    assert sent == [Send("b", Subscribe(0, "narrow", "a", narrow, 0))]
    assert core.covered_forwards == 1


def test_an_unconfirmed_publisher_delays_the_preparation_of_its_home() -> None:
    """All brokers must know it while they still hold the tables from which the next ones are derived."""
    core = tree_broker("a", CHAIN, 0)
    core.handle(None, AdvertiseRequest("IBM", IBM), 1)
    assert outcomes(core.handle(None, command(CommandPhase.PREPARE, "a"), 2)) == []
    effects = core.handle("b", AdvertiseAck(0, "IBM", 0), 3)
    assert effects[0] == AdvertiseConfirmed("IBM", 0)
    assert outcomes(effects) == [Outcome.PREPARED]
