"""What Mosquitto's log says of clients that leave, in the words of each version."""

from __future__ import annotations

from collections import Counter

import pytest

from regraft.producers.nodes.mqtt.mqtt_interest import MqttInterest
from regraft.schemas.agent_note import AgentNote, NoteKind

V2_0 = ("Client {} disconnected.", "Client {} closed its connection.", "Client {} has exceeded timeout, disconnecting.")
V2_1 = (
    "Client {} [127.0.0.1:50123] disconnected.",
    "Client {} [::1:50123] disconnected: connection closed by client.",
    "Client {} [127.0.0.1:50123] disconnected: exceeded timeout.",
)


@pytest.mark.parametrize("name", ["sensor", "sensor one", "sensor [10.0.0.1:1]"])
@pytest.mark.parametrize("left", [*V2_0, *V2_1])
def test_interest_ends_when_a_client_without_session_leaves(left: str, name: str) -> None:
    """Mosquitto 2.1 adds the client's address; a name with spaces or brackets is still that client's."""
    wanted: dict[str, bool] = {}
    interest = MqttInterest(wanted.__setitem__, "regraft-b01", 3_600.0, Counter())
    connected = "New client connected from 127.0.0.1:50123 as {} (p2, c1, k60)."
    for other in ("sensor", name):
        interest.handle("N", connected.format(other), 0.0)
    interest.handle("M/subscribe", f"{name} 1 a/b", 0.0)
    assert wanted == {"a.b": True}
    interest.handle("N", left.format(name), 1.0)
    assert wanted == {"a.b": False}
    assert interest.known() == {}


def test_a_session_that_is_given_up_is_counted() -> None:
    """What crosses no more for a client that will come back; a clean client of MQTT 5 may have had no session."""
    wanted: dict[str, bool] = {}
    counts: Counter[str] = Counter()
    interest = interest_of(wanted, counts)
    for name, options in (("kept", "p2, c0, k60"), ("clean", "p5, c1, k60")):
        interest.handle("N", f"New client connected from 10.0.0.9:1 as {name} ({options}).", 0.0)
        interest.handle("M/subscribe", f"{name} 1 a/{name}", 0.0)
        interest.handle("N", f"Client {name} disconnected.", 1.0)
    interest.expire(3_600.0)
    assert wanted == {"a.kept": True, "a.clean": True}
    interest.expire(3_602.0)
    assert wanted == {"a.kept": False, "a.clean": False}
    assert counts == {"session_given_up": 1}


@pytest.mark.parametrize("version", ["2.0.22", "2.1.0-test1"])
def test_a_broker_that_starts_has_no_clients_but_may_have_kept_sessions(version: str) -> None:
    """It has died without a word about them. No client starts a broker by its name."""
    wanted: dict[str, bool] = {}
    interest = interest_of(wanted)
    for name, options in (("kept", "p2, c0, k60"), ("clean", "p2, c1, k60"), ("other", "p2, c1, k60")):
        interest.handle("N", f"New client connected from 10.0.0.9:1 as {name} ({options}).", 0.0)
        interest.handle("M/subscribe", f"{name} 1 a/{name}", 0.0)
    connect(interest, f"mosquitto version {version}")
    interest.handle("M/subscribe", f"mosquitto version {version} 0 starting", 0.0)
    interest.catch_up([f"mosquitto version {version} starting"], 0.0)
    assert wanted == {"a.kept": True, "a.clean": True, "a.other": True, "starting": False}
    interest.handle("N", f"Client mosquitto version {version} disconnected.", 0.0)
    connected = "New client connected from 10.0.0.9:1 as other (p2, c1, k60)."
    interest.catch_up([f"mosquitto version {version} starting", connected, "other 1 a/other"], 1.0)
    assert wanted == {"a.kept": True, "a.clean": False, "a.other": True, "starting": False}
    interest.expire(3_602.0)
    assert wanted["a.kept"] is False


def interest_of(wanted: dict[str, bool], counts: Counter[str] | None = None) -> MqttInterest:
    return MqttInterest(wanted.__setitem__, "regraft-b01", 3_600.0, Counter() if counts is None else counts)


def connect(interest: MqttInterest, name: str, user: str = "") -> None:
    named = f", u'{user}'" if user else ""
    interest.handle("N", f"New client connected from 10.0.0.9:1 as {name} (p2, c1, k60{named}).", 0.0)


ODD_NAMES = (
    "victim disconnected x", "victim disconnected.", "victim closed its connection.", "victim [10.0.0.9:1]",
    "victim has exceeded timeout, disconnecting.", "victim a", "victim 1 a b", "victim (p2, c1, k60).",
)  # fmt: skip


