"""Two controllers on a real Kafka with emulated brokers: whatever happens to the leader, plans are executed once."""

import os
import signal
import time
from itertools import pairwise
from pathlib import Path

import pytest

from regraft.infra.local.kafka_server import start_kafka
from regraft.schemas.plan import PlanPhase
from regraft.schemas.plan_life import LIFE
from tests.controller.failover_site import HELD, SESSION_MS, FailoverSite
from tests.wait_until import wait_until


def end_leader_in(site: FailoverSite, phase: PlanPhase, *, is_killed: bool) -> None:
    """Kill or suspend the leader while a plan is in the phase, let the other take over, then resume the first."""
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
def test_whatever_happens_to_the_leader_each_plan_is_executed_once(tmp_path: Path) -> None:
    """Killed, or suspended and resumed, in each phase: no command of a term follows a higher one's, nothing is lost."""
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


@pytest.mark.stack
@pytest.mark.parametrize("is_killed", [False, True])
def test_controllers_survive_an_outage_of_kafka_longer_than_a_session(tmp_path: Path, *, is_killed: bool) -> None:
    """Kafka suspended for several sessions, or killed and restarted, in the middle of a plan: then one leads again."""
    with start_kafka(tmp_path) as kafka, FailoverSite(kafka.access, tmp_path) as site:
        instances = [site.start(), site.start()]
        before = site.wait_for_term_above(0)
        wait_until(lambda: {instance.is_standby for instance in instances} == {True, False})
        epoch = site.bring_to(PlanPhase.DRAINING)
        group = os.getpgid(kafka.supervisor.pid("kafka") or 0)
        if is_killed:
            os.killpg(group, signal.SIGKILL)
            wait_until(lambda: kafka.supervisor.restarts("kafka") == 1 and kafka.supervisor.is_ready("kafka"))
        else:
            os.killpg(group, signal.SIGSTOP)
            time.sleep(4 * SESSION_MS / 1_000)
            os.killpg(group, signal.SIGCONT)
        site.release()
        wait_until(lambda: site.is_completed(epoch))
        assert [instance.process.poll() for instance in instances] == [None, None]
        wait_until(lambda: {instance.is_standby for instance in instances} == {True, False})
        assert site.term.term >= before.term
        account, commands = site.account(), site.commands
    assert (account.lost, account.repeated, account.out_of_order) == (0, 0, 0)
    terms = [command.term for command in commands]
    assert terms == sorted(terms)
