"""A broker of a tree that may leave its clients behind: until when they are served, and what an abort restores."""

from __future__ import annotations

from typing import Any

import pytest

from regraft.overlay.overlay_configuration import BrokerChange
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.producers.brokers.broker_messages import (
    AdvertiseConfirmed,
    AdvertiseRequest,
    ClientDropped,
    Confirmed,
    End,
    Notification,
    SubscribeRequest,
    Unadvertise,
)
from regraft.schemas.command import CommandPhase, Outcome
from tests.scenarios.step_by_step import ALL, StepByStep

LINE = TreeConfiguration.of(0, "abc", [("a", "b"), ("b", "c")])
WITHOUT_C = LINE.replaced(1, [("b", "c")], [], change=BrokerChange(left=frozenset("c")))
AGAIN = WITHOUT_C.replaced(2, [], [("b", "c")], change=BrokerChange(joined=frozenset("c")))


@pytest.fixture
def line() -> StepByStep:
    """Return three brokers; at a and c is a publisher and a subscriber each, and c may leave its own behind."""
    brokers = StepByStep(LINE)
    brokers.cores["c"].leave_clients()
    for broker in "ac":
        brokers.feed(broker, None, SubscribeRequest(f"s-{broker}", f"s-{broker}", ALL))
        brokers.feed(broker, None, AdvertiseRequest(f"p-{broker}", ALL))
    brokers.run()
    return brokers


def prepare(brokers: StepByStep) -> None:
    for broker in "abc":
        brokers.command(broker, CommandPhase.PREPARE, WITHOUT_C)
        brokers.run()


def got_by(brokers: StepByStep, subscription: str) -> list[tuple[str, int]]:
    return sorted((publisher, sequence) for name, publisher, sequence in brokers.got if name == subscription)


def dropped_at_c(brokers: StepByStep) -> list[Any]:
    return [effect for at, effect in brokers.client_effects if at == "c" and isinstance(effect, ClientDropped)]


def test_without_that_a_broker_refuses_to_leave_clients_behind() -> None:
    brokers = StepByStep(LINE)
    brokers.feed("c", None, SubscribeRequest("s", "s", ALL))
    brokers.command("c", CommandPhase.PREPARE, WITHOUT_C)
    assert brokers.answers == [("c", Outcome.REFUSED)]


def test_everything_of_the_old_epoch_reaches_the_clients_left_behind(line: StepByStep) -> None:
    """Also if it arrives after the broker has switched; publishers end with the switch, subscriptions at the end."""
    prepare(line)
    line.command("c", CommandPhase.PREPARE, WITHOUT_C)  # Commands are repeated.
    assert line.answered(Outcome.PREPARED) == set("abc")
    line.publish("c", "p-c", symbol="A")
    line.publish("a", "p-a", symbol="A")
    line.command("c", CommandPhase.ACTIVATE, WITHOUT_C)
    assert dropped_at_c(line) == [ClientDropped("p-c", 0, is_over=True)]
    published, bundle = line.links["c", "b"]
    assert isinstance(published, Notification)
    assert [type(message) for message in bundle.messages] == [Unadvertise, End]
    line.publish("c", "p-c", symbol="A")  # Too late.
    for broker in "ab":
        line.command(broker, CommandPhase.ACTIVATE, WITHOUT_C)
    line.publish("a", "p-a", symbol="A")  # Of the new epoch.
    line.run()
    assert got_by(line, "s-c") == [("p-a", 0), ("p-c", 0)]
    assert got_by(line, "s-a") == [("p-a", 0), ("p-a", 1), ("p-c", 0)]
    assert line.answered(Outcome.DRAINED) == set("abc")
    for broker in "abc":
        line.command(broker, CommandPhase.RETIRE, WITHOUT_C)
    assert dropped_at_c(line)[1:] == [ClientDropped("s-c", 0, is_over=True)]
    assert [line.publishers_at(broker) for broker in "abc"] == [{"p-a": 0}, {"p-a": 0}, {}]
    assert line.cores["c"].routing.clients_here() == {}


@pytest.mark.parametrize("has_sent_ends", [False, True])
def test_a_broker_that_dies_before_it_has_left_leaves_nothing_behind(line: StepByStep, has_sent_ends: bool) -> None:
    """It has switched, and its publishers have ended; neither has to have reached others before it dies."""
    prepare(line)
    line.command("c", CommandPhase.ACTIVATE, WITHOUT_C)
    if has_sent_ends:
        line.cross("c", "b")  # The end of its publisher, ahead of END.
    line.links["c", "b"].clear()
    line.lose_peer("b", "c")
    for phase in (CommandPhase.ACTIVATE, CommandPhase.RETIRE):
        for broker in "ab":
            line.command(broker, phase, WITHOUT_C, lost_brokers=("c",))
        line.links["b", "c"].clear()
        line.run()
    assert line.answered(Outcome.RETIRED) == set("ab")
    assert [line.publishers_at(broker) for broker in "ab"] == [{"p-a": 0}, {"p-a": 0}]
    line.publish("a", "p-a", symbol="A")
    line.run()
    assert got_by(line, "s-a") == [("p-a", 0)]


def test_an_abort_takes_nothing_from_the_clients(line: StepByStep) -> None:
    """They are served all the time; one that came meanwhile is refused, and served from then on if it asks again."""
    prepare(line)
    line.publish("a", "p-a", symbol="A")
    line.feed("c", None, SubscribeRequest("late", "late", ALL))
    assert dropped_at_c(line) == [ClientDropped("late", 0)]
    for broker in "cba":
        line.command(broker, CommandPhase.ABORT, WITHOUT_C)
    line.feed("c", None, SubscribeRequest("later", "later", ALL))
    line.run()
    assert Confirmed("later") in line.effects_of(Confirmed)
    line.publish("a", "p-a", symbol="A")
    line.publish("c", "p-c", symbol="A")
    line.run()
    assert got_by(line, "s-c") == [("p-a", 0), ("p-a", 1), ("p-c", 0)]
    assert got_by(line, "later") == [("p-a", 1), ("p-c", 0)]
    assert got_by(line, "s-a")[-1] == ("p-c", 0)


def test_a_readmitted_broker_serves_the_same_clients_again(line: StepByStep) -> None:
    """The next stays of its publishers wait for no end of the earlier ones."""
    line.execute(WITHOUT_C)
    line.execute(AGAIN)
    line.feed("c", None, SubscribeRequest("s-c.1", "s-c.1", ALL))
    line.feed("c", None, AdvertiseRequest("p-c", ALL, 1))
    line.run()
    assert AdvertiseConfirmed("p-c", 1) in line.effects_of(AdvertiseConfirmed)
    line.publish("c", "p-c", symbol="A")
    line.publish("a", "p-a", symbol="A")
    line.run()
    assert got_by(line, "s-a") == [("p-a", 0), ("p-c", 0)]
    assert got_by(line, "s-c.1") == [("p-a", 0), ("p-c", 0)]
