"""Links of nodes: cut, slow and half-open ones lose nothing while both nodes live; a new incarnation is a death."""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from regraft.infra.local.make_certificates import LocalAuthority
from regraft.producers.brokers.broker_messages import End, Message, Notification, Subscribe
from regraft.producers.nodes.connectors.subject_filters import content_of, filter_of
from regraft.producers.nodes.links.carried_messages import CarriedNotification
from regraft.producers.nodes.links.run_links import LinkLimits, Links, LinkTls
from regraft.producers.real_fleet.link_proxy import LinkProxy
from tests.wait_until import PATIENCE_S

LIMITS = LinkLimits(probe_ms=50.0, silence_ms_max=300.0, retry_ms=5.0, retry_ms_max=20.0)
PATIENT = replace(LIMITS, silence_ms_max=1_000 * PATIENCE_S)  # On a busy machine, both ends fall silent for a while.


class Site:
    """Two nodes, b01 which calls b02 through a proxy, and what each has received."""

    def __init__(self, limits: LinkLimits = LIMITS, tls: Callable[[str], LinkTls | None] = lambda _: None) -> None:
        self.limits, self.tls = limits, tls
        self.received: dict[str, list[Message]] = {"b01": [], "b02": []}
        self.deaths: list[tuple[str, str]] = []
        self.own_incarnations: list[tuple[str, str, str]] = []
        self.ports = {"b01": 0, "b02": 0}
        self.links: dict[str, Links] = {}
        self.proxy = LinkProxy(lambda: self.ports["b02"])

    async def begin(self, broker: str, incarnation: str) -> Links:
        def receive(peer: str, message: Message) -> None:
            assert peer != broker
            self.received[broker].append(message)

        addresses = {"b01": ("127.0.0.1", 0), "b02": ("127.0.0.1", self.proxy.port)}
        links = Links(
            broker,
            incarnation,
            addresses,
            receive,
            lambda peer: self.deaths.append((broker, peer)),
            self.limits,
            self.tls(broker),
            lambda peer, incarnation: self.own_incarnations.append((broker, peer, incarnation)),
        )
        self.ports[broker] = await links.bind("127.0.0.1", 0)
        await links.start()
        self.links[broker] = links
        return links

    async def close(self) -> None:
        for links in self.links.values():
            await links.close()
        await self.proxy.close()


def run_site(steps: Callable[[Site], Awaitable[None]], site: Site | None = None) -> None:
    async def run() -> None:
        present = site or Site()
        await present.proxy.start()
        try:
            await asyncio.wait_for(steps(present), PATIENCE_S)
        finally:
            await present.close()

    asyncio.run(run())


def notification(sequence: int, payload: bytes = b"") -> CarriedNotification:
    return CarriedNotification(
        "p", sequence, 1.5, "b01", 3, content_of("a.b"), len(payload), subject="a.b", payload=payload
    )


def sequences(messages: list[Message]) -> list[int]:
    return [one.sequence for one in messages if isinstance(one, Notification)]


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.005)


@pytest.mark.parametrize(("restarted", "other"), [("b01", "b02"), ("b02", "b01")])
def test_a_node_that_restarts_learns_its_former_life(restarted: str, other: str) -> None:
    """Whichever end calls, also over a later connection; nothing is reported to the other end or a first one."""

    async def steps(site: Site) -> None:
        for broker in ("b01", "b02"):
            (await site.begin(broker, "1")).want({"b01", "b02"} - {broker})
        await until(lambda: all(links.round_trips() for links in site.links.values()))
        assert not site.own_incarnations
        await site.links[restarted].close()
        (await site.begin(restarted, "2")).want({other})
        await until(lambda: bool(site.own_incarnations))
        assert set(site.own_incarnations) == {(restarted, other, "1")}
        site.own_incarnations.clear()
        site.links[restarted].peers[other].connection.end("cut by the test")  # type: ignore[union-attr]
        await until(lambda: bool(site.own_incarnations))
        assert set(site.own_incarnations) == {(restarted, other, "1")}

    run_site(steps)


def test_cuts_lose_repeat_and_reorder_nothing() -> None:
    """Thirty cuts while both ends send: each message arrives once and in order."""
    rng = random.Random(21)

    async def steps(site: Site) -> None:
        a, b = await site.begin("b01", "1"), await site.begin("b02", "1")
        site.proxy.delay_s = 0.002
        a.want({"b02"})
        for sequence in range(3_000):
            a.send("b02", notification(sequence))
            b.send("b01", notification(sequence, b"x" * 200))
            if sequence % 300 == 299:
                await until(lambda: a.peers["b02"].connection is not None)
            if sequence % 100 == 99:
                await asyncio.sleep(rng.uniform(0.0, 0.04))
                site.proxy.cut()
        await until(lambda: all(len(each) == 3_000 for each in site.received.values()))
        assert all(sequences(each) == list(range(3_000)) for each in site.received.values())
        assert a.counts["cut"] > 5
        await until(lambda: not len(a.peers["b02"].session) and not len(b.peers["b01"].session))
        assert (a.peers["b02"].session.bytes_kept, site.deaths) == (0, [])

    run_site(steps)


