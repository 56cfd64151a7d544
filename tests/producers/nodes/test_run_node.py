"""Nodes as processes of the command line, next to real NATS servers, with a real Kafka."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from regraft.controller.execute.transition import SendCommand, Transition, TransitionEffect
from regraft.controller.settings.controller_settings import TransitionLimits
from regraft.infra.kafka.create_topics import create_topics
from regraft.infra.kafka.read_messages import read_messages
from regraft.infra.kafka.record_writer import RecordWriter
from regraft.infra.local.kafka_server import RunningKafka
from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.overlay_configuration import NO_CHANGE, BrokerChange, plan_digest
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.schemas.announcement import Announcement
from regraft.schemas.client import Client
from regraft.schemas.codec import decode
from regraft.schemas.command import Command, CommandPhase, CommandResult, Outcome
from regraft.schemas.member import Member, MemberState
from regraft.schemas.plan import Plan, PlanPhase
from regraft.schemas.sample_request import SAMPLING_KEY, SampleRequest
from regraft.schemas.telemetry import TelemetryBatch
from regraft.schemas.topics import ANNOUNCEMENTS, CLIENTS, COMMANDS, MEMBERS, RESULTS, SAMPLING, TELEMETRY, topic_name
from tests.overlay.small_overlays import inventory_of
from tests.producers.nodes.mqtt_brokers import MqttClient, MqttServer, needs_mosquitto
from tests.producers.nodes.nats_servers import NatsServer, needs_nats
from tests.producers.nodes.node_fleet import NodeLedger
from tests.producers.nodes.server_process import free_port
from tests.wait_until import PATIENCE_S

pytestmark = pytest.mark.stack

BROKERS = ("b01", "b02", "b03")
TRIAL = "trial-"
LINE = TreeConfiguration.of(0, BROKERS, [("b01", "b02"), ("b02", "b03")])
INVENTORY: Inventory = replace(inventory_of(LINE, {("b01", "b03"): 2.0}), clients_stay=True)


@pytest.fixture(scope="module")
def kafka(kafka: RunningKafka) -> RunningKafka:
    needs_nats()
    return kafka


@dataclass
class NodeProcesses:
    """The nodes of an inventory and their servers; ``namespace`` separates tests on one Kafka."""

    directory: Path
    kafka: RunningKafka
    namespace: str
    has_topics: bool = True
    inventory: Inventory = INVENTORY

    def __post_init__(self) -> None:
        if self.has_topics:
            create_topics(self.kafka.access, namespace=self.namespace)
        self.inventory.save(self.directory / "inventory.json")
        self.configuration: Any = self.inventory.bootstrap
        peers = {broker: f"127.0.0.1:{free_port()}" for broker in self.inventory.brokers}
        (self.directory / "peers.json").write_text(json.dumps(peers))
        self.servers: dict[str, Any] = {broker: NatsServer(broker, self.directory).start() for broker in peers}
        self.nodes: dict[str, subprocess.Popen[bytes]] = {}
        self.writer = RecordWriter(self.kafka.access, outage_s_max=20, buffer_records_max=1_000, linger_ms=0)
        self.taken = 0
        self.plans = 0

    def begin(self, broker: str, *more: str) -> None:
        command = [
            sys.executable, "-m", "regraft", "stage", "node", "--broker", broker,
            "--connector", self.servers[broker].connector_url, "--bootstrap", self.kafka.bootstrap,
            "--set", f"kafka.namespace={self.namespace}",
            "--set", f"run.directory={self.directory}", *more,
        ]  # fmt: skip
        with (self.directory / f"{broker}.log").open("ab") as log:
            self.nodes[broker] = subprocess.Popen(command, stderr=log, stdout=log, env=os.environ)

    def has_met(self, broker: str, count: int) -> bool:
        """Return True if a node has measured this many peers, which have met it, too."""
        return [peer["rtt_ms"] is None for peer in self.status(broker)["peers"].values()] == [False] * count

    def status(self, broker: str) -> dict[str, Any]:
        file = self.directory / f"node-{broker}.json"
        found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
        return found

    def wait(self, condition: Any, what: str) -> None:
        deadline_s = time.monotonic() + PATIENCE_S
        while not condition():
            logs = "\n".join(file.read_text()[-2_000:] for file in sorted(self.directory.glob("b*.log")))
            assert time.monotonic() < deadline_s, f"{what} did not come about:\n{logs}"
            time.sleep(0.05)

    def records(self, topic: Any, record: type[Any]) -> list[Any]:
        messages = read_messages(self.kafka.access, [topic_name(topic, self.namespace)], PATIENCE_S)
        return [decode(message.value(), record) for message in messages if message.value() is not None]

    def send(self, command: Command) -> None:
        self.writer.write(topic_name(COMMANDS, self.namespace), command.broker, command)
        self.writer.serve()

    def change_to(
        self, links: list[tuple[str, str]], brokers: tuple[str, ...] = BROKERS, change: BrokerChange = NO_CHANGE
    ) -> PlanPhase:
        return self.execute(TreeConfiguration.of(self.configuration.epoch + 1, brokers, links), change)

    def execute(self, target: Any, change: BrokerChange = NO_CHANGE) -> PlanPhase:
        before = self.configuration
        self.plans += 1
        draft = Plan(
            f"plan-{self.plans}", before.epoch, target.epoch, 0, (), (), (), (), 0.0, 0.0, PlanPhase.PREPARING, (),
            begun_by="test", brokers_lost=tuple(sorted(change.lost)),
        )  # fmt: skip
        transition = Transition(target.as_target(draft, before), target, TransitionLimits(), 1, change)
        self._act(transition.start(now_ms()))

        def is_over() -> bool:
            results: list[CommandResult] = self.records(RESULTS, CommandResult)
            for result in results[self.taken :]:
                self._act(transition.on_result(result, now_ms()))
            self.taken = len(results)
            self._act(transition.on_tick(now_ms()))
            return transition.is_done

        self.wait(is_over, f"the end of plan-{self.plans}")
        self.configuration, self.digest = target, plan_digest(transition.plan, target)
        return transition.plan.phase

    def _act(self, effects: list[TransitionEffect]) -> None:
        for effect in effects:
            if isinstance(effect, SendCommand):
                self.send(effect.command)

    def install(self, broker: str) -> None:
        """Let a broker restart outside the overlay in force."""
        present = self.configuration
        command = Command(
            f"plan-{self.plans}", CommandPhase.INSTALL, broker, 0, present.epoch, (), present.links,
            self.digest, term=1, brokers_joined=present.brokers,
        )  # fmt: skip
        self.send(command)

        def is_installed() -> bool:
            results: list[CommandResult] = self.records(RESULTS, CommandResult)
            return any(one.outcome is Outcome.INSTALLED and one.broker == broker for one in results)

        self.wait(is_installed, f"an install of {broker}")
        self.taken = len(self.records(RESULTS, CommandResult))

    def close(self) -> None:
        for node in self.nodes.values():
            node.kill()
            node.wait(PATIENCE_S)
        for server in self.servers.values():
            server.stop()
        self.writer.close()


def now_ms() -> int:
    return int(time.time() * 1_000)


class Traffic:
    """A client at each server that subscribes to all data and publishes its own."""

    def __init__(self, site: NodeProcesses) -> None:
        self.site = site
        self.published = dict.fromkeys(site.inventory.brokers, 0)
        self.ledger = NodeLedger()
        self.clients: dict[str, Any] = {}
        self.crossed: set[tuple[str, str]] = set()

    async def begin(self) -> None:
        import nats

        for broker, server in self.site.servers.items():
            client = self.clients[broker] = await nats.connect(server.url)

            async def take(message: Any, broker: str = broker) -> None:
                name = message.subject.removeprefix("data.")
                if name.startswith(TRIAL):
                    self.crossed.add((name.removeprefix(TRIAL), broker))
                else:
                    self.ledger.take(name, broker, int(message.data))

            await client.subscribe("data.*", cb=take)
            await client.flush()

    async def try_until_all_cross(self) -> None:
        """Publish messages that do not count until one of each client's has come to all."""
        self.crossed.clear()
        async with asyncio.timeout(PATIENCE_S):
            while len(self.crossed) < len(self.clients) ** 2:
                for broker, client in self.clients.items():
                    await client.publish(f"data.{TRIAL}{broker}", b"0")
                await asyncio.sleep(0.05)

    async def publish_until(self, stop: asyncio.Event, brokers: tuple[str, ...]) -> None:
        while not stop.is_set():
            for broker in brokers:
                await self.clients[broker].publish(f"data.{broker}", str(self.published[broker]).encode())
                self.published[broker] += 1
            await asyncio.sleep(0.005)

    async def wait_for(self, owed: dict[tuple[str, str], range]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while any(not set(numbers) <= set(self.ledger.came.get(pair, ())) for pair, numbers in owed.items()):
                await asyncio.sleep(0.05)

    async def close(self) -> None:
        for client in self.clients.values():
            await client.close()


def test_nodes_obey_plans_through_a_death_and_a_return(kafka: RunningKafka, tmp_path: Path) -> None:
    """Swaps lose nothing; the death of a node is repaired, and it restarts outside and is admitted again.

    If less telemetry is requested, all nodes report that share, including the restarted one.
    """
    site = NodeProcesses(tmp_path, kafka, "first")

    async def steps() -> None:
        traffic = Traffic(site)
        await traffic.begin()
        for broker in BROKERS:
            site.begin(broker)
        site.wait(lambda: all(site.status(broker).get("is_in_overlay") for broker in BROKERS), "three nodes")
        await traffic.try_until_all_cross()
        stop = asyncio.Event()
        publishing = asyncio.create_task(traffic.publish_until(stop, BROKERS))
        for links in ([("b01", "b03"), ("b02", "b03")], [("b01", "b02"), ("b01", "b03")]):
            assert await asyncio.to_thread(site.change_to, links) is PlanPhase.VERIFYING
        stop.set()
        await publishing
        owed = {(a, b): range(traffic.published[a]) for a in BROKERS for b in BROKERS}
        await traffic.wait_for(owed)
        assert traffic.ledger.account(owed).total() == 0

        site.nodes.pop("b01").send_signal(signal.SIGKILL)
        lost = BrokerChange(lost=frozenset({"b01"}))
        assert await asyncio.to_thread(site.change_to, [("b02", "b03")], ("b02", "b03"), lost) is PlanPhase.VERIFYING
        site.begin("b01")
        site.wait(lambda: site.status("b01").get("is_in_overlay") is False, "another incarnation of b01")
        site.install("b01")
        joined = BrokerChange(joined=frozenset({"b01"}))
        links = [("b01", "b02"), ("b02", "b03")]
        assert await asyncio.to_thread(site.change_to, links, BROKERS, joined) is PlanPhase.VERIFYING
        site.wait(lambda: site.status("b01").get("is_in_overlay") is True, "the return of b01")
        await traffic.try_until_all_cross()
        before = dict(traffic.published)
        stop.clear()
        publishing = asyncio.create_task(traffic.publish_until(stop, BROKERS))
        await asyncio.sleep(0.5)
        stop.set()
        await publishing
        await traffic.wait_for({(a, b): range(before[a], traffic.published[a]) for a in BROKERS for b in BROKERS})
        await traffic.close()

    try:
        asyncio.run(steps())
        assert {site.status(broker)["sample_share"] for broker in BROKERS} == {1.0}
        request = SampleRequest(2, now_ms(), "asked by the test")
        site.writer.write(topic_name(SAMPLING, site.namespace), SAMPLING_KEY, request)
        site.writer.serve()
        site.wait(lambda: {site.status(broker)["sample_share"] for broker in BROKERS} == {0.25}, "a smaller share")
        batches: list[TelemetryBatch] = site.records(TELEMETRY, TelemetryBatch)
        assert len({(batch.broker, batch.boot) for batch in batches}) == 4
        assert any(probe.rtt_ms > 0 for batch in batches for probe in batch.probes)
        clients: list[Client] = site.records(CLIENTS, Client)
        assert {client.home for client in clients} == set(BROKERS)
    finally:
        site.close()


def test_a_node_restarted_without_its_file_begins_again_outside(kafka: RunningKafka, tmp_path: Path) -> None:
    """Its neighbours report its former incarnation: it says what it waits for, is not ready, and a plan admits it."""
    site = NodeProcesses(tmp_path, kafka, "fourth")
    port = free_port()
    try:
        for broker in BROKERS:
            site.begin(broker)
        site.wait(lambda: all(site.status(broker).get("is_in_overlay") for broker in BROKERS), "three nodes")
        # Only a neighbour that has met the first incarnation can report it.
        site.wait(lambda: site.has_met("b03", 2), "links of b03")
        site.nodes.pop("b03").kill()
        (tmp_path / "node-b03.life").unlink()
        site.begin("b03", "--set", f"node.metrics_port={port}")
        site.wait(lambda: site.status("b03").get("is_in_overlay") is False, "b03 outside")
        assert "a plan that admits this node" in site.status("b03")["waiting_for"]
        assert "incarnation_not_first" in (tmp_path / "b03.log").read_text()
        site.wait(lambda: "the lost b03" in site.status("b02")["waiting_for"], "what b02 waits for")
        with pytest.raises(HTTPError, match="503") as answer:
            urlopen(f"http://127.0.0.1:{port}/ready")
        assert b"a plan that admits this node" in answer.value.read()

        lost = BrokerChange(lost=frozenset({"b03"}))
        assert site.change_to([("b01", "b02")], ("b01", "b02"), lost) is PlanPhase.VERIFYING
        site.install("b03")
        joined = BrokerChange(joined=frozenset({"b03"}))
        assert site.change_to([("b01", "b02"), ("b02", "b03")], BROKERS, joined) is PlanPhase.VERIFYING
        site.wait(lambda: site.status("b03")["is_in_overlay"], "the return of b03")
        site.wait(lambda: not any(site.status(broker)["waiting_for"] for broker in BROKERS), "nothing to wait for")
        site.wait(lambda: urlopen(f"http://127.0.0.1:{port}/ready").status == 200, "a ready b03")
    finally:
        site.close()


@pytest.mark.parametrize("has_other_address", [False, True])
def test_a_second_process_of_a_node_leaves_the_clients_of_the_first(
    kafka: RunningKafka, tmp_path: Path, has_other_address: bool
) -> None:
    """It cannot listen, or hears its own name where others call: it exits before it touches what the first has."""
    name = f"sixth-{has_other_address}"
    site = NodeProcesses(tmp_path, kafka, name)
    try:
        site.begin("b01")
        site.wait(lambda: site.records(CLIENTS, Client), "clients of b01")
        first, life = site.nodes["b01"], (tmp_path / "node-b01.life").read_text()
        more = ["--set", f"node.listen=127.0.0.1:{free_port()}"] if has_other_address else []
        site.begin("b01", *more)
        assert site.nodes["b01"].wait(PATIENCE_S) == 1
        said = "another process is b01: it answers at 127.0.0.1" if has_other_address else "cannot listen on 127.0.0.1"
        assert said in (tmp_path / "b01.log").read_text()
        messages = read_messages(kafka.access, [topic_name(CLIENTS, name)], PATIENCE_S)
        assert [message.key() for message in messages if message.value() is None] == []
        assert (first.poll(), (tmp_path / "node-b01.life").read_text()) == (None, life)
        first.kill()
        first.wait(PATIENCE_S)
    finally:
        site.close()


def test_a_node_says_that_it_waits_for_topics(kafka: RunningKafka, tmp_path: Path) -> None:
    """A node may be started before the loop that creates the topics."""
    site = NodeProcesses(tmp_path, kafka, "fifth", has_topics=False)
    try:
        site.begin("b01")
        site.wait(lambda: "topic fifth.commands" in site.status("b01").get("waiting_for", ""), "what b01 waits for")
        assert "node_waiting" in (tmp_path / "b01.log").read_text()
        create_topics(kafka.access, namespace="fifth")
        site.wait(lambda: site.status("b01").get("is_in_overlay") is True, "a node")
        assert site.status("b01")["waiting_for"] == ""
    finally:
        site.close()


def test_an_unknown_node_asks_to_join(kafka: RunningKafka, tmp_path: Path) -> None:
    """It announces its address and link costs, sends no telemetry until it is a member, and a plan then admits it.

    It is next to an MQTT broker, whose clients then exchange messages with those of NATS servers.

    The other nodes learn its address from the topic of members: their files are not changed.
    """
    needs_mosquitto()
    site = NodeProcesses(tmp_path, kafka, "third")
    try:
        for broker in BROKERS:
            site.begin(broker)
        site.wait(lambda: all(site.status(broker).get("is_in_overlay") for broker in BROKERS), "three nodes")
        peers = json.loads((tmp_path / "peers.json").read_text())
        own = tmp_path / "own-peers.json"
        own.write_text(json.dumps({**peers, "x01": f"127.0.0.1:{free_port()}"}))
        site.servers["x01"] = MqttServer("x01", tmp_path).start()
        site.begin("x01", "--set", f"node.peers_path={own}", "--set", "connectors.mqtt.durable_session=true")
        site.wait(lambda: bool(site.records(ANNOUNCEMENTS, Announcement)), "an announcement")
        asked: Announcement = site.records(ANNOUNCEMENTS, Announcement)[0]
        assert [cost.peer for cost in asked.facts.link_costs] == list(BROKERS)
        assert all(0 < cost.cost < 1_000 for cost in asked.facts.link_costs)
        assert asked.facts.address == json.loads(own.read_text())["x01"]
        assert site.status("x01")["is_member"] is False
        assert not any(batch.broker == "x01" for batch in site.records(TELEMETRY, TelemetryBatch))

        member = Member("x01", MemberState.JOINING, now_ms(), "let in by the test", facts=asked.facts)
        site.writer.write(topic_name(MEMBERS, "third"), "x01", member)
        site.writer.serve()
        site.wait(lambda: site.status("x01")["is_member"], "x01 as a member")
        site.wait(lambda: all("x01" in site.status(broker)["peers"] for broker in BROKERS), "links to x01")
        assert site.change_to([("b01", "b03"), ("b02", "b03")]) is PlanPhase.VERIFYING
        site.install("x01")
        joined = BrokerChange(joined=frozenset({"x01"}))
        links = [("b01", "b03"), ("b02", "b03"), ("b02", "x01")]
        assert site.change_to(links, (*BROKERS, "x01"), joined) is PlanPhase.VERIFYING
        site.wait(lambda: site.status("x01")["is_in_overlay"], "x01 in the overlay")
        site.wait(
            lambda: any(batch.broker == "x01" for batch in site.records(TELEMETRY, TelemetryBatch)), "telemetry of x01"
        )
        asyncio.run(_talk(site))
        site.wait(lambda: site.status("x01")["receipts_waiting"] == 0, "acknowledgements to the session")

        left = BrokerChange(left=frozenset({"x01"}))
        assert site.change_to(links[:2], BROKERS, left) is PlanPhase.VERIFYING
        member = Member("x01", MemberState.LEFT, now_ms(), "drained by the test", facts=asked.facts)
        site.writer.write(topic_name(MEMBERS, "third"), "x01", member)
        site.writer.serve()
        site.wait(lambda: "members readmit x01" in site.status("x01")["waiting_for"], "x01 as having left")
        assert not site.status("x01")["is_in_overlay"]
    finally:
        site.close()


async def _talk(site: NodeProcesses) -> None:
    """Let a client of NATS and one of MQTT receive each other's messages."""
    import nats

    received: list[bytes] = []
    got: list[tuple[str, bytes]] = []
    one = await nats.connect(site.servers["b01"].url)

    async def take(message: Any) -> None:
        received.append(message.data)

    await one.subscribe("rooms.*", cb=take)
    other = await MqttClient(site.servers["x01"].port, lambda it: got.append((it.topic, it.payload))).connected()
    await other.subscribe("orders/#")
    async with asyncio.timeout(PATIENCE_S):
        while not received or not got:  # Until both subscriptions are known at the other end.
            await one.publish("orders.eu", b"1")
            await other.publish("rooms/7", b"2", qos=1)
            await asyncio.sleep(0.2)
    assert (received[0], got[0]) == (b"2", ("orders/eu", b"1"))
    await one.close()
    other.close()


@pytest.mark.parametrize(
    ("broker", "peers", "code", "reason"),
    [
        ("b09", "{}", 2, "not one of the 3 brokers"),
        ("b01", "{}", 2, "has no address of b01"),
        ("b01", '{"b01": "here"}', 2, "is not host:port"),
        ("b01", '{"b01": "127.0.0.1:1"}', 1, "no NATS server answers"),
    ],
)
def test_a_node_that_cannot_start_reports_why(
    broker: str, peers: str, code: int, reason: str, kafka: RunningKafka, tmp_path: Path
) -> None:
    """What is missing is one sentence in the log; the exit code is 2 if starting again would change nothing."""
    create_topics(kafka.access, namespace="second")
    INVENTORY.save(tmp_path / "inventory.json")
    (tmp_path / "peers.json").write_text(peers)
    run = subprocess.run(
        [
            sys.executable, "-m", "regraft", "stage", "node", "--broker", broker, "--connector", f"nats://127.0.0.1:{free_port()}",
            "--bootstrap", kafka.bootstrap, "--set", "kafka.namespace=second", "--set", f"run.directory={tmp_path}",
        ],
        capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert (run.returncode, reason in run.stderr) == (code, True), run.stderr
