"""Clients of NATS whose user lacks a right that agents need: they stay, and their agent knows it before any plan."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from regraft.producers.agents.agent import Agent
from regraft.producers.agents.broker_address import BrokerAddress, UpstreamError
from tests.producers.nodes.nats_servers import NatsServer, needs_nats

pytestmark = pytest.mark.stack

NOTES, ALONE = "_REGRAFT.agent.web1.>", "_REGRAFT.to.web1.>"
RIGHTS = {"publish": ("data.>", NOTES), "subscribe": ("data.>", "_INBOX.>", NOTES, ALONE)}


def server_without(name: str, directory: Path, missing: tuple[str, str] | None = None) -> NatsServer:
    """Return a server whose user may do what the documents say, except for one thing."""
    rights = [
        f"{verb}: [{', '.join(repr(each) for each in subjects if (verb, each) != missing)}]"
        for verb, subjects in RIGHTS.items()
    ]
    user = f"{{ user: web, password: secret, permissions: {{ {', '.join(rights)} }} }}"
    return NatsServer(name, directory, f"authorization {{ users: [{user}] }}").start()


@pytest.mark.parametrize("missing", [None, ("publish", NOTES), ("subscribe", NOTES), ("subscribe", ALONE)])
def test_a_client_stays_if_its_user_lacks_a_right_at_either_broker(
    missing: tuple[str, str] | None, tmp_path: Path
) -> None:
    needs_nats()
    asyncio.run(_log_in(tmp_path, missing))


async def _log_in(directory: Path, missing: tuple[str, str] | None) -> None:
    import nats

    servers = {"b01": server_without("b01", directory), "b02": server_without("b02", directory, missing)}
    addresses = {name: BrokerAddress(name, "127.0.0.1", each.client_port) for name, each in servers.items()}
    try:
        for home, other in (("b01", "b02"), ("b02", "b01")):
            agent = Agent("web1", addresses, home)
            await agent.start("127.0.0.1", 0)
            url, errors = f"nats://127.0.0.1:{agent.port}", list[Exception]()

            async def note(error: Exception, errors: list[Exception] = errors) -> None:
                errors.append(error)

            client = await nats.connect(url, user="web", password="secret", error_cb=note)
            await client.subscribe("data.*")
            await client.flush()
            (session,) = agent.sessions
            assert bool(session.client.stays_because) is (missing is not None and home == "b02")
            if missing is None or home == "b02":
                await session.homes.connect_to(other)
            else:
                with pytest.raises(UpstreamError, match="refuses: Permissions Violation"):
                    await session.homes.connect_to(other)
            assert not errors
            await client.close()
            await agent.close()
    finally:
        for server in servers.values():
            server.stop()
