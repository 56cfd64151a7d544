"""Clients of real Mosquittos at their agent: it is a pipe, whatever version and quality of service they use."""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion

from regraft.infra.local.make_certificates import LocalAuthority
from regraft.producers.agents.agent import Agent
from regraft.producers.agents.broker_address import BrokerAddress
from regraft.producers.agents.mqtt_client_side import MqttSession
from regraft.schemas.stay_reasons import StayReason
from tests.producers.nodes.mqtt_brokers import MqttClient, MqttServer, needs_mosquitto
from tests.wait_until import PATIENCE_S

pytestmark = pytest.mark.stack


def agent_of(servers: dict[str, MqttServer], home: str, name: str = "web1") -> Agent:
    brokers = {each: BrokerAddress(each, "127.0.0.1", server.port, scheme="mqtt") for each, server in servers.items()}
    return Agent(name, brokers, home, MqttSession)


async def until(condition: Any) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("version", [4, 5])
def test_an_agent_is_a_pipe(version: int, tmp_path: Path) -> None:
    """Messages of each QoS, retained ones, overlapping filters and ends of subscriptions are as without an agent."""
    needs_mosquitto()
    asyncio.run(_use_a_pipe(version, tmp_path))


async def _use_a_pipe(version: int, directory: Path) -> None:
    with MqttServer("b01", directory) as server:
        agent = agent_of({"b01": server}, "b01")
        await agent.start("127.0.0.1", 0)
        got: dict[str, list[tuple[str, bytes, int, bool]]] = {"direct": [], "agent": []}

        def take(way: str, message: Any) -> None:
            got[way].append((message.topic, bytes(message.payload), message.qos, bool(message.retain)))

        clients = {
            "direct": MqttClient(server.port, lambda message: take("direct", message), "direct", version),
            "agent": MqttClient(agent.port, lambda message: take("agent", message), "by agent", version),
        }
        for client in clients.values():
            await client.connected()
        await clients["direct"].publish("kept/a", b"kept", qos=1, retain=True)
        for client in clients.values():
            for pattern, qos in (("a/#", 1), ("a/b", 1), ("kept/+", 1), ("/#", 2)):
                await client.subscribe(pattern, qos)
        topics = ("a", "a/b", "a/b/c", "/", "/x", "other")
        for client in clients.values():
            for topic in topics:
                for qos in (0, 1, 2):
                    await client.publish(topic, b"%d" % qos, qos=qos)
        await until(lambda: len(got["agent"]) == len(got["direct"]) > 20)
        await asyncio.sleep(0.2)
        assert sorted(got["agent"]) == sorted(got["direct"])
        for client in clients.values():
            await client.unsubscribe("a/#")
        got["agent"].clear()
        got["direct"].clear()
        await clients["direct"].publish("a/b", b"left", qos=1)
        await until(lambda: got["agent"] and got["direct"])
        assert got["agent"] == got["direct"] == [("a/b", b"left", 1, False)]
        for client in clients.values():
            client.close()
        await until(lambda: not agent.sessions)
        await agent.close()


@pytest.mark.parametrize("version", [4, 5])
def test_qos_0_does_not_overtake_qos_1(version: int, tmp_path: Path) -> None:
    """The agent takes all that the broker has; a client that has 20 messages under way gets QoS 0 first there."""
    needs_mosquitto()
    asyncio.run(_publish_in_turn(version, tmp_path))


async def _publish_in_turn(version: int, directory: Path) -> None:
    with MqttServer("b01", directory) as server:
        agent = agent_of({"b01": server}, "b01")
        await agent.start("127.0.0.1", 0)
        got: list[int] = []
        client = await MqttClient(agent.port, lambda each: got.append(int(each.payload)), "c", version).connected()
        await client.subscribe("a", 1)
        other = await MqttClient(server.port, lambda _: None, "p").connected()
        for number in range(1_000):
            other.paho.publish("a", b"%d" % number, number % 2)
            if number % 100 == 99:
                await asyncio.sleep(0.05)
        await until(lambda: len(got) == 1_000)
        assert got == sorted(got)
        for each in (client, other):
            each.close()
        await agent.close()


def test_clients_that_two_brokers_cannot_serve_stay(tmp_path: Path) -> None:
    """The agent sees why in their first packets, and passes on what they do."""
    needs_mosquitto()
    asyncio.run(_keep_some(tmp_path))


