"""Clients of real NATS servers move to others by plans, through their agents: nothing lost, repeated or reordered."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from regraft.infra.local.make_certificates import LocalAuthority
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.producers.agents.agent import Agent
from regraft.producers.agents.agent_metrics import AgentMetrics
from regraft.producers.agents.broker_address import BrokerAddress
from regraft.producers.agents.move_subscription import MovingSubscription
from regraft.producers.nodes import agent_clients
from regraft.schemas.plan import ClientMove, PlanPhase
from tests.producers.nodes.nats_servers import NatsServer, needs_nats
from tests.producers.nodes.nats_site import NatsSite, nats_site
from tests.producers.nodes.node_fleet import NodeLedger
from tests.wait_until import PATIENCE_S

pytestmark = pytest.mark.stack

BROKERS = ("b01", "b02", "b03", "b04")
LINE = TreeConfiguration.of(0, BROKERS, [("b01", "b02"), ("b02", "b03"), ("b03", "b04")])
DELAYS_S = {"b02": 0.020, "b03": 0.010, "b04": 0.060}


def agent_at(site: NatsSite, home: str) -> Agent:
    brokers = {name: BrokerAddress(name, "127.0.0.1", server.client_port) for name, server in site.servers.items()}
    return Agent("web1", brokers, home)


async def until(condition: Any) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.01)


async def settle(ledger: NodeLedger, owed: dict[tuple[str, str], range]) -> None:
    """Wait until nothing is missing, and then for what should not come."""
    with suppress(TimeoutError):
        await until(lambda: not ledger.account(owed)["lost"])
    await asyncio.sleep(0.5)


def reasons_shown(agent: Agent) -> set[str]:
    """Return why clients stay as the agent's metrics show it."""
    metrics = AgentMetrics()
    metrics.show(agent)
    (family,) = (each for each in metrics.registry.collect() if each.name == "regraft_agent_clients_staying")
    return {sample.labels["reason"] for sample in family.samples if sample.value}


def registered(site: NatsSite, broker: str) -> list[str]:
    return [name for name, client in site.fleet.ports[broker].clients.connected.items() if client.may_move]


def test_a_subscriber_moves_without_loss_while_everybody_publishes(tmp_path: Path) -> None:
    needs_nats()
    asyncio.run(_move_a_subscriber(tmp_path))


async def _move_a_subscriber(tmp_path: Path) -> None:
    import nats

    async with nats_site(tmp_path, LINE, DELAYS_S) as site:
        agent = agent_at(site, "b02")
        await agent.start("127.0.0.1", 0)
        client = await nats.connect(f"nats://127.0.0.1:{agent.port}")
        ledger, numbers = NodeLedger(), dict.fromkeys(BROKERS, 0)

        async def receive(message: Any) -> None:
            ledger.take(message.subject, "moved", int(message.data))

        async def stay(broker: str, message: Any) -> None:
            ledger.take(message.subject, broker, int(message.data))

        for broker, other in site.clients.items():
            await other.subscribe("data.*", cb=partial(stay, broker))
        await site.fleet.all_want()
        await client.subscribe("data.*", cb=receive)
        await client.flush()
        await until(lambda: len(registered(site, "b02")) == 1)
        await site.fleet.all_confirmed()
        stop = asyncio.Event()

        async def publish() -> None:
            while not stop.is_set():
                for broker in BROKERS:
                    await site.clients[broker].publish(f"data.{broker}", b"%d" % numbers[broker])
                    numbers[broker] += 1
                await asyncio.sleep(0.002)

        publishing = asyncio.create_task(publish())
        home = "b02"
        for target in ("b04", "b01", "b03", "b02"):
            await asyncio.sleep(0.3)
            name = registered(site, home)[0]
            moved_count = agent.counts["subscriptions_moved"]
            plan = await site.fleet.change_to(LINE.links, moves=[ClientMove(name, home, target)])
            assert plan.phase is PlanPhase.VERIFYING, plan.history
            await until(lambda count=moved_count: agent.counts["subscriptions_moved"] == count + 1)
            assert registered(site, target) == [name]
            home = target
        await asyncio.sleep(0.5)
        stop.set()
        await publishing
        await site.flush()
        receivers = (*BROKERS, "moved")
        owed = {(f"data.{broker}", each): range(numbers[broker]) for broker in BROKERS for each in receivers}
        await settle(ledger, owed)
        assert not any(ledger.account(owed).values())
        await client.close()
        await agent.close()
        assert not site.fleet.failures


