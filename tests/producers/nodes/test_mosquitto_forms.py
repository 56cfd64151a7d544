"""The connector next to real Mosquittos whose logs have other forms, or leave something out."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from regraft.infra.local.mosquitto_server import mosquitto_settings
from regraft.producers.nodes.connectors.connector import ConnectorError
from tests.producers.nodes.connector_kit import until
from tests.producers.nodes.mqtt_brokers import LOGS_RELOADS, MqttClient, MqttServer, needs_mosquitto
from tests.producers.nodes.test_mqtt_connector import MqttSite
from tests.wait_until import PATIENCE_S

pytestmark = pytest.mark.stack

WITH_SPACE = "log_timestamp_format %Y-%m-%d %H:%M:%S\n"
FORMS = {
    "with a space": WITH_SPACE,
    "with names": "log_timestamp_format %a %b %e %H:%M:%S\n",
    "none": "log_timestamp false\n",
    "user as client": "use_username_as_clientid true\n",
    "user as client, with a space": f"use_username_as_clientid true\n{WITH_SPACE}",
}


@pytest.mark.parametrize("has_file", [False, True], ids=["messages", "file"])
@pytest.mark.parametrize("form", FORMS)
def test_the_log_is_read_in_any_form(form: str, has_file: bool, tmp_path: Path) -> None:
    """What clients want is known, before and after the node came, and the node's own wish for everything is not one."""
    needs_mosquitto()
    file = tmp_path / "mosquitto.log"
    more = FORMS[form] + (f"log_dest file {file}\n" if has_file else "")

    async def steps(server: MqttServer) -> None:
        known: dict[str, Any] = {"log_file": file} if has_file else {}
        site = MqttSite(server, user="node", password="x", **known)
        try:
            early = await _client(site, "early")
            await early.subscribe("a/#")
            await site.open()
            before = {"a", "a.>"} if has_file else set()
            assert site.received.wanted == before
            late = await _client(site, "late 1 client")
            await late.subscribe("b")
            await late.subscribe("c/1 x")
            await late.unsubscribe("b")
            await until(lambda: ("b", False) in site.received.interest)
            assert site.received.wanted == before | {"c.1/x20/x"}
            assert not {*site.connector.counts} - {"log_ambiguous"}
        finally:
            await site.close()

    _run(server=MqttServer("b01", tmp_path, more), steps=steps)


async def _client(site: MqttSite, name: str) -> Any:
    """Return a client with a user, so that the broker may call it by that."""
    client = await MqttClient(site.server.port, site.got.append, name, user=name).connected()
    site.clients.append(client)
    return client


SETTINGS = mosquitto_settings(0).split("\n", 1)[1]  # All but the listener.


@pytest.mark.parametrize(
    ("left_out", "more", "said"),
    [
        ("", "connection_messages false", "connection_messages true"),
        ("log_type notice", "", "log_type notice"),
        ("log_type unsubscribe", "", "log_type unsubscribe"),
        ("log_type subscribe", "", "does not report what its clients want"),
    ],
)
def test_what_the_log_leaves_out_is_said_at_the_start(left_out: str, more: str, said: str, tmp_path: Path) -> None:
    """A log without ends of interest is refused with what to set; with listed filters the connector opens."""
    needs_mosquitto()
    server = MqttServer("b01", tmp_path, SETTINGS.replace(left_out or "\n\n", "") + more, is_plain=True)

    async def steps(server: MqttServer) -> None:
        site = MqttSite(server)
        with pytest.raises(ConnectorError, match=said):
            await site.open()
        other = MqttSite(server, filters=["a/#"])
        await other.open()
        assert other.received.wanted == {"a", "a.>"}
        await other.close()

    _run(server, steps)


def test_a_form_that_changes_while_it_runs_is_learned(tmp_path: Path) -> None:
    """Mosquitto reads its settings again on a signal: the connector makes another connection, and misses nothing."""
    needs_mosquitto()
    server = MqttServer("b01", tmp_path, LOGS_RELOADS)

    async def steps(server: MqttServer) -> None:
        site = MqttSite(server)
        try:
            await site.open()
            client = await site.client("c")
            server.file.write_text(server.file.read_text() + WITH_SPACE)
            await server.reload()
            await client.subscribe("a")
            await until(lambda: site.received.wanted == {"a"})
            assert "log_line_unreadable" not in site.connector.counts
            assert site.connector.counts["refused"] == 1
        finally:
            await site.close()

    _run(server, steps)


def _run(server: MqttServer, steps: Any) -> None:
    server.start()
    try:
        asyncio.run(asyncio.wait_for(steps(server), PATIENCE_S))
    finally:
        server.stop()
