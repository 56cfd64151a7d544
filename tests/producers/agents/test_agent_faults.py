"""An agent between scripted brokers: notes that are late, repeated or wrong, connections that are lost at any moment.

After each, what the client's home delivers comes, once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from regraft.producers.agents import nats_upstream
from regraft.schemas.agent_note import NoteKind
from tests.producers.agents.scripted_brokers import ScriptedSite, until

AB, CD = b"a.b", b"c.d"


@asynccontextmanager
async def site_of(*subjects: str, is_old: bool = False) -> AsyncIterator[ScriptedSite]:
    site = ScriptedSite(is_old=is_old)
    try:
        await site.start(*subjects)
        yield site
    finally:
        await site.close()


async def serves(site: ScriptedSite, broker: str, subject: bytes = AB) -> None:
    """Check that what a broker publishes comes, once, and nothing of the others any more."""
    await until(lambda: subject in site.brokers[broker].groups)
    site.got.clear()
    for other in site.brokers:
        if other != broker:
            site.brokers[other].publish(subject, b"not from here")
    site.brokers[broker].publish(subject, b"here")
    await until(lambda: (subject, b"here") in site.got)
    assert site.got == [(subject, b"here")]


def run(steps: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(steps())


def test_nodes_of_an_earlier_version_move_a_client_too() -> None:
    """They write their notes where agents write theirs."""

    async def steps() -> None:
        async with site_of("a.b", is_old=True) as site:
            await site.bring(1, AB)
            await site.complete(1)
            await until(lambda: site.counts["subscriptions_moved"] == 1)
            await serves(site, "b02")

    run(steps)


def test_a_client_waits_for_a_slow_broker_until_that_connection_is_fast_or_over() -> None:
    """An earlier connection to the same broker that has yet to end says nothing about the present one."""

    async def steps() -> None:
        async with site_of("a.b") as site:
            (session,) = site.agent.sessions
            present = session.homes.upstreams["b01"]
            earlier = nats_upstream.Upstream(session.homes.brokers["b01"], session)
            present.pause_writing()
            earlier.resume_writing()
            assert session._holds == {"slow b01"}
            present.resume_writing()
            assert not session._holds
            present.pause_writing()
            site.brokers["b01"].connections[0].transport.abort()
            await until(lambda: session.counts["reconnected"] == 1)
            assert not session._holds

    run(steps)


@pytest.mark.parametrize(
    "line",
    [
        b"PUB _REGRAFT.to.web2.r-1.1 2\r\nhi",
        b"PUB a.b _REGRAFT.agent.web2.r-1 2\r\nhi",
        b"HPUB a.b _REGRAFT.to.web2.r-1.1 12 14\r\nNATS/1.0\r\n\r\nhi",
        b"SUB _REGRAFT.to.web2.> 9",
        b"SUB a.b regraft-agent.web2.r-1.1 9",
    ],
)
def test_a_client_reaches_no_agent_by_its_own(line: bytes) -> None:
    """Neither by subjects, nor by where others answer, nor by a group that names another client's subscription."""

    async def steps() -> None:
        async with site_of("c.d") as site:
            before = list(site.brokers["b01"].connections[0].subscribed.values())
            site.writer.write(line + b"\r\nPUB c.d x 2\r\nhi\r\n")
            await until(lambda: site.got == [(CD, b"hi")])
            assert site.counts["own_subject"] == 1
            assert [*site.brokers["b01"].connections[0].subscribed.values()] == before

    run(steps)


def test_a_later_plan_begins_although_the_end_of_the_one_before_was_lost() -> None:
    async def steps() -> None:
        async with site_of("a.b") as site:
            await site.bring(1, AB)
            await site.bring(1, AB, epoch=2, to="b03")
            await until(lambda: not site.brokers["b02"].connections)
            await site.complete(1, epoch=2, to="b03")
            await until(lambda: site.counts["subscriptions_moved"] == 1)
            await serves(site, "b03")

    run(steps)


def test_the_same_order_again_changes_nothing() -> None:
    """Neither while the subscription moves, nor after it has been aborted."""

    async def steps() -> None:
        async with site_of("a.b") as site:
            await site.bring(1, AB)
            site.say("b01", NoteKind.MOVE, 1, 1, "b02")
            site.say("b01", NoteKind.ABORTED, 1)
            await until(lambda: not site.brokers["b02"].connections)
            site.say("b01", NoteKind.MOVE, 1, 1, "b02")
            await serves(site, "b01")
            assert not site.session.moves.moving

    run(steps)


def test_notes_about_what_does_not_exist_are_ignored() -> None:
    """Other numbers, epochs and homes; the answer to an order for one is a refusal."""

    async def steps() -> None:
        async with site_of("a.b") as site:
            for kind in NoteKind:
                site.say("b01", kind, 77, to="b02")
                site.say("b01", kind, 1, to="b09")
            await until(lambda: site.heard("b01", NoteKind.REFUSED) >= 2)
            await serves(site, "b01")
            await site.bring(1, AB)
            for kind in (NoteKind.AWAITED, NoteKind.SWITCHED, NoteKind.DRAINED, NoteKind.ABORTED):
                site.say("b02", kind, 1, epoch=7)
                site.say("b02", kind, 2)
            site.say("b02", NoteKind.DRAINED, 1)  # Only the old home can say that.
            site.say("b01", NoteKind.AWAITED, 1)
            await serves(site, "b01")
            await site.complete(1)
            await until(lambda: site.counts["subscriptions_moved"] == 1)
            await serves(site, "b02")

    run(steps)


