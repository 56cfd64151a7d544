"""Stamps of messages that are handed over, the search for other nodes, and echoes."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as some

from regraft.producers.nodes.connectors import look_for_nodes
from regraft.producers.nodes.connectors.connector import ConnectorError, LocalMessage
from regraft.producers.nodes.connectors.connector_checks import ConnectorChecks
from regraft.producers.nodes.connectors.look_for_nodes import NodeSearch
from regraft.producers.nodes.connectors.stamps import Stamp, Stamps
from regraft.producers.nodes.nats.nats_protocol import with_header
from regraft.schemas.wire_grammar import block_error

NAMES = some.text(some.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)
SUBJECT = "data.b01"
OTHER = LocalMessage("other", b"1")


def stamped(message: LocalMessage, stamps: Stamps) -> LocalMessage:
    block = with_header(message.headers, stamps.header.encode(), stamps.stamp_of(message).encode())
    return LocalMessage(message.subject, message.payload, headers=block)


@given(NAMES, NAMES, some.integers(0, 1 << 53), some.sampled_from(["a", "a.b", "wärme.东京"]))
def test_a_stamp_says_who_handed_over_which_message(broker: str, publisher: str, number: int, subject: str) -> None:
    """Any name fits a header line, and is read as it was; messages of another overlay have no stamp of this one."""
    message = LocalMessage(subject, b"x", headers=b"NATS/1.0\r\nA: b\r\n\r\n", publisher=publisher, number=number)
    sent = stamped(message, Stamps("regraft", broker))
    assert block_error(sent.headers) == ""
    assert Stamps("regraft", "another").met(sent) == Stamp(broker, publisher, number)
    assert Stamps("other", "another").met(sent) is None
    assert Stamps("regraft", "another").cleared(sent.headers) == message.headers


def test_a_stamp_says_where_and_in_which_epoch_a_message_was_published() -> None:
    """So that the agent of a client that moves knows whether the old home or the next one has it."""
    message = LocalMessage(SUBJECT, b"x", publisher="p", number=7, home="b 03", epoch=12)
    sent = stamped(message, Stamps("regraft", "b01"))
    assert Stamps("regraft", "another").met(sent) == Stamp("b01", "p", 7, "b 03", 12)


@given(some.binary(max_size=60))
def test_no_value_of_the_header_is_trusted(value: bytes) -> None:
    """Whatever a client writes into the header, reading it does not fail, and it does not cross."""
    stamps = Stamps("regraft", "b01")
    line = b"NATS/1.0\r\nRegraft-Carried-regraft: " + value.replace(b"\r", b"").replace(b"\n", b"") + b"\r\n\r\n"
    stamps.met(LocalMessage("a", b"", headers=line))
    assert b"arried" not in stamps.cleared(line)


def test_what_the_overlay_handed_over_does_not_cross_again() -> None:
    """It is counted, and the node that carried it is named; the same headers on another subject are a new message."""
    counts: Counter[str] = Counter()
    taken: list[LocalMessage] = []
    released: list[int] = []
    checks = ConnectorChecks("b01", counts, released.append, "regraft")
    checks.begin(lambda *_: None, taken.append)
    theirs = stamped(LocalMessage(SUBJECT, b"1", publisher="p"), Stamps("regraft", "b02"))
    ours = stamped(LocalMessage(SUBJECT, b"1", publisher="p"), Stamps("regraft", "b01"))
    checks.note_message(ours)
    assert (counts, checks.error) == ({"returned": 1}, "")
    checks.note_message(theirs)
    checks.note_message(LocalMessage(theirs.subject, b"1", headers=theirs.headers, receipt=7))
    assert (taken, released, counts["carried_by_another"]) == ([], [7], 2)
    assert "node b02" in checks.error
    checks.note_message(LocalMessage("answers.b01", b"2", headers=theirs.headers))
    assert taken == [LocalMessage("answers.b01", b"2", headers=b"NATS/1.0\r\n\r\n")]


class Air:
    """A broker that delivers everything to all other searches at once."""

    def __init__(self) -> None:
        self.searches: list[NodeSearch] = []

    def search(self, node: str, overlay: str = "regraft") -> NodeSearch:
        def send(message: LocalMessage) -> None:
            for each in self.searches:
                if each is not found:
                    asyncio.get_running_loop().call_soon(each.receive, message)

        found = NodeSearch(overlay, node, send)
        self.searches.append(found)
        return found


def test_nodes_that_reach_each_other_find_out_before_they_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node gives way to one that is open, whatever its name; of two that open together, the first by name opens."""
    monkeypatch.setattr(look_for_nodes, "ANSWER_S_MAX", 0.5)

    async def go() -> None:
        air = Air()
        last, other = air.search("b.9"), air.search("b00", "another")
        await last.look()
        await other.look()
        first = air.search("b 1")
        with pytest.raises(ConnectorError, match=r"node b\.9"):
            await first.look()
        assert (last.is_open, first.is_open, other.is_open) == (True, False, True)
        air = Air()
        last, first = air.search("b.9"), air.search("b 1")
        outcomes = await asyncio.gather(last.look(), first.look(), return_exceptions=True)
        assert isinstance(outcomes[0], ConnectorError)
        assert (outcomes[1], first.is_open) == (None, True)

    asyncio.run(go())


