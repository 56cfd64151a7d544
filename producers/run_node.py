"""Run one node: a broker's protocol core next to a real broker, connected to Kafka; the node's entry point.

In: NodeSettings and a stop event. Out: messages over links and through the connector, telemetry, results and the
register of clients in Kafka, a status file each second. :mod:`producers.nodes.broker_node` handles the messages.

The first incarnation of a node begins in the overlay of the last committed plan. Every later one begins outside it,
because the others continued without it, and a plan lets it join.
"""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import ExitStack
from functools import partial
from typing import Any

import structlog

from regraft.infra.process.end_tasks import end_tasks
from regraft.infra.process.serve_metrics import serve_metrics
from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.link_congestion import WINDOW_MS
from regraft.overlay.read_inventory import load_inventory
from regraft.producers.brokers.broker_protocol import BrokerProtocol
from regraft.producers.emulator.kafka_ports import KafkaPorts
from regraft.producers.emulator.read_commands import KafkaUnreachableError
from regraft.producers.emulator.starting_point import starting_point
from regraft.producers.node_settings import NodeSettings
from regraft.producers.nodes.ask_to_join import ask_to_join
from regraft.producers.nodes.broker_node import BrokerNode
from regraft.producers.nodes.connectors.connector import ConnectorError
from regraft.producers.nodes.guard_calls import CallGuard
from regraft.producers.nodes.links.choose_candidates import RENEWED_S, CandidateChoice
from regraft.producers.nodes.links.find_namesake import has_namesake
from regraft.producers.nodes.links.link_session import LinkSession
from regraft.producers.nodes.links.run_links import LinkLimits, Links
from regraft.producers.nodes.node_kinds import kind_error
from regraft.producers.nodes.node_metrics import NodeHealth, NodeMetrics
from regraft.producers.nodes.node_setup import (
    NodeError,
    address_of,
    broker_of,
    connector_of,
    has_begun_before,
    note_begin,
    read_peers,
    tls_of,
    topics_of,
)
from regraft.producers.nodes.node_waiting import NodeWaiting, waiting_for
from regraft.schemas.status_file import StatusFile
from regraft.schemas.units import SECOND_MS

log = structlog.get_logger(__name__)

CONNECT_S_MAX = 60.0
UNDECIDED_S_MAX = 60.0  # Wait for a plan that is being prepared; three times its controller's limit.
FLUSH_S_MAX = 10.0
STATUS_S = 1.0
NOT_FIRST = (
    "a peer has met an earlier incarnation of this node, so the others have continued without it: it begins again "
    "outside the overlay, and a plan admits it. To start all nodes afresh, stop all of them and remove all their .life "
    "files"
)
PROOF_S = 5.0  # Between questions to Kafka whether commands have arrived.
PROBES_PER_SILENCE = 5


def run_node(settings: NodeSettings, stop: threading.Event) -> None:
    """Run one broker until ``stop`` is set; to the others, that is a death.

    A node that learns from others that this is not its first incarnation begins again, outside the overlay.

    Raises NodeSettingsError if settings or files are not as required, NodeError if Kafka is not, if the real broker is
    not available, or if the protocol fails.
    """
    inventory = load_inventory(settings.inventory_path)
    if refused := kind_error(inventory, has_groups_once=bool(settings.groups_once)):
        raise NodeError(f"{settings.inventory_path} has {refused}")
    broker = broker_of(settings, inventory)
    metrics, health = NodeMetrics(), NodeHealth(NodeWaiting(broker, StatusFile(settings.own_status_file)))
    with ExitStack() as held:
        if settings.metrics_port is not None:
            held.enter_context(serve_metrics(metrics.registry, settings.metrics_host, settings.metrics_port, health))
        ports = KafkaPorts(
            settings.kafka,
            topics_of(settings, inventory, broker),
            outage_s_max=settings.kafka_outage_s_max,
            buffer_records_max=settings.kafka_buffer_records_max,
        )
        held.callback(ports.close)
        ports.on_wait = health.waiting.note_before_start
        try:
            is_over = False
            while not is_over:
                core = _core_of(settings, inventory, broker, ports)
                if health.waiting.what:
                    health.waiting.note_before_start("")
                run = _NodeRun(settings, inventory, core, ports, metrics, health)
                asyncio.run(run.run(stop))
                is_over = stop.is_set() or not run.is_to_begin_outside
        except (ConnectorError, KafkaUnreachableError) as error:
            raise NodeError(str(error)) from error
        ports.flush(FLUSH_S_MAX)


def _core_of(settings: NodeSettings, inventory: Inventory, broker: str, ports: KafkaPorts) -> BrokerProtocol:
    """Return the core with which the node begins, after reading from Kafka where that is."""
    ports.connect(CONNECT_S_MAX)
    start = starting_point(inventory, ports.read_plans(CONNECT_S_MAX, UNDECIDED_S_MAX))
    boot_ms = int(time.time() * SECOND_MS)
    is_outside = has_begun_before(settings)
    log.info("node_started", broker=broker, epoch=start.configuration.epoch, plan=start.plan, is_outside=is_outside)
    return start.outsider(broker, boot_ms) if is_outside else start.core_of(broker, boot_ms)


