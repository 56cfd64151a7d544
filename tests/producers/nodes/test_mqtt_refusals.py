"""What an MQTT broker refuses is counted, at QoS 0 too, where it answers nothing."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from regraft.producers.nodes.connectors.connector import LocalMessage
from regraft.producers.nodes.mqtt.mqtt_connector import MqttConnector
from regraft.producers.nodes.mqtt.topic_trials import AGAIN_S, PAUSE_S, TopicTrials
from tests.producers.nodes.connector_kit import until
from tests.producers.nodes.mqtt_brokers import LOGS_RELOADS, MqttClient, MqttServer, cut, needs_mosquitto
from tests.wait_until import PATIENCE_S

ALLOWED = "topic readwrite #\ntopic read $SYS/#\n"


@pytest.mark.stack
def test_messages_of_qos_0_that_the_broker_denies_are_counted(tmp_path: Path) -> None:
    """All but those behind the first, until the broker has answered that; topics that are allowed stay at QoS 0."""
    needs_mosquitto()
    rules = tmp_path / "rules"
    rules.write_text(f"{ALLOWED}topic deny denied/#\n")
    rules.chmod(0o600)
    server = MqttServer("b01", tmp_path, f"acl_file {rules}\n{LOGS_RELOADS}").start()

    async def go() -> None:
        connector, levels = MqttConnector(server.url, "b01"), []
        await connector.start(lambda *_: None, lambda _: None)
        client = await MqttClient(server.port, lambda message: levels.append(message.qos)).connected()
        await client.subscribe("#")
        for number in range(20):
            assert connector.publish(LocalMessage("denied.x", b"%d" % number))
            await asyncio.sleep(0.05)
        await until(lambda: connector.counts["broker_refused"] >= 18)
        for number in range(50):
            assert connector.publish(LocalMessage("allowed.x", b"%d" % number))
        await until(lambda: len(levels) >= 50)
        assert sum(levels) <= 1
        rules.write_text(ALLOWED)
        await server.reload()
        del levels[:]
        for number in range(20):
            assert connector.publish(LocalMessage("denied.x", b"%d" % number))
            await asyncio.sleep(0.05)
        await until(lambda: len(levels) == 20)
        assert levels[0] == 1
        assert sum(levels) <= 3
        client.close()
        await connector.close()

    try:
        asyncio.run(asyncio.wait_for(go(), PATIENCE_S))
    finally:
        server.stop()


@pytest.mark.stack
def test_a_message_of_qos_0_that_is_tried_comes_once_if_the_connection_is_cut(tmp_path: Path) -> None:
    """The broker has taken it, but its answer is lost: it would come a second time."""
    needs_mosquitto()
    server = MqttServer("b01", tmp_path).start()

    async def go() -> None:
        connector, came = MqttConnector(server.url, "b01"), list[bytes]()
        await connector.start(lambda *_: None, lambda _: None)
        client = await MqttClient(server.port, lambda message: came.append(message.payload)).connected()
        await client.subscribe("data/+", 1)
        assert server.process is not None
        server.process.send_signal(signal.SIGSTOP)
        assert connector.publish(LocalMessage("data.x", b"tried"))
        assert connector._session._tried
        await asyncio.sleep(0.1)
        cut(connector)
        await until(lambda: not connector.is_open)
        server.process.send_signal(signal.SIGCONT)
        await until(lambda: connector.is_open and not connector._session._kept)  # It greets agents, at QoS 1.
        assert connector.publish(LocalMessage("data.z", b"later"))
        await until(lambda: b"later" in came)
        assert came == [b"tried", b"later"]
        client.close()
        await connector.close()

    try:
        asyncio.run(asyncio.wait_for(go(), PATIENCE_S))
    finally:
        server.stop()


def test_few_messages_are_tried() -> None:
    """Some at once, then one in a second, each topic once in a minute, none while others wait; all that are refused."""
    trials = TopicTrials()
    assert [trials.is_due(f"n{number}", 100.0, is_waiting=False) for number in range(8)] == [True] * 6 + [False] * 2
    assert not trials.is_due("a", 100.0 + PAUSE_S, is_waiting=True)
    assert trials.is_due("a", 100.0 + PAUSE_S, is_waiting=False)
    assert not trials.is_due("b", 100.5 + PAUSE_S, is_waiting=False)
    assert not trials.is_due("a", 100.0 + 2 * PAUSE_S, is_waiting=False)
    assert trials.is_due("a", 100.0 + PAUSE_S + AGAIN_S, is_waiting=False)
    trials.note("a", is_refused=True)
    assert trials.is_due("a", 200.0, is_waiting=True)
    trials.note("a", is_refused=False)
    assert not trials.is_due("a", 200.0, is_waiting=True)
