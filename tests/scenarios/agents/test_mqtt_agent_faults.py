"""What went wrong with agents of MQTT in some order of events, each in the shortest run that shows it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from regraft.producers.agents.mqtt_frames import MQTT_311, PUBLISH
from regraft.producers.agents.mqtt_upstream import MqttUpstream
from regraft.producers.nodes.mqtt.mqtt_connection import MqttConnection
from regraft.producers.nodes.mqtt.mqtt_connector import MqttConnector
from tests.scenarios.agents.agents_run import AgentsDriver, AgentsSpec, virtual_time
from tests.scenarios.agents.check_rest import check_left
from tests.scenarios.agents.memory_mqtt import MQTT_PORT
from tests.scenarios.agents.mqtt_site_clients import MqttSiteClient
from tests.scenarios.agents.site_kinds import MQTT, MQTT_SESSION_S, NOTES, MqttKind
from tests.scenarios.agents.wires import AnyOrderLoop


@contextmanager
def driver_of(broker_count: int = 2) -> Iterator[AgentsDriver]:
    """Yield what performs actions at a site whose nodes are open."""
    loop, kind = AnyOrderLoop(), MqttKind()
    with virtual_time(loop, kind) as logged:
        driver = AgentsDriver(AgentsSpec(0, broker_count, protocol=MQTT), loop, kind)
        driver.rest()
        yield driver
    assert [each for each in logged if each["log_level"] == "error"] == []


def let(driver: AgentsDriver, is_held: Callable[[Any], bool], *, ms: int = 0, of: type[Any] = MqttUpstream) -> None:
    """Let everything move for a time, except what a broker sends to agents, or others, over some connections."""
    site = driver.site
    end_ms = site.now_ms + ms
    while True:
        lanes = [each for each in driver.lanes() if not (each[0] == "arrive" and _is_held(site, each[1], is_held, of))]
        if lanes:
            driver.do(driver._action_of(lanes[0]))
        elif site.now_ms < end_ms:
            driver.do(("wait", 500), *(("tick", name) for name in site.nodes))
        else:
            return


def _is_held(site: Any, name: str, is_held: Callable[[Any], bool], of: type[Any] = MqttUpstream) -> bool:
    reader = site.wires.ends[name].peer.protocol
    return isinstance(reader, of) and is_held(reader)


def move_all(driver: AgentsDriver, target: str) -> None:
    """Begin a plan that moves all clients to a broker."""
    homes = driver.site.movable()
    driver.do(("plan", (), tuple((name, home, target) for name, home in homes.items() if home != target)))


def target_of(driver: AgentsDriver) -> str:
    """Return the broker where the clients are not."""
    return driver.site.names[1]


def test_a_node_that_returns_learns_whose_the_subscriptions_in_the_log_are() -> None:
    """Agents had answered before it read the file, whose lines about their connections forgot the answers."""
    with driver_of(3) as driver:
        driver.do(("come", "c0", "web1", 1), ("come", "c1", "web1", 2))
        driver.rest()
        driver.do(("die_node", driver.site.names[0]))
        driver.rest()
        while mending := driver.site.mending():
            driver.do(*mending)
            driver.rest()
        driver.serve()
        assert {home for name, home in driver.site.movable().items() if "~" in name} == {driver.site.names[0]}


def test_a_node_whose_broker_is_slow_while_it_opens_keeps_no_interest() -> None:
    """It gave up behind the log file and opened again, as no process does: what it had learned stayed."""
    with driver_of(3) as driver:
        name = driver.site.names[1]
        driver.do(("come", "c0", name, 2))
        driver.rest()
        driver.do(("die_node", name))
        driver.do(*(("notice", *pair) for pair in driver.site.to_notice()))
        while driver.move():
            pass
        driver.do(("return_node", name))
        connector = driver.site.brokers[name].connector
        let(driver, lambda _: connector._reports.is_caught_up, ms=20_000, of=MqttConnection)
        driver.do(("leave", "c0"))
        while mending := driver.site.mending():
            driver.do(*mending)
            driver.rest()
        check_left(driver.site)


def test_a_broker_that_starts_again_has_no_clients() -> None:
    """Those beside agents are elsewhere, those without agents are gone; the log says that it starts again."""
    with driver_of() as driver:
        home = driver.site.names[0]
        driver.do(("come", "c0", "web1", 1), ("come", "c1", home, 1))
        driver.rest()
        assert driver.site.brokers[home].connector._interest.known()
        driver.do(("stop", home))
        driver.rest()
        driver.do(("start", home))
        driver.rest()
        driver.serve()
        assert driver.site.brokers[home].connector._interest.known() == {}


@pytest.mark.parametrize("is_restarted", [True, False])
def test_without_a_log_file_agents_clients_are_forgotten_once_their_broker_has_begun_again(
    is_restarted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They stayed registered, and plans that moved them were aborted; those who are still there answer the node."""
    monkeypatch.setattr(MqttKind, "connector", without_log_file)
    with driver_of() as driver:
        site, home = driver.site, driver.site.names[0]
        driver.do(("come", "c0", "web1", 1), ("come", "c1", "web1", 2))
        driver.rest()
        wanted = site.brokers[home].connector._interest.known()
        assert len(wanted) == 2
        if is_restarted:
            driver.do(("stop", home))
            let(driver, lambda _: False, ms=5_000)
            driver.do(("start", home))
        else:
            driver.do(("cut", home))
            site.servers[home].sessions.pop(site.brokers[home].connector._client_id)  # It was away for longer.
        let(driver, lambda _: False, ms=70_000)
        assert site.brokers[home].connector._interest.known() == ({} if is_restarted else wanted)
        driver.serve()


