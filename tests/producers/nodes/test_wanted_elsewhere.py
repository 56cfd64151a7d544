"""A connector asks its broker only for what other brokers want, and has asked before a subscription is confirmed."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.producers.brokers.broker_messages import Bundle, Message, Subscribe, Unadvertise, VectorBit
from regraft.producers.brokers.match_content import Operator, Predicate
from regraft.producers.nodes import wanted_elsewhere
from regraft.producers.nodes.connectors.groups_once import GroupHandlers
from regraft.producers.nodes.connectors.subject_filters import filter_of, subject_of_filter
from regraft.producers.nodes.connectors.wanted_subjects import ASKED_MAX, AskedSubjects
from regraft.producers.nodes.wanted_elsewhere import WantedElsewhere
from tests.producers.nodes.connector_brokers import Received
from tests.producers.nodes.connector_kit import broker_of, needs, until
from tests.producers.nodes.memory_connector import MemoryConnector
from tests.producers.nodes.nats_site import nats_site
from tests.scenarios.agents.wires import AnyOrderLoop, running
from tests.wait_until import PATIENCE_S

TOKENS = some.lists(some.sampled_from(["a", "b.c", "*", "x y", "t1"]).filter(lambda text: " " not in text), min_size=1)


@given(TOKENS, some.booleans())
def test_a_subject_is_found_again_in_its_filter(tokens: list[str], is_open: bool) -> None:
    """Filters of subjects lead back to these; any other filter to everything."""
    subject = ".".join([*tokens, ">"] if is_open else tokens)
    if len(subject.split(".")) <= 64:
        assert subject_of_filter(filter_of(subject)) == subject


@pytest.mark.parametrize(
    "filter_",
    [
        (),
        (Predicate("price", Operator.GE, 5.0),),
        (Predicate("n", Operator.EQ, 2.0), Predicate("t3", Operator.EQ, "a")),
        (Predicate("n", Operator.EQ, 2.0), Predicate("t1", Operator.GE, "a")),
        (Predicate("n", Operator.EQ, 1e9),),
        (Predicate("n", Operator.EQ, 1.0), Predicate("t1", Operator.EQ, "a b")),
    ],
)
def test_a_filter_of_no_subject_wants_everything(filter_: Any) -> None:
    """What the connector cannot ask for in part, it asks for as a whole: nothing that is wanted is left out."""
    assert subject_of_filter(filter_) == ">"


@given(some.lists(some.tuples(some.booleans(), some.sets(some.integers(0, 30)))))
def test_what_is_asked_for_is_what_is_wanted(steps: list[tuple[bool, set[int]]]) -> None:
    """Following what it returns, the broker has exactly the wanted subjects, or everything."""
    asked = AskedSubjects(">")
    broker = {">"}
    for is_whole, numbers in steps:
        subjects = {str(number) for number in numbers}
        if is_whole:
            new, old = asked.replace(subjects)
            broker = (broker | set(new)) - set(old)
            assert broker == subjects
        else:
            broker |= set(asked.add(subjects))
            assert subjects <= broker or ">" in broker


def test_too_many_subjects_are_one_wildcard() -> None:
    """The broker never holds more than the limit."""
    asked = AskedSubjects(">")
    asked.replace(["a"])
    assert asked.add([str(number) for number in range(ASKED_MAX)]) == [">"]
    assert asked.replace([str(number) for number in range(ASKED_MAX + 1)]) == ([], ["a"])


class SlowConnector(MemoryConnector):
    """A connector whose broker answers when the test says so."""

    def ask_for(self, subjects: Collection[str]) -> asyncio.Future[Any] | None:
        self.asked = getattr(self, "asked", [])
        self.asked.append(sorted(subjects))
        self.answer = asyncio.get_running_loop().create_future()
        return self.answer


def subscribe(name: str, subject: str) -> Subscribe:
    return Subscribe(0, name, "b02", filter_of(subject), 0)


@pytest.fixture
def loop() -> Iterator[AnyOrderLoop]:
    """Yield a loop whose time passes only when a test says so."""
    with running(AnyOrderLoop()) as virtual:
        yield virtual


def node() -> tuple[SlowConnector, WantedElsewhere, list[Any]]:
    """Return a connector, what waits for its answers, and what has been served, by peer."""
    connector, served = SlowConnector(), list[Any]()

    def serve(peer: str, message: Message) -> None:
        served.append((peer, message))

    return connector, WantedElsewhere(connector, serve, GroupHandlers("b01", lambda _: True)), served


def test_what_is_behind_a_subscription_waits_for_the_broker_in_order(loop: AnyOrderLoop) -> None:
    """A subscription and what its sender sent later are handled once the broker has it; other peers are not held."""

    connector, wanted, served = node()
    first = Bundle((Unadvertise(0, "p", 0), subscribe("s", "a.*")))
    behind = [Unadvertise(0, "q", 0), subscribe("t", "b"), Unadvertise(0, "r", 0)]
    wanted.take("b02", first)
    for message in behind:
        wanted.take("b02", message)
    other = Unadvertise(0, "o", 0)
    wanted.take("b03", other)
    assert served == [("b03", other)]
    connector.answer.set_result(None)
    loop.settle()
    assert served == [("b03", other), ("b02", first)]
    assert connector.asked == [["a.*"], ["b"]]
    connector.answer.set_result(None)
    loop.settle()
    assert [message for peer, message in served if peer == "b02"] == [first, *behind]


def test_a_cluster_that_wants_something_waits_for_the_broker_as_well(loop: AnyOrderLoop) -> None:
    """What it wants is unknown, so that everything is asked for; a cluster that wants nothing waits for nothing."""

    connector, wanted, served = node()
    none, some_ = VectorBit(0, "p", 0, False), VectorBit(0, "p", 0, True)
    wanted.take("b02", none)
    wanted.take("b02", some_)
    assert (served, connector.asked) == ([("b02", none)], [[">"]])
    connector.answer.set_result(None)
    loop.settle()
    assert served == [("b02", none), ("b02", some_)]


def test_a_broker_that_does_not_answer_holds_up_no_link_for_long(loop: AnyOrderLoop) -> None:
    """What waits is handled after a while, or before a peer's incarnation ends; what a former one sent never is."""
    _, wanted, served = node()
    wanted.take("b02", subscribe("s", "a"))
    loop.pass_time(wanted_elsewhere.ASK_S_MAX)
    assert len(served) == 1
    wanted.take("b02", subscribe("t", "b"))
    wanted.release("b02")
    assert len(served) == 2
    wanted.take("b02", subscribe("u", "c"))
    wanted.void()
    loop.pass_time(wanted_elsewhere.ASK_S_MAX)
    assert len(served) == 2


