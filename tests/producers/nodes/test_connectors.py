"""What every connector must do: the requirements of the conformance kit, for each kind of connector that they
concern.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from regraft.producers.nodes.connectors.connector import ConnectorError, LocalMessage
from regraft.producers.nodes.connectors.stamps import Stamps
from tests.producers.nodes.connector_brokers import Received
from tests.producers.nodes.connector_kit import all_arrived, must_give_way, opened, refusal_of, requirement, until
from tests.producers.nodes.hostile_messages import HOSTILE, ODD
from tests.producers.nodes.http_stand_in import answering
from tests.producers.nodes.server_process import free_port
from tests.producers.nodes.test_stamps import stamped

pytestmark = pytest.mark.stack

MESSAGES = (
    LocalMessage("a.empty", b""),
    LocalMessage("a.binary", bytes(range(256)) + b"\r\nLMSG x 1\r\n"),
    LocalMessage("a.megabyte", bytes(range(256)) * 4_096),
    LocalMessage("", b"an unusual name"),  # Each broker has its own.
)
WITH_HEADERS = (
    LocalMessage("a.reply", b"question", "_INBOX.x.1"),
    LocalMessage("a.headers", b"x", headers=b"NATS/1.0\r\nA: b\r\nRegraft-Publisher: p 7\r\n\r\n"),
    LocalMessage("a.both", b"", "_INBOX.y", b"NATS/1.0\r\nA: b\r\n\r\n"),
)
ODD_NAMES = ("eu.west/1 b", "k\u00fchlhaus \u6771\u4eac 1 #", "\u6771" * 256)


def numbers(messages: list[LocalMessage]) -> list[int]:
    return [int(message.payload) for message in messages]


# --- interest --------------------------------------------------------------------------------------------------------


@requirement()
async def test_interest_begins_and_ends(broker: Any, received: Received) -> None:
    """Each subject is reported once for any number of clients and groups; its end, when the last one leaves."""
    await opened(broker, received)
    first = await broker.want("before.*")
    await until(lambda: received.wanted == {"before.*"})
    second = await broker.want("before.*", "group")
    third = await broker.want("after.>")
    after = broker.subjects("after.>")
    await until(lambda: set(after) < received.wanted)
    await first()
    await third()
    await until(lambda: received.wanted == {"before.*"})
    await second()
    await until(lambda: not received.wanted)
    changes = [(subject, wanted) for wanted in (True, False) for subject in after]
    assert received.interest == [("before.*", True), *changes, ("before.*", False)]


@requirement("earlier interest")
async def test_interest_may_exist_before_the_connector_opens(broker: Any, received: Received) -> None:
    """What is wanted at the start is reported, and ends like any other."""
    leave = await broker.want("before.*")
    await opened(broker, received)
    await until(lambda: received.wanted == {"before.*"})
    await leave()
    await until(lambda: not received.wanted)


@requirement("groups")
async def test_a_member_of_a_group_gets_each_message_once(broker: Any, received: Received) -> None:
    """Two members of a group and one of another share 50 messages each; who is in no group gets them all."""
    connector = await opened(broker, received)
    leave = [await broker.want("work", queue) for queue in ("g", "g", "h", "")]
    leave.append(await broker.want("last"))  # The server reports each group, and reports in order.
    await until(lambda: received.wanted == {"work", "last"})
    for number in range(50):
        assert connector.publish(LocalMessage("work", b"%d" % number))
    await until(lambda: len(broker.got("work")) >= 150)
    await asyncio.sleep(0.1)
    assert sorted(numbers(broker.got("work"))) == sorted(3 * [*range(50)])
    for one in leave:
        await one()
    await until(lambda: not received.wanted)
    assert received.interest == [("work", True), ("last", True), ("work", False), ("last", False)]


@requirement("asking")
async def test_what_is_not_asked_for_does_not_pass_the_connector(broker: Any, received: Received) -> None:
    """Until another broker wants a subject, local messages with it stay at the broker; then they arrive at once."""
    broker.connector.ask_only(())
    connector = await opened(broker, received)
    await broker.publish(LocalMessage("wanted.a", b"1"))
    asked = connector.ask_for(["wanted.>"])
    assert asked is not None
    await asked
    await broker.publish(LocalMessage("other", b"2"))
    await broker.publish(LocalMessage("wanted.a", b"3"))
    await until(lambda: bool(received.messages))
    assert numbers(received.messages) == [3]


@requirement("asking")
async def test_what_becomes_wanted_while_a_connector_opens_is_asked_for(broker: Any, received: Received) -> None:
    """A subscription of another broker may arrive at any moment of a connector's start."""
    connector, asked = broker.connector, 0
    connector.ask_only(())
    opening = asyncio.create_task(connector.start(lambda *_: None, received.messages.append))
    while not opening.done():
        connector.ask_for([f"wanted.{asked}"])
        asked += 1
        await asyncio.sleep(0.002)
    await opening
    await until(lambda: connector.ask_for(()) is None)
    for number in range(asked):
        await broker.publish(LocalMessage(f"wanted.{number}", b"x"))
    await until(lambda: len(received.messages) == asked)


