"""The ledger of real clients detects each gap, repeat and disorder; a death excuses only what it cut."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

from hypothesis import given
from hypothesis import strategies as st

from regraft.producers.emulator.ledger import LedgerSnapshot
from regraft.producers.real_fleet.client_ledger import (
    FIRST_S_MAX,
    LEAVE_S_MAX,
    AgentDeath,
    ClientLedger,
    Death,
    LinkOutage,
)

SECOND = 1_000.0


def ledger_of(published: int, every_ms: float = 100.0) -> ClientLedger:
    """Return a ledger of one publisher at b01 and one subscription s at b02, both confirmed from the beginning."""
    ledger = ClientLedger()
    ledger.add_publisher("p", "b01")
    ledger.begin("s", "p", "b02", 0.0)
    ledger.note_confirmed("p", "b02", 0.0)
    for number in range(published):
        assert ledger.publish("p", number * every_ms) == number
    return ledger


def closed(ledger: ClientLedger, now_ms: float) -> LedgerSnapshot:
    ledger.leave_all(now_ms)
    for name in ledger.leaving():
        ledger.end(name, now_ms)
    return ledger.snapshot(now_ms)


@given(
    st.lists(st.integers(0, 19), max_size=40),
    st.integers(0, 19),
)
def test_every_sequence_of_arrivals_is_accounted_for(arrivals: list[int], first: int) -> None:
    """After the first arrival missing ones are lost, and earlier ones count as repeated or out of order."""
    ledger = ledger_of(20)
    for number in (first, *arrivals):
        ledger.hand_over("s", number, 5_000.0)
    account = closed(ledger, 5_000.0)
    owed = set(range(first, 20))
    came = {first, *arrivals}
    assert account.lost == len(owed - came)
    assert account.delivered == len(owed & came)
    assert account.expected == account.delivered + account.lost
    assert account.repeated + account.out_of_order >= len(arrivals) + 1 - len(owed & came)
    in_order = [first, *arrivals] == sorted({first, *arrivals})
    assert (account.repeated == account.out_of_order == 0) is in_order
    assert account.final


def test_order_that_a_detour_has_changed_is_counted_separately() -> None:
    """A copy that took a detour, or came behind one, may be late; any other is an error."""
    ledger = ledger_of(40)
    ledger.note_detour("p", 33, "b02")
    ledger.note_detour("p", 35, "b02")
    ledger.note_detour("p", 38, "b03")  # To another broker.
    for number in (30, 33, 31, 32, 34, 36, 35, 38, 37, 39):
        ledger.hand_over("s", number, 5_000.0)
    account = closed(ledger, 5_000.0)
    assert (account.delivered, account.lost, account.repeated) == (10, 0, 0)
    assert (account.out_of_order, account.out_of_order_on_detours) == (4, 3)
    assert not account.is_clean


def test_what_is_late_and_not_owed_is_no_repeat() -> None:
    """Before the overlay confirms a subscription, a detour may bring later notifications first; twice is an error."""
    ledger = ledger_of(5)
    ledger.note_confirmed("p", "b02", 300.0)
    for number in (0, 4, 1, 1):
        ledger.hand_over("s", number, 5_000.0)
    account = closed(ledger, 5_000.0)
    assert (account.delivered, account.lost, account.out_of_order, account.repeated) == (2, 1, 1, 1)


def test_what_a_detour_has_brought_before_a_subscription_is_not_owed() -> None:
    """The first to come was published first, but a later one was faster: it was there before the client subscribed."""
    for detours, lost in (([], 1), ([3], 0)):
        ledger = ledger_of(40)
        for number in detours:
            ledger.note_detour("p", number, "b02")
        ledger.begin("t", "p", "b02", 1_000.0)
        for number in (2, *range(4, 40)):
            ledger.hand_over("t", number, 5_000.0)
        ledger.leave("t", 5_000.0)
        ledger.end("t", 5_000.0)
        assert ledger.snapshot(5_000.0).lost == lost


def test_missing_messages_are_lost_once_an_account_is_given_up() -> None:
    """The account is then final, and the loss is unexcused."""
    ledger = ledger_of(3)
    ledger.hand_over("s", 0, 300.0)
    ledger.give_up(500.0)
    account = ledger.snapshot(500.0)
    assert (account.final, account.lost, account.excused, account.delivered) == (True, 2, 0, 1)


def test_messages_after_an_account_is_closed_change_nothing() -> None:
    """A subscription that got nothing in time may end; a first message during its end leaves it owed nothing."""
    ledger = ledger_of(3)
    ledger.leave("s", 300.0)
    assert ledger.may_end("s", 300.0)
    ledger.end("s", 300.0)
    ledger.hand_over("s", 0, 400.0)
    ledger.forget("s")
    ledger.hand_over("s", 1, 500.0)
    account = ledger.snapshot(500.0)
    assert (account.lost, account.delivered, account.concurrent, account.unexpected) == (0, 0, 1, 1)


def test_a_client_leaves_once_it_has_everything_or_waited_long_enough() -> None:
    """What is published after its request to leave is not owed."""
    ledger = ledger_of(3)
    ledger.hand_over("s", 0, 300.0)
    ledger.leave("s", 300.0)
    ledger.publish("p", 400.0)
    ledger.hand_over("s", 1, 500.0)
    assert not ledger.may_end("s", 500.0)
    assert ledger.may_end("s", 301.0 + LEAVE_S_MAX * SECOND)
    ledger.hand_over("s", 2, 600.0)
    ledger.hand_over("s", 3, 600.0)
    assert ledger.may_end("s", 600.0)
    ledger.end("s", 600.0)
    account = ledger.snapshot(600.0)
    assert (account.expected, account.delivered, account.lost, account.concurrent) == (3, 3, 0, 1)


def test_a_subscription_that_never_receives_has_lost_later_messages() -> None:
    """A deaf subscription is detected although nothing confirms when it begins to count."""
    every_ms = 1_000.0
    late = int(FIRST_S_MAX) + 5
    account = closed(ledger_of(late, every_ms), late * every_ms)
    assert account.lost == 5


def separation(part_of: Mapping[str, int]) -> Callable[[str, str], bool]:
    """Return what says whether two brokers are left in different parts."""
    return lambda one, other: part_of.get(one) != part_of.get(other)


def death(repaired_ms: float, returned_ms: float) -> Death:
    """Return the death of b03 at 10 s, which separates b01 and b04 from b02."""
    return Death("b03", 10_000.0, [separation({"b01": 0, "b04": 0, "b02": 1})], repaired_ms, returned_ms)


def test_a_death_excuses_what_had_to_cross_it_until_the_repair() -> None:
    """This is from shortly before the death, between parts but not within one; for its own clients until it returns."""
    one = death(20_000.0, 30_000.0)
    assert one.excuses("b01", "b02", 12_000.0)
    assert not one.excuses("b01", "b02", 1_000.0)
    assert not one.excuses("b01", "b02", 25_000.0)
    assert not one.excuses("b01", "b04", 12_000.0)
    assert one.excuses("b03", "b04", 25_000.0)
    assert one.excuses("b04", "b03", 25_000.0)
    assert not one.excuses("b03", "b04", 40_000.0)
    one.held_since_ms = 3_000.0
    assert one.excuses("b01", "b02", 1_000.0)
    assert not one.excuses("b01", "b04", 1_000.0)
    assert not one.excuses("b01", "b04", 9_000.0)
    one.separations.append(
        separation({"b01": 0, "b04": 1, "b02": 1})
    )  # A plan is under way: either overlay may have carried it.
    assert one.excuses("b01", "b04", 9_000.0)


def test_only_what_a_death_cut_is_excused() -> None:
    """Of 40 s of notifications those around the death are missing and excused; one more is missing and is an error."""
    ledger = ledger_of(400)
    ledger.deaths.append(death(20_000.0, 20_000.0))
    rng = random.Random(1)
    cut = set(range(100, 200))
    for number in sorted(set(range(400)) - cut - {300}):
        ledger.hand_over("s", number, number * 100.0 + rng.uniform(0, 50))
    account = closed(ledger, 41_000.0)
    assert (account.lost, account.excused, account.is_clean) == (101, 100, False)
    assert account.lost_by_reason == {"broker_died": 100, "unknown": 1}


def test_only_clients_beside_a_dead_agent_are_excused() -> None:
    """Of two subscriptions that miss what was published around the death, and later, one is beside the agent."""
    ledger = ledger_of(400)
    ledger.begin("beside", "p", "b02", 0.0)
    ledger.agent_deaths.append(AgentDeath("b02", "beside".__eq__, 10_000.0, 15_000.0))
    for number in sorted(set(range(400)) - set(range(100, 200)) - {300}):
        for name in ("s", "beside"):
            ledger.hand_over(name, number, number * 100.0)
    ledger.leave_all(41_000.0)
    ledger.end("beside", 41_000.0)
    assert (ledger.snapshot(41_000.0).lost, ledger.snapshot(41_000.0).excused) == (101, 100)
    account = closed(ledger, 41_000.0)
    assert account.lost_by_reason == {"agent_died": 100, "unknown": 102}


def test_the_time_to_receive_begins_with_the_repair() -> None:
    """A subscription during a death is owed nothing before the overlay is repaired, and everything afterwards.

    One at the dead broker is owed nothing before that is in the overlay again.
    """
    for home, repaired_ms, returned_ms, lost in (
        ("b04", 30_000.0, 30_000.0, 0),
        ("b04", 25_000.0, 25_000.0, 50),
        ("b03", 15_000.0, 30_000.0, 0),
        ("b03", 15_000.0, 25_000.0, 50),
    ):
        ledger = ledger_of(400)
        ledger.deaths.append(death(repaired_ms, returned_ms))
        ledger.begin("late", "p", home, 12_000.0)
        for number in range(400):
            ledger.hand_over("s", number, number * 100.0)
        ledger.leave_all(39_000.0)
        ledger.end("late", 39_000.0)
        assert ledger.snapshot(39_000.0).lost == lost


def test_messages_before_the_confirmation_do_not_count_as_first() -> None:
    """A subscription that follows another at the same broker may get messages on their way to that one, then a gap."""
    ledger = ledger_of(20)
    for number in range(20):
        ledger.hand_over("s", number, 2_000.0)
    ledger.leave("s", 2_000.0)
    ledger.begin("next", "p", "b02", 2_000.0)
    ledger.end("s", 2_000.0)
    ledger.note_confirmed("p", "b02", None)
    for number in range(20, 40):
        ledger.publish("p", number * 100.0)
    for number in (20, 21):
        ledger.hand_over("next", number, number * 100.0)
    ledger.note_confirmed("p", "b02", 2_450.0)
    for number in (*range(25, 30), *range(31, 40)):
        ledger.hand_over("next", number, number * 100.0)
    account = closed(ledger, 5_000.0)
    assert (account.lost, account.repeated, account.out_of_order) == (1, 0, 0)
    assert (account.delivered, account.expected) == (36, 37)


def test_what_is_owed_does_not_depend_on_delays() -> None:
    """On a busy machine everything arrives 20 s late: what was published 10 s after the beginning is owed."""
    ledger = ledger_of(200)
    ledger.note_confirmed("p", "b02", None)
    for number in (20, 21, *range(25, 150), *range(151, 200)):
        ledger.hand_over("s", number, 20_000.0 + number * 100.0)
    account = closed(ledger, 41_000.0)
    assert account.lost == 1


def test_a_busy_machine_is_distinguished_from_a_slow_link() -> None:
    """Late arrivals mean that publishers must wait, except during and shortly after a slow link."""
    ledger = ledger_of(3)
    ledger.hand_over("s", 0, 100.0)
    assert not ledger.is_late(100.0)
    ledger.hand_over("s", 1, 5_000.0)
    assert ledger.is_late(5_500.0)
    assert not ledger.is_late(6_100.0)
    ledger.link_outages.append(LinkOutage(1_000.0, 2_000.0))
    assert not ledger.is_late(5_500.0)