def test_a_process_that_was_held_up_does_not_miss_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """When it resumes, the answer has come and the time is up."""
    monkeypatch.setattr(look_for_nodes, "ANSWER_S_MAX", 0.05)

    async def go() -> None:
        search = NodeSearch("regraft", "b02", lambda _: None)
        loop = asyncio.get_running_loop()
        loop.call_later(0.01, time.sleep, 0.1)
        loop.call_later(0.02, partial(search.note, "b01", is_open=True))
        with pytest.raises(ConnectorError, match="node b01"):
            await search.look()
        assert not search.is_open

    asyncio.run(go())


def test_an_open_node_gives_way_to_the_first_by_name_when_a_link_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ask once in a while; the one whose name comes later closes, once."""
    monkeypatch.setattr(look_for_nodes, "ANSWER_S_MAX", 0.05)

    async def go() -> None:
        air = Air()
        pair = [air.search("b02"), air.search("b01")]
        for each in pair:
            air.searches = [each]
            await each.look()
        gave_way: list[str] = []
        for each in pair:
            each.on_found = gave_way.append
        air.searches = pair
        for each in (*pair, *pair):
            each.ask()
            await asyncio.sleep(0.01)
        assert (gave_way, [each.is_open for each in pair]) == (["b01"], [False, True])

    asyncio.run(go())


def test_a_way_in_one_direction_makes_its_end_unhealthy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Questions of an open node arrive, answers do not get back: both stay open, and the end of the way names it."""
    monkeypatch.setattr(look_for_nodes, "ANSWER_S_MAX", 0.05)

    async def go() -> None:
        to_end: list[LocalMessage] = []
        end, begin = NodeSearch("regraft", "b01", lambda _: None), NodeSearch("regraft", "b02", to_end.append)
        checks = ConnectorChecks("b01", Counter(), lambda _: None, "regraft", end)
        await end.look()
        await begin.look()
        assert all(end.receive(message) for message in to_end)
        assert not checks.error  # It may be about to refuse.
        begin.ask()
        assert end.receive(to_end[-1])
        assert "node b02" in checks.error
        assert end.is_open
        assert begin.is_open
        monkeypatch.setattr(look_for_nodes, "HEARD_S", 0.0)
        assert not checks.error

    asyncio.run(go())


def test_an_old_answer_is_not_a_living_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer to a former incarnation's question, as a durable queue may hold, changes nothing; nor does nonsense."""
    monkeypatch.setattr(look_for_nodes, "ANSWER_S_MAX", 0.05)

    async def go() -> None:
        search = NodeSearch("regraft", "b02", lambda _: None)
        looking = asyncio.create_task(search.look())
        await asyncio.sleep(0)
        subject = look_for_nodes.node_subject("regraft", "b01")
        for payload in (b'{"answers": "00", "is_open": true}', b"[]", b"{", b'{"asks": 7}', b"\xff", b"[" * 100_000):
            assert search.receive(LocalMessage(subject, payload))
        await looking
        assert search.is_open

    asyncio.run(go())