def test_a_broker_is_emptied_of_clients_that_publish_and_subscribe(tmp_path: Path) -> None:
    """All clients of a broker leave it in one plan that exchanges links, too; equal messages are counted."""
    needs_nats()
    asyncio.run(_empty_a_broker(tmp_path))


OTHER = [("b01", "b03"), ("b02", "b03"), ("b01", "b04")]


class MovingClients:
    """Clients beside one agent: each gets everything, and publishes its own numbers."""

    def __init__(self, agent: Agent, count: int) -> None:
        self.agent, self.names = agent, [f"c{number}" for number in range(count)]
        self.ledger, self.numbers = NodeLedger(), dict.fromkeys(self.names, 0)
        self.equal_count = dict.fromkeys(self.names, 0)
        self.clients: dict[str, Any] = {}

    async def connect(self) -> None:
        import nats

        for name in self.names:
            client = self.clients[name] = await nats.connect(f"nats://127.0.0.1:{self.agent.port}")
            await client.subscribe(">" if name == "c0" else "data.>", cb=partial(self._receive, name))
            await client.subscribe("same.*", cb=partial(self._count, name))
            await client.flush()

    async def _receive(self, receiver: str, message: Any) -> None:
        if not message.subject.startswith("same."):  # A client that wants everything gets nothing of agents.
            number = int(message.data) if message.subject.startswith("data.") else -1
            self.ledger.take(message.subject, receiver, number)

    async def _count(self, receiver: str, _message: Any) -> None:
        self.equal_count[receiver] += 1

    async def close(self) -> None:
        for client in self.clients.values():
            await client.close()
        await self.agent.close()

    async def publish(self) -> None:
        for name, client in self.clients.items():
            await client.publish(f"data.{name}", b"%d" % self.numbers[name])
            self.numbers[name] += 1


async def _empty_a_broker(tmp_path: Path) -> None:
    async with nats_site(tmp_path, LINE, DELAYS_S) as site:
        agent = agent_at(site, "b02")
        await agent.start("127.0.0.1", 0)
        moving = MovingClients(agent, 5)
        numbers, stop = dict.fromkeys(BROKERS, 0), asyncio.Event()

        for broker in BROKERS:
            await site.clients[broker].subscribe("data.>", cb=partial(moving._receive, broker))
        await site.fleet.all_want()
        await moving.connect()
        await until(lambda: len(registered(site, "b02")) == 10)
        await site.fleet.all_confirmed()

        async def publish() -> None:
            while not stop.is_set():
                for broker in BROKERS:
                    await site.clients[broker].publish(f"data.{broker}", b"%d" % numbers[broker])
                    await site.clients[broker].publish(f"same.{broker}", b"ok")
                    numbers[broker] += 1
                await moving.publish()
                await asyncio.sleep(0.003)

        publishing = asyncio.create_task(publish())
        home = "b02"
        for target, links in (("b03", OTHER), ("b04", LINE.links), ("b02", OTHER)):
            await asyncio.sleep(0.5)
            names = registered(site, home)
            assert len(names) == 10
            plan = await site.fleet.change_to(links, moves=[ClientMove(name, home, target) for name in names])
            assert plan.phase is PlanPhase.VERIFYING, plan.history
            await until(lambda target=target: {session.homes.home for session in agent.sessions} == {target})
            assert sorted(registered(site, target)) == sorted(names)
            home = target
        await asyncio.sleep(0.5)
        stop.set()
        await publishing
        await site.flush()
        published = numbers | moving.numbers
        receivers = (*BROKERS, *moving.names)
        owed = {(f"data.{name}", each): range(count) for name, count in published.items() for each in receivers}
        await settle(moving.ledger, owed)
        account = moving.ledger.account(owed)
        assert not any(account.values()), account
        await until(lambda: min(moving.equal_count.values()) >= sum(numbers.values()))
        assert set(moving.equal_count.values()) == {sum(numbers.values())}
        await moving.close()
        assert not site.fleet.failures


def test_a_client_stays_if_the_next_broker_refuses_its_login(tmp_path: Path) -> None:
    """The plan is aborted at once, with the reason; what is published meanwhile comes as before."""
    needs_nats()
    asyncio.run(_refuse_a_login(tmp_path))


