"""Connectors to NATS servers that ask who is there, are several, or let only some subjects through."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from regraft.infra.local.make_certificates import LocalAuthority
from regraft.producers.node_settings import NodeSettings
from regraft.producers.nodes.connectors.connector import Connector, ConnectorError, LocalMessage
from regraft.producers.nodes.nats.nats_login import _sum_of, read_login
from regraft.producers.nodes.nats.nats_permissions import LeafPermissions
from regraft.producers.nodes.node_setup import connector_of
from tests.producers.nodes.connector_kit import refusal_of, until
from tests.producers.nodes.given_settings import given_settings
from tests.producers.nodes.nats_servers import NatsServer, needs_nats
from tests.producers.nodes.server_process import free_port
from tests.wait_until import PATIENCE_S

USER, ACCOUNT, OPERATOR = 20 << 3, 0, 14 << 3
HANDSHAKE_FIRST = """leafnodes {{ listen: "127.0.0.1:{port}", tls {{
  cert_file: "{certificate}", key_file: "{key}", handshake_first: true }} }}"""


class Nkey:
    """A key pair as NATS writes it; ``kind`` is the prefix of its public key."""

    def __init__(self, kind: int = USER) -> None:
        self.key = Ed25519PrivateKey.generate()
        raw = self.key.private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption())
        self.seed = _encoded(bytes([(18 << 3) | (kind >> 5), (kind & 31) << 3]) + raw)
        self.public = _encoded(bytes([kind]) + self.key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw))

    def jwt_of(self, subject: str, name: str, facts: dict[str, Any], more: dict[str, Any] | None = None) -> str:
        """Return a claim about a subject, signed by this key."""
        head = {"typ": "JWT", "alg": "ed25519-nkey"}
        claim = {"jti": name, "iat": 1, "iss": self.public, "name": name, "sub": subject, "nats": facts, **(more or {})}
        parts = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in (head, claim)]
        text = ".".join(parts)
        return f"{text}.{base64.urlsafe_b64encode(self.key.sign(text.encode())).decode().rstrip('=')}"


def _encoded(raw: bytes) -> str:
    return base64.b32encode(raw + _sum_of(raw)).decode().rstrip("=")


def settings_for(at: Path, connector: str, **more: Any) -> NodeSettings:
    return given_settings(at, "b01", connector=connector, **more)


async def opened(connector: Connector) -> list[LocalMessage]:
    received: list[LocalMessage] = []
    await connector.start(lambda *_: None, received.append)
    return received


@pytest.fixture
def _soon_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regraft.producers.nodes.nats.nats_connector.CONNECT_S_MAX", 1.0)


def run(go: Callable[[], Awaitable[None]]) -> None:
    needs_nats()

    async def steps() -> None:
        await asyncio.wait_for(go(), PATIENCE_S)

    asyncio.run(steps())


def test_the_public_key_of_a_seed_is_that_of_nats(tmp_path: Path) -> None:
    """The example of the documentation of nkeys: seed and public key belong together."""
    file = tmp_path / "user.nk"
    file.write_text("SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY\n")
    assert read_login("", "", file).public_key == "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4"
    for text in ("", "SUAAAA", "x" * 58, Nkey(ACCOUNT).seed, "SU" + "A" * 56):
        file.write_text(text)
        with pytest.raises(ConnectorError, match="holds no login"):
            read_login("", "", file)


@pytest.mark.stack
@pytest.mark.usefixtures("_soon_refused")
def test_a_login_by_nkey_is_accepted_and_another_refused(tmp_path: Path) -> None:
    """The connector opens with the seed of the user; without it, the error names the login and not the port."""
    user = Nkey()

    async def go() -> None:
        leaf_port = free_port()
        leaf = f'leafnodes {{ listen: "127.0.0.1:{leaf_port}" }}'
        accounts = f"accounts {{ A: {{ users: [{{ nkey: {user.public} }}] }} }}"
        with NatsServer("b01", tmp_path, accounts, leaf, leaf_port) as server:
            url = server.leaf_url
            file = tmp_path / "user.nk"
            file.write_text(user.seed)
            connector = connector_of(settings_for(tmp_path, url, credentials_file=file), "b01")
            await opened(connector)
            assert connector.is_open
            await connector.close()
            file.write_text(Nkey().seed)
            for login in ({}, {"credentials_file": file}):
                reason = await refusal_of(partial(connector_of, settings_for(tmp_path, url, **login), "b01"))
                assert re.search(r"refuses (no login|the nkey) .*connectors\.nats\.credentials_file", reason)

    run(go)


@pytest.mark.stack
def test_a_server_in_operator_mode_takes_a_creds_file(tmp_path: Path) -> None:
    """Operator, account and user each have a key; the .creds file holds the user's JWT and seed."""
    operator, account, user = Nkey(OPERATOR), Nkey(ACCOUNT), Nkey()
    limits = {"subs": -1, "data": -1, "payload": -1}
    wide = {**limits, "conn": -1, "leaf": -1, "imports": -1, "exports": -1, "wildcards": True}
    operator_jwt = operator.jwt_of(operator.public, "O", {"type": "operator", "version": 2})
    account_jwt = operator.jwt_of(account.public, "A", {"limits": wide, "type": "account", "version": 2})
    user_jwt = account.jwt_of(user.public, "U", {**limits, "pub": {}, "sub": {}, "type": "user", "version": 2})
    file = tmp_path / "user.creds"
    file.write_text(
        f"-----BEGIN NATS USER JWT-----\n{user_jwt}\n------END NATS USER JWT------\n\n"
        "************************* IMPORTANT *************************\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{user.seed}\n------END USER NKEY SEED------\n"
    )

    async def go() -> None:
        extra = f"operator: {operator_jwt}\nresolver: MEMORY\nresolver_preload: {{ {account.public}: {account_jwt} }}"
        with NatsServer("b01", tmp_path, extra) as server:
            connector = connector_of(settings_for(tmp_path, server.leaf_url, credentials_file=file), "b01")
            await opened(connector)
            assert connector.is_open
            await connector.close()

    run(go)