def test_a_half_open_connection_is_made_again() -> None:
    """A connection that stays open but passes nothing on is ended for its silence; its messages are sent again."""

    async def steps(site: Site) -> None:
        a, _ = await site.begin("b01", "1"), await site.begin("b02", "1")
        a.send("b02", End(1))
        await until(lambda: len(site.received["b02"]) == 1)
        site.proxy.is_stalled = True
        a.send("b02", End(2))
        await until(lambda: a.counts["cut"] > 0)
        site.proxy.is_stalled = False
        await until(lambda: len(site.received["b02"]) == 2)
        assert site.received["b02"] == [End(1), End(2)]

    run_site(steps)


def test_another_life_of_a_peer_is_a_death() -> None:
    """Messages to a past incarnation never reach the next one; the other end is notified once."""

    async def steps(site: Site) -> None:
        a, b = await site.begin("b01", "1"), await site.begin("b02", "1")
        a.send("b02", End(1))
        await until(lambda: not len(a.peers["b02"].session) and len(site.received["b02"]) == 1)
        await b.close()
        a.send("b02", End(2))
        await asyncio.sleep(0.05)
        b = await site.begin("b02", "2")
        a.want({"b02"})
        await until(lambda: site.deaths == [("b01", "b02")])
        a.send("b02", End(3))
        b.send("b01", End(4))
        await until(lambda: len(site.received["b02"]) == 2 and bool(site.received["b01"]))
        assert (site.received["b02"], site.received["b01"]) == ([End(1), End(3)], [End(4)])
        assert site.deaths == [("b01", "b02")]

    run_site(steps)


def test_messages_to_a_peer_being_admitted_wait_for_its_next_life() -> None:
    """After a renewal messages are for the incarnation that the peer begins next, which is not a death."""

    async def steps(site: Site) -> None:
        a, b = await site.begin("b01", "1"), await site.begin("b02", "1")
        a.send("b02", End(1))
        await until(lambda: not len(a.peers["b02"].session))
        await b.close()
        a.send("b02", End(2))
        a.renew("b02")
        a.send("b02", End(3))
        await site.begin("b02", "2")
        await until(lambda: len(site.received["b02"]) == 2)
        assert (site.received["b02"], site.deaths) == ([End(1), End(3)], [])

    run_site(steps)


def test_a_restarted_node_is_another_life() -> None:
    """An install ends an incarnation without ending the process: both ends number from the start."""

    async def steps(site: Site) -> None:
        a, b = await site.begin("b01", "1"), await site.begin("b02", "1")
        a.want({"b02"})
        b.send("b01", End(1))
        await until(lambda: len(site.received["b01"]) == 1)
        b.begin_incarnation("1.1")
        await until(lambda: site.deaths == [("b01", "b02")])
        b.send("b01", End(2))
        a.send("b02", End(3))
        await until(lambda: len(site.received["b01"]) == 2 and len(site.received["b02"]) == 1)
        assert site.deaths == [("b01", "b02")]

    run_site(steps)


def test_a_full_buffer_drops_notifications_and_keeps_control() -> None:
    """The buffer for an absent peer is bounded: notifications are dropped and counted, control messages wait."""

    async def steps(site: Site) -> None:
        a = await site.begin("b01", "1")
        sent = [a.send("b02", notification(number, b"x" * 1_000)) for number in range(20)]
        assert a.send("b02", End(1))
        assert (sent.count(False), a.counts["dropped"]) == (10, 10)
        await site.begin("b02", "1")
        await until(lambda: End(1) in site.received["b02"])
        assert sequences(site.received["b02"]) == list(range(10))

    run_site(steps, Site(LinkLimits(kept_bytes_max=10_000, retry_ms=5.0)))


def test_a_megabyte_and_filters_arrive_unchanged() -> None:
    """A large binary payload with headers and a subscription with its filter leave as they entered."""
    payload = random.Random(1).randbytes(1 << 20)
    carried = CarriedNotification(
        "b01.1:älter", 7, 2.5, "b01", 4, content_of("ü.b"), len(payload),
        subject="ü.b", reply="_INBOX.1", headers=b"NATS/1.0\r\nA: b\r\n\r\n", payload=payload,
    )  # fmt: skip
    subscribe = Subscribe(4, "s", "b01", filter_of("a.*.c.>"), 3)

    async def steps(site: Site) -> None:
        a, _ = await site.begin("b01", "1"), await site.begin("b02", "1")
        a.send("b02", carried)
        a.send("b02", subscribe)
        await until(lambda: len(site.received["b02"]) == 2)
        found, second = site.received["b02"]
        assert isinstance(found, CarriedNotification)
        assert (found.subject, found.reply, found.headers, found.payload) == (
            carried.subject, carried.reply, carried.headers, payload,
        )  # fmt: skip
        assert (found.publisher, found.sequence, found.publish_ms, found.epoch) == ("b01.1:älter", 7, 2.5, 4)
        assert (found.content, second) == (carried.content, subscribe)

    run_site(steps)


