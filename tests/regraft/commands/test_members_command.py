"""`regraft members`: which orders about brokers it accepts, what it refuses itself, and what it lists."""

import dataclasses
import json
import time
from pathlib import Path

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner, Result

from regraft.cli import app
from regraft.commands import members_command
from regraft.commands.members_command import read_announced
from regraft.infra.kafka.create_topics import create_topics
from regraft.infra.kafka.kafka_clients import open_producer
from regraft.infra.local.kafka_server import RunningKafka
from regraft.infra.process.stack_error import CallError, StackError
from regraft.overlay.inventory.members import FleetView
from regraft.overlay.read_inventory import load_inventory
from regraft.run_records import read_topics
from regraft.run_records.read_topics import read_whole
from regraft.schemas.announcement import EXPIRY_MS, Announcement
from regraft.schemas.audit import AuditEntry, AuditOutcome
from regraft.schemas.codec import encode
from regraft.schemas.live_view import ShownBroker, ShownNetwork, encode_view
from regraft.schemas.member import BrokerFacts, Member, MemberState, PeerCost, Position
from regraft.schemas.order import Order, OrderKind
from regraft.schemas.topics import ANNOUNCEMENTS, MEMBERS, ORDERS, topic_name
from regraft.settings.run_settings import Settings, load_settings
from regraft.stages import run_loop
from tests.overlay.small_overlays import inventory_of, line_of
from tests.schemas.shown_views import view_of

RUNNER = CliRunner()
RECORDS = [
    Member("b01", MemberState.DEAD, 5_000, "silent for 10 s", deaths_ms=(1_000, 5_000), returns_ms=15_000),
    Member("b02", MemberState.LEAVING, 6_000, "ordered by ada"),
]


class Desk:
    """Accepts orders in place of Kafka, with a fleet of four brokers."""

    def __init__(self) -> None:
        self.orders: list[tuple[OrderKind, str, BrokerFacts | None]] = []
        self.outcome = AuditOutcome.ACCEPTED

    def give(
        self, settings: Settings, kind: OrderKind, broker: str, by: str, reason: str, *, facts: BrokerFacts | None
    ) -> AuditEntry:
        self.orders.append((kind, broker, facts))
        return AuditEntry(broker, kind, by, reason, self.outcome, "", 0)


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Desk:
    found = Desk()
    inventory_of(line_of(4), {}, processing=3.0).save(tmp_path / "inventory.json")
    monkeypatch.setenv("REGRAFT_RUN__DIRECTORY", str(tmp_path))
    fleet = FleetView.of(load_inventory(tmp_path / "inventory.json"), RECORDS)
    monkeypatch.setattr(members_command, "_known", lambda settings: fleet.members)
    monkeypatch.setattr(members_command, "give_order", found.give)
    monkeypatch.setattr(members_command, "read_announced", lambda settings, known: [])
    return found


def invoke(*arguments: str) -> Result:
    return RUNNER.invoke(app, ["members", *arguments])