def test_notes_that_come_again_and_in_another_order_end_the_same_move() -> None:
    async def steps() -> None:
        async with site_of("a.b") as site:
            await site.bring(1, AB)
            for _ in range(2):
                site.say("b02", NoteKind.AWAITED, 1)
                site.say("b02", NoteKind.COUNTING, 1)
                site.say("b01", NoteKind.DRAINED, 1)
                site.say("b01", NoteKind.SWITCHED, 1)
            await until(lambda: site.session.moves.moving[1].switched_from)
            assert site.heard("b02", NoteKind.READY) == site.heard("b01", NoteKind.READY) == 1
            for _ in range(2):
                site.say("b02", NoteKind.SWITCHED, 1)
                site.say("b01", NoteKind.DRAINED, 1)
            await until(lambda: site.counts["subscriptions_moved"] == 1)
            site.say("b02", NoteKind.SWITCHED, 1)
            site.say("b02", NoteKind.ABORTED, 1)
            await serves(site, "b02")

    run(steps)


def test_an_answer_that_was_lost_is_given_again() -> None:
    """A node whose connection to its broker was cut repeats its order."""

    async def steps() -> None:
        async with site_of("a.b") as site:
            await site.bring(1, AB)
            site.say("b01", NoteKind.MOVE, 1, 1, "b02")
            await until(lambda: site.heard("b01", NoteKind.READY) == 2)
            await site.complete(1)
            await until(lambda: site.counts["subscriptions_moved"] == 1)
            await serves(site, "b02")

    run(steps)


def test_others_complete_when_the_client_ends_the_last_that_they_wait_for() -> None:
    async def steps() -> None:
        async with site_of("a.b", "c.d") as site:
            await site.bring(1, AB)
            await site.bring(2, CD)
            await site.complete(1)
            site.brokers["b02"].publish(AB, b"kept")
            site.writer.write(b"UNSUB 2\r\n")
            await until(lambda: site.got == [(AB, b"kept")])
            await serves(site, "b02")

    run(steps)


def test_what_the_client_subscribes_while_it_moves_stays_and_comes() -> None:
    """Also under the number of the one that it has just ended; a second time under a number in use does nothing."""

    async def steps() -> None:
        async with site_of("a.b") as site:
            await site.bring(1, AB)
            site.writer.write(b"SUB c.d 2\r\nSUB x.y 2\r\nUNSUB 1\r\nSUB a.b 1\r\n")
            await until(lambda: CD in site.brokers["b01"].groups)
            await site.complete(1)
            await serves(site, "b01")
            await serves(site, "b01", CD)
            assert b"x.y" not in site.brokers["b01"].groups
            await until(lambda: not site.brokers["b02"].connections)

    run(steps)


def test_a_plan_that_has_not_heard_of_a_refusal_leaves_nobody_without_a_home() -> None:
    async def steps() -> None:
        async with site_of("a.b") as site:
            await site.bring(1, AB)
            before = site.brokers["b01"].groups[AB]
            site.brokers["b02"].cut()
            await until(lambda: site.heard("b01", NoteKind.REFUSED) == 1)
            site.say("b01", NoteKind.SWITCHED, 1)
            await until(lambda: site.brokers["b01"].groups.get(AB, before) != before)
            await serves(site, "b01")

    run(steps)


def test_a_node_learns_why_a_client_stays_now_and_when_it_begins_again() -> None:
    """A subscription from before is registered, so that its node can say so."""

    async def steps() -> None:
        async with site_of("a.b") as site:
            site.writer.write(b"PUB $JS.API.INFO 0\r\n\r\n")
            await until(lambda: site.heard("b01", NoteKind.STAYS) == 1)
            site.say("b01", NoteKind.HOME, 1, 0)
            await until(lambda: site.heard("b01", NoteKind.STAYS) == 2)
            site.say("b01", NoteKind.MOVE, 1, 1, "b02")
            await until(lambda: site.heard("b01", NoteKind.REFUSED) == 1)
            stays = [note.reason for note in site.brokers["b01"].notes if note.kind is NoteKind.STAYS]
            assert stays == ["server_subjects"] * 3

    run(steps)


@pytest.mark.parametrize("is_over", [False, True])
def test_the_old_broker_is_lost_before_there_is_a_connection_to_the_next(is_over: bool) -> None:
    """Whether it is only the connection, or the broker: the next one answers, or another one does."""

    async def steps() -> None:
        async with site_of("a.b") as site:
            site.brokers["b02"].is_silent = True
            site.say("b01", NoteKind.MOVE, 1, 1, "b02")
            await until(lambda: site.brokers["b02"].connections)
            if is_over:
                site.brokers["b01"].stop()
                site.brokers["b02"].stop()
            else:
                site.brokers["b01"].cut()
            await serves(site, "b03" if is_over else "b01")

    run(steps)


