"""Homes of a moving subscription: which of them its client still listens to."""

import itertools

from regraft.producers.emulator.subscriber_clients import HomesInTurn


def moved(*homes: str) -> HomesInTurn:
    """Return what is known of a subscription "s" that has moved from one of these homes to the next."""
    turns = HomesInTurn(ended_kept_max=1)
    for home, home_to in itertools.pairwise(homes):
        turns.move("s", home, home_to)
    return turns


def test_a_subscription_that_never_moves_takes_everything() -> None:
    turns = HomesInTurn()
    assert turns.takes("s", "b1")
    assert turns.takes("s", "b2")


def test_the_old_home_is_heard_until_the_next_one_hands_over_something() -> None:
    turns = moved("b1", "b2")
    assert [turns.takes("s", broker) for broker in ("b1", "b1", "b2", "b1", "b2")] == [True, True, True, False, True]
    assert turns.ignored_count == 1


def test_every_earlier_home_is_passed_over() -> None:
    """The middle home has handed over nothing: the topic was quiet."""
    turns = moved("b1", "b2", "b3")
    assert [turns.takes("s", broker) for broker in ("b3", "b2", "b1")] == [True, False, False]


def test_a_subscription_may_return_to_an_earlier_home() -> None:
    turns = moved("b1", "b2")
    assert turns.takes("s", "b2")
    turns.move("s", "b2", "b1")
    assert [turns.takes("s", broker) for broker in ("b2", "b1", "b2")] == [True, True, False]


def test_a_move_that_is_aborted_changes_nothing() -> None:
    turns = moved("b1", "b2")
    turns.move("s", "b1", "b3")
    assert [turns.takes("s", broker) for broker in ("b1", "b3", "b1")] == [True, True, False]


def test_other_subscriptions_are_not_concerned() -> None:
    turns = moved("b1", "b2")
    assert turns.takes("s", "b2")
    assert turns.takes("t", "b1")


def test_only_the_last_ended_subscriptions_are_remembered() -> None:
    turns = moved("b1", "b2")
    turns.move("t", "b1", "b2")
    turns.end("never moved")
    for name in ("s", "t"):
        assert turns.takes(name, "b2")
        turns.end(name)
        assert not turns.takes(name, "b1")
    assert turns.takes("s", "b1")