@pytest.mark.stack
def test_a_server_that_wants_tls_before_it_speaks_is_reached(tmp_path: Path) -> None:
    """A leaf port with handshake_first says nothing until TLS begins; without tls:// the error says so."""
    authority = LocalAuthority(tmp_path / "tls")
    issued = authority.issue("server")

    async def go() -> None:
        port = free_port()
        leaf = HANDSHAKE_FIRST.format(port=port, certificate=issued.certificate_file, key=issued.key_file)
        with NatsServer("b01", tmp_path, leaf=leaf, leaf_port=port):
            connector = connector_of(
                settings_for(tmp_path, f"tls://127.0.0.1:{port}", connector_ca_file=authority.ca_file), "b01"
            )
            await opened(connector)
            assert connector.is_open
            await connector.close()
            with pytest.raises(ConnectorError, match="handshake_first"):
                await opened(connector_of(settings_for(tmp_path, f"nats://127.0.0.1:{port}"), "b01"))

    run(go)


@pytest.mark.stack
def test_a_client_port_is_refused_with_the_way_out(tmp_path: Path) -> None:
    """Nodes used to connect there; the server calls their handshake unknown."""

    async def go() -> None:
        with NatsServer("b01", tmp_path) as server, pytest.raises(ConnectorError, match="leafnodes"):
            await opened(connector_of(settings_for(tmp_path, server.url), "b01"))

    run(go)


@pytest.mark.stack
def test_what_permissions_cut_is_said_and_counted(tmp_path: Path) -> None:
    """A leaf user may publish and receive only q.>: the node says so at the start, and counts what is denied."""

    async def go() -> None:
        leaf_port = free_port()
        leaf = f'leafnodes {{ listen: "127.0.0.1:{leaf_port}" }}'
        allowed = 'permissions: { publish: ["q.>"], subscribe: ["q.>"] }'
        accounts = f"accounts {{ A: {{ users: [{{ user: u, password: p, {allowed} }}] }} }}\nno_auth_user: u"
        with NatsServer("b01", tmp_path, accounts, leaf, leaf_port) as server:
            (tmp_path / "password").write_text("p")
            login = {"connector_user": "u", "connector_password_file": tmp_path / "password"}
            connector = connector_of(settings_for(tmp_path, server.leaf_url, **login), "b01")
            await opened(connector)
            assert connector._permissions.limits
            for number in range(3):
                connector.publish(LocalMessage(f"forbidden.{number}", b"x"))
            connector.publish(LocalMessage("q.a", b"x"))
            assert connector.counts["permission_denied"] == 3
            await asyncio.sleep(0.5)
            assert connector.is_open
            assert connector.counts["refused"] == 0
            await connector.close()

    run(go)


def test_permissions_may_name_what_belongs_to_servers_and_nodes() -> None:
    """A limit may deny or allow the nodes' own subjects, and JetStream's."""
    limited = LeafPermissions({"export": {"allow": ["q.>", "$JS.API.>", "_REGRAFT.>"], "deny": ["_REGRAFT.node.>"]}})
    allowed = {
        each: limited.may_publish(each) for each in ("q.a", "r.a", "$JS.API.INFO", "_REGRAFT.a", "_REGRAFT.node.o.b")
    }
    assert allowed == dict(zip(allowed, (True, False, True, True, False), strict=True))


@pytest.mark.stack
def test_a_site_keeps_its_connector_when_one_of_its_servers_dies(tmp_path: Path) -> None:
    """When one of three servers dies, the node's, clients of the others stay connected through another."""

    async def go() -> None:
        import nats

        ports = [free_port() for _ in range(3)]
        routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in ports)
        servers = [
            NatsServer(
                f"s{number}", tmp_path, f'cluster {{ name: c, listen: "127.0.0.1:{port}", routes: [{routes}] }}'
            ).start()
            for number, port in enumerate(ports)
        ]
        try:
            connector = connector_of(settings_for(tmp_path, ", ".join(server.leaf_url for server in servers)), "b01")
            interest: list[tuple[str, bool]] = []
            received: list[LocalMessage] = []
            await connector.start(lambda *each: interest.append(each), received.append)
            client = await nats.connect(servers[2].url)
            got: list[bytes] = []

            async def take(message: Any) -> None:
                got.append(message.data)

            await client.subscribe("to.client", cb=take)
            await client.flush()
            await until(lambda: ("to.client", True) in interest)
            servers[0].stop()
            await until(lambda: connector.counts["refused"] > 0 and connector.is_open)
            numbers = 0
            while not received:  # The client's server learns from the connector's what is wanted, some time after it.
                await client.publish("from.client", b"%d" % numbers)
                numbers += 1
                await asyncio.sleep(0.05)
            assert connector.publish(LocalMessage("to.client", b"2"))
            await until(lambda: got == [b"2"])
            assert ("to.client", False) not in interest
            await until(lambda: int(received[-1].payload) == numbers - 1)
            came = [int(message.payload) for message in received]
            assert came == list(range(came[0], numbers))
            await client.close()
            await connector.close()
        finally:
            for server in servers[1:]:
                server.stop()

    run(go)