# --- messages --------------------------------------------------------------------------------------------------------


@requirement()
async def test_the_connector_never_receives_its_own_messages(broker: Any, received: Received) -> None:
    """A message that came through the connector is not a message of a local client."""
    connector = await opened(broker, received)
    await broker.want("echo.*")
    await until(lambda: received.wanted == {"echo.*"})
    for number in range(20):
        assert connector.publish(LocalMessage("echo.a", b"%d" % number))
    await until(lambda: len(broker.got("echo.a")) == 20)
    await broker.publish(LocalMessage("end", b""))
    await until(lambda: bool(received.messages))
    assert [message.subject for message in received.messages] == ["end"]
    assert numbers(broker.got("echo.a")) == list(range(20))


@requirement()
async def test_messages_cross_unchanged(broker: Any, received: Received) -> None:
    """In both directions subject, payload, reply and headers stay the same, byte for byte."""
    connector = await opened(broker, received)
    await broker.want("a.*")
    await broker.want(broker.UNUSUAL)
    await until(lambda: received.wanted == {"a.*", broker.UNUSUAL})
    for message in (*MESSAGES, *(() if "headers" in broker.CANNOT else WITH_HEADERS)):
        sent = replace(message, subject=message.subject or broker.UNUSUAL)
        await broker.publish(sent)
        await until(lambda: bool(received.messages))
        assert received.messages == [sent]
        received.messages.clear()
        own = int(broker.GETS_OWN_MESSAGES)
        await until(lambda: len(broker.got(sent.subject)) == own)  # noqa: B023
        assert connector.publish(sent)
        await until(lambda: len(broker.got(sent.subject)) == own + 1)  # noqa: B023
        assert broker.got(sent.subject)[-1] == sent


@requirement()
async def test_many_messages_cross_once_and_in_order(broker: Any, received: Received) -> None:
    """Five thousand messages of one client leave in the order in which they were published."""
    await opened(broker, received)
    for number in range(5_000):
        await broker.publish(LocalMessage("n", b"%d" % number))
    await until(lambda: len(received.messages) >= 5_000)
    assert numbers(received.messages) == list(range(5_000))


@requirement("durable", is_durable=True)
async def test_what_is_not_safe_comes_again(broker: Any, received: Received) -> None:
    """The next incarnation of a node gets what the last one did not release, and what was published in its absence."""
    connector = await opened(broker, received)
    for number in range(5):
        await broker.publish(LocalMessage("kept.x", b"%d" % number))
    await until(lambda: len(received.messages) == 5)
    assert all(message.receipt for message in received.messages)
    for message in received.messages[:2]:
        connector.release(message.receipt)
    await all_arrived(broker, connector)
    await connector.close()
    await broker.publish(LocalMessage("kept.x", b"5"))
    received.messages.clear()
    broker.connector = broker.make_connector(broker.name)
    connector = await opened(broker, received)
    await until(lambda: len(received.messages) >= 4)
    assert sorted(numbers(received.messages)) == [2, 3, 4, 5]
    for message in received.messages:
        connector.release(message.receipt)


