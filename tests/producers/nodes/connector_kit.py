"""The conformance kit: runs a requirement of test_connectors.py for every kind of connector that it concerns.

A connector of another kind passes it with one description, a subclass of ``ConnectorBroker``, listed in ``KINDS``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from regraft.producers.nodes.connectors import look_for_nodes
from regraft.producers.nodes.connectors.connector import Connector, ConnectorError, LocalMessage
from tests.producers.nodes.connector_brokers import (
    AmqpBroker,
    ConnectorBroker,
    Feature,
    MemoryBroker,
    MqttBroker,
    NatsBroker,
    OldMqttBroker,
    Received,
)
from tests.wait_until import PATIENCE_S

KINDS: dict[str, type[ConnectorBroker]] = {
    "memory": MemoryBroker,
    "nats": NatsBroker,
    "mqtt": MqttBroker,
    "mqtt 3.1.1": OldMqttBroker,
    "amqp": AmqpBroker,
}
STEPS_S_MAX = 180.0
Steps = Callable[[Any, Received], Awaitable[None]]


def requirement(
    *features: Feature, is_durable: bool = False, is_guarded: bool = False
) -> Callable[[Steps], Callable[..., None]]:
    """Make a test of steps, for each kind that has these features; the options are those of a broker."""
    kinds = [kind for kind, broker in KINDS.items() if not set(features) & set(broker.CANNOT)]

    def decorate(steps: Steps) -> Callable[..., None]:
        @pytest.mark.parametrize("kind", kinds)
        def test(kind: str, tmp_path: Path) -> None:
            more = KINDS[kind].DURABLE if is_durable else {}
            run_connector(kind, tmp_path, steps, is_guarded=is_guarded, **more)

        for name in ("__name__", "__qualname__", "__doc__", "__module__"):
            setattr(test, name, getattr(steps, name))
        return test

    return decorate


def run_connector(kind: str, directory: Path, steps: Steps, **more: Any) -> None:
    """Run steps with a broker of that kind, or skip the test if it is not installed; ``more`` are settings."""
    needs(kind)

    async def go() -> None:
        received = Received()
        async with broker_of(kind, received, directory, **more) as broker:
            await asyncio.wait_for(steps(broker, received), STEPS_S_MAX)

    asyncio.run(go())


@asynccontextmanager
async def broker_of(kind: str, received: Received, directory: Path, **more: Any) -> AsyncIterator[Any]:
    """Yield a broker of that kind with one client, and a connector that is not open yet."""
    broker = KINDS[kind](received, directory, **more)
    await broker.begin()
    try:
        yield broker
    finally:
        await broker.end()


def needs(kind: str) -> None:
    """Skip the test if that kind of broker is not installed."""
    KINDS[kind].needs()


async def refusal_of(make_connector: Callable[[], Connector]) -> str:
    """Return why a connector does not open, once the server has answered: a busy one takes longer than it waits."""
    reason = "no answer"
    while "no answer" in reason:
        with pytest.raises(ConnectorError) as refused:
            await make_connector().start(lambda *_: None, lambda _: None)
        reason = str(refused.value)
    return reason


async def must_give_way(connector: Connector, node: str) -> None:
    """Check that a connector does not open since a node is open, however long its answer takes."""
    with pytest.MonkeyPatch.context() as patient:
        patient.setattr(look_for_nodes, "ANSWER_S_MAX", PATIENCE_S)
        with pytest.raises(ConnectorError, match=f"node {node}"):
            await connector.start(lambda *_: None, lambda _: None)
    assert not connector.is_open


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.005)


async def opened(broker: Any, received: Received) -> Connector:
    """Open the connector of a broker."""
    connector: Connector = broker.connector
    await connector.start(lambda *one: received.interest.append(one), received.messages.append)
    assert connector.is_open
    return connector


async def all_arrived(broker: Any, connector: Connector) -> None:
    """Wait until the broker has all that a connector has sent it, acknowledgements, too: a message behind it is out."""
    await broker.want("behind")
    assert connector.publish(LocalMessage("behind", b""))
    await until(lambda: bool(broker.got("behind")))