def without_log_file(_kind: MqttKind, server: Any) -> MqttConnector:
    """Return a connector as most brokers have it."""
    return MqttConnector(f"mqtt://{server.name}:{MQTT_PORT}", server.name, session_s=MQTT_SESSION_S)


def test_a_client_that_leaves_before_its_next_home_has_answered_leaves_no_connection() -> None:
    """Its end was cut short: the missing answer refused a move, which closed a connection meanwhile."""
    with driver_of() as driver:
        target = target_of(driver)
        driver.do(("come", "c0", "web1", 1))
        driver.rest()
        move_all(driver, target)
        session = driver.site.sessions["c0"]
        let(driver, lambda upstream: upstream.broker == target and target in session.homes.upstreams)
        assert session.homes.upstreams[target]._asked
        driver.do(("leave", "c0"))
        driver.rest()
        check_left(driver.site)


def test_a_next_home_that_grants_nothing_in_time_keeps_no_client() -> None:
    """The client was ended, as if its agent had failed, and its second login stayed."""
    with driver_of() as driver:
        target = target_of(driver)
        driver.do(("come", "c0", "web1", 1))
        driver.rest()
        move_all(driver, target)
        let(driver, lambda upstream: upstream.broker == target and upstream.is_ready, ms=15_000)
        driver.rest()
        driver.serve()
        assert "c0" in driver.site.clients
        assert driver.site.agents["web1"].counts["subscriptions_moved"] == 0


def test_a_next_home_that_refuses_what_agents_need_keeps_no_connection() -> None:
    """The client stays, and so did its second login."""
    with driver_of() as driver:
        target = target_of(driver)
        driver.do(("come", "c0", "web1", 1))
        driver.rest()
        driver.do(("refuse", target, NOTES))
        move_all(driver, target)
        driver.rest()
        assert driver.site.agents["web1"].counts["moves_refused"] == 1
        driver.serve()


def test_a_client_that_leaves_while_it_logs_in_leaves_no_connection() -> None:
    """Its broker kept it until the keep-alive had passed."""
    with driver_of() as driver:
        driver.do(("come", "c0", "web1", 1))
        let(driver, lambda upstream: not upstream.is_ready)
        driver.do(("leave", "c0"))
        let(driver, lambda upstream: not upstream.is_ready)
        driver.rest()
        check_left(driver.site)


def test_agents_and_nodes_say_how_much_they_take() -> None:
    """A Mosquitto sends others 20 of QoS 1, and what is published later at QoS 0 overtakes what waits, notes, too."""
    with driver_of() as driver:
        for number in range(8):  # Some of them take less than others.
            driver.do(("come", f"c{number}", "web1", 1))
        driver.rest()
        sessions = [each for server in driver.site.servers.values() for each in server.sessions.values()]
        assert len(sessions) == 8 + 2
        assert {each.receive_max for each in sessions} == {65_534}


@pytest.mark.parametrize("is_slow", [True, False])
def test_a_client_whose_broker_dies_gets_again_only_what_the_node_is_slower_to_read(is_slow: bool) -> None:
    """The node carries it to where the client has restarted, since others there want it, too."""
    with driver_of() as driver:
        site = driver.site
        home, other = site.names
        driver.do(("come", "c0", "web1", 1), ("come", "c1", "web1", 0), ("come", "c2", other, 1))
        driver.rest()
        driver.serve()
        node = site.brokers[home].connector._session

        def is_held(reader: MqttConnection) -> bool:
            return is_slow and reader is node._connection

        driver.do(("publish", "c1", 6))
        let(driver, is_held, of=MqttConnection)
        driver.do(("leave", "c1"))
        let(driver, is_held, of=MqttConnection)
        came = site.ledger.wanted["c0-1:1"].came["c1-1"]
        assert max(came) == site.ledger.written["c1-1"]
        driver.do(("stop", home))
        unread = {key: set(numbers) for key, numbers in site.ledger.wanted["c0-1:1"].unread.items()}
        let(driver, is_held, ms=3_000, of=MqttConnection)
        count = site.ledger.came_count
        driver.rest()
        assert set(unread) == ({"c1-1"} if is_slow else set())
        assert site.ledger.came_count - count == 2 * len(unread.get("c1-1", ()))  # Both who are left.
        assert not any(site.ledger.wanted["c0-1:1"].unread.values())


@pytest.mark.parametrize("copies", [0, 1, 2])
def test_a_subscription_that_ends_leads_until_its_broker_has_ended_it(copies: int) -> None:
    """By another, a client of 3.1.1 would get what is on its way twice, or not at all."""
    with driver_of() as driver:
        site = driver.site
        name = _client_of_311(driver)
        driver.rest()
        driver.serve()
        session = site.sessions[name]
        driver.do(("publish", name, 1))
        let(driver, lambda upstream: True)
        [end] = [each for each in site.wires.ready() if _is_held(site, each, lambda upstream: True)]
        while copies:
            copies -= site.wires.ends[end].lane[0].data[0] >> 4 == PUBLISH
            driver.do(("arrive", end))
        driver.do(("unsubscribe", name))
        let(driver, lambda upstream: True)
        assert session.client.ending
        driver.rest()
        site.ledger.check()
        assert not session.client.ending


def _client_of_311(driver: AgentsDriver) -> str:
    """Let clients come until one is of MQTT 3.1.1; return its name."""
    for number in range(20):
        driver.do(("come", f"c{number}", "web1", 2))
        client = driver.site.clients[f"c{number}"]
        assert isinstance(client, MqttSiteClient)
        if client.version == MQTT_311:
            return client.name
        driver.rest()
        driver.do(("leave", client.name))
    raise AssertionError("none is")
