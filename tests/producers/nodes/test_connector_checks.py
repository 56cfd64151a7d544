"""What no connector takes and none writes: the same hostile messages for each kind of broker, and good ones behind
them.
"""

from __future__ import annotations

import asyncio
import struct
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regraft.producers.nodes.connectors.connector import LocalMessage
from regraft.producers.nodes.connectors.connector_checks import ConnectorChecks
from regraft.schemas.wire_grammar import block_error, subject_error
from tests.producers.nodes.connector_brokers import Received
from tests.producers.nodes.connector_kit import all_arrived, broker_of, needs, opened, until
from tests.producers.nodes.hostile_messages import BLOCKS, INJECTED
from tests.producers.nodes.rabbit_servers import needs_rabbit
from tests.wait_until import PATIENCE_S

TEXTS = st.text(st.sampled_from("ab.*>$ \r\n\0\ud800é_/"), max_size=12)
MESSAGES = st.builds(
    LocalMessage, TEXTS, st.binary(max_size=3), TEXTS, st.binary(max_size=30) | st.sampled_from((b"", *BLOCKS)),
    st.integers(0, 9),
)  # fmt: skip


@given(st.lists(MESSAGES, max_size=20))
def test_every_message_is_passed_on_or_counted_and_none_is_met_twice(messages: list[LocalMessage]) -> None:
    """Used + counted = sent; what has a receipt and is refused is released at once."""
    taken: list[LocalMessage] = []
    released: list[int] = []
    counts: Counter[str] = Counter()
    checks = ConnectorChecks("b01", counts, released.append)
    checks.begin(lambda *_: None, taken.append)
    for message in messages:
        checks.note_message(message)
    refused = [message for message in messages if subject_error(message.subject) or block_error(message.headers)]
    assert len(taken) + len(refused) == len(messages)
    assert [message.receipt for message in refused if message.receipt] == released
    assert counts.total() >= len(refused)
    assert not any(subject_error(message.subject) or block_error(message.headers) for message in taken)
    assert not any(message.reply and subject_error(message.reply) for message in taken)


@pytest.mark.stack
def test_no_client_of_another_broker_gives_orders_to_a_nats_server(tmp_path: Path) -> None:
    """Nats-Rollup from elsewhere would empty a stream; ids and what clients say to each other cross."""
    needs("nats")
    lines = (
        "nats-rollup: all",
        "Nats-Expected-Last-Sequence: 9",
        "Nats-TTL: 1s",
        "Nats-Trace-Dest: x",
        "Nats-Schedule: y",
    )
    kept = "Nats-Msg-Id: 1", "Nats-Service-Error: none", "A: b"
    block = "".join(f"{line}\r\n" for line in ("NATS/1.0", *lines[:3], *kept, *lines[3:], "")).encode()

    async def steps() -> None:
        received = Received()
        async with broker_of("nats", received, tmp_path) as broker:
            connector = await opened(broker, received)
            await broker.want("good")
            await until(lambda: "good" in received.wanted)
            assert connector.publish(LocalMessage("good", b"x", headers=block))
            await until(lambda: bool(broker.got("good")))
            assert broker.got("good")[0].headers.decode().split("\r\n")[1:-2] == list(kept)

    asyncio.run(steps())


@pytest.mark.stack
def test_no_client_of_another_broker_routes_at_a_rabbitmq() -> None:
    """CC and BCC are further routing keys; a block can hold them as plain lines and with their types.

    Federation counts hops in a header: with that, what crosses an overlay would not be federated beyond it.
    """
    needs_rabbit()
    from pika import BasicProperties

    from regraft.producers.nodes.amqp.amqp_headers import block_of, properties_of

    typed = block_of(
        BasicProperties(headers={"x": ["y"], "CC": ["a"], "BCC": ["b"], "x-received-from": [{"uri": "u"}]})
    )
    plain = b"NATS/1.0\r\nCC: a\r\nBCC: b\r\nD: c\r\n\r\n"
    assert properties_of(plain, "", ("Stamp", "1")).headers == {"D": "c", "Stamp": "1"}
    assert properties_of(typed, "", ("Stamp", "1")).headers == {"x": ["y"], "Stamp": "1"}


