"""What a node registers of its clients."""

from __future__ import annotations

from typing import Any

import pytest

from regraft.producers.emulator.delivery_cells import DeliveryCells
from regraft.producers.emulator.emulator_ports import MemoryClients
from regraft.producers.nodes.agent_clients import AgentClients
from regraft.producers.nodes.connectors.agent_line import AgentLine
from regraft.producers.nodes.connectors.connector import LocalMessage
from regraft.producers.nodes.connectors.groups_once import GroupHandlers
from regraft.producers.nodes.reported_clients import ReportedClients
from regraft.schemas.agent_note import AgentNote, NoteKind, note_bytes
from regraft.schemas.client import Role

CLIENT = "web1.k3-1"
BESIDE = f"{CLIENT}.1~0badcafe-1"


@pytest.mark.parametrize(
    ("name", "stays", "may_move", "stays_because"),
    [
        (BESIDE, None, True, ""),
        (BESIDE, "qos_2", False, "qos_2"),
        (BESIDE, "", False, ""),
        (BESIDE, "of a later version", False, ""),
        ("b02.1764.s.3", None, False, ""),
        ("b02.1764.s.3.g.workers", None, False, "queue_group"),
    ],
)
def test_a_subscription_is_registered_with_why_it_stays(
    name: str, stays: str | None, may_move: bool, stays_because: str
) -> None:
    """Its agent says so, or its group is one that handles each message once; of all others nothing is known."""
    ports, cells = MemoryClients(), DeliveryCells(60)
    reported = ReportedClients("b02", cells, ports, GroupHandlers("b02", lambda _name: True), lambda: 7.0)
    reported.agents = AgentClients("b02", list[Any]().append, lambda *_home: None)
    line = AgentLine(list[LocalMessage]().append, "regraft")
    reported.agents.connect(line, lambda _name: None)
    reported.agents.begin(BESIDE, "group", ())
    if stays is not None:
        line.receive(LocalMessage(f"_REGRAFT.agent.{CLIENT}", note_bytes(AgentNote(NoteKind.STAYS, reason=stays))))
    reported.change(name, Role.SUBSCRIBER, ())
    registered = ports.connected[name]
    assert (registered.may_move, registered.stays_because) == (may_move, stays_because)