async def _refuse_a_login(tmp_path: Path) -> None:
    async with nats_site(tmp_path, LINE) as site:
        agent = agent_at(site, "b02")
        with NatsServer("strict", tmp_path, "authorization { user: others, password: secret }") as strict:
            agent.brokers["b04"] = BrokerAddress("b04", "127.0.0.1", strict.client_port)
            await agent.start("127.0.0.1", 0)
            moving = MovingClients(agent, 1)
            await moving.connect()
            await until(lambda: len(registered(site, "b02")) == 2)
            moves = [ClientMove(name, "b02", "b04") for name in registered(site, "b02")]
            plan = await site.fleet.change_to(LINE.links, moves=moves)
            assert plan.phase is PlanPhase.ABORTED
            assert "cannot take it to its next home" in plan.history[1].reason
            assert {session.homes.home for session in agent.sessions} == {"b02"}
            for _ in range(10):
                await moving.publish()
            await until(lambda: len(moving.ledger.came.get(("data.c0", "c0"), ())) == 10)
            await until(lambda: not any(session.moves.moving for session in agent.sessions))
            await moving.close()


def test_clients_that_two_brokers_cannot_serve_stay(tmp_path: Path) -> None:
    """A queue group belongs to its broker; so does a client that uses JetStream or refuses its own messages.

    The agent shows why, and lets nodes know that have registered one before.
    """
    needs_nats()
    asyncio.run(_keep_some(tmp_path))


async def _keep_some(tmp_path: Path) -> None:
    import nats

    async with nats_site(tmp_path, LINE) as site:
        agent = agent_at(site, "b02")
        await agent.start("127.0.0.1", 0)
        url, groups = f"nats://127.0.0.1:{agent.port}", []
        worker, streamer = await nats.connect(url), await nats.connect(url)
        deaf = await nats.connect(url, no_echo=True)

        async def note(message: Any) -> None:
            groups.append(message.data)

        await worker.subscribe("work", queue="workers", cb=note)
        await streamer.subscribe("data.*")
        await streamer.flush()
        await until(lambda: len(registered(site, "b02")) == 1)
        moves = [ClientMove(name, "b02", "b03") for name in registered(site, "b02")]
        await streamer.publish("$JS.API.INFO", b"")
        await deaf.subscribe("data.*")
        for client in (worker, streamer, deaf):
            await client.flush()
        assert reasons_shown(agent) == {"no_echo", "queue_group", "server_subjects"}
        assert agent.counts["clients_that_stay"] == 2
        await until(lambda: not registered(site, "b02"))
        assert (await site.fleet.change_to(LINE.links, moves=moves)).phase is PlanPhase.ABORTED
        await site.clients["b02"].publish("work", b"1")
        await until(lambda: groups == [b"1"])
        for client in (worker, streamer, deaf):
            await client.close()
        await agent.close()


MOMENTS: dict[str, Callable[[MovingSubscription], bool]] = {
    "counting": lambda move: move.is_counting,
    "switched": lambda move: move.switched_from and move.switched_to,
}


@pytest.mark.parametrize("which", ["old", "next"])
@pytest.mark.parametrize("moment", ["ordered", *MOMENTS])
def test_clients_go_on_when_a_broker_dies_while_they_move(which: str, moment: str, tmp_path: Path) -> None:
    """They restart at the other one; nothing is repeated, whatever the plan was doing."""
    needs_nats()
    asyncio.run(_kill_one(tmp_path, which, moment))


async def _kill_one(tmp_path: Path, which: str, moment: str) -> None:
    async with nats_site(tmp_path, LINE, DELAYS_S) as site:
        agent = agent_at(site, "b02")
        await agent.start("127.0.0.1", 0)
        moving = MovingClients(agent, 2)
        await moving.connect()
        await until(lambda: len(registered(site, "b02")) == 4)
        moves = [ClientMove(name, "b02", "b03") for name in registered(site, "b02")]
        site.fleet.may_retire.clear()  # Behind the end of the plan its clients would be elsewhere.
        change = asyncio.create_task(site.fleet.change_to(LINE.links, moves=moves))
        await asyncio.sleep(0)

        def is_reached() -> bool:
            under_way = [move for session in agent.sessions for move in session.moves.moving.values()]
            return len(under_way) == len(moves) and all(map(MOMENTS[moment], under_way))

        if moment in MOMENTS:
            await until(is_reached)
        lost, left = ("b02", "b03") if which == "old" else ("b03", "b02")
        site.servers[lost].stop()
        site.fleet.may_retire.set()
        await until(lambda: {session.homes.home for session in agent.sessions} == {left})
        number = 0

        def all_hear() -> bool:
            came = [moving.ledger.came.get(("data.b01", name), []) for name in moving.names]
            return all(len(numbers) > 20 for numbers in came)

        async with asyncio.timeout(PATIENCE_S):
            while not all_hear():
                await site.clients["b01"].publish("data.b01", b"%d" % number)
                number += 1
                await asyncio.sleep(0.01)
        for numbers in moving.ledger.came.values():
            assert len(numbers) == len(set(numbers))
        change.cancel()
        await moving.close()


