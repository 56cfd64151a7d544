"""The ledger detects planted losses, repeats and disorder, and owes exactly what was confirmed and not cancelled."""

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regraft.producers.brokers.broker_messages import UNSTAMPED_EPOCH, Notification
from regraft.producers.brokers.match_content import Operator, Predicate
from regraft.producers.emulator.ledger import Ledger, LedgerSnapshot

WANTS_A = (Predicate("symbol", Operator.EQ, "A"),)
SETTLE_MS = 100.0


def notification(sequence: int, publish_ms: float, symbol: str = "A") -> Notification:
    return Notification("p", sequence, publish_ms, "home", UNSTAMPED_EPOCH, {"symbol": symbol}, 10)


def ledger_with(*subscriptions: str) -> Ledger:
    ledger = Ledger(SETTLE_MS)
    for name in subscriptions:
        ledger.confirm(name, WANTS_A, 0.0)
    return ledger


def test_a_complete_delivery_is_clean() -> None:
    """Everything owed was delivered once and in order."""
    ledger = ledger_with("s1", "s2")
    for sequence in range(3):
        message = notification(sequence, 1.0 + sequence)
        assert ledger.publish(message) == 2
        for name in ("s1", "s2"):
            ledger.deliver(message, name, 5.0 + sequence)
    account = ledger.close()
    assert account.is_clean
    assert account == LedgerSnapshot(3, 6, 6, delivery_ms_mean=4.0, delivery_ms_max=4.0, final=True)


def test_a_planted_loss_is_found_once_it_is_old_enough() -> None:
    """A missing delivery is outstanding while recent, then lost, with the reason if it is known."""
    ledger = ledger_with("s1", "s2")
    explained, unexplained = notification(0, 1.0), notification(1, 2.0)
    for message in (explained, unexplained):
        ledger.publish(message)
        ledger.deliver(message, "s1", 3.0)
    ledger.drop(explained, "queue_overflow")
    ledger.settle(50.0)
    young = ledger.snapshot()
    assert (young.lost, young.outstanding) == (0, 2)
    ledger.settle(200.0)
    old = ledger.snapshot()
    assert (old.lost, old.outstanding) == (2, 0)
    assert old.lost_by_reason == {"queue_overflow": 1, "unexplained": 1}
    assert not old.is_clean


def test_a_late_delivery_revokes_its_loss() -> None:
    """A delivery after the settle time counts as delivered, and only once."""
    ledger = ledger_with("s1")
    message = notification(0, 1.0)
    ledger.publish(message)
    ledger.settle(500.0)
    assert ledger.snapshot().lost == 1
    ledger.deliver(message, "s1", 600.0)
    ledger.settle(601.0)
    assert (ledger.snapshot().lost, ledger.snapshot().delivered) == (0, 1)
    ledger.deliver(message, "s1", 700.0)
    assert ledger.close().repeated == 1


def test_a_planted_repeat_is_found_however_late() -> None:
    """A second delivery is a repeat even after the account of the notification was closed."""
    ledger = ledger_with("s1")
    message = notification(0, 1.0)
    ledger.publish(message)
    ledger.deliver(message, "s1", 2.0)
    ledger.deliver(message, "s1", 3.0)
    ledger.settle(500.0)
    ledger.deliver(message, "s1", 501.0)
    account = ledger.close()
    assert (account.delivered, account.repeated, account.lost) == (1, 2, 0)


def test_planted_disorder_is_found() -> None:
    """Sequence numbers of one publisher must grow at each subscription; gaps are allowed."""
    ledger = ledger_with("s1")
    messages = [notification(sequence, 1.0) for sequence in range(4)]
    for message in messages:
        ledger.publish(message)
    for sequence in (0, 3, 1, 2):
        ledger.deliver(messages[sequence], "s1", 2.0)
    assert ledger.close().out_of_order == 2


