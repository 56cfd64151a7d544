"""Inboxes of NATS clients cost the overlay nothing until a request crosses."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from regraft.overlay.tree.configuration import TreeConfiguration
from regraft.producers.nodes import reply_inboxes
from regraft.producers.nodes.connectors.connector import LocalMessage
from regraft.producers.nodes.reply_inboxes import ReplyInboxes
from tests.producers.nodes.connector_kit import needs
from tests.producers.nodes.nats_site import nats_site
from tests.wait_until import PATIENCE_S

ASK = LocalMessage("svc", b"?", "_INBOX.x.1")
OTHER = LocalMessage("data", b"1")


def inboxes_with(seen: list[Any]) -> ReplyInboxes:
    return ReplyInboxes(lambda *each: seen.append(each), seen.append)


def test_an_inbox_is_wanted_when_a_reply_to_it_is_asked_for() -> None:
    """The request waits until the overlay knows the inbox; later ones, and everything else, cross at once."""
    seen: list[Any] = []
    inboxes = inboxes_with(seen)
    for subject in ("_INBOX.x.*", "_INBOX.y.*", "data"):
        inboxes.note_interest(subject, True)
    assert seen == [("data", True)]
    inboxes.take(ASK)
    inboxes.take(OTHER)
    inboxes.take(ASK)
    assert seen[1:] == [("_INBOX.x.*", True), OTHER]
    inboxes.note_confirmed("_INBOX.x.*")
    inboxes.take(ASK)
    assert seen[3:] == [ASK, ASK, ASK]
    for subject in ("_INBOX.x.*", "_INBOX.y.*"):
        inboxes.note_interest(subject, False)
    assert seen[6:] == [("_INBOX.x.*", False)]


def test_no_request_waits_for_long_and_none_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither if the overlay does not answer, nor if the client leaves meanwhile; an unknown inbox is no inbox here."""
    monkeypatch.setattr(reply_inboxes, "WAIT_S_MAX", -1.0)
    seen: list[Any] = []
    inboxes = inboxes_with(seen)
    inboxes.take(ASK)
    assert seen == [ASK]
    inboxes.note_interest("_INBOX.x.1", True)
    inboxes.take(ASK)
    inboxes.release_overdue()
    assert seen[1:] == [("_INBOX.x.1", True), ASK]
    inboxes.note_interest("_INBOX.x.1", False)
    inboxes.note_interest("_INBOX.x.>", True)
    inboxes.take(ASK)
    inboxes.note_interest("_INBOX.x.>", False)
    assert seen[3:] == [("_INBOX.x.1", False), ("_INBOX.x.>", True), ("_INBOX.x.>", False), ASK]


@pytest.mark.stack
def test_the_first_request_of_a_connection_is_answered(tmp_path: Path) -> None:
    """Ten clients whose requests are answered at home are unknown elsewhere; one that asks another site is answered."""
    needs("nats")

    async def go() -> None:
        pair = TreeConfiguration.of(0, ("b01", "b02"), [("b01", "b02")])
        async with nats_site(tmp_path, pair, {"b01": 0.02, "b02": 0.02}) as site:

            async def answer(message: Any) -> None:
                await message.respond(b"!")

            await site.clients["b01"].subscribe("home", cb=answer)
            await site.clients["b02"].subscribe("away", cb=answer)
            await site.flush()
            clients = [await site.connect("b01") for _ in range(10)]
            for client in clients:
                assert (await client.request("home", b"?", timeout=5)).data == b"!"
            await site.fleet.all_confirmed()
            known = site.fleet.nodes["b01"].clients
            assert known.interest_count == 1
            for client in clients[:3]:
                assert (await client.request("away", b"?", timeout=5)).data == b"!"
            assert known.interest_count == 4

    asyncio.run(asyncio.wait_for(go(), PATIENCE_S))
