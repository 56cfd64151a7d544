"""A Mosquitto with its dynamic security plugin, whose default denies all, and with a WebSocket listener for clients."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path
from typing import Any

import pytest

from regraft.producers.nodes.connectors.connector import ConnectorError, LocalMessage
from regraft.producers.nodes.mqtt import mqtt_connector
from regraft.producers.nodes.mqtt.mqtt_connector import MqttConnector
from tests.producers.nodes.connector_kit import until
from tests.producers.nodes.mqtt_brokers import MqttServer, needs_mosquitto
from tests.producers.nodes.server_process import free_port
from tests.wait_until import PATIENCE_S

pytestmark = pytest.mark.stack

PLUGINS = sorted(Path("/usr/lib").glob("*/mosquitto_dynamic_security.so"))
KINDS = ("publishClientSend", "publishClientReceive", "subscribe", "unsubscribe")
SUBSCRIBE, RECEIVE, SEND = ("subscribePattern", "#"), ("publishClientReceive", "#"), ("publishClientSend", "#")
LOG = ("publishClientReceive", "$SYS/broker/log/#")
NEEDED = (SUBSCRIBE, RECEIVE, LOG, SEND)
SALT, ITERATIONS = b"twelve bytes", 101


def rights(node: Collection[tuple[str, str]]) -> str:
    """Return the plugin's file for a node with these rights, and a client that may do everything."""
    secret = base64.b64encode(hashlib.pbkdf2_hmac("sha512", b"x", SALT, ITERATIONS, 64)).decode()
    login = {"password": secret, "salt": base64.b64encode(SALT).decode(), "iterations": ITERATIONS}
    clients = [{"username": name, "roles": [{"rolename": name}], **login} for name in ("node", "client")]
    roles = [
        {"rolename": name, "acls": [{"acltype": kind, "topic": topic, "allow": True} for kind, topic in acls]}
        for name, acls in (("node", node), ("client", (SUBSCRIBE, RECEIVE, SEND)))
    ]
    return json.dumps({"defaultACLAccess": dict.fromkeys(KINDS, False), "clients": clients, "roles": roles})


class Guarded(MqttServer):
    """A Mosquitto in which nobody may do anything that is not listed; ``web_port`` takes WebSockets."""

    def __init__(self, directory: Path, node: Collection[tuple[str, str]]) -> None:
        super().__init__("b01", directory)
        self.web_port, file = free_port(), directory / "rights.json"
        file.write_text(rights(node))
        text = self.file.read_text().replace("allow_anonymous true", "allow_anonymous false")
        plugin = f"plugin {PLUGINS[0]}\nplugin_opt_config_file {file}\n"
        self.file.write_text(f"{text}\n{plugin}listener {self.web_port} 127.0.0.1\nprotocol websockets\n")

    def connector(self, **more: Any) -> MqttConnector:
        return MqttConnector(self.url, "b01", "node", "x", **more)


def run(directory: Path, node: Collection[tuple[str, str]], go: Callable[[Guarded], Awaitable[None]]) -> None:
    needs_mosquitto()
    if not PLUGINS:
        pytest.skip("the dynamic security plugin of Mosquitto is not installed")
    server = Guarded(directory, node).start()
    try:
        asyncio.run(asyncio.wait_for(go(server), PATIENCE_S))
    finally:
        server.stop()


def web_client(port: int, got: list[bytes]) -> Any:
    """Return a client over WebSockets that wants in/#."""
    from paho.mqtt import client as paho
    from paho.mqtt.enums import CallbackAPIVersion

    client = paho.Client(CallbackAPIVersion.VERSION2, transport="websockets", protocol=5)
    client.username_pw_set("client", "x")
    client.on_connect = lambda *_: client.subscribe("in/#", 1)
    client.on_message = lambda _client, _data, message: got.append(message.payload)
    client.connect("127.0.0.1", port)
    client.loop_start()
    return client


def test_a_node_with_the_needed_rights_serves_clients_over_websockets(tmp_path: Path) -> None:
    """The four rights of the documentation are enough, and the log reports clients of every listener."""

    async def go(server: Guarded) -> None:
        connector, wanted, came, got = server.connector(), set(), list[LocalMessage](), list[bytes]()
        await connector.start(
            lambda subject, is_wanted: (wanted.add if is_wanted else wanted.discard)(subject), came.append
        )
        client = web_client(server.web_port, got)
        await until(lambda: wanted == {"in", "in.>"})
        assert connector.publish(LocalMessage("in.a", b"1"))
        await until(lambda: got == [b"1"])
        client.publish("out/a", b"2")
        await until(lambda: [message.payload for message in came] == [b"2"])
        client.unsubscribe("in/#")
        await until(lambda: not wanted)
        client.disconnect()
        client.loop_stop()
        await connector.close()

    run(tmp_path, NEEDED, go)


@pytest.mark.parametrize(
    ("missing", "said"),
    [(SUBSCRIBE, "may not subscribe to #: NOT_AUTHORIZED"), (LOG, r"does not report what its clients want: .*log/#")],
)
def test_a_missing_right_is_named(
    missing: tuple[str, str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the right to subscribe, or to read the log, the connector does not open."""
    monkeypatch.setattr(mqtt_connector, "CONNECT_S_MAX", 1.5)

    async def go(server: Guarded) -> None:
        with pytest.raises(ConnectorError, match=said):
            await server.connector().start(lambda *_: None, lambda _: None)

    run(tmp_path, [right for right in NEEDED if right != missing], go)