@pytest.mark.parametrize(("by_detour", "excused"), [((), 0), ((0,), 1), ((1,), 1), ((3,), 2), ((0, 1, 2, 3), 3)])
def test_only_detours_excuse_disorder(by_detour: tuple[int, ...], excused: int) -> None:
    """At one subscription 1 comes first, then 0, then 3, and then 2; at another one only 2 after 3.

    A detour excuses the notification that took it and those it overtook, no others of the publisher.
    """
    ledger = ledger_with("s1", "s2")
    for number in range(4):
        ledger.publish(notification(number, 1.0))
    for name, numbers in (("s1", (1, 0, 3, 2)), ("s2", (0, 1, 3, 2))):
        for number in numbers:
            ledger.deliver(replace(notification(number, 1.0), is_detour=number in by_detour), name, 2.0)
    account = ledger.close()
    assert (account.out_of_order, account.out_of_order_on_detours) == (3, excused)
    assert account.is_clean is (excused == 3)


def test_deliveries_that_were_never_owed_are_unexpected() -> None:
    """Deliveries of unpublished or unmatched notifications are counted separately."""
    ledger = ledger_with("s1")
    other = notification(0, 1.0, symbol="B")
    assert ledger.publish(other) == 0
    ledger.deliver(other, "s1", 2.0)
    ledger.deliver(notification(99, 1.0), "s1", 2.0)
    account = ledger.close()
    assert (account.unexpected, account.delivered, account.expected) == (2, 0, 0)


def test_confirmation_and_cancellation_bound_what_is_owed() -> None:
    """Owed is what is published after the confirmation and not after the cancellation, at exact times."""
    ledger = Ledger(SETTLE_MS)
    ledger.confirm("s1", WANTS_A, 10.0)
    assert ledger.publish(notification(0, 10.0)) == 0
    assert ledger.publish(notification(1, 10.1)) == 1
    ledger.cancel("s1", 20.0)
    assert ledger.publish(notification(2, 20.0)) == 1
    assert ledger.publish(notification(3, 20.1)) == 0
    ledger.cancel("never confirmed", 21.0)
    assert ledger.publish(notification(4, 22.0)) == 0


@pytest.mark.parametrize("are_released", [True, False])
def test_memory_is_bounded_in_a_long_run(*, are_released: bool) -> None:
    """Finished accounts and ended subscriptions are dropped; open and lingering ones are kept up to a limit."""
    ledger = Ledger(SETTLE_MS, overdue_count_max=5, lingering_count_max=10)
    for number in range(2_000):
        now_ms = 10.0 * number
        name = f"s{number}"
        ledger.confirm(name, WANTS_A, now_ms)
        message = notification(number, now_ms + 1)
        ledger.publish(message)
        if number % 10:
            ledger.deliver(message, name, now_ms + 2)
        ledger.cancel(name, now_ms + 3)
        if are_released:
            ledger.release(name, now_ms + 3)
        ledger.settle(now_ms + 4)
    assert len(ledger._lingering) == (0 if are_released else 10)
    sizes = (ledger._accounts, ledger._young, ledger._overdue, ledger._index, ledger._newest_got, ledger._gone)
    assert all(len(each) <= 30 for each in (*sizes, ledger._lives))
    assert ledger.close().lost == 200


@given(st.integers(0, 10**6))
def test_any_mix_of_errors_is_counted_exactly(seed: int) -> None:
    """Of random deliveries, exactly those that were left out are lost, and those that were doubled are repeats."""
    rng = random.Random(seed)
    names = [f"s{number}" for number in range(rng.randint(1, 4))]
    ledger = ledger_with(*names)
    lost = repeated = 0
    for sequence in range(20):
        message = notification(sequence, 1.0 + sequence)
        ledger.publish(message)
        for name in names:
            times = rng.choice((0, 1, 1, 1, 2))
            lost += times == 0
            repeated += times == 2
            for _ in range(times):
                ledger.deliver(message, name, 2.0 + sequence)
        if rng.random() < 0.3:
            ledger.settle(sequence + rng.choice((0.0, 200.0)))
    account = ledger.close()
    assert (account.lost, account.repeated, account.out_of_order, account.unexpected) == (lost, repeated, 0, 0)
    assert account.expected == account.delivered + account.lost