def test_the_newest_record_of_a_broker_counts_without_an_inventory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A topic holds earlier records of a broker until it is compacted."""
    states = (MemberState.DEAD, MemberState.JOINING, MemberState.IN_SERVICE)
    records = [Member("b02", MemberState.LEFT, 1, "old"), *(Member("b01", state, 1, "as said") for state in states)]
    monkeypatch.setenv("REGRAFT_RUN__DIRECTORY", str(tmp_path))
    monkeypatch.setattr(run_loop, "require_kafka", lambda _: None)
    monkeypatch.setattr(read_topics, "read_whole", lambda *_: iter(records))
    monkeypatch.setattr(members_command, "read_announced", lambda settings, known: [])
    listed = invoke("list", "--json")
    assert listed.exit_code == 0, listed.output
    assert [(one["broker"], one["state"]) for one in json.loads(listed.output)] == [
        ("b01", "in_service"),
        ("b02", "left"),
    ]


def test_a_broker_is_added_with_its_known_facts(desk: Desk) -> None:
    """The processing cost defaults to the inventory's median."""
    found = invoke("add", "x1", "--link", "b00=2.5", "--position", "1,-2", "--agent", "west", "--reason", "more room")
    assert found.exit_code == 0, found.output
    ((kind, broker, facts),) = desk.orders
    assert (kind, broker) == (OrderKind.ADD, "x1")
    assert facts is not None
    assert (facts.processing_cost, facts.agent) == (3.0, "west")
    assert [(cost.peer, cost.cost) for cost in facts.link_costs] == [("b00", 2.5)]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["add", "x1"], "--link PEER=COST"),
        (["add", "x1", "--link", "b00"], "write PEER=COST"),
        (["add", "x1", "--link", "b00=near"], "write PEER=COST"),
        (["add", "x1", "--link", "b00=-1"], "is invalid"),
        (["add", "x1", "--link", "b00=1", "--link", "b00=2"], "names b00 twice"),
        (["add", "x1", "--link", "b77=1"], "no broker b77 to link to"),
        (["add", "x1", "--position", "1"], "write X,Y"),
        (["add", "x1", "--position", "1,2", "--agent", "a.b"], "--agent is"),
        (["dead", "b00", "--reason", " "], "give --reason"),
        (["remove", "b01", "--reason", ""], "give --reason"),
        (["drain", "b09", "--reason", " "], "give --reason"),
        (["dead", "b00"], "Give --yes"),
        (["remove", "b01"], "Give --yes"),
    ],
)
def test_a_wrong_call_ends_with_2_and_what_is_expected(desk: Desk, arguments: list[str], why: str) -> None:
    """No order is given."""
    found = invoke(*arguments, *(() if "--reason" in arguments else ("--reason", "because")))
    assert found.exit_code == 2
    assert why in " ".join(found.output.replace("│", " ").split())
    assert desk.orders == []


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["drain", "b09"], "b09 is not a member"),
        (["drain", "b01"], "b01 is dead and cannot be drained"),
        (["add", "b00", "--position", "1,2"], "b00 is already a member"),
        (["remove", "b00", "--yes"], "drain it, or declare it dead"),
        (["dead", "b00", "b01", "--yes"], "b01 is dead and cannot be declared dead"),
        (["readmit", "b09"], "b09 is not a member"),
    ],
)
def test_an_impossible_order_is_refused_before_it_is_sent(desk: Desk, arguments: list[str], why: str) -> None:
    """If an order is impossible for one of several brokers, it is given for none."""
    found = invoke(*arguments, "--reason", "because")
    assert isinstance(found.exception, StackError), found.output
    assert isinstance(found.exception, CallError) is ("is not a member" in why)  # Exit code 2 instead of 1.
    assert why in str(found.exception)
    assert desk.orders == []


def test_several_brokers_can_be_declared_dead_at_once(desk: Desk) -> None:
    """A failed site is one call; a repeated name gives one order."""
    found = invoke("dead", "b00", "b03", "b00", "--yes", "--reason", "the site burns")
    assert found.exit_code == 0, found.output
    assert [(kind, broker) for kind, broker, _ in desk.orders] == [(OrderKind.DEAD, "b00"), (OrderKind.DEAD, "b03")]


def test_members_are_listed_with_state_and_reason(desk: Desk) -> None:
    """The list is a table with counts, or JSON of the records."""
    table = invoke("list").output
    assert "silent for 10 s" in table
    assert "4 brokers: 2 in service, 1 leaving, 1 dead" in table
    (found,) = json.loads(invoke("list", "--state", "dead", "--json").output)
    assert (found["broker"], found["deaths_ms"], found["returns_ms"]) == ("b01", [1_000, 5_000], 15_000)


def test_the_list_says_how_many_subscribers_may_move_if_the_live_view_does(desk: Desk, tmp_path: Path) -> None:
    """A broker that the view does not show has an empty cell; while clients may all move, there is no such column."""
    brokers = tuple(
        ShownBroker(name, 3.0, 0.1, 0, 2, 0.5, 1, 12, movable) for name, movable in (("b00", 3), ("b03", 0))
    )
    view = view_of(network=ShownNetwork(10_000, (), brokers))
    (tmp_path / "controller.json").write_bytes(encode_view(view))
    lines = [line.split() for line in invoke("list").output.splitlines()]
    assert lines[0] == ["broker", "state", "may", "move", "since", "why"]
    assert {line[0]: line[3:6] for line in lines if line[0] in ("b00", "b03")} == {
        "b00": ["3", "of", "12"], "b03": ["0", "of", "12"],
    }  # fmt: skip
    assert next(line for line in lines if line[0] == "b01")[2] == "-"
    moving = tuple(replace(one, movable=None) for one in brokers)
    (tmp_path / "controller.json").write_bytes(encode_view(view_of(network=ShownNetwork(10_000, (), moving))))
    assert "may move" not in invoke("list").output