# --- what is refused -------------------------------------------------------------------------------------------------


@requirement("server")
async def test_no_connector_writes_what_would_be_a_command_or_end_its_connection(
    broker: Any, received: Received
) -> None:
    """Each hostile message is refused alone; the good one behind it arrives over the same connection."""
    connector = await opened(broker, received)
    await broker.want("good")
    await broker.want("sensors.*")
    for message in HOSTILE:
        assert not connector.publish(message)
    for message in ODD:
        connector.publish(message)
    assert connector.publish(LocalMessage("good", b"last"))
    await until(lambda: any(message.payload == b"last" for message in broker.got("good")))
    assert {message.payload for messages in received.got.values() for message in messages} <= {b"odd", b"last"}
    assert all("\r" not in message.reply and message.reply[:1] != "$" for message in broker.got("good"))
    await asyncio.sleep(1.5)  # A broker that ends the connection does so at once, a client's sender a little later.
    assert connector.is_open
    assert (connector.counts["refused"], connector.counts["reopened"]) == (0, 0)


@requirement("server")
async def test_a_message_that_cannot_cross_takes_none_behind_it_along(broker: Any, received: Received) -> None:
    """Too large for the broker or for a link, or a name that one side cannot have: refused alone, and counted."""
    connector = await opened(broker, received)
    await broker.want("good")
    await until(lambda: "good" in received.wanted)
    sizes = (1_000, broker.TOO_LARGE, 1_000)
    assert [connector.publish(LocalMessage("good", bytes(size))) for size in sizes] == [True, False, True]
    for message, _ in broker.NOT_HANDED:
        assert not connector.publish(message)
    await until(lambda: len(broker.got("good")) == 2)
    for message, _ in broker.NOT_TAKEN:
        await broker.publish(message)
    await broker.publish(LocalMessage("x", b"1"))
    await until(lambda: bool(received.messages))
    assert [message.payload for message in received.messages] == [b"1"]
    expected = ["payload_too_large", *(count for _, count in (*broker.NOT_HANDED, *broker.NOT_TAKEN))]
    counts = {name: count for name, count in connector.counts.items() if name != "returned"}
    assert counts == {name: expected.count(name) for name in expected}


@requirement("server", "denial", is_guarded=True)
async def test_what_the_broker_denies_is_counted(broker: Any, received: Received) -> None:
    """A node that may publish only some subjects loses the others alone, and keeps its connection."""
    connector = await opened(broker, received)
    await broker.want("forbidden")
    await broker.want("q.a")
    await until(lambda: received.wanted >= {"q.a"})
    for subject in ("forbidden", "q.a"):
        connector.publish(LocalMessage(subject, b"1", headers=broker.ASKS_ANSWER))
    await until(lambda: bool(broker.got("q.a")))
    await until(lambda: connector.counts[broker.DENIED] == 1)
    assert not broker.got("forbidden")
    assert connector.is_open
    assert connector.counts["refused"] == 0