def test_both_sides_may_be_encrypted_and_log_in(tmp_path: Path) -> None:
    """Each client has its own login at the broker; an agent does not accept a broker of another authority."""
    needs_nats()
    asyncio.run(_encrypt(tmp_path))


SECURE = """tls {{ cert_file: "{certificate}", key_file: "{key}" }}
authorization {{ users: [ {{ user: web, password: secret }} ] }}"""


async def _encrypt(tmp_path: Path) -> None:
    import nats

    authority, stranger = LocalAuthority(tmp_path / "tls"), LocalAuthority(tmp_path / "other")
    issued = authority.issue("server")
    extra = SECURE.format(certificate=issued.certificate_file, key=issued.key_file)
    listening = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    listening.load_cert_chain(issued.certificate_file, issued.key_file)
    trust = ssl.create_default_context(cafile=authority.ca_file)
    with NatsServer("b01", tmp_path, extra) as server:
        address = BrokerAddress("b01", "127.0.0.1", server.client_port, trust)
        agent = Agent("web1", {"b01": address}, "b01")
        await agent.start("127.0.0.1", 0, listening)
        client = await nats.connect(f"tls://127.0.0.1:{agent.port}", tls=trust, user="web", password="secret")
        waiting = await client.subscribe("a.b")
        await client.publish("a.b", b"hello")
        assert (await waiting.next_msg(PATIENCE_S)).data == b"hello"
        await client.close()
        with pytest.raises(nats.errors.Error):
            await nats.connect(
                f"tls://127.0.0.1:{agent.port}", tls=trust, user="web", password="wrong", allow_reconnect=False
            )
        await agent.close()
        distrust = ssl.create_default_context(cafile=stranger.ca_file)
        doubtful = Agent("web2", {"b01": replace(address, tls=distrust)}, "b01")
        await doubtful.start("127.0.0.1", 0)
        reader, _ = await asyncio.open_connection("127.0.0.1", doubtful.port)
        assert await asyncio.wait_for(reader.read(), PATIENCE_S) == b""
        await doubtful.close()


def test_an_agent_that_does_not_answer_holds_up_one_plan_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its client counts as one that stays for a while; the others leave with the next plan."""
    needs_nats()
    monkeypatch.setattr(agent_clients, "READY_S_MAX", 4.0)
    asyncio.run(_ignore_orders(tmp_path))


async def _ignore_orders(tmp_path: Path) -> None:
    async with nats_site(tmp_path, LINE) as site:
        agent = agent_at(site, "b02")
        await agent.start("127.0.0.1", 0)
        moving = MovingClients(agent, 1)
        await moving.connect()
        await site.clients["b02"].subscribe("data.>", queue="regraft-agent.silent.k3-1.1")
        await site.flush()
        await until(lambda: len(registered(site, "b02")) == 3)
        change = asyncio.create_task(
            site.fleet.change_to(LINE.links, moves=[ClientMove(name, "b02", "b03") for name in registered(site, "b02")])
        )
        while not change.done():
            site.fleet.nodes["b02"].flush()
            await asyncio.sleep(0.05)
        assert (await change).phase is PlanPhase.ABORTED
        assert "silent" in (await change).history[1].reason
        names = registered(site, "b02")
        assert len(names) == 2
        plan = await site.fleet.change_to(LINE.links, moves=[ClientMove(name, "b02", "b03") for name in names])
        assert plan.phase is PlanPhase.VERIFYING
        await until(lambda: {session.homes.home for session in agent.sessions} == {"b03"})
        await moving.close()
