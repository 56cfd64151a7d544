"""Users move and IDs are reassigned on an emulated ring: no loss, no repeat, all in order, at a known price."""

from __future__ import annotations

import math

import pytest

from regraft.overlay.ring.ring_configuration import RingConfiguration, id_moves_between
from tests.producers.ring_overlays import RingRun


@pytest.mark.parametrize("seed", range(4))
def test_reassignments_and_moves_under_traffic_lose_nothing(seed: int) -> None:
    """Three plans exchange all IDs and move a third of the users, while users change their topics."""
    run = RingRun(12, 8, 40, seed)
    run.live(4_000.0)
    for _ in range(3):
        target = run.random_target()
        run.execute(target, run.random_moves(13))
        run.virtual.run_for(200.0)
    run.virtual.run_for(3_000.0)
    account = run.virtual.finish()
    assert account.final
    assert account.is_clean, account
    assert account.expected > 10_000
    assert run.overlay.users.counts.moved >= 30
    assert {core.epoch for core in run.virtual.cores.values()} == {3}
    assert all(core.state.tables[3].configuration == run.ring for core in run.virtual.cores.values())


def test_users_are_at_their_new_homes_with_all_their_topics() -> None:
    """The old homes have forgotten them."""
    run = RingRun(9, 6, 20, 7)
    moves = run.random_moves(10)
    target = RingConfiguration(1, run.ring.bits, run.ring.brokers, run.ring.ids)
    run.execute(target, moves)
    cores = run.virtual.cores
    for move in moves:
        assert run.overlay.users.home_of(move.client) == move.home_to
        assert len([one for one in cores[move.home_to].state.locals.values() if one.user == move.client]) == 3
        assert not [one for one in cores[move.home_from].state.locals.values() if one.user == move.client]


def test_a_reassignment_sends_no_more_messages_than_the_papers_bound() -> None:
    """Zhao13, Eq. 7, without the commands: (log2^2 V + P log2 V) for each broker that moves."""
    run = RingRun(16, 20, 60, 3)
    before = {name: core.control_messages_sent for name, core in run.virtual.cores.items()}
    target = run.random_target()
    moved = len(id_moves_between(run.ring, target))
    run.execute(target)
    sent = sum(core.control_messages_sent - before[name] for name, core in run.virtual.cores.items())
    steps = math.log2(16)
    assert 0 < sent <= (steps**2 + 20 * steps) * moved


def test_users_that_end_and_return_during_a_plan_are_served() -> None:
    """A user that is asked to move leaves, and returns to its old home under the same name."""
    run = RingRun(6, 4, 10, 5)
    moves = run.random_moves(5)
    virtual = run.virtual
    for move in moves:
        gone = virtual.env.timeout(3.0)
        gone.callbacks.append(lambda _, user=move.client: run.overlay.users.disconnect(user))  # type: ignore[misc]
        again = virtual.env.timeout(9.0)
        again.callbacks.append(
            lambda _, user=move.client, home=move.home_from: run.overlay.users.connect(user, home, run.some_topics())
        )  # type: ignore[misc]
    run.live(2_000.0, changes_share=0.0)
    run.execute(RingConfiguration(1, run.ring.bits, run.ring.brokers, run.ring.ids), moves)
    virtual.run_for(3_000.0)
    account = virtual.finish()
    assert account.is_clean, account
    assert account.final


def test_what_a_dying_broker_held_is_accounted_for_and_nothing_is_repeated() -> None:
    """Its users wait for it, what had to cross it is lost with a reason; nothing is repeated or out of order."""
    run = RingRun(10, 6, 30, 11)
    run.live(3_000.0, changes_share=0.0)
    run.virtual.run_for(1_000.0)
    run.overlay.kill("b03", 50.0)
    run.virtual.run_for(4_000.0)
    account = run.virtual.finish()
    assert account.repeated == account.out_of_order == account.unexpected == 0
    assert account.excused == account.lost
    assert run.overlay.users.waiting_count == sum(run.overlay.users.home_of(user) == "b03" for user in run.users) > 0
