"""Rare orders in which a tree withdraws a subscription from a neighbour, and publishers connect or end meanwhile.

In all of them ``s`` is a subscription that a plan withdraws from links that lead to no publisher of the new epoch.
"""

from __future__ import annotations

import pytest

from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.producers.brokers.broker_messages import (
    AdvertiseConfirmed,
    AdvertiseRequest,
    Cancelled,
    CancelRequest,
    LeaveRequest,
    SubscribeRequest,
    UnadvertiseRequest,
    Unsubscribe,
)
from regraft.schemas.command import CommandPhase, Outcome
from regraft.schemas.plan import ClientMove
from tests.scenarios.step_by_step import ALL, StepByStep

PAIR = TreeConfiguration.of(0, ["b0", "b1"], [("b0", "b1")])
LINE = TreeConfiguration.of(0, ["b0", "b1", "b2"], [("b0", "b1"), ("b1", "b2")])
LONG = TreeConfiguration.of(0, ["b0", "b1", "b2", "b3"], [("b0", "b1"), ("b1", "b2"), ("b2", "b3")])
STAR = TreeConfiguration.of(0, ["b0", "b1", "b2", "b3"], [("b0", "b1"), ("b1", "b2"), ("b1", "b3")])
PREPARE, ACTIVATE, RETIRE = CommandPhase.PREPARE, CommandPhase.ACTIVATE, CommandPhase.RETIRE


def subscribed_at_b0(tree: TreeConfiguration, publisher_home: str) -> tuple[StepByStep, TreeConfiguration]:
    """Return a publisher p, the subscription s at b0, and the same tree as the target of a plan."""
    overlay = StepByStep(tree)
    overlay.feed(publisher_home, None, AdvertiseRequest("p", ALL))
    overlay.run()
    overlay.feed("b0", None, SubscribeRequest("s", "u", ALL))
    overlay.run()
    return overlay, tree.replaced(1, [], [])


def assert_that_s_leaves_nothing_behind(overlay: StepByStep, target: TreeConfiguration) -> None:
    """Execute the rest of the plan after its prepare, let p leave its old home, and end s."""
    overlay.execute(target, phases=(ACTIVATE,))
    overlay.feed("b1", None, LeaveRequest("p"))
    overlay.run()
    overlay.execute(target, phases=(RETIRE,))
    assert overlay.answered(Outcome.RETIRED) == set(overlay.brokers)
    overlay.feed("b0", None, CancelRequest("s"))
    overlay.run()
    assert not any(core.state.tables[1].entries for core in overlay.cores.values())


def come_and_end(overlay: StepByStep, home: str) -> None:
    """Connect and end a publisher q at once."""
    overlay.feed(home, None, AdvertiseRequest("q", ALL))
    overlay.feed(home, None, UnadvertiseRequest("q"))


def test_what_a_neighbour_derives_behind_a_broker_that_has_released_it_is_withdrawn() -> None:
    """b1 holds s in the old epoch only when it passes it on to b2, which has yet to prepare."""
    overlay, target = subscribed_at_b0(LINE, "b1")
    moves = (ClientMove("p", "b1", "b0"),)
    for broker in ("b1", "b0"):  # b0 withdraws s from b1.
        overlay.command(broker, PREPARE, target, moves)
        overlay.run()
    come_and_end(overlay, "b2")
    overlay.run(held=[("b1", "b0")])
    overlay.command("b2", PREPARE, target, moves)
    overlay.run()
    assert_that_s_leaves_nothing_behind(overlay, target)


def test_what_a_neighbour_derives_behind_a_broker_that_is_releasing_it_is_withdrawn() -> None:
    """The order is the same while b1 waits for b2 to release s, and passes s on to b3."""
    overlay, target = subscribed_at_b0(STAR, "b1")
    moves, slow = (ClientMove("p", "b1", "b2"),), [("b2", "b1")]
    for broker in ("b1", "b2"):  # b1 sends s to b2.
        overlay.command(broker, PREPARE, target, moves)
        overlay.run()
    overlay.feed("b1", None, UnadvertiseRequest("p"))
    overlay.run()
    overlay.command("b0", PREPARE, target, moves)  # Withdraws s from b1, and that from b2.
    overlay.run(held=slow)
    come_and_end(overlay, "b3")
    overlay.run(held=slow)
    overlay.command("b3", PREPARE, target, moves)
    overlay.run()
    assert_that_s_leaves_nothing_behind(overlay, target)


