"""Queue groups that handle each message once in the whole overlay."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from regraft.overlay.configuration import Configuration
from regraft.producers.brokers.broker_messages import SubscribeRequest
from regraft.producers.node_settings import NodeSettings
from regraft.producers.nodes.amqp_interest import AmqpInterest, Binding
from regraft.producers.nodes.groups_once import (
    GroupHandlers,
    excluded_groups,
    group_of,
    group_suffix,
    key_of,
    parts_of,
)
from regraft.producers.nodes.mqtt_door import MqttDoor
from regraft.producers.nodes.mqtt_interest import MqttInterest
from regraft.producers.nodes.node_clients import NodeClients
from regraft.producers.nodes.subject_filters import content_of, filter_of
from tests.producers.nodes.door_brokers import NEEDS
from tests.producers.nodes.mqtt_brokers import MqttClient, MqttServer
from tests.producers.nodes.nats_site import nats_site
from tests.producers.nodes.node_fleet import NodeFleet

BROKERS = ("b01", "b02", "b03")
LINE = Configuration.of(0, BROKERS, [("b01", "b02"), ("b02", "b03")])
GROUPS = some.text(some.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20)


@given(GROUPS, some.sampled_from(["a", "a.*", "b.>"]))
def test_a_group_is_found_again_in_names(group: str, subject: str) -> None:
    """In the key of an interest, and in the name of a subscription; other names have none."""
    assert parts_of(key_of(subject, group)) == (subject, group)
    assert group_of(f"b.s.1.g.x.176.s.4{group_suffix(group)}") == group
    assert group_of("b.s.1.g.x.176.p.name") == group_of("b01.176.s.4") == ""


def names(homes: str, group: str = "g") -> list[tuple[str, str, Any]]:
    return [(f"{home}.1.s.0{group_suffix(group)}", home, filter_of("job.*")) for home in homes.split()]


@given(some.sets(some.sampled_from(["b02", "b03", "b04"])), some.booleans(), some.integers(0, 1_000))
def test_each_group_handles_a_message_at_exactly_one_broker(homes: set[str], is_here: bool, number: int) -> None:
    """Each broker that receives it follows the decision of the publisher's broker, which prefers itself."""
    there = sorted(homes | ({"b01"} if is_here else set()))
    handlers = GroupHandlers("b01", lambda _: True)
    handlers.replace([*names(" ".join(there)), ("b09.1.s.0", "b09", filter_of("job.*"))])
    chosen = handlers.choose(content_of("job.1"), "p", number)
    handling = [home for name, home, _ in names(" ".join(there)) if excluded_groups((name,), chosen, home) is not None]
    assert handling == (["b01"] if is_here else [dict(chosen)["g"]] if there else [])
    assert handlers.choose(content_of("other.1"), "p", number) == ()


def test_brokers_take_turns_and_those_without_members_get_none() -> None:
    """About as many messages for each; none for one whose members have left, or are about to."""
    held = {name for name, _, _ in names("b02 b03 b04")}
    handlers = GroupHandlers("b01", held.__contains__)
    handlers.replace(names("b02 b03 b04"))
    turns = Counter(handlers.choose(content_of("job.1"), "p", number)[0][1] for number in range(3_000))
    assert set(turns) == {"b02", "b03", "b04"}
    assert min(turns.values()) > 900
    held.remove(names("b03")[0][0])
    assert {handlers.choose(content_of("job.1"), "p", number)[0][1] for number in range(100)} == {"b02", "b04"}
    handlers.replace([])
    handlers.replace([])
    assert handlers.choose(content_of("job.1"), "p", 1) == ()


def test_who_also_wants_a_message_outside_the_group_gets_it() -> None:
    """Only the groups that are not chosen are left out; where there is nobody else, nothing is handed over."""
    here, plain = names("b02")[0][0], "b02.1.s.1"
    assert excluded_groups((here, plain), (("g", "b03"),), "b02") == {"g"}
    assert excluded_groups((here,), (("g", "b03"),), "b02") is None
    assert excluded_groups((here,), (("g", "b02"),), "b02") == frozenset()
    assert excluded_groups((here,), (), "b02") == frozenset()  # The publisher's broker did not know of it yet.
    assert excluded_groups((plain,), (("g", "b03"),), "b02") == frozenset()