def test_an_answer_that_comes_late_is_not_for_what_waits_since(loop: AnyOrderLoop) -> None:
    """What waits for the next answer stays whole, also if it is less than what waited for the first."""
    connector, wanted, served = node()
    messages = [Unadvertise(0, "p", 0), subscribe("s", "a"), subscribe("t", "b")]
    wanted.take("b02", Bundle((messages[0], messages[1])))
    first = connector.answer
    wanted.take("b02", messages[2])
    loop.pass_time(wanted_elsewhere.ASK_S_MAX)
    assert len(served) == 1
    first.set_result(None)
    loop.settle()
    assert len(served) == 1
    connector.answer.set_result(None)
    loop.settle()
    assert served[1:] == [("b02", messages[2])]


@pytest.mark.stack
def test_a_nats_server_knows_again_that_nobody_responds(tmp_path: Path) -> None:
    """A request that no broker's client answers fails at once; one that another broker's client can, is answered."""
    needs("nats")

    async def go() -> None:
        import nats.errors

        pair = TreeConfiguration.of(0, ("b01", "b02"), [("b01", "b02")])
        async with nats_site(tmp_path, pair) as site:
            asker, answerer = site.clients.values()
            with pytest.raises(nats.errors.NoRespondersError):
                await asker.request("svc", b"?", timeout=5)

            async def answer(message: Any) -> None:
                await message.respond(b"!")

            await answerer.subscribe("svc", cb=answer)
            await asker.subscribe("anything", cb=answer)
            await site.flush()
            await site.fleet.all_confirmed()
            assert await _answer(asker) == b"!"
            local = site.fleet.nodes["b01"].counts["published"]
            for _ in range(100):
                await asker.publish("local", b"")
            await asker.flush()
            await asyncio.sleep(0.2)
            assert site.fleet.nodes["b01"].counts["published"] == local

    asyncio.run(asyncio.wait_for(go(), PATIENCE_S))


async def _answer(client: Any) -> bytes:
    """Return the answer to a request, tried again until the destination of the answer is known."""
    import nats.errors

    while True:
        try:
            return bytes((await client.request("svc", b"?", timeout=0.5)).data)
        except (nats.errors.TimeoutError, nats.errors.NoRespondersError):
            continue


@pytest.mark.stack
def test_a_rabbitmq_knows_again_what_cannot_be_routed() -> None:
    """What nobody wants is returned to a client that asks for that; what another broker wants is not."""
    needs("amqp")

    async def go() -> None:
        from pika import BasicProperties

        received = Received()
        async with broker_of("amqp", received, Path()) as broker:
            connector = broker.connector
            connector.ask_only(())
            await connector.start(lambda *_: None, received.messages.append)
            returned: list[bytes] = []
            channel = broker.client.main.channel
            channel.add_on_return_callback(lambda *each: returned.append(each[3]))

            def publish(key: str, body: bytes) -> None:
                channel.basic_publish(broker.exchange, key, body, BasicProperties(), mandatory=True)

            publish("wanted.a", b"1")
            await until(lambda: returned == [b"1"])
            asked = connector.ask_for(["wanted.>"])
            assert asked is not None
            await asked
            publish("wanted.a", b"2")
            publish("other", b"3")
            await until(lambda: returned == [b"1", b"3"])
            await until(lambda: [message.payload for message in received.messages] == [b"2"])
            connector.ask_only(())
            await until(lambda: connector.ask_for(()) is None)
            publish("wanted.a", b"4")
            await until(lambda: returned == [b"1", b"3", b"4"])

    asyncio.run(asyncio.wait_for(go(), PATIENCE_S))
