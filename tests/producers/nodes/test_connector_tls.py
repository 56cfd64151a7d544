"""Connectors over TLS: broker and node both prove their identity; no connection falls back to plain text."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from regraft.infra.local.make_certificates import LocalAuthority
from regraft.producers.node_settings import NodeSettings
from regraft.producers.nodes.amqp.connect_amqp import rabbit_api
from regraft.producers.nodes.connectors.ask_api import BrokerApi
from regraft.producers.nodes.connectors.connector import ConnectorError, LocalMessage
from regraft.producers.nodes.connectors.find_connectors import CONNECTORS
from regraft.producers.nodes.node_setup import connector_of, context_of
from tests.producers.nodes.connector_kit import needs, until
from tests.producers.nodes.given_settings import given_settings
from tests.producers.nodes.mqtt_brokers import MqttServer
from tests.producers.nodes.nats_servers import NatsServer
from tests.producers.nodes.rabbit_servers import shared_rabbit
from tests.producers.nodes.server_process import free_port

NATS_TLS = """leafnodes {{ listen: "127.0.0.1:{port}", tls {{
  ca_file: "{ca}", cert_file: "{certificate}", key_file: "{key}", verify: true }} }}"""
MQTT_TLS = """
listener {port} 127.0.0.1
cafile {ca}
certfile {certificate}
keyfile {key}
require_certificate true
"""


@dataclass
class Secure:
    """A broker with TLS: its connector's address, the plain-text address of the same port, and the authority
    it trusts.
    """

    connector: str
    clear: str
    authority: LocalAuthority
    more: dict[str, Any]


@pytest.fixture(params=["nats", "mqtt", "amqp"])
def secure(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Secure]:
    needs(request.param)
    if request.param == "amqp":
        rabbit = shared_rabbit()
        place = f"127.0.0.1:{rabbit.tls_port}"
        yield Secure(f"amqps://{place}", f"amqp://{place}", rabbit.authority, {"exchange": "amq.topic"})
        return
    authority = LocalAuthority(tmp_path / "tls")
    issued = authority.issue("server")
    files = {"ca": authority.ca_file, "certificate": issued.certificate_file, "key": issued.key_file}
    port = free_port()
    server: Any
    if request.param == "nats":
        server = NatsServer("b01", tmp_path, leaf=NATS_TLS.format(port=port, **files), leaf_port=port)
        found = Secure(f"tls://127.0.0.1:{port}", f"nats://127.0.0.1:{port}", authority, {})
    else:
        server = MqttServer("b01", tmp_path, MQTT_TLS.format(port=port, **files))
        found = Secure(f"mqtts://127.0.0.1:{port}", f"mqtt://127.0.0.1:{port}", authority, {})
    server.start()
    yield found
    server.stop()


def settings_of(secure: Secure, connector: str, directory: Path, authority: LocalAuthority) -> NodeSettings:
    issued = authority.issue("node")
    return given_settings(
        directory, "b01", connector=connector,
        connector_ca_file=secure.authority.ca_file, connector_certificate_file=issued.certificate_file,
        connector_key_file=issued.key_file, **secure.more,
    )  # fmt: skip


@pytest.mark.stack
def test_messages_cross_a_secure_connector(secure: Secure, tmp_path: Path) -> None:
    """Each connector has a certificate; messages cross between the connectors of two overlays, even large ones and
    many.
    """

    async def go() -> None:
        settings = settings_of(secure, secure.connector, tmp_path, secure.authority)
        one, other = connector_of(settings, "b01"), connector_of(replace(settings, namespace="other"), "b02")
        received: list[LocalMessage] = []
        await one.start(lambda *_: None, lambda _: None)
        await other.start(lambda *_: None, received.append)
        assert one.is_open
        assert other.is_open
        payloads = [b"%d" % number for number in range(500)] + [bytes(range(256)) * 2_048]
        for payload in payloads:
            assert one.publish(LocalMessage("a.b", payload))
        await until(lambda: len(received) == len(payloads))
        assert [message.payload for message in received] == payloads
        await one.close()
        await other.close()

    asyncio.run(go())


@pytest.mark.stack
def test_a_peer_without_proof_is_refused(secure: Secure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a certificate of another authority on either side, or in plain text, the connector does not open."""
    for connector in ("nats.nats_connector", "mqtt.mqtt_connector", "amqp.amqp_connector"):
        monkeypatch.setattr(f"regraft.producers.nodes.{connector}.CONNECT_S_MAX", 0.5)
    stranger = LocalAuthority(tmp_path / "stranger")
    unknown = settings_of(secure, secure.connector, tmp_path, stranger)
    strange = Secure(secure.connector, secure.clear, stranger, secure.more)
    distrusted = settings_of(strange, secure.connector, tmp_path, secure.authority)
    clear = settings_of(secure, secure.clear, tmp_path, secure.authority)

    async def go() -> None:
        for settings in (unknown, distrusted, clear):
            with pytest.raises(ConnectorError):
                await connector_of(settings, "b01").start(lambda *_: None, lambda _: None)

    asyncio.run(go())