def test_a_group_without_room_in_a_name_is_refused_or_counted() -> None:
    """At the start by its length as in a URL; next to a broker with a very long name, when it is wanted."""
    for group, is_refused in (("workers", False), ("w" * 60, False), ("w" * 61, True), ("東" * 7, True), ("", True)):
        settings = NodeSettings("none:1", Path("i.json"), Path("s.json"), broker="b01", groups_once=(group,))
        assert any("groups_once" in fault for fault in settings.faults()) == is_refused
    asked: list[Any] = []
    clients = NodeClients("b" * 230, "1", asked.append, lambda *_: None)
    clients.note_interest(key_of("job.*", "workers" * 4), True)
    clients.settle(True)
    assert clients.counts == {"group_name_too_long": 1}
    (wanted,) = [one for one in asked if isinstance(one, SubscribeRequest)]
    assert (group_of(wanted.subscription), wanted.filter_) == ("", filter_of("job.*"))


def test_shared_subscriptions_and_queues_count_as_groups() -> None:
    """Those of the setting are reported for their group, and end as they began; others want what they always did."""
    seen: list[tuple[str, bool]] = []
    mqtt = MqttInterest(lambda *each: seen.append(each), "regraft", 60, Counter(), frozenset({"g"}))
    mqtt.replace({"c": ["$share/g/job/+", "$share/h/job/#"]})
    mqtt.replace({})
    assert [one for one, is_wanted in seen if is_wanted] == ["job.* g", "job", "job.>"]
    assert sorted(one for one, is_wanted in seen if not is_wanted) == ["job", "job.* g", "job.>"]
    seen.clear()
    amqp = AmqpInterest(lambda *each: seen.append(each), "regraft", Counter(), frozenset({"g"}))
    for binding in (Binding("queue", "g", "job.*"), Binding("queue", "h", "job.*")):
        amqp.begin(binding)
        amqp.end(binding)
    assert seen == [("job.* g", True), ("job.* g", False), ("job.*", True), ("job.*", False)]


@pytest.mark.stack
def test_work_at_nats_servers_is_done_once(tmp_path: Path) -> None:
    """Workers of one group at two of three servers: each message is handled by one of them, at home where one is."""
    NEEDS["nats"]()

    async def go() -> None:
        async with nats_site(tmp_path, LINE, groups_once=frozenset({"workers"})) as site:
            clients = site.clients
            handled: dict[str, list[bytes]] = {broker: [] for broker in BROKERS}
            seen: list[bytes] = []

            async def watch(message: Any) -> None:
                seen.append(message.data)

            for broker in ("b02", "b03"):
                await clients[broker].subscribe("job.*", queue="workers", cb=_into(handled[broker]))
            await clients["b02"].subscribe("job.*", cb=watch)
            await clients["b01"].subscribe("anything", cb=watch)
            await site.flush()
            await site.fleet.all_confirmed()
            for number in range(300):
                await clients["b01"].publish("job.x", b"%d" % number)
            for number in range(300, 400):
                await clients["b03"].publish("job.x", b"%d" % number)
            await site.flush()
            async with asyncio.timeout(30):
                while sum(map(len, handled.values())) < 400 or len(seen) < 400:
                    await asyncio.sleep(0.01)
            await asyncio.sleep(0.3)
            both = sorted(int(each) for each in handled["b02"] + handled["b03"])
            assert both == list(range(400))
            assert sorted(int(each) for each in seen) == list(range(400))
            assert min(len(handled["b02"]), len(handled["b03"]) - 100) > 90

    asyncio.run(asyncio.wait_for(go(), 60))


def _into(handled: list[bytes]) -> Any:
    async def take(message: Any) -> None:
        handled.append(message.data)

    return take


@pytest.mark.stack
def test_work_at_mosquittos_is_done_once(tmp_path: Path) -> None:
    """The same with shared subscriptions of MQTT."""
    NEEDS["mqtt"]()

    async def go() -> None:
        servers = {broker: MqttServer(broker, tmp_path).start() for broker in BROKERS}
        doors = {broker: MqttDoor(server.url, broker) for broker, server in servers.items()}
        for door in doors.values():
            door.groups_once = frozenset({"workers"})
        fleet = NodeFleet(LINE)
        handled: list[bytes] = []
        clients: dict[str, MqttClient] = {}
        try:
            await fleet.begin(doors)
            for broker, server in servers.items():
                take = lambda message: handled.append(bytes(message.payload))  # noqa: E731
                clients[broker] = await MqttClient(server.port, take).connected()
            for broker in ("b02", "b03"):
                await clients[broker].subscribe("$share/workers/job/+")
            await clients["b01"].subscribe("anything")
            await fleet.all_confirmed()
            for number in range(200):
                clients["b01"].paho.publish("job/x", b"%d" % number, qos=1)
            async with asyncio.timeout(30):
                while len(handled) < 200:
                    await asyncio.sleep(0.01)
            await asyncio.sleep(0.3)
            assert sorted(map(int, handled)) == list(range(200))
        finally:
            for client in clients.values():
                client.close()
            await fleet.close()
            for server in servers.values():
                server.stop()

    asyncio.run(asyncio.wait_for(go(), 60))