def test_a_drain_says_how_many_subscribers_stay_and_asks_before_anything_happens(desk: Desk, tmp_path: Path) -> None:
    """Without a terminal only --yes accepts it; the number is unknown if the live view does not show a broker."""
    brokers = tuple(
        ShownBroker(name, 3.0, 0.1, 0, 2, 0.5, 1, 12, movable) for name, movable in (("b00", 3), ("b03", 0))
    )
    (tmp_path / "controller.json").write_bytes(encode_view(view_of(network=ShownNetwork(10_000, (), brokers))))
    found = invoke("drain", "b00", "b03", "--reason", "old")
    told = " ".join(found.output.replace("│", " ").split())
    assert found.exit_code == 2
    assert "21 of 24 subscribers at b00, b03 cannot move: after the drain, clients that stay get only" in told
    assert desk.orders == []
    assert invoke("drain", "b00", "b03", "--yes", "--reason", "old").exit_code == 0
    assert [(kind, broker) for kind, broker, _ in desk.orders] == [(OrderKind.DRAIN, "b00"), (OrderKind.DRAIN, "b03")]
    (tmp_path / "controller.json").unlink()
    assert invoke("drain", "b00", "--reason", "old").exit_code == 0  # By this inventory clients move.
    dataclasses.replace(load_inventory(tmp_path / "inventory.json"), clients_stay=True).save(
        tmp_path / "inventory.json"
    )
    found = invoke("drain", "b00", "--reason", "old")
    assert found.exit_code == 2
    assert "How many subscribers at b00 cannot move is unknown here" in " ".join(found.output.replace("│", " ").split())
    assert len(desk.orders) == 3


def test_the_list_and_a_drain_say_why_subscribers_stay(desk: Desk, tmp_path: Path) -> None:
    """Most first; of those that no reason is known of, only how many they are. JSON has the labels."""
    brokers = tuple(
        ShownBroker(name, 3.0, 0.1, 0, 2, 0.5, 1, 12, movable, staying)
        for name, movable, staying in (("b00", 3, {"qos_2": 1, "queue_group": 4}), ("b03", 10, {"qos_2": 2}))
    )
    (tmp_path / "controller.json").write_bytes(encode_view(view_of(network=ShownNetwork(10_000, (), brokers))))
    table = invoke("list").output
    assert "3 of 12 (4 queue group, 1 qos 2, 4 other)" in table
    assert "10 of 12 (2 qos 2)" in table
    shown = {one["broker"]: one for one in json.loads(invoke("list", "--json").output)}
    assert [shown["b00"][key] for key in ("subscribers", "may_move")] == [12, 3]
    assert shown["b00"]["staying"] == {"qos_2": 1, "queue_group": 4}
    assert "staying" not in shown["b01"]
    asked = " ".join(invoke("drain", "b00", "b03", "--reason", "old").output.replace("│", " ").split())
    assert "11 of 24 subscribers at b00, b03 cannot move (4 queue group, 3 qos 2, 4 other): after the drain" in asked


@pytest.mark.parametrize("is_shown", [False, True])
def test_without_an_inventory_a_drain_asks_unless_the_live_view_shows_that_nobody_stays(
    desk: Desk, tmp_path: Path, is_shown: bool
) -> None:
    """On an operator's machine that has neither, clients may stay for all that it can know."""
    (tmp_path / "inventory.json").unlink()
    if is_shown:
        moving = (ShownBroker("b00", 3.0, 0.1, 0, 2, 0.5, 1, 12, None),)
        (tmp_path / "controller.json").write_bytes(encode_view(view_of(network=ShownNetwork(10_000, (), moving))))
    found = invoke("drain", "b00", "--reason", "old")
    assert found.exit_code == (0 if is_shown else 2)
    assert len(desk.orders) == int(is_shown)
    assert invoke("drain", "b00", "--yes", "--reason", "old").exit_code == 0


@pytest.mark.stack
def test_members_and_orders_about_them_go_through_kafka(kafka: RunningKafka, tmp_path: Path) -> None:
    """The newest record of a broker is listed, and an order is stored for a controller that starts later."""
    create_topics(kafka.access, namespace="members")
    inventory_of(line_of(4), {}).save(tmp_path / "inventory.json")
    producer = open_producer(kafka.access)
    for record in (Member("b01", MemberState.IN_SERVICE, 1, "back"), *RECORDS):
        producer.produce(topic_name(MEMBERS, "members"), key=record.broker, value=encode(record))
    assert producer.flush(30.0) == 0
    where = ["--bootstrap", kafka.bootstrap, "--set", "kafka.namespace=members", "--set", f"run.directory={tmp_path}"]
    listed = invoke("list", "--json", *where)
    states = {member["broker"]: member["state"] for member in json.loads(listed.stdout)}
    assert states == {"b00": "in_service", "b01": "dead", "b02": "leaving", "b03": "in_service"}
    found = invoke("dead", "b03", "--yes", "--reason", "pulled the plug", *where)
    assert found.exit_code == 0, found.output
    assert "no controller has answered" in found.stdout
    (order,) = read_whole(kafka.access, "members", {ORDERS: Order}, 30.0)
    assert (order.kind, order.subject, order.reason) == (OrderKind.DEAD, "b03", "pulled the plug")