def test_an_unneeded_connection_ends_unless_something_is_owed() -> None:
    """Closing it is not a cut, and the link resumes where it was once it is wanted again."""

    async def steps(site: Site) -> None:
        a, b = await site.begin("b01", "1"), await site.begin("b02", "1")
        a.want({"b02"})
        b.send("b01", End(1))
        await until(lambda: len(site.received["b01"]) == 1)
        a.close_idle()
        a.want(())
        a.close_idle()  # Not yet: a message has just arrived.
        assert a.counts["let_go"] == 0
        a.peers["b02"].connection.bodies_s -= PATIENCE_S  # type: ignore[union-attr]
        a.close_idle()
        await until(lambda: a.counts["let_go"] > 0)
        assert (a.counts["connected"], a.counts["cut"]) == (1, 0)
        a.want({"b02"})
        b.send("b01", End(2))
        await until(lambda: len(site.received["b01"]) == 2)
        assert site.deaths == []

    run_site(steps, Site(PATIENT))


def test_a_stranger_is_refused() -> None:
    """A caller that speaks another protocol, or sends no hello, is disconnected and disturbs no link."""

    async def steps(site: Site) -> None:
        a, b = await site.begin("b01", "1"), await site.begin("b02", "1")
        for words in (b"GET / HTTP/1.1\r\n\r\n" + b"\xff" * 64, b"\0\0\0\1" + b"\0" * 7 + b"\1" + b"\x90"):
            reader, writer = await asyncio.open_connection("127.0.0.1", site.ports["b02"])
            writer.write(words)
            assert await reader.read() == b""
            writer.close()
        a.send("b02", End(1))
        await until(lambda: site.received["b02"] == [End(1)])
        assert list(b.peers) == ["b01"]

    run_site(steps)


def test_a_namesake_that_calls_another_node_is_refused() -> None:
    """A b01 of other nodes that calls b03 at the address of b02 is not a new incarnation of the b01 known here."""

    async def steps(site: Site) -> None:
        a, b = await site.begin("b01", "1"), await site.begin("b02", "1")
        a.send("b02", End(1))
        await until(lambda: site.received["b02"] == [End(1)])
        addresses = {"b01": ("127.0.0.1", 1), "b03": ("127.0.0.1", site.ports["b02"])}
        namesake = Links("b01", "other", addresses, lambda *_: None, lambda _: None, LinkLimits(retry_ms=5.0))
        await namesake.bind("127.0.0.1", 0)
        await namesake.start()
        namesake.want(["b03"])
        await until(lambda: namesake.counts["calls_failed"] > 2)
        await namesake.close()
        a.send("b02", End(2))
        await until(lambda: site.received["b02"] == [End(1), End(2)])
        assert (b.counts["new_incarnations"], b.counts["cut"]) == (0, 0)

    run_site(steps, Site(PATIENT))


def tls_with(authority: LocalAuthority, broker: str) -> LinkTls:
    """Return both directions' contexts with a certificate for a broker."""
    certificate = authority.issue(broker, (broker,))
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for context in (server, client):
        context.load_verify_locations(authority.ca_file)
        context.load_cert_chain(certificate.certificate_file, certificate.key_file)
        context.verify_mode = ssl.CERT_REQUIRED
    return LinkTls(server, client)


@pytest.mark.parametrize("named", ["b02", "b03"])
def test_the_certificate_must_name_the_broker(named: str, tmp_path: Path) -> None:
    """With TLS both ends prove their identity; a certificate of another broker is refused."""
    authority = LocalAuthority(tmp_path)
    issued = {broker: tls_with(authority, broker) for broker in ("b01", "b02", "b03")}

    def tls(broker: str) -> LinkTls:
        return issued[broker if broker == "b01" else named]

    async def steps(site: Site) -> None:
        a, b = await site.begin("b01", "1"), await site.begin("b02", "1")
        a.send("b02", End(1))
        if named == "b02":
            await until(lambda: site.received["b02"] == [End(1)])
        else:
            await until(lambda: a.counts["calls_failed"] > 2)
            assert (site.received["b02"], b.counts["connected"]) == ([], 0)

    run_site(steps, Site(tls=tls))