async def raw_nats(port: int) -> Any:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    await reader.readline()
    writer.write(b'CONNECT {"verbose":false,"pedantic":false,"lang":"x","version":"1","headers":true}\r\n')
    return writer


@pytest.mark.stack
def test_no_client_of_nats_closes_the_connector(tmp_path: Path) -> None:
    """Subjects that are not UTF-8, wanted and published, odd groups, headers and replies: all others cross."""
    needs("nats")

    async def steps() -> None:
        received = Received()
        async with broker_of("nats", received, tmp_path) as broker:
            connector = await opened(broker, received)
            raw = await raw_nats(broker.server.client_port)
            for number in range(5):
                raw.write(b"SUB b.\xff 1\r\nSUB ok g\xff 2\r\nPUB a.\xff 1\r\nx\r\nPUB good r\xfe 1\r\nr\r\n")
                raw.write(b"HPUB good 23 24\r\nNATS/1.0\r\nA: b\nC: d\r\n\r\nx\r\n")
                raw.write(b"PUB good..x 1\r\nx\r\nPUB _REGRAFT.x 1\r\nx\r\nPUB good 1\r\n%d\r\n" % number)
                await raw.drain()
                await asyncio.sleep(0.2)
            await until(lambda: received.messages[-1:] != [] and received.messages[-1].payload == b"4")
            assert [m.payload for m in received.messages if m.payload.isdigit()] == [b"0", b"1", b"2", b"3", b"4"]
            assert {m.subject for m in received.messages} == {"good"}
            assert not any(m.reply for m in received.messages)
            assert all("\ufffd" in subject or subject == "ok" for subject in received.wanted)
            assert connector.publish(LocalMessage("ok", b"x"))
            await asyncio.sleep(1.5)
            assert connector.is_open
            assert connector.counts["refused"] == 0
            raw.close()

    asyncio.run(steps())


class _Raw(bytes):
    """A header's value in AMQP's encoding, type and all."""


@pytest.mark.stack
def test_no_client_of_rabbitmq_blocks_the_queue(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Times in ms, types that there are not, replies with line ends, names of servers: all others cross, durably."""
    needs_rabbit()
    from pika import data

    encode = data.encode_value

    def encode_raw(pieces: list[bytes], value: Any) -> int:
        if not isinstance(value, _Raw):
            return int(encode(pieces, value))
        pieces.append(bytes(value))
        return len(value)

    monkeypatch.setattr(data, "encode_value", encode_raw)

    async def steps() -> None:
        received = Received()
        async with broker_of("amqp", received, tmp_path, durable_session=True) as broker:
            connector = await opened(broker, received)
            publish = broker.client.publish
            time_ms = _Raw(b"T" + struct.pack(">Q", 1_795_672_537_000))
            fraction = _Raw(b"d" + struct.pack(">d", 0.5))
            await publish("a.time", b"1", headers={"sent": time_ms})
            await publish("a.odd", b"2", headers={"x": fraction, "t": {"deep": [None, True, 2**40, b"\xff"]}})
            await publish("a.reply", b"3", reply_to=INJECTED)
            for key in ("$JS.API.STREAM.PURGE.ORDERS", "_REGRAFT.x", "a\r\nb", "a.\x01", "a.*"):
                await publish(key, b"x")
            await publish("a.last", b"4")
            await until(lambda: len(received.messages) == 4)
            assert [message.payload for message in received.messages] == [b"1", b"2", b"3", b"4"]
            assert received.messages[2].reply == ""
            assert not any(map(block_error, (message.headers for message in received.messages)))
            assert connector.counts["refused"] == 0
            for message in received.messages:
                connector.release(message.receipt)
            await all_arrived(broker, connector)
            await connector.close()
            again: list[LocalMessage] = []
            broker.connector = broker.make_connector("b01")
            await broker.connector.start(lambda *_: None, again.append)
            await publish("a.next", b"5")
            await until(lambda: bool(again))
            assert [message.payload for message in again] == [b"5"]

    asyncio.run(asyncio.wait_for(steps(), PATIENCE_S))
