"""Queue groups that handle each message once in the whole overlay."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.producers.brokers.broker_messages import SubscribeRequest
from regraft.producers.node_settings import NodeSettings
from regraft.producers.nodes.amqp.amqp_interest import AmqpInterest, Binding
from regraft.producers.nodes.connectors.connector import LocalMessage
from regraft.producers.nodes.connectors.groups_once import (
    GroupHandlers,
    excluded_groups,
    group_of,
    group_suffix,
    key_of,
    parts_of,
)
from regraft.producers.nodes.connectors.subject_filters import content_of, filter_of
from regraft.producers.nodes.mqtt.mqtt_interest import MqttInterest
from regraft.producers.nodes.node_clients import NodeClients
from tests.producers.nodes.connector_brokers import Received
from tests.producers.nodes.connector_kit import broker_of, needs, until
from tests.producers.nodes.node_fleet import NodeFleet
from tests.wait_until import PATIENCE_S

BROKERS = ("b01", "b02", "b03")
LINE = TreeConfiguration.of(0, BROKERS, [("b01", "b02"), ("b02", "b03")])
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
        assert any("groups_once" in error for error in settings.errors()) == is_refused
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
    mqtt = MqttInterest(lambda *each: seen.append(each), "regraft", 60, Counter())
    mqtt.groups_once = frozenset({"g"})
    for filter_ in ("$share/g/job/+", "$share/h/job/#"):
        mqtt.handle("M/subscribe", f"c 0 {filter_}", 0.0)
    for filter_ in ("$share/g/job/+", "$share/h/job/#"):
        mqtt.handle("M/unsubscribe", f"c {filter_}", 0.0)
    assert [one for one, is_wanted in seen if is_wanted] == ["job.* g", "job", "job.>"]
    assert sorted(one for one, is_wanted in seen if not is_wanted) == ["job", "job.* g", "job.>"]
    seen.clear()
    amqp = AmqpInterest(lambda *each: seen.append(each), "regraft", Counter())
    amqp.groups_once = frozenset({"g"})
    for binding in (Binding("queue", "g", "job.*"), Binding("queue", "h", "job.*")):
        amqp.begin(binding)
        amqp.end(binding)
    assert seen == [("job.* g", True), ("job.* g", False), ("job.*", True), ("job.*", False)]


@pytest.mark.stack
@pytest.mark.parametrize("kind", ["nats", "mqtt", "mqtt 3.1.1"])
def test_work_is_done_once(kind: str, tmp_path: Path) -> None:
    """Workers of one group at two of three brokers: each message is handled by one of them, at home where one is.

    At a leaf port, a client there that is in no group gets every message all the same.
    """
    needs(kind)
    fleet, ledger = NodeFleet(LINE), {broker: Received() for broker in BROKERS}
    handled = lambda broker: sorted(int(each.payload) for each in ledger[broker].got.get("job.x", []))  # noqa: E731

    async def steps(brokers: dict[str, Any]) -> None:
        await fleet.begin({name: broker.connector for name, broker in brokers.items()})
        for name in ("b02", "b03"):
            await brokers[name].want("job.*", "workers")
        if kind == "nats":
            await brokers["b02"].want("job.*")
        await brokers["b01"].want("anything")
        nodes = [node.clients for node in fleet.nodes.values()]
        await until(lambda: [each.interest_count for each in nodes] == [1, 2 if kind == "nats" else 1, 1])
        await fleet.all_confirmed()
        for number in range(400):
            await brokers["b01" if number < 300 else "b03"].publish(LocalMessage("job.x", b"%d" % number))
        everyone = 400 if kind == "nats" else 0
        await until(lambda: len(handled("b02") + handled("b03")) >= 400 + everyone)
        await asyncio.sleep(0.3)
        assert sorted(handled("b02") + handled("b03")) == sorted([*range(400), *range(everyone)])
        assert set(range(300, 400)) < set(handled("b03"))
        assert min(len(handled("b02")) - everyone, len(handled("b03")) - 100) > 90

    async def go() -> None:
        async with AsyncExitStack() as stack:
            brokers = {}
            for name in BROKERS:
                entered = broker_of(kind, ledger[name], tmp_path, name=name, groups_once=("workers",))
                brokers[name] = await stack.enter_async_context(entered)
            stack.push_async_callback(fleet.close)
            await steps(brokers)

    asyncio.run(asyncio.wait_for(go(), PATIENCE_S))
