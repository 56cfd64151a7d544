"""A subscription that moves on, or is asked to, while copies of what it got before its last move are still to come."""

from __future__ import annotations

import asyncio

import pytest

from regraft.producers.agents.nats_frames import message_frame
from regraft.producers.nodes.connectors.connector import LocalMessage
from regraft.producers.nodes.connectors.stamps import Stamps
from regraft.schemas.agent_note import NoteKind
from tests.producers.agents.scripted_brokers import ScriptedSite, until

AB = b"a.b"


def hand_over(site: ScriptedSite, broker: str, home: str, payload: bytes, epoch: int) -> None:
    """Let a node hand over what was published at another broker."""
    stamps = Stamps("regraft", broker)
    stamp = stamps.stamp_of(LocalMessage("a.b", payload, publisher="p", number=1, home=home, epoch=epoch))
    block = f"NATS/1.0\r\n{stamps.header}: {stamp}\r\n\r\n".encode()
    for connection in site.brokers[broker].connections:
        for sid in [sid for sid, (wanted, _) in connection.subscribed.items() if wanted == AB]:
            connection.transport.write(message_frame(AB, sid, b"", len(block), block + payload))


@pytest.mark.parametrize("end", ["copy first", "aborted first", "moved"])
def test_a_copy_that_comes_behind_the_next_order_is_left_out(end: str) -> None:
    """The plan that brought the subscription is over, but what its old home showed it is still on its way."""

    async def steps() -> None:
        site = ScriptedSite()
        try:
            await site.start("a.b")
            await site.bring(1, AB)
            site.brokers["b01"].publish(AB, b"one")
            await until(lambda: (AB, b"one") in site.got)
            await site.complete(1)  # The old node has seen it behind the switch.
            await until(lambda: site.counts["subscriptions_moved"] == 1)
            site.say("b02", NoteKind.MOVE, 1, 2, "b03")
            await until(lambda: AB in site.brokers["b03"].groups)
            if end == "aborted first":
                site.say("b02", NoteKind.ABORTED, 1, 2)
            hand_over(site, "b02", "b01", b"one", 1)
            hand_over(site, "b02", "b01", b"two", 1)
            await until(lambda: any(payload.endswith(b"two") for _, payload in site.got))
            if end == "moved":
                site.say("b03", NoteKind.AWAITED, 1, 2)
                site.say("b03", NoteKind.COUNTING, 1, 2)
                site.say("b02", NoteKind.SWITCHED, 1, 2)
                site.say("b03", NoteKind.SWITCHED, 1, 2)
                site.say("b02", NoteKind.DRAINED, 1, 2)
                site.say("b03", NoteKind.DRAINED, 1, 2)
            elif end == "copy first":
                site.say("b02", NoteKind.ABORTED, 1, 2)
            await until(lambda: not site.session.moves.moving)
            assert [payload.rpartition(b"\n")[2] for _, payload in site.got] == [b"one", b"two"]
        finally:
            await site.close()

    asyncio.run(steps())