def asking(broker: str, **facts: object) -> Announcement:
    """Return an announcement with the present time."""
    return Announcement(broker, BrokerFacts(**facts), time.time_ns() // 1_000_000)  # type: ignore[arg-type]


@pytest.fixture
def announced(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> list[Announcement]:
    found: list[Announcement] = []
    monkeypatch.setattr(members_command, "read_announced", lambda settings, known: found)
    return found


def test_an_announced_broker_is_added_with_its_announced_facts(desk: Desk, announced: list[Announcement]) -> None:
    """The order contains all of them and the command shows them; options override single ones."""
    links = (PeerCost("b00", 2.5), PeerCost("b01", 4.0))
    announced.append(asking("x1", processing_cost=2.0, link_costs=links, agent="west", address="10.0.0.9:7000"))
    found = invoke("add", "x1", "--reason", "it asks")
    assert found.exit_code == 0, found.output
    assert "x1 announces: links b00=2.5, b01=4, processing 2, agent west, address 10.0.0.9:7000" in found.output
    assert invoke("add", "x1", "--link", "b02=1", "--processing", "0", "--reason", "it asks").exit_code == 0
    assert [facts for _, _, facts in desk.orders] == [
        announced[0].facts,
        replace(announced[0].facts, processing_cost=0.0, link_costs=(PeerCost("b02", 1.0),)),
    ]


def test_a_broker_announced_by_two_agents_is_added_for_the_named_one(desk: Desk, announced: list[Announcement]) -> None:
    """One of the two agents does not own it."""
    announced += [asking("x1", position=Position(1, 2), agent=agent) for agent in ("east", "west")]
    found = invoke("add", "x1", "--reason", "it asks")
    assert found.exit_code == 2
    assert "several agents ('east', 'west')" in " ".join(found.output.replace("│", " ").split())
    assert invoke("add", "x1", "--agent", "west", "--reason", "it asks").exit_code == 0
    ((_, _, facts),) = desk.orders
    assert facts is not None
    assert facts.agent == "west"


def test_announced_brokers_are_listed_with_the_command_that_adds_them(
    desk: Desk, announced: list[Announcement]
) -> None:
    """The table has them after the members; JSON has them with state "announced", and no --state lists them."""
    announced += [asking("x1", position=Position(1, 2), agent="west"), asking("x2")]
    table = " ".join(invoke("list").output.split())
    assert "x1 asks to join" in table
    assert "`regraft members add x1` admits it" in table
    assert "`regraft members add x2 --link PEER=COST`" in table
    *members, one, _ = json.loads(invoke("list", "--json").output)
    assert len(members) == 4
    assert (one["broker"], one["state"], one["facts"]["agent"]) == ("x1", "announced", "west")
    assert len(json.loads(invoke("list", "--state", "dead", "--json").output)) == 1


@pytest.mark.stack
def test_announcements_are_read_from_the_topics_of_all_agents(kafka: RunningKafka) -> None:
    """The newest of each broker counts, for a limited time, but not those of members or by another agent."""
    nowhere = load_settings({"kafka": {"bootstrap": kafka.bootstrap, "namespace": "earlier"}}, None)
    assert read_announced(nowhere, {}) == []  # The topic does not exist yet.
    create_topics(kafka.access, namespace="asked", agents=("west", "east"))
    settings = load_settings({"kafka": {"bootstrap": kafka.bootstrap, "namespace": "asked"}}, None)
    producer = open_producer(kafka.access)

    def write(agent: str, one: Announcement, age_ms: int = 0) -> None:
        name = topic_name(ANNOUNCEMENTS, "asked", agent)
        producer.produce(name, key=one.broker, value=encode(one), timestamp=one.time_ms - age_ms)

    write("west", asking("x4", agent="west"), EXPIRY_MS + 60_000)
    write("west", asking("x1", agent="west"))
    write("west", asking("x1", agent="west", address="there"))
    write("west", asking("b01", agent="west"))
    write("east", asking("x2", agent="west"))
    write("east", asking("x3", agent="east"))
    producer.produce(topic_name(ANNOUNCEMENTS, "asked", "east"), key="x5", value=b"no record")
    assert producer.flush(30.0) == 0
    known = {member.broker: member for member in RECORDS}
    found = read_announced(settings, known)
    assert [(one.broker, one.facts.address) for one in found] == [("x1", "there"), ("x3", "")]
