"""A login that is cancelled at the moment when the broker answers, or closes, ends without effect."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import mqtt5
import pytest

from regraft.producers.agents.broker_address import BrokerAddress
from regraft.producers.agents.mqtt_upstream import MqttUpstream
from regraft.producers.agents.nats_upstream import Upstream

PLACE = BrokerAddress("b01", "127.0.0.1", 1)


def _is_cancelled(begin: Callable[[], tuple[asyncio.Task[Any], Callable[[], None]]]) -> bool:
    async def steps() -> bool:
        task, end = begin()
        await asyncio.sleep(0.01)
        end()
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled()

    return asyncio.run(steps())


@pytest.mark.parametrize("is_answered", [True, False])
def test_a_client_that_leaves_when_its_mqtt_broker_answers_or_closes_logs_in_no_longer(is_answered: bool) -> None:
    def begin() -> tuple[asyncio.Task[Any], Callable[[], None]]:
        upstream = MqttUpstream(PLACE, cast(Any, None))
        answer = mqtt5.ConnAckPacket().write()
        end = (lambda: upstream.data_received(answer)) if is_answered else upstream.abort
        return asyncio.ensure_future(upstream.introduce(mqtt5.ConnectPacket(client_id="c"))), end

    assert _is_cancelled(begin)


def test_a_client_that_leaves_when_its_nats_server_answers_logs_in_no_longer() -> None:
    def begin() -> tuple[asyncio.Task[Any], Callable[[], None]]:
        upstream = Upstream(PLACE, cast(Any, None))
        return asyncio.ensure_future(upstream.introduce(b"CONNECT {}\r\n")), lambda: upstream.data_received(b"PONG\r\n")

    assert _is_cancelled(begin)
