"""A node leaves the overlay although clients of its broker stay there, and comes back."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from structlog.testing import capture_logs

from regraft.controller.execute.transition import SendCommand, Transition
from regraft.controller.settings.controller_settings import TransitionLimits
from regraft.overlay.overlay_configuration import BrokerChange, OverlayConfiguration
from regraft.overlay.scot.scot_configuration import ScotConfiguration
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.producers.brokers.broker_reports import BrokerPhase
from regraft.producers.nodes.connectors.connector import LocalMessage
from regraft.schemas.command import Command, CommandPhase
from regraft.schemas.plan import Plan, PlanPhase
from tests.producers.nodes.node_fleet import run_on_site
from tests.producers.nodes.test_broker_node import MemorySite, run_site
from tests.producers.nodes.test_nodes_beside_brokers import LINE, RealSite

DRAINED = "b03"
PAIRS = ScotConfiguration(0, (("b01", "b02"), ("b03", "b04")), ((0, 1),))
WITHOUT: dict[OverlayConfiguration, OverlayConfiguration] = {
    LINE: TreeConfiguration.of(1, ("b01", "b02", "b04"), [("b01", "b02"), ("b02", "b04")]),
    PAIRS: ScotConfiguration(1, (("b01", "b02"), ("b01", "b04")), ((0, 1),)),
}


@pytest.mark.stack
@pytest.mark.parametrize("overlay", WITHOUT, ids=["tree", "scot"])
def test_a_drained_node_ends_its_clients_and_takes_nothing_from_others(
    overlay: OverlayConfiguration, tmp_path: Path
) -> None:
    """Others get everything. What crosses to and from the drained server is all that was published before some time."""

    async def steps(site: RealSite) -> None:
        for node in site.fleet.nodes.values():
            node.congestion.set_detours(False)  # On a busy machine detours would change the order.
        others = tuple(broker for broker in site.brokers if broker != DRAINED)
        stop = asyncio.Event()
        publishing = asyncio.create_task(site.publish_until(stop))
        await asyncio.sleep(0.3)
        before = dict(site.published)
        while any(len(site.ledger.came.get((a, b), ())) < before[a] for a in site.brokers for b in site.brokers):
            await asyncio.sleep(0.02)
        with capture_logs() as logs:
            await change(site, WITHOUT[overlay], BrokerChange(left=frozenset({DRAINED})))
        left = [each for each in logs if each["event"] == "overlay_left"]
        assert [(each["broker"], each["subjects_unserved"]) for each in left] == [(DRAINED, 1)]
        await asyncio.sleep(0.3)
        stop.set()
        await publishing
        while len(site.ledger.came[DRAINED, DRAINED]) < site.published[DRAINED]:
            await asyncio.sleep(0.02)
        while site.ledger.account(site.owed(others) | crossed(site, others, before))["lost"]:
            await asyncio.sleep(0.02)
        await site.all_there(others)
        assert site.ledger.account(site.owed(others) | crossed(site, others, before)).total() == 0
        assert not site.fleet.nodes[DRAINED].core.takes_clients
        assert site.ledger.came[DRAINED, DRAINED] == [*range(site.published[DRAINED])]
        await change(site, overlay.at_epoch(2), BrokerChange(joined=frozenset({DRAINED})))
        await site.fleet.all_confirmed()
        since = dict(site.published)
        for broker in site.brokers:
            await site.publish(broker)
        while any(site.ledger.came[a, b][-1] < since[a] for a in site.brokers for b in site.brokers):
            await asyncio.sleep(0.02)
        account = site.ledger.account(site.owed())
        assert (account["repeated"], account["out_of_order"], account["unexpected"]) == (0, 0, 0)

    run_on_site(RealSite("nats", tmp_path, overlay), steps)


async def change(site: RealSite, target: OverlayConfiguration, change: BrokerChange) -> None:
    plan = await site.fleet.execute(target, change)
    assert plan.phase is PlanPhase.VERIFYING


def crossed(site: RealSite, others: Sequence[str], before: dict[str, int]) -> dict[tuple[str, str], range]:
    """Return what has come to and from the drained server as what is owed: without a gap, and at least what is in
    ``before``; other servers got the same from there.
    """
    came = site.ledger.came
    end = max(before[DRAINED], *(len(came[DRAINED, each]) for each in others))
    to = {(each, DRAINED): range(max(len(came[each, DRAINED]), before[each])) for each in others}
    own = {(DRAINED, DRAINED): range(site.published[DRAINED])}
    return to | own | {(DRAINED, each): range(end) for each in others}


def test_an_aborted_drain_takes_nothing_from_clients_and_serves_those_that_came_meanwhile() -> None:
    """A client that subscribes at the leaving node waits for the end of the plan, however that ends."""

    async def steps(site: MemorySite) -> None:
        await site.fleet.all_confirmed()
        node, connector = site.fleet.nodes[DRAINED], site.connectors[DRAINED]
        prepare = prepare_of(DRAINED, LINE, WITHOUT[LINE], BrokerChange(left=frozenset({DRAINED})))
        before = dict(site.fleet.ports[DRAINED].clients.connected)
        node.obey(prepare)
        assert node.core.phase is BrokerPhase.PREPARED
        connector.want("late.*")
        for broker in site.connectors:
            site.publish(broker)
        await site.all_there()
        assert len(node.core.routing.clients_here()) == 2  # type: ignore[attr-defined]  # The broker, data.*
        node.obey(msgspec.structs.replace(prepare, phase=CommandPhase.ABORT))
        await site.fleet.all_confirmed()
        site.connectors["b01"].publish_locally(LocalMessage("late.b01", b"0"))
        while connector.handed[-1].subject != "late.b01":
            await asyncio.sleep(0.01)
        assert set(before) < set(site.fleet.ports[DRAINED].clients.connected)  # Nobody has left.

    run_site(steps, LINE)


def prepare_of(
    broker: str, before: OverlayConfiguration, target: OverlayConfiguration, change: BrokerChange
) -> Command:
    """Return what the controller sends a broker first."""
    plan = Plan("plan-1", 0, 1, 0, (), (), (), (), 0.0, 0.0, PlanPhase.PREPARING, ())
    transition = Transition(target.as_target(plan, before), target, TransitionLimits(), 1, change)
    sent = [effect.command for effect in transition.start(0) if isinstance(effect, SendCommand)]
    return next(command for command in sent if command.broker == broker)
