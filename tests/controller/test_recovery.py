"""On a real Kafka: neither killed and restarted brokers nor lost plans end the adaptation."""

import time
from pathlib import Path

import pytest

from regraft.infra.local.kafka_server import start_kafka
from regraft.schemas.plan import PlanPhase
from tests.controller.failover_site import PATIENCE_S
from tests.controller.recovery_site import RecoverySite
from tests.wait_until import wait_until

QUIET_S = 1.0  # within which a controller decides on the newest window


def wait_for_next_plan(site: RecoverySite) -> int:
    """Wait until a plan newer than all so far is completed, and return its epoch."""
    before = max((plan.epoch_to for plan in site.plans), default=0)

    def done() -> bool:
        return any(plan.epoch_to > before and plan.phase is PlanPhase.COMPLETED for plan in site.plans)

    wait_until(done, PATIENCE_S)
    return max(plan.epoch_to for plan in site.plans if plan.phase is PlanPhase.COMPLETED)


def settle(site: RecoverySite) -> int:
    """Let no further plan begin, wait until the newest is completed, and return its epoch."""

    def is_settled() -> bool:
        is_over = site.plans[-1].phase is PlanPhase.COMPLETED
        site.are_windows_held = is_over  # A plan that has begun meanwhile needs windows for its verification.
        return is_over and site.plans[-1].phase is PlanPhase.COMPLETED

    while True:
        wait_until(is_settled, PATIENCE_S)
        time.sleep(QUIET_S)
        if is_settled():
            return site.plans[-1].epoch_to


@pytest.mark.stack
def test_killed_brokers_and_lost_plans_do_not_end_adaptation(tmp_path: Path) -> None:
    """Brokers are killed while the controller runs; then the plans are lost, the start is refused, and plans recovered.

    A member that has not reported yet, and whose agent has no topics, blocks nothing.
    """
    with start_kafka(tmp_path) as kafka, RecoverySite(kafka.access, tmp_path) as site:
        site.start_brokers()
        controller = site.start()
        for _ in range(2):
            epoch = wait_for_next_plan(site)
            site.kill_brokers()
            site.start_brokers()
            assert site.epoch is not None
            assert site.epoch >= epoch
        wait_for_next_plan(site)
        epoch = settle(site)
        controller.end()

        site.lose_plans()
        site.add_member("x99", "nowhere")
        site.are_windows_held = False
        refused = site.start()
        assert refused.process.wait(PATIENCE_S) == 1
        assert "The stored plans lag behind the brokers" in refused.log_file.read_text()
        shown = site.recover()
        assert f"epoch 0 -> {epoch}" in shown.stdout, shown.stderr
        assert "Nothing was written" in shown.stdout
        assert site.plans == []
        written = site.recover("--yes")
        assert "Written" in written.stdout, written.stderr
        assert [(plan.epoch_to, plan.phase) for plan in site.plans] == [(epoch, PlanPhase.COMPLETED)]
        assert "Nothing to recover" in site.recover().stdout

        site.start()
        assert wait_for_next_plan(site) > epoch