async def _keep_some(directory: Path) -> None:
    with MqttServer("b01", directory) as server:
        agent = agent_of({"b01": server}, "b01")
        await agent.start("127.0.0.1", 0)
        got: list[bytes] = []
        reasons = []
        for number, (version, has_session, pattern, qos) in enumerate(
            ((4, True, "a", 1), (4, False, "$share/g/a", 1), (5, False, "a", 2), (4, False, "a", 1))
        ):
            client = MqttClient(
                agent.port, lambda message: got.append(message.payload), f"c{number}", version, has_session=has_session
            )
            await client.connected()
            await client.subscribe(pattern, qos)
            await client.publish("a", b"%d" % number, qos=1)
            await until(lambda number=number: b"%d" % number in got)
            reasons += [session.client.stays_because for session in agent.sessions]
            client.close()
            await until(lambda: not agent.sessions)
        assert reasons == [StayReason.SESSION, StayReason.SERVER_TOPICS, StayReason.QOS_2, None]
        await agent.close()


def test_wills_logins_and_identifiers_are_as_at_the_broker(tmp_path: Path) -> None:
    """A client that dies has its will published, one that leaves has not; an identifier has one connection."""
    needs_mosquitto()
    asyncio.run(_leave_in_three_ways(tmp_path))


async def _leave_in_three_ways(directory: Path) -> None:
    with MqttServer("b01", directory) as server:
        agent = agent_of({"b01": server}, "b01")
        await agent.start("127.0.0.1", 0)
        got: list[str] = []
        watching = await MqttClient(server.port, lambda message: got.append(message.topic)).connected()
        await watching.subscribe("will/+")
        leaves = await MqttClient(agent.port, lambda _: None, "leaves", will="will/leaves").connected()
        leaves.close()
        dies = await MqttClient(agent.port, lambda _: None, "dies", will="will/dies").connected()
        dies.paho.loop_stop()
        dies.paho.socket().shutdown(socket.SHUT_RDWR)
        await until(lambda: got == ["will/dies"])
        await until(lambda: not agent.sessions)
        ends: list[Any] = []
        first = MqttClient(agent.port, lambda _: None, "same", version=5)
        first.paho.on_disconnect = lambda _client, _data, _flags, reason, *_: ends.append(reason.getName())
        await first.connected()
        first.paho.reconnect_delay_set(60, 60)
        second = await MqttClient(agent.port, lambda _: None, "same", version=5).connected()
        await until(lambda: ends == ["Session taken over"])
        assert [session.client.id for session in agent.sessions] == ["same"]
        for client in (first, second, watching):
            client.close()
        await agent.close()


def test_both_sides_may_be_encrypted_and_log_in(tmp_path: Path) -> None:
    """Each client has its own login at the broker, whose refusal it gets."""
    needs_mosquitto()
    asyncio.run(_encrypt(tmp_path))


async def _encrypt(directory: Path) -> None:
    authority, passwords = LocalAuthority(directory / "tls"), directory / "passwords"
    issued = authority.issue("server")
    subprocess.run(["mosquitto_passwd", "-b", "-c", passwords, "web", "x"], check=True)
    listening = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    listening.load_cert_chain(issued.certificate_file, issued.key_file)
    trust = ssl.create_default_context(cafile=authority.ca_file)
    more = f"certfile {issued.certificate_file}\nkeyfile {issued.key_file}\npassword_file {passwords}\n"
    with MqttServer("b01", directory, more) as server:
        server.file.write_text(server.file.read_text().replace("allow_anonymous true", "allow_anonymous false"))
        server.stop()
        server.start()
        agent = Agent(
            "web1", {"b01": BrokerAddress("b01", "127.0.0.1", server.port, trust, "mqtts")}, "b01", MqttSession
        )
        await agent.start("127.0.0.1", 0, listening)
        for user, expected in (("web", "Success"), ("wrong", "Not authorized")):
            answers: list[str] = []
            client = paho.Client(CallbackAPIVersion.VERSION2, user, protocol=5)
            client.tls_set_context(trust)
            client.username_pw_set(user, "x")
            client.on_connect = lambda _client, _data, _flags, reason, *_, to=answers: to.append(reason.getName())
            await asyncio.to_thread(client.connect, "127.0.0.1", agent.port)
            client.loop_start()
            await until(lambda answers=answers: answers)
            assert answers[0] == expected
            client.disconnect()
            client.loop_stop()
        await agent.close()