def test_a_broker_does_not_derive_what_was_already_withdrawn_from_it() -> None:
    """b2 had s in the new epoch only; when s comes in the old one, b1 waits for the answer to its withdrawal."""
    overlay, target = subscribed_at_b0(LINE, "b1")
    moves, slow = (ClientMove("p", "b1", "b2"),), [("b2", "b1")]
    come_and_end(overlay, "b2")
    for broker in ("b1", "b2"):  # b1 sends s to b2.
        overlay.command(broker, PREPARE, target, moves)
        overlay.run(held=slow)
    overlay.feed("b1", None, UnadvertiseRequest("p"))
    overlay.run(held=slow)
    overlay.command("b0", PREPARE, target, moves)  # Withdraws s from b1, and that from b2.
    overlay.run(held=slow)
    overlay.cross("b2", "b1")  # Announces q: b1 sends s to b2 in the old epoch.
    overlay.run(held=slow)
    overlay.run()
    assert_that_s_leaves_nothing_behind(overlay, target)


def test_a_subscription_that_returns_while_a_broker_is_releasing_it_is_taken_afterwards() -> None:
    """b1 has withdrawn what b2 derived, and is asked for s again for a publisher beyond; b3 has yet to prepare."""
    overlay, target = subscribed_at_b0(LONG, "b1")
    moves = (ClientMove("p", "b1", "b0"),)
    for broker in ("b1", "b2", "b0"):  # b0 withdraws s from b1.
        overlay.command(broker, PREPARE, target, moves)
        overlay.run()
    overlay.feed("b3", None, AdvertiseRequest("q", ALL))
    overlay.run()
    overlay.command("b3", PREPARE, target, moves)
    overlay.run()
    assert AdvertiseConfirmed("q", 0) in overlay.effects_of(AdvertiseConfirmed)
    overlay.execute(target, phases=(ACTIVATE,))
    overlay.publish("b3", "q", symbol="A")
    overlay.run()
    assert overlay.got == [("s", "q", 0)]
    assert_that_s_leaves_nothing_behind(overlay, target)


def test_a_subscription_that_ends_while_it_is_withdrawn_is_withdrawn_once() -> None:
    """The neighbour answers once, too: a second answer could be taken for that to a later withdrawal."""
    overlay, target = subscribed_at_b0(LINE, "b2")
    overlay.command("b1", PREPARE, target, (ClientMove("p", "b2", "b0"),))  # Withdraws s from b2.
    overlay.feed("b0", None, CancelRequest("s"))
    overlay.cross("b0", "b1")
    assert list(overlay.links["b1", "b2"]) == [Unsubscribe(1, "s"), Unsubscribe(0, "s")]


def test_an_unfinished_withdrawal_is_repeated_in_the_epoch_of_the_next_plan() -> None:
    """The answer comes after END, which it need not precede: b1 must not assume that b0 derives s."""
    overlay, slow = StepByStep(PAIR), [("b0", "b1")]
    overlay.feed("b1", None, AdvertiseRequest("q", ALL))
    overlay.feed("b1", None, SubscribeRequest("s", "u", ALL))
    overlay.run()
    first, moves = PAIR.replaced(1, [], []), (ClientMove("p", "b0", "b1"),)
    overlay.command("b1", PREPARE, first, moves)
    overlay.feed("b0", None, AdvertiseRequest("p", ALL))
    overlay.cross("b0", "b1")  # b1 sends s in the old epoch, and withdraws it in the new one.
    overlay.feed("b0", None, UnadvertiseRequest("p"))
    overlay.command("b0", PREPARE, first, moves)
    overlay.cross("b0", "b1")
    for broker in ("b0", "b1"):
        overlay.command(broker, ACTIVATE, first)
    overlay.cross("b0", "b1")
    overlay.run(held=slow)
    for broker in ("b0", "b1"):
        overlay.command(broker, RETIRE, first)
    assert overlay.answered(Outcome.RETIRED) == {"b0", "b1"}
    assert overlay.links["b0", "b1"]
    second = first.replaced(2, [], [])
    overlay.command("b1", PREPARE, second, (ClientMove("q", "b1", "b0"),))
    overlay.run()
    overlay.command("b0", PREPARE, second, (ClientMove("q", "b1", "b0"),))
    overlay.run()
    overlay.execute(second, phases=(ACTIVATE,))
    overlay.feed("b1", None, LeaveRequest("q"))
    overlay.publish("b0", "q", symbol="A")
    overlay.run()
    assert overlay.got == [("s", "q", 0)]


