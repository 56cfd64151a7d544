"""Clients of MQTT whose will is for an agent or a node: their broker would publish it, and no agent could refuse it."""

from __future__ import annotations

import asyncio

import mqtt5
import pytest

from regraft.producers.agents.agent import Agent
from regraft.producers.agents.broker_address import BrokerAddress
from regraft.producers.agents.mqtt_client_side import MqttSession
from tests.producers.agents.scripted_brokers import until
from tests.producers.nodes.mqtt_stand_in import stand_in


@pytest.mark.parametrize("expiry_s", [0, 60])
@pytest.mark.parametrize("topic", ["_REGRAFT/to/web2/r-1/1", "data/x"])
def test_a_client_with_a_will_for_agents_is_not_let_in(topic: str, expiry_s: int) -> None:
    """Also if its session is persistent, so that the agent would only pass bytes on."""

    async def steps() -> None:
        async with stand_in() as broker:
            agent = Agent(
                "web1", {"b01": BrokerAddress("b01", "127.0.0.1", broker.port, scheme="mqtt")}, "b01", MqttSession
            )
            await agent.start("127.0.0.1", 0)
            reader, writer = await asyncio.open_connection("127.0.0.1", agent.port)
            will = mqtt5.Will(topic, payload=b"forged")
            writer.write(mqtt5.ConnectPacket("c1", will=will, session_expiry_interval=expiry_s).write())
            first = await reader.read(1 << 10)
            refused = mqtt5.ConnAckPacket(reason_code=mqtt5.ConnAckReasonCode.NOT_AUTHORIZED).write()
            assert (first == refused) is topic.startswith("_REGRAFT/")
            if first == refused:
                await until(lambda: not agent.sessions)
            assert len(broker.greetings) == (0 if first == refused else 1)
            writer.close()
            await agent.close()

    asyncio.run(steps())


def test_each_broker_of_a_client_that_moves_has_its_will() -> None:
    """No broker can take a will later, so an agent that dies in a move leaves two; the client's own death is one."""

    async def steps() -> None:
        async with stand_in() as old, stand_in() as following:
            brokers = {"b01": old, "b02": following}
            places = {name: ("127.0.0.1", each.port) for name, each in brokers.items()}
            addresses = {name: BrokerAddress(name, *place, scheme="mqtt") for name, place in places.items()}
            agent = Agent("web1", addresses, "b01", MqttSession)
            await agent.start("127.0.0.1", 0)
            assert agent._measuring is not None
            agent._measuring.cancel()  # It connects and says goodbye, too.
            _, writer = await asyncio.open_connection("127.0.0.1", agent.port)
            will = mqtt5.Will("data/x", payload=b"gone")
            writer.write(mqtt5.ConnectPacket("c1", will=will).write())
            await until(lambda: agent.sessions and agent.sessions[0].homes.upstreams)
            await agent.sessions[0].homes.connect_to("b02")
            assert [greeting.will for each in (old, following) for greeting in each.greetings] == [will, will]
            writer.transport.abort()
            await until(lambda: not agent.sessions)
            await until(lambda: any(isinstance(packet, mqtt5.DisconnectPacket) for packet in following.got))
            assert not any(isinstance(packet, mqtt5.DisconnectPacket) for packet in old.got)
            await agent.close()

    asyncio.run(steps())