@requirement("server", is_guarded=True)
async def test_a_login_that_is_refused_is_called_that(broker: Any, received: Received) -> None:
    """With a wrong password, or a user that there is not, the error names the login."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(f"regraft.producers.nodes.{broker.MODULE}.CONNECT_S_MAX", 0.5)
        wrong = broker.directory / "wrong"
        wrong.write_text("wrong")
        for login in ({"connector_password_file": wrong}, {"connector_user": "nobody"}):
            assert "connector_user" in await refusal_of(partial(broker.make_connector, "b01", **login))


@requirement("server", "headers")
async def test_what_another_node_handed_over_is_not_taken(broker: Any, received: Received) -> None:
    """What is handed over has a stamp; a message with one is counted, and its node named, however it came here."""
    connector = await opened(broker, received)
    await broker.publish(stamped(LocalMessage("a.b", b"1", publisher="p"), Stamps("regraft", "b02")))
    await broker.publish(LocalMessage("a.b", b"2"))
    await until(lambda: bool(received.messages))
    assert numbers(received.messages) == [2]
    assert connector.counts["carried_by_another"] == 1
    assert "node b02" in connector.error


@requirement("server")
async def test_a_second_node_at_a_broker_does_not_open(broker: Any, received: Received) -> None:
    """It names the first one, which stays open, whichever name comes first."""
    first = await opened(broker, received)
    for name in ("b00", "b02"):
        other = broker.make_connector(name)
        await must_give_way(other, "b01")
        assert first.is_open
        await other.close()


# --- the server ------------------------------------------------------------------------------------------------------


@requirement("server")
async def test_a_restarted_server_is_used_again(broker: Any, received: Received) -> None:
    """Meanwhile messages for it are counted; afterwards old and new interest is known, and messages cross."""
    connector = await opened(broker, received)
    await broker.want("stays")
    await broker.want("goes")
    await until(lambda: received.wanted == {"stays", "goes"})
    broker.stop_server()
    await until(lambda: not connector.is_open)
    assert not connector.publish(LocalMessage("stays", b""))
    assert connector.counts["broker_away"] == 1
    await broker.restart()
    gone = set()
    if "earlier interest" in broker.CANNOT:
        gone = {"goes"}
        await until(lambda: connector.is_open)  # What is wanted until then remains unknown.
    await broker.want("stays")
    await broker.want("new")
    await until(lambda: connector.is_open and received.wanted == {"stays", "new"} | gone)
    assert connector.publish(LocalMessage("stays", b"1"))
    await until(lambda: bool(broker.got("stays")))
    await broker.publish(LocalMessage("x", b"2"))
    await until(lambda: numbers(received.messages) == [2])


@requirement("server")
async def test_a_connector_that_does_not_open_says_why(broker: Any, received: Received) -> None:
    """An address of another kind, a closed port and a port where something else answers are named."""
    with pytest.MonkeyPatch.context() as patch, answering(lambda *_: (200, {})) as other:
        patch.setattr(f"regraft.producers.nodes.{broker.MODULE}.CONNECT_S_MAX", 0.5)
        port = free_port()
        strange = other.rpartition(":")[2]
        for connector, said in (
            (f"{broker.SCHEME}://127.0.0.1:{port}", f"{port}.*{broker.ADVICE}|{broker.ADVICE}.*{port}"),
            (f"{broker.SCHEME}://127.0.0.1:{strange}", f":{strange}"),
            ("kafka://127.0.0.1", "kafka://127.0.0.1.* is not a connector"),
        ):
            with pytest.raises(ConnectorError, match=said):
                await broker.make_connector("b01", connector=connector).start(lambda *_: None, lambda _: None)


@requirement("server")
async def test_a_node_may_have_any_name(broker: Any, received: Received) -> None:
    """Messages cross in both directions, and the node's own subscription is not taken for a client's."""
    for number, name in enumerate(ODD_NAMES):
        broker.connector = broker.make_connector(name)
        connector = await opened(broker, received)
        leave = await broker.want("out")
        await until(lambda: received.wanted == {"out"})
        assert connector.publish(LocalMessage("out", b"%d" % number))
        await until(lambda: len(broker.got("out")) == number + 1)  # noqa: B023
        await broker.publish(LocalMessage("in", b"%d" % number))
        await until(lambda: len(received.messages) == number + 1)  # noqa: B023
        assert numbers(received.messages) == numbers(broker.got("out"))
        assert received.wanted == {"out"}
        await leave()
        await until(lambda: not received.wanted)
        await connector.close()