def rabbit_api_of(settings: NodeSettings) -> BrokerApi | None:
    return rabbit_api(context_of(settings, "b01", CONNECTORS["amqp"]))


def test_useless_certificates_are_named(tmp_path: Path) -> None:
    """An invalid file and a certificate without its key are each reported in one sentence."""
    files = tmp_path / "inventory.json", tmp_path / "node.json"
    lost = NodeSettings(
        "none:1", *files, broker="b01", connector="tls://127.0.0.1", connector_ca_file=tmp_path / "no.pem"
    )
    with pytest.raises(
        ConnectorError, match=r"the certificates of the connector cannot be used .*node\.connector_ca_file"
    ):
        connector_of(lost, "b01")
    half = NodeSettings(
        "none:1", *files, broker="b01", connector="tls://127.0.0.1", connector_key_file=tmp_path / "key.pem"
    )
    assert any("connector_certificate_file and connector_key_file go together" in error for error in half.errors())


def test_addresses_with_logins_are_refused(tmp_path: Path) -> None:
    """Settings are shown and logged, so neither the broker's address nor its interface's may contain a login."""
    files = tmp_path / "inventory.json", tmp_path / "node.json"
    settings = NodeSettings(
        "none:1", *files, broker="b01", connector="amqp://me:pw@127.0.0.1", connector_api="http://me:pw@127.0.0.1:15672"
    )
    errors = settings.errors()
    assert sum("holds a login" in error for error in errors) == 2
    assert not any("pw@" in error for error in errors)


def test_the_interface_may_have_a_separate_login(tmp_path: Path) -> None:
    """Without one, requests to a RabbitMQ's interface use the connector's."""
    (tmp_path / "connector").write_text("one\n")
    (tmp_path / "api").write_text("two\n")
    settings = NodeSettings(
        "none:1", tmp_path / "inventory.json", tmp_path / "node.json", broker="b01", connector="amqp://127.0.0.1",
        connector_user="me", connector_password_file=tmp_path / "connector", connector_api="http://127.0.0.1:15672",
    )  # fmt: skip
    assert rabbit_api_of(settings) == BrokerApi("http://127.0.0.1:15672", "me", "one")
    apart = replace(settings, connector_api_user="key", connector_api_password_file=tmp_path / "api")
    assert rabbit_api_of(apart) == BrokerApi("http://127.0.0.1:15672", "key", "two")
    beside_nats = replace(settings, connector="nats://127.0.0.1")
    assert context_of(beside_nats, "b01", CONNECTORS["nats"]).api == BrokerApi("http://127.0.0.1:15672")
    assert rabbit_api_of(replace(settings, connector_api=None)) is None
