"""What a node reports of its clients: who comes and leaves, and what single ones beside agents receive.

In: clients that come and leave, what the core hands over, its effects on moving subscriptions. Out: records of the
register, changes for telemetry, and cells of parts (:mod:`schemas.part_blocks`), by which planners price where a client
would cost least. Each client forms one part, because an agent takes it along with all its subscriptions.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence

from regraft.producers.brokers.broker_messages import SubscriberEffect, SubscriberTaken
from regraft.producers.brokers.match_content import Filter
from regraft.producers.emulator.delivery_cells import DeliveryCells
from regraft.producers.emulator.emit_telemetry import predicate_record
from regraft.producers.emulator.emulator_ports import ClientSink
from regraft.producers.nodes.agent_clients import AgentClients
from regraft.producers.nodes.connectors.groups_once import GroupHandlers, group_of
from regraft.producers.nodes.links.carried_messages import CarriedNotification
from regraft.schemas.agent_names import client_beside
from regraft.schemas.client import Client, Role
from regraft.schemas.part_blocks import number_of_subscriber
from regraft.schemas.stay_reasons import StayReason
from regraft.schemas.telemetry import ClientChange

CHANGES_MAX = 10_000  # Client changes between two batches; beyond this, the oldest are dropped.
REPORTED_MAX = 20  # Clients that receive most: each adds a cell for every publisher, second and block of 64.


class ReportedClients:
    """The reports of one node; ``agents`` is set before the first client comes."""

    agents: AgentClients

    def __init__(
        self, broker: str, cells: DeliveryCells, ports: ClientSink, groups: GroupHandlers, now_ms: Callable[[], float]
    ) -> None:
        self.changes: deque[ClientChange] = deque(maxlen=CHANGES_MAX)
        self._changes_made: Counter[str] = Counter()
        self._broker, self._cells, self._ports, self._groups, self._now_ms = broker, cells, ports, groups, now_ms
        cells.rule.subscribers_reported_max = REPORTED_MAX

    def change(self, client: str, role: Role, filter_: Filter | None) -> None:
        """Report that a client comes, with its filter, or leaves, with None."""
        what = "left" if filter_ is None else f"came as {role}"
        self.changes.append(ClientChange(client, self._changes_made[client], what))
        if filter_ is None:
            del self._changes_made[client]
            self._ports.remove_client(client)
            return
        self._changes_made[client] += 1
        if role is Role.SUBSCRIBER:
            self._groups.note(client, self._broker, filter_)
        predicates = tuple(predicate_record(predicate) for predicate in filter_)
        may_move, time_ms = role is Role.SUBSCRIBER and self.agents.may_move(client), int(self._now_ms())
        nearest, reaches = self.agents.near(client)
        reason = self.agents.reason_to_stay(client) or (StayReason.QUEUE_GROUP if group_of(client) else None)
        label = "" if reason is None else reason.label
        self._ports.put_client(
            Client(client, role, self._broker, predicates, 0.0, time_ms, (), may_move, nearest, reaches, label)
        )

    def note_delivered(self, notification: CarriedNotification, subscriptions: Sequence[str]) -> None:
        """Count a notification's deliveries, those of clients beside agents also separately."""
        self._cells.note_delivered(notification, len(subscriptions))
        clients = self.agents.clients_of(subscriptions)
        if clients:
            self._cells.note_parts(notification, clients)

    def take_effect(self, effect: SubscriberEffect) -> None:
        """Report a client separately that a plan has brought here: that shows what the plan saves."""
        self.agents.take_effect(effect)
        client = client_beside(effect.subscription)
        if client and isinstance(effect, SubscriberTaken):
            self._cells.report_separately(client, number_of_subscriber(client), self._now_ms())