def test_a_broker_that_closes_without_a_word_is_tried_no_longer() -> None:
    """As one behind a proxy does while it is down; the client goes to the next one, and back if that is lost, too."""

    async def steps() -> None:
        async with site_of("a.b") as site:
            site.brokers["b01"].is_closing = site.brokers["b02"].is_closing = True
            site.brokers["b01"].cut()
            await serves(site, "b03")
            site.brokers["b01"].is_closing = False
            site.brokers["b03"].stop()
            await serves(site, "b01")

    run(steps)


def test_both_brokers_are_lost_at_once() -> None:
    async def steps() -> None:
        async with site_of("a.b", "c.d") as site:
            await site.bring(1, AB)
            site.brokers["b01"].stop()
            site.brokers["b02"].stop()
            await serves(site, "b03")
            await serves(site, "b03", CD)
            assert site.session.homes.home == "b03"

    run(steps)


@pytest.mark.parametrize("is_silent", [False, True])
def test_a_client_that_leaves_while_it_moves_leaves_no_connection(is_silent: bool) -> None:
    """Neither one that is open, nor one that is only being opened."""

    async def steps() -> None:
        async with site_of("a.b") as site:
            site.brokers["b02"].is_silent = is_silent
            site.say("b01", NoteKind.MOVE, 1, 1, "b02")
            await until(lambda: site.brokers["b02"].connections)
            site.writer.close()
            await until(lambda: not site.agent.sessions)
            await until(lambda: not any(broker.connections for broker in site.brokers.values()))

    run(steps)


def test_an_order_to_a_broker_that_does_not_answer_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async def steps() -> None:
        async with site_of("a.b") as site:
            monkeypatch.setattr(nats_upstream, "OPEN_S_MAX", 0.1)
            site.brokers["b02"].is_silent = True
            site.say("b01", NoteKind.MOVE, 1, 1, "b02")
            await until(lambda: site.heard("b01", NoteKind.REFUSED) == 1)
            await serves(site, "b01")
            await until(lambda: not site.brokers["b02"].connections)

    run(steps)


@pytest.mark.parametrize(
    ("has_switched", "by_next"), [(False, NoteKind.HOME), (True, NoteKind.DRAINED), (True, NoteKind.HOME)]
)
def test_a_node_that_has_restarted_ends_the_move(has_switched: bool, by_next: NoteKind) -> None:
    """It says what begins at its broker: the old home's no longer drains, unless the next one has not switched yet.

    The next one's holds nothing back any more, as if the plan were over there.
    """

    async def steps() -> None:
        async with site_of("a.b") as site:
            await site.bring(1, AB)
            if has_switched:
                site.say("b02", NoteKind.SWITCHED, 1)
                await until(lambda: site.session.moves.moving[1].switched_to)
            site.say("b01", NoteKind.HOME, 1, epoch=0)
            if has_switched:
                await until(lambda: site.counts["subscriptions_moved"] == 1)
                site.say("b02", by_next, 1, epoch=int(by_next is NoteKind.DRAINED))
            await until(lambda: not site.session.moves.moving)
            await serves(site, "b02" if has_switched else "b01")

    run(steps)


def test_a_node_of_the_next_home_that_has_restarted_ends_the_move() -> None:
    async def steps() -> None:
        async with site_of("a.b", "c.d") as site:
            await site.bring(1, AB)
            site.say("b02", NoteKind.HOME, 1, epoch=0)
            await until(lambda: site.heard("b01", NoteKind.REFUSED) == 1)
            await serves(site, "b01")
            await site.bring(2, CD, epoch=2)
            site.say("b01", NoteKind.SWITCHED, 2, epoch=2)
            await until(lambda: site.session.moves.moving[2].switched_from)
            site.say("b02", NoteKind.HOME, 2, epoch=0)
            await serves(site, "b02", CD)

    run(steps)


def test_a_broker_that_comes_while_the_client_does_not_read_waits_for_it() -> None:
    async def steps() -> None:
        async with site_of("a.b") as site:
            session = site.session
            session.pause_writing()
            site.brokers["b01"].stop()
            session.homes.lose(session.homes.upstreams["b01"], "lost while nobody reads")
            await until(lambda: AB in site.brokers["b02"].groups)
            transport: Any = session.homes.upstreams["b02"].transport
            assert not transport.is_reading()
            session.resume_writing()
            assert transport.is_reading()
            await serves(site, "b02")

    run(steps)


def test_a_slow_broker_that_is_left_holds_the_client_no_longer() -> None:
    async def steps() -> None:
        async with site_of("a.b") as site:
            await site.bring(1, AB)
            upstream = site.session.homes.upstreams["b02"]
            upstream.pause_writing()
            assert "slow b02" in site.session._holds
            site.say("b01", NoteKind.ABORTED, 1)
            await until(lambda: not site.brokers["b02"].connections)
            await until(lambda: not site.session._holds)
            await serves(site, "b01")

    run(steps)
