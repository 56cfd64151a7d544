"""Two controllers on a real Kafka with emulated brokers: whatever happens to the leader, plans are carried out once."""

import signal
from itertools import pairwise
from pathlib import Path

import pytest

from infra.kafka_server import start_kafka
from schemas.plan import PlanPhase
from schemas.plan_life import LIFE
from tests.controller.failover_site import HELD, FailoverSite
from tests.wait_until import wait_until


def end_leader_in(site: FailoverSite, phase: PlanPhase, *, is_killed: bool) -> None:
    """Kill or suspend whoever leads while a plan is in the phase, let the other go on, then wake the first."""
    before, epoch = site.term, site.bring_to(phase)
    leader = site.instances[before.leader]
    leader.send(signal.SIGKILL if is_killed else signal.SIGSTOP)
    after = site.wait_for_term_above(before.term)
    assert after.leader != before.leader
    site.release()
    if is_killed:
        site.start()
    else:
        leader.send(signal.SIGCONT)
        wait_until(lambda: leader.is_standby is True)
        assert leader.process.poll() is None
    wait_until(lambda: site.is_completed(epoch))


@pytest.mark.stack
def test_whatever_happens_to_the_leader_each_plan_is_carried_out_once(tmp_path: Path) -> None:
    """Killed, or suspended and woken, in each phase: no command of a term after a higher one's, nothing lost."""
    with start_kafka(tmp_path) as kafka, FailoverSite(kafka.access, tmp_path) as site:
        site.start()
        site.wait_for_term_above(0)
        standby = site.start()
        wait_until(lambda: standby.is_standby is True)
        for phase in HELD:
            for is_killed in (False, True):
                end_leader_in(site, phase, is_killed=is_killed)
        account, plans, commands = site.account(), site.plans, site.commands
    assert (account.lost, account.repeated, account.out_of_order) == (0, 0, 0)
    assert account.delivered > 0
    terms = [command.term for command in commands]
    assert terms == sorted(terms)
    assert len(set(terms)) >= 2 * len(HELD)
    assert len(plans) >= 2 * len(HELD)
    for plan in plans[: 2 * len(HELD)]:
        phases = [change.phase for change in plan.history]
        assert phases[0] is PlanPhase.PREPARING
        assert all(later in LIFE[earlier].next for earlier, later in pairwise(phases))
        assert phases[-1] is PlanPhase.COMPLETED