def test_a_delivery_published_before_the_confirmation_arrived_is_no_error() -> None:
    """It is counted once; repeats, disorder and deliveries that do not match are still detected."""
    ledger = Ledger(SETTLE_MS)
    early, later, other = notification(0, 1.0), notification(1, 3.0), notification(2, 1.5, symbol="B")
    ledger.publish(early)
    ledger.publish(other)
    ledger.confirm("s", WANTS_A, 2.0)
    ledger.publish(later)
    ledger.deliver(early, "s", 4.0)
    ledger.deliver(later, "s", 5.0)
    account = ledger.snapshot()
    assert (account.concurrent, account.delivered) == (1, 1)
    assert account.is_clean
    ledger.deliver(early, "s", 6.0)
    ledger.deliver(other, "s", 7.0)
    account = ledger.snapshot()
    assert (account.concurrent, account.repeated, account.unexpected) == (1, 1, 1)


def test_a_delivery_published_before_the_cancellation_arrived_is_no_error() -> None:
    """It may be delivered once and in order, but is not owed."""
    ledger = ledger_with("s")
    before, after = notification(0, 1.0), notification(1, 3.0)
    ledger.publish(before)
    ledger.cancel("s", 2.0)
    assert ledger.publish(after) == 0
    ledger.deliver(after, "s", 4.0)
    ledger.deliver(before, "s", 5.0)
    account = ledger.snapshot()
    assert (account.delivered, account.concurrent, account.out_of_order) == (1, 1, 1)


def test_a_subscription_that_ends_before_it_is_confirmed_is_owed_nothing() -> None:
    """Its home did not know of the end yet and may have delivered notifications meanwhile."""
    ledger = Ledger(SETTLE_MS)
    message = notification(0, 1.0)
    ledger.publish(message)
    ledger.confirm_ended("s", 2.0)
    ledger.deliver(message, "s", 3.0)
    later = notification(1, 4.0)
    assert ledger.publish(later) == 0
    assert ledger.close().is_clean


def test_a_subscription_confirmed_by_one_of_two_homes_is_owed_nothing() -> None:
    """Deliveries until the other home confirms it may come once and in order; anything else is unexpected."""
    ledger = Ledger(SETTLE_MS)
    ledger.confirm_partly("s", WANTS_A)
    early, foreign, later = notification(0, 1.0), notification(1, 2.0, "B"), notification(2, 4.0)
    assert ledger.publish(early) == 0
    assert ledger.publish(foreign) == 0
    ledger.deliver(early, "s", 3.0)
    ledger.confirm("s", WANTS_A, 3.0)
    assert ledger.publish(later) == 1
    ledger.deliver(later, "s", 5.0)
    ledger.deliver(foreign, "s", 6.0)
    account = ledger.close()
    assert (account.delivered, account.concurrent, account.unexpected) == (1, 1, 1)


def test_a_partly_confirmed_subscription_that_ends_is_dropped_once_settled() -> None:
    ledger = Ledger(SETTLE_MS)
    ledger.confirm_partly("s", WANTS_A)
    message = notification(0, 1.0)
    ledger.publish(message)
    ledger.cancel("s", 2.0)
    ledger.deliver(message, "s", 3.0)
    assert ledger.close().is_clean
    ledger.release("s", 3.0)
    ledger.settle(3.0 + SETTLE_MS)
    assert not ledger._lives


def test_deliveries_to_an_ended_subscription_are_no_error_until_its_home_releases_it() -> None:
    """Deliveries long after the release are unexpected: the subscription is unknown by then."""
    ledger = ledger_with("s", "other")
    ledger.cancel("s", 2.0)
    for sequence, publish_ms in enumerate((3.0, 3.0 + 5 * SETTLE_MS)):
        message = notification(sequence, publish_ms)
        ledger.publish(message)
        ledger.settle(publish_ms + 1.0)
        ledger.deliver(message, "s", publish_ms + 1.0)
    account = ledger.snapshot()
    assert (account.concurrent, account.unexpected) == (2, 0)
    ledger.release("s", 10 * SETTLE_MS)
    ledger.settle(12 * SETTLE_MS)
    late = notification(2, 12 * SETTLE_MS)
    ledger.publish(late)
    ledger.deliver(late, "s", 12 * SETTLE_MS)
    assert ledger.snapshot().unexpected == 1


def test_a_home_that_releases_a_moved_subscription_ends_nothing() -> None:
    ledger = ledger_with("s")
    ledger.release("s", 1.0)
    ledger.cancel("s", 2.0)
    ledger.publish(notification(0, 3.0))
    ledger.settle(2.0 + 5 * SETTLE_MS)
    assert "s" in ledger._lives
