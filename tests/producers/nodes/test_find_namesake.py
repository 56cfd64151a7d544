"""A node that is about to begin notices a running process with its name, and takes nothing else for one."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from regraft.infra.local.make_certificates import LocalAuthority
from regraft.producers.nodes.links import find_namesake
from regraft.producers.nodes.links.carried_messages import LinkError
from regraft.producers.nodes.links.find_namesake import has_namesake
from regraft.producers.nodes.links.link_connection import LinkConnection
from regraft.producers.nodes.links.link_session import LinkSession
from regraft.producers.nodes.links.run_links import Links, LinkTls
from tests.producers.nodes.test_run_links import LIMITS, tls_with

ADDRESSES = {"b01": ("127.0.0.1", 0), "b02": ("127.0.0.1", 0)}


async def _answer(asked: str, tls: LinkTls | None = None, asked_tls: LinkTls | None = None) -> bool:
    """Return whether a node that is about to begin as ``asked`` finds one at the address of a running b01."""
    links = Links("b01", "1", ADDRESSES, lambda *_: None, lambda _: None, LIMITS, tls)
    port = await links.bind("127.0.0.1", 0)
    await links.start()
    try:
        return await has_namesake(LinkSession(asked, "2"), "127.0.0.1", port, asked_tls or tls)
    finally:
        await links.close()


@pytest.mark.parametrize("asked", ["b01", "b02"])
def test_only_a_node_of_the_same_name_is_a_namesake(asked: str) -> None:
    assert asyncio.run(_answer(asked)) is (asked == "b01")


def test_a_namesake_is_noticed_with_tls_too(tmp_path: Path) -> None:
    authority = LocalAuthority(tmp_path)
    assert asyncio.run(_answer("b01", tls_with(authority, "b01")))


def test_what_does_not_answer_as_a_node_is_no_namesake(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody listens, the address is that of another program, or a proxy accepts any call."""
    monkeypatch.setattr(find_namesake, "ANSWER_S_MAX", 0.2)

    async def answers(*, listens: bool, says: bytes = b"") -> bool:
        async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if says:
                writer.write(says)
                writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        if not listens:
            server.close()
        try:
            return await has_namesake(LinkSession("b01", "2"), "127.0.0.1", port, None)
        finally:
            server.close()

    assert not asyncio.run(answers(listens=False))
    assert not asyncio.run(answers(listens=True))
    assert not asyncio.run(answers(listens=True, says=b"HTTP/1.1 400 Bad Request\r\n\r\n"))
    assert not asyncio.run(has_namesake(LinkSession("b01", "2"), "no.such.host.invalid", 1, None))


def test_a_namesake_is_noticed_by_a_process_that_was_held_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """When it resumes, the answer has come and the time is up."""
    monkeypatch.setattr(find_namesake, "ANSWER_S_MAX", 0.1)
    session = LinkSession("b01", "2")

    def held_up(take_hello: Any, *others: Any) -> LinkConnection:
        connection = LinkConnection(take_hello, *others)

        def answer() -> None:
            with suppress(LinkError):
                take_hello(connection, session.hello("b01"))

        asyncio.get_running_loop().call_later(0.04, time.sleep, 0.2)
        asyncio.get_running_loop().call_later(0.05, answer)
        return connection

    async def go() -> bool:
        async with await asyncio.start_server(lambda *_: None, "127.0.0.1", 0) as server:
            return await has_namesake(session, "127.0.0.1", server.sockets[0].getsockname()[1], None)

    monkeypatch.setattr(find_namesake, "LinkConnection", held_up)
    assert asyncio.run(go())