class _NodeRun:
    """One incarnation of a node, on one event loop."""

    def __init__(
        self,
        settings: NodeSettings,
        inventory: Inventory,
        core: BrokerProtocol,
        ports: KafkaPorts,
        metrics: NodeMetrics,
        health: NodeHealth,
    ) -> None:
        self.is_to_begin_outside = False
        self._is_first_incarnation, self._boot_ms = core.takes_clients, core.boot_ms
        self._lost: dict[str, int] = {}  # Neighbours whose incarnations have ended, and the epoch in which they did.
        self._settings, self._ports, self._metrics, self._health = settings, ports, metrics, health
        self._status_file = StatusFile(settings.own_status_file)
        self._addresses = read_peers(settings, core.broker)
        self._invalid_addresses: set[str] = set()
        self._tls = tls_of(settings)
        self._connector = connector_of(settings, core.broker)
        self._guard = CallGuard()
        self._guarded = partial(self._guard, broker=core.broker)
        self._candidates = CandidateChoice(core.broker, inventory)
        candidates = self._candidates.next(self._addresses)
        self._is_member = core.broker in inventory.index
        self._node = BrokerNode(
            core,
            ports,
            self._connector,
            self._links_of,
            lambda: time.time() * SECOND_MS,
            candidates,
            settings.sampling,
            settings.heartbeats,
        )
        self._node.wanted.guard = self._guarded

    def _links_of(self, node: BrokerNode) -> Links:
        silence_ms_max = self._settings.link_silence_ms_max
        limits = LinkLimits(
            kept_bytes_max=self._settings.link_bytes_max,
            probe_ms=silence_ms_max / PROBES_PER_SILENCE,
            silence_ms_max=silence_ms_max,
        )
        incarnation = str(node.core.boot_ms)
        take, lose = self._guarded(node.take), self._guarded(self._lose)
        return Links(
            node.broker, incarnation, self._addresses, take, lose, limits, self._tls, self._note_own_incarnation
        )

    def _lose(self, peer: str) -> None:
        if peer in self._node.core.live_neighbours:
            self._lost[peer] = self._node.core.epoch
        self._node.lose(peer)

    def _note_own_incarnation(self, peer: str, incarnation: str) -> None:
        """Begin again outside the overlay if a peer has met an incarnation before what should be this node's first.

        Its file of incarnations was removed, or is on another disk: the others have continued without this node.
        """
        boot = incarnation.partition(".")[0]
        is_first = self._is_first_incarnation and self._node.links.incarnation == str(self._boot_ms)
        if not is_first or not boot.isdecimal() or int(boot) >= self._boot_ms:
            return
        self._is_first_incarnation, self.is_to_begin_outside = False, True
        log.error(
            "incarnation_not_first", broker=self._node.broker, peer=peer, incarnation=incarnation, reason=NOT_FIRST
        )

    async def run(self, stop: threading.Event) -> None:
        """Open links and connector, and run until asked to stop."""
        node = self._node
        await self._bind()
        withdraw = partial(self._ports.withdraw_clients, {node.broker}, CONNECT_S_MAX)
        await asyncio.get_running_loop().run_in_executor(None, withdraw)
        await self._connector.start(self._guarded(node.note_interest), self._guarded(node.note_message))
        await node.links.start()
        beside = [asyncio.create_task(each) for each in (self._join(), self._keep_reading(), self._keep_measuring())]
        try:
            note_begin(self._settings)
            self._guarded(node.begin)()
            self._health.is_running = True
            await self._run_until(stop)
        finally:
            await end_tasks(beside)  # Nothing asks Kafka once its clients are closed.
            self._health.is_running = False
            await self._connector.close()
            await node.links.close()
        if self._guard.failure is not None:
            raise NodeError(f"{node.broker} failed and restarts: {self._guard.failure}") from self._guard.failure
        if not self.is_to_begin_outside:
            node.flush(is_last=True)

    async def _bind(self) -> None:
        """Take the node's address before anything else: a second process of a running node must not take its clients.

        Raises NodeError if that is not possible, or if such a process answers at the address that other nodes call.
        """
        broker = self._node.broker
        called = host, port = self._addresses[broker]
        if self._settings.listen is not None:
            host, port = address_of(self._settings.listen)
        try:
            await self._node.links.bind(host, port)
        except OSError as error:
            raise NodeError(
                f"cannot listen on {host}:{port} ({error.strerror}): check whether another node uses it"
            ) from error
        if await has_namesake(LinkSession(broker, self._node.links.incarnation), *called, self._tls):
            raise NodeError(
                f"another process is {broker}: it answers at {':'.join(map(str, called))}, where other nodes reach "
                f"{broker}; stop it, or name another broker here"
            )

    async def _join(self) -> None:
        """Ask to become a member unless it is one; telemetry of non-members would be refused."""
        if not self._is_member:
            await ask_to_join(self._node.broker, self._addresses, self._ports, lambda: time.time() * SECOND_MS)
            self._is_member = True

    async def _keep_measuring(self) -> None:
        """Measure the queues of links, if the overlay routes around congested ones."""
        measure = self._guarded(self._node.congestion.measure)
        while self._node.congestion.is_measuring:
            await asyncio.sleep(WINDOW_MS / SECOND_MS)
            measure()

    async def _keep_reading(self) -> None:
        """Prove every few seconds that what is meant for the node arrives; read it with another consumer if not."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(PROOF_S)
            self._health.is_reading = await loop.run_in_executor(None, self._ports.prove_reading)
            if self._ports.is_reading_stalled:
                log.warning("reading_stalled", broker=self._node.broker)
                self._ports.reopen_stalled()

    def _note_addresses(self) -> None:
        """Note the addresses of members that the file of peers does not list."""
        for broker, text in self._ports.member_addresses().items():
            if broker in self._addresses or not text or text in self._invalid_addresses:
                continue
            try:
                self._addresses[broker] = address_of(text)
            except ValueError as error:
                self._invalid_addresses.add(text)
                log.warning("address_unusable", broker=broker, reason=str(error))
                continue
            log.info("peer_discovered", broker=broker, address=text)
            self._guarded(self._node.add_candidate)(broker)

    async def _run_until(self, stop: threading.Event) -> None:
        obey, flush = self._guarded(self._obey), self._guarded(self._node.flush)
        settle = self._guarded(self._node.settle_receipts)
        flush_s = self._settings.flush_ms / SECOND_MS
        flush_due_s = status_due_s = time.monotonic()
        renewal_due_s = status_due_s + RENEWED_S
        while not stop.is_set() and self._guard.failure is None and not self.is_to_begin_outside:
            obey()
            settle()
            now_s = time.monotonic()
            if now_s >= flush_due_s and self._is_member:
                flush()
                flush_due_s = max(flush_due_s + flush_s, now_s)
            if now_s >= status_due_s:
                self._note_addresses()
                asked = self._ports.requested_share()
                self._node.sampling = self._settings.sampling.at_most(asked.power if asked else 0)
                self._show()
                status_due_s = now_s + STATUS_S
            if now_s >= renewal_due_s:
                self._candidates.note(self._node.links.round_trips())
                self._guarded(self._node.renew_candidates)(self._candidates.next(self._addresses))
                renewal_due_s = now_s + RENEWED_S
            self._health.pulse.beat()
            await asyncio.sleep(self._settings.command_poll_ms / SECOND_MS)

    def _obey(self) -> None:
        for command in self._ports.poll():
            if command.broker == self._node.broker:
                self._metrics.commands.labels(command.phase).inc()
                self._node.obey(command)

    def _show(self) -> None:
        document = self._status()
        self._health.is_connector_open, self._health.connector_error = (
            document["is_connector_open"],
            document["connector_error"],
        )
        self._health.is_in_overlay = document["is_in_overlay"]
        self._metrics.show(document)
        self._status_file.write(document)

    def _status(self) -> dict[str, Any]:
        node, core = self._node, self._node.core
        round_trips = dict(node.links.round_trips())
        writers = (self._ports.telemetry, self._ports.answers)
        self._lost = {peer: epoch for peer, epoch in self._lost.items() if epoch == core.epoch}
        is_inside, lost = core.takes_clients, sorted(self._lost)
        waiting = self._health.waiting
        has_left = self._ports.has_left(node.broker)
        waiting.note(
            waiting_for(node.broker, is_member=self._is_member, is_in_overlay=is_inside, lost=lost, has_left=has_left)
        )
        return {
            "broker": node.broker,
            "time_ms": int(time.time() * SECOND_MS),
            "boot_ms": core.boot_ms,
            "epoch": core.epoch,
            "sample_share": node.sampling.share,
            "phase": str(core.phase),
            "is_member": self._is_member,
            "is_in_overlay": is_inside,
            "waiting_for": waiting.what,
            "is_connector_open": self._connector.is_open,
            "connector_error": self._connector.error,
            "is_reading": self._health.is_reading,
            "interests": node.clients.interest_count,
            "publishers": node.clients.publisher_count,
            "congested_links": sorted(node.congestion.congested),
            "held_deliveries": len(core.held_notifications),
            "receipts_waiting": len(node.receipts),
            "messages": {**node.counts, **node.clients.counts, **self._connector.counts},
            "links": {**node.links.counts, "lost_with_incarnations": node.links.lost_with_incarnations},
            "peers": {
                peer: {"kept": len(known.session), "rtt_ms": round_trips.get(peer)}
                for peer, known in sorted(node.links.peers.items())
            },
            "records_waiting": sum(writer.waiting_count for writer in writers),
            "records_lost": sum(writer.lost.total() for writer in writers),
        }