@pytest.mark.parametrize("left", [*V2_0, *V2_1])
@pytest.mark.parametrize("odd", ODD_NAMES)
def test_no_client_ends_the_interest_of_another(odd: str, left: str) -> None:
    """Whatever a client calls itself, and whatever it wants, leaves and ends: the victim's interest stays."""
    wanted: dict[str, bool] = {}
    interest = interest_of(wanted)
    connect(interest, "victim")
    for filter_ in ("a b", "alarms/#"):
        interest.handle("M/subscribe", f"victim 1 {filter_}", 0.0)
    connect(interest, odd, user="u (p5, c1, k0")
    for filter_ in ("b", "x"):
        interest.handle("M/subscribe", f"{odd} 1 {filter_}", 1.0)
        interest.handle("M/unsubscribe", f"{odd} {filter_}", 1.0)
    for _ in range(2):  # Also of a connection that another of the same name has taken over.
        interest.handle("N", left.format(odd), 2.0)
    assert {"a/x20/b", "alarms", "alarms.>"} <= {subject for subject, is_wanted in wanted.items() if is_wanted}


def test_a_client_has_a_share_and_what_was_refused_is_taken_when_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """One client's filters do not shut out another's; its own wait until others of it end."""
    monkeypatch.setattr("regraft.producers.nodes.mqtt.mqtt_interest.FILTERS_OF_CLIENT_MAX", 3)
    wanted: dict[str, bool] = {}
    counts: Counter[str] = Counter()
    interest = interest_of(wanted, counts)
    for number in range(5):
        interest.handle("M/subscribe", f"greedy 0 g{number}", 0.0)
    interest.handle("M/subscribe", "modest 0 m", 0.0)
    assert [subject for subject, is_wanted in wanted.items() if is_wanted] == ["g0", "g1", "g2", "m"]
    assert counts == {"too_many_filters": 2}
    interest.handle("M/unsubscribe", "greedy g4", 0.0)  # One that was waiting.
    interest.handle("M/unsubscribe", "greedy g1", 0.0)
    assert [subject for subject, is_wanted in wanted.items() if is_wanted] == ["g0", "g2", "m", "g3"]


NAMED = "web1.k3-1.16"
BESIDE = AgentNote(NoteKind.BESIDE, NAMED, identifier="sensor", filter="a/+/#")


@pytest.mark.parametrize("is_note_first", [True, False])
def test_what_an_agent_subscribes_is_a_subscription_by_itself(is_note_first: bool) -> None:
    """Note and log may come in any order; another client's interest in the same is not touched, and ends alone."""
    wanted: dict[str, bool] = {}
    interest = interest_of(wanted, Counter())
    interest.handle("N", "New client connected from 10.0.0.9:1 as sensor (p5, c1, k30).", 0.0)
    interest.handle("M/subscribe", "other 1 a/+/#", 0.0)
    interest.handle("M/subscribe", "sensor 1 _REGRAFT/agent/web1/k3-1", 0.0)
    steps = [lambda: interest.note_beside(BESIDE), lambda: interest.handle("M/subscribe", "sensor 1 a/+/#", 0.0)]
    for step in steps if is_note_first else reversed(steps):
        step()
    assert wanted == {"a.>": True, f"a.> regraft-agent.{NAMED}": True}
    interest.handle("M/unsubscribe", "sensor a/+/#", 0.0)
    assert wanted == {"a.>": True, f"a.> regraft-agent.{NAMED}": False}


def test_interest_of_an_agents_client_ends_with_its_connection() -> None:
    """It logs in with MQTT 5, but has no session."""
    wanted: dict[str, bool] = {}
    interest = interest_of(wanted, Counter())
    interest.handle("N", "New client connected from 10.0.0.9:1 as sensor (p5, c1, k30).", 0.0)
    interest.handle("M/subscribe", "sensor 1 _REGRAFT/agent/web1/k3-1", 0.0)
    interest.note_beside(BESIDE)
    interest.handle("M/subscribe", "sensor 1 a/+/#", 0.0)
    interest.handle("N", "Client sensor disconnected.", 1.0)
    assert wanted == {f"a.> regraft-agent.{NAMED}": False}
    interest.note_beside(AgentNote(NoteKind.BESIDE, "no name of an agent", identifier="sensor", filter="a/b"))
    interest.handle("M/subscribe", "sensor 1 a/b", 2.0)
    assert wanted["a.b"]


@pytest.mark.parametrize("is_note_first", [True, False])
def test_what_agents_have_said_outlasts_lines_about_connections_that_come_again(is_note_first: bool) -> None:
    """A plan may be bringing the subscription: to end it, even for a moment, would lose it."""
    changes: list[tuple[str, bool]] = []
    interest = MqttInterest(lambda subject, is_wanted: changes.append((subject, is_wanted)), "own", 60.0, Counter())
    lines = ["New client connected from 10.0.0.9:1 as c (p5, c1, k30).", "c 1 _REGRAFT/agent/all", "c 1 a"]
    note = AgentNote(NoteKind.BESIDE, "web1.r-1.1~s-1", 1, identifier="c", filter="a")
    if is_note_first:
        interest.note_beside(note)
    else:
        interest.catch_up(lines, 0.0)
        interest.note_beside(note)
        changes.clear()
    interest.catch_up(["Client c disconnected.", *lines], 0.0)
    assert changes == ([("a regraft-agent.web1.r-1.1~s-1@1", True)] if is_note_first else [])
    interest.catch_up(["Client c disconnected.", lines[0], "c 1 a"], 0.0)  # It has no agent any more.
    assert changes[-2:] == [("a regraft-agent.web1.r-1.1~s-1@1", False), ("a", True)]
