"""On the emulator, too, only full queues lose notifications, and nothing is repeated, however late commands are."""

from functools import cache

import pytest

from regraft.producers.emulator.emulate_overlay import QUEUE_OVERFLOW
from regraft.producers.emulator.ledger import LedgerSnapshot
from tests.scenarios.any_order_run import RING, TREE
from tests.scenarios.random_overlays import RandomOverlay


@cache
def with_full_queues(kind: str, seed: int) -> tuple[RandomOverlay, LedgerSnapshot]:
    """Return a run with short queues and long services that has ended, and its account."""
    run = RandomOverlay(seed, kind, delay_ms_max=100.0, queue_length_max=8, service_ms_max=3.0, ends=False)
    return run, run.run()


@pytest.mark.parametrize(("kind", "seed"), [(TREE, seed) for seed in range(30)] + [(RING, seed) for seed in range(70)])
def test_late_and_repeated_commands_lose_nothing(kind: str, seed: int) -> None:
    """Commands and answers are late, repeated and out of order, and clients connect and leave: the ledger is clean."""
    run = RandomOverlay(seed, kind, delay_ms_max=(30.0, 300.0, 1_000.0)[seed % 3], ends=False)
    account = run.run()
    run.check_alive()
    assert account.final
    assert account.is_clean, account
    assert account.expected > 100


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("kind", [TREE, RING])
def test_publishers_that_end_and_return_lose_nothing(kind: str, seed: int) -> None:
    """Publishers that end, even between two homes, and return under their names are served as the first time."""
    run = RandomOverlay(seed, kind, delay_ms_max=100.0)
    account = run.run()
    run.check_alive()
    assert account.final
    assert account.is_clean, account
    assert run.returns > 0


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("kind", [TREE, RING])
def test_full_queues_drop_and_nothing_else_fails(kind: str, seed: int) -> None:
    """What a full queue drops is lost for that reason; all else comes once and in order, and plans are executed."""
    run, account = with_full_queues(kind, seed)
    run.check_alive()
    assert account.final
    assert set(account.lost_by_reason) <= {QUEUE_OVERFLOW}
    assert (account.repeated, account.unexpected, account.out_of_order, account.outstanding) == (0, 0, 0, 0)


def test_runs_exercise_what_they_claim() -> None:
    """Queues do overflow, plans are executed and aborted, clients move, commands are repeated."""
    ended = [with_full_queues(kind, seed) for kind in (TREE, RING) for seed in range(6)]
    runs, accounts = [run for run, _ in ended], [account for _, account in ended]
    phases = [str(plan.phase) for run in runs for plan in run.controller.log.plans]
    assert sum(account.lost_by_reason.get(QUEUE_OVERFLOW, 0) for account in accounts) > 50
    assert phases.count("verifying") >= 20
    assert phases.count("aborted") >= 3
    assert sum(run.overlay.publishers.moves.moved for run in runs) >= 5
    assert sum(run.overlay.users.counts.moved for run in runs) >= 5