def test_a_publisher_waits_for_what_is_sent_again_in_the_old_epoch_although_the_new_one_has_it() -> None:
    """b1 is still releasing s in the epoch in which its publisher q will publish; b0 is prepared for the next."""
    overlay = StepByStep(LINE)
    overlay.feed("b0", None, SubscribeRequest("s", "u", ALL))
    first, moves = LINE.replaced(1, [], []), (ClientMove("p", "b2", "b0"),)
    for broker in ("b0", "b1"):
        overlay.command(broker, PREPARE, first, moves)
    overlay.feed("b2", None, AdvertiseRequest("p", ALL))
    overlay.run(held=[("b1", "b2")])  # b0 sends s in the old epoch, and withdraws it in the new one; so does b1.
    overlay.feed("b2", None, UnadvertiseRequest("p"))
    overlay.command("b2", PREPARE, first, moves)
    for broker in overlay.brokers:
        overlay.command(broker, ACTIVATE, first)
    overlay.run(held=[("b1", "b2")])
    overlay.run(held=[("b2", "b1")])
    for broker in overlay.brokers:
        overlay.command(broker, RETIRE, first)
    assert overlay.answered(Outcome.RETIRED) == set(overlay.brokers)
    overlay.feed("b1", None, AdvertiseRequest("q", ALL))
    second = first.replaced(2, [], [])
    for broker in ("b0", "b1"):
        overlay.command(broker, PREPARE, second)
    overlay.run(held=[("b2", "b1")])
    overlay.run(held=[("b1", "b0")])  # b1 has finally released s, and b2 knows q.
    assert overlay.effects_of(AdvertiseConfirmed) == []
    overlay.run()
    assert overlay.effects_of(AdvertiseConfirmed) == [AdvertiseConfirmed("q", 0)]
    overlay.publish("b1", "q", symbol="A")
    overlay.run()
    assert overlay.got == [("s", "q", 0)]


@pytest.mark.parametrize("is_released_first", [False, True])
def test_what_a_broker_has_withdrawn_without_holding_it_is_sent_again_after_its_release(
    is_released_first: bool,
) -> None:
    """b1 has released s in the new epoch, withdraws it from b2, which derives it, and then gets s again.

    p is at b4, next to b1 in the old tree and next to b0 in the new one. q connects at b3, which prepares later unless
    b2 should answer before s returns. If s were sent on to b2 before that, b2 would keep it forever.
    """
    brokers = ["b0", "b1", "b2", "b3", "b4"]
    old = TreeConfiguration.of(0, brokers, [("b0", "b1"), ("b1", "b4"), ("b1", "b2"), ("b2", "b3")])
    target = old.replaced(1, [("b1", "b4")], [("b0", "b4")])
    overlay = StepByStep(old)
    overlay.feed("b4", None, AdvertiseRequest("p", ALL))
    overlay.run()
    overlay.feed("b0", None, SubscribeRequest("s", "u", ALL))
    overlay.run()
    for broker in ("b1", "b2", "b0"):
        overlay.command(broker, PREPARE, target)
        overlay.run()
    overlay.feed("b3", None, AdvertiseRequest("q", ALL))
    overlay.run(held=[("b1", "b0")] if is_released_first else [])
    if is_released_first:
        overlay.command("b3", PREPARE, target)
        overlay.run(held=[("b1", "b0")])
        overlay.run()
    else:
        overlay.feed("b0", None, CancelRequest("s"))
        overlay.run()
        assert not overlay.effects_of(Cancelled)  # b2 waits for b3, and the brokers before it for b2.
        overlay.command("b3", PREPARE, target)
        overlay.run()
    overlay.command("b4", PREPARE, target)
    overlay.run()
    if is_released_first:
        overlay.feed("b0", None, CancelRequest("s"))
        overlay.run()
    assert overlay.answered(Outcome.PREPARED) == set(brokers)
    assert overlay.effects_of(Cancelled) == [Cancelled("s")]
    assert not any(core.state.tables[1].entries for core in overlay.cores.values())
