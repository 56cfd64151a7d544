"""Rights in Kafka: the rules, and that a Kafka with an authorizer enforces them."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AclOperation
from typer.testing import CliRunner

from regraft.cli import app
from regraft.controller.ports.topic_readers import TopicReader
from regraft.infra.kafka.access_rules import AccessRule, access_rules, create_access_rules, default_principals
from regraft.infra.kafka.create_topics import create_topics
from regraft.infra.kafka.kafka_access import KafkaAccess
from regraft.infra.kafka.kafka_clients import open_admin
from regraft.infra.kafka.read_messages import UnreadableTopicError, read_messages
from regraft.infra.kafka.record_writer import RecordWriter
from regraft.infra.local.kafka_server import RunningKafka, start_kafka
from regraft.infra.local.secure_kafka import LOCAL_USER, SecuredKafka, secure_kafka
from regraft.infra.process.stack_error import StackError
from regraft.schemas.command import CommandPhase, CommandResult, Outcome
from regraft.schemas.topics import AUDIT, COMMANDS, EVENTS, ORDERS, PLANS, RESULTS, TOPICS, Role, Topic, topic_name
from tests.overlay.small_overlays import inventory_of, line_of
from tests.wait_until import wait_until

PATIENCE_S = 30.0


def rules_of(role: Role) -> set[tuple[str, str, str]]:
    rules = access_rules({role: ("User:x",)}, "live")
    return {(rule.resource, rule.name, rule.operation) for rule in rules}


def test_a_role_has_the_rights_of_the_table() -> None:
    """It has no other rights to our topics; every topic has a role that writes and one that reads it."""
    for topic in TOPICS:
        name = topic_name(topic, "live")
        assert {role for role in Role if ("TOPIC", name, "WRITE") in rules_of(role)} == set(topic.writers) != set()
        assert {role for role in Role if ("TOPIC", name, "READ") in rules_of(role)} == set(topic.readers) != set()


def test_only_people_may_give_orders() -> None:
    """The delivery promise depends on these rules."""
    assert {role for role in Role if role in COMMANDS.writers + PLANS.writers + AUDIT.writers} == {Role.CONTROLLER}
    assert set(ORDERS.writers) == {Role.DASHBOARD, Role.OPERATOR}


def test_alerts_store_in_transactions() -> None:
    """No other role may use their transactional id or the group of their positions."""
    assert {right for right in rules_of(Role.ALERTS) if right[0] != "TOPIC"} == {
        ("GROUP", "live.alerts", "READ"),
        ("GROUP", "regraft-alerts", "READ"),
        ("TRANSACTIONAL_ID", "live.alerts-writer", "WRITE"),
    }


def test_only_controllers_can_lead() -> None:
    """The group that elects the leader, and the transactional id that fences off others."""
    for right in (("GROUP", "live.leader", "READ"), ("TRANSACTIONAL_ID", "live.controller", "WRITE")):
        assert {role for role in Role if right in rules_of(role)} == {Role.CONTROLLER}


def test_several_principals_may_have_a_role() -> None:
    """One for each operator."""
    rules = access_rules({Role.OPERATOR: ("User:ana", "User:bo")}, "live")
    assert AccessRule("User:ana", "TOPIC", "live.orders", "WRITE") in rules
    assert len(rules) == 2 * len(rules_of(Role.OPERATOR))


def test_the_rules_are_shown_before_they_are_created() -> None:
    """With the principals given; an unknown role is refused with the known ones."""
    shown = CliRunner().invoke(app, ["topics", "--acls", "--json", "--principal", "brokers=User:CN=agent"])
    assert '"principal": "User:CN=agent"' in shown.stdout
    assert '"principal": "User:regraft-controller"' in shown.stdout
    assert "User:regraft-brokers" not in shown.stdout
    wrong = CliRunner().invoke(app, ["topics", "--acls", "--principal", "cook=User:x"])
    assert wrong.exit_code == 2
    assert "brokers" in wrong.output


def test_each_agent_has_rights_to_its_own_topics_alone(tmp_path: Path) -> None:
    """The agents come from the inventory in the run directory; a principal given for one replaces its default."""
    replace(inventory_of(line_of(2), {}), agent_of={"b00": "west", "b01": "east"}).save(tmp_path / "inventory.json")
    asked = ["topics", "--acls", "--json", "--set", f"run.directory={tmp_path}"]
    shown = json.loads(CliRunner().invoke(app, [*asked, "--agent-principal", "west=User:w"]).stdout)
    assert {"regraft.results.east", "regraft.results.west"} < {row["topic"] for row in shown["topics"]}
    assert "regraft.results" not in {row["topic"] for row in shown["topics"]}
    may = {(rule["principal"], rule["name"], rule["operation"]) for rule in shown["acls"]}
    by_agent = {right for right in may if right[1].endswith((".west", ".east"))}
    assert {right for right in by_agent if right[0] in ("User:w", "User:regraft-brokers-west")} == {
        ("User:w", "regraft.announcements.west", "WRITE"),
        ("User:w", "regraft.commands.west", "READ"),
        ("User:w", "regraft.results.west", "WRITE"),
        ("User:w", "regraft.telemetry.west", "WRITE"),
    }
    readers = {right for right in may if right[0] == "User:regraft-streaming" and right[1].startswith("regraft.telem")}
    wanted = product(("regraft.telemetry.east", "regraft.telemetry.west"), ("READ", "DESCRIBE_CONFIGS"))
    assert readers == {("User:regraft-streaming", *right) for right in wanted}
    assert ("User:regraft-controller", "regraft.commands.east", "WRITE") in may
    assert ("User:regraft-brokers-east", "regraft.commands.east", "READ") in may
    assert "User:regraft-brokers" not in {principal for principal, _, _ in may}
    newer = json.loads(
        CliRunner().invoke(app, [*asked, "--agent", "north", "--agent-principal", "north=User:n"]).stdout
    )
    assert {"regraft.announcements.north", "regraft.telemetry.west"} < {row["topic"] for row in newer["topics"]}
    rights = {(rule["principal"], rule["name"], rule["operation"]) for rule in newer["acls"]}
    assert rights - may == {right for right in rights if right[1].endswith(".north") or right[0] == "User:n"} | {
        right for right in rights if right[0] == "User:regraft-brokers-west"
    }
    assert ("User:regraft-controller", "regraft.announcements.north", "READ") in rights
    for wrong in (["--agent-principal", "north=User:n"], ["--principal", "brokers=User:b"], ["--agent", "a.b"]):
        assert CliRunner().invoke(app, [*asked, *wrong]).exit_code == 2


@dataclass(frozen=True)
class GuardedKafka:
    """A Kafka with TLS, logins and an authorizer, whose users are the roles."""

    running: RunningKafka
    secured: SecuredKafka

    def as_role(self, role: Role, client_id: str) -> KafkaAccess:
        return KafkaAccess(self.running.bootstrap, client_id, self.secured.login(f"live-{role}"))


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedKafka]:
    directory = tmp_path_factory.mktemp("kafka")
    secured = secure_kafka(directory / "secrets", (LOCAL_USER, *(f"live-{role}" for role in Role)))
    with start_kafka(directory, secured=secured) as running:
        create_topics(running.access, namespace="live")
        create_access_rules(running.access, access_rules(default_principals("live"), "live"))
        yield GuardedKafka(running, secured)


@pytest.mark.stack
def test_who_may_not_create_topics_is_told_who_may(kafka: GuardedKafka) -> None:
    """A stage's login ends with one sentence about rights, not with a hint to Kafka's log."""
    with pytest.raises(StackError, match=r"could not be created .*: run `regraft topics --create` with a login that"):
        create_topics(kafka.as_role(Role.STREAMING, "any"), namespace="elsewhere")


@pytest.mark.stack
def test_who_may_not_read_a_topic_is_told_so(kafka: GuardedKafka) -> None:
    """A topic that exists is not taken for a deleted one."""
    with pytest.raises(UnreadableTopicError, match="needs the right to read it"):
        list(read_messages(kafka.as_role(Role.BROKERS, "any"), [topic_name(AUDIT, "live")], PATIENCE_S))


def rights(kafka: GuardedKafka, role: Role, topic: Topic) -> set[AclOperation]:
    """Return what Kafka permits a role to do with a topic."""
    admin = open_admin(kafka.as_role(role, "any"), PATIENCE_S)
    name = topic_name(topic, "live")
    (asked,) = admin.describe_topics(TopicCollection([name]), include_authorized_operations=True).values()
    try:
        return set(asked.result(PATIENCE_S).authorized_operations)
    except KafkaException as error:
        code = error.args[0].code()
    assert code == KafkaError.TOPIC_AUTHORIZATION_FAILED
    return set()


@pytest.mark.stack
@pytest.mark.parametrize("role", list(Role))
def test_kafka_enforces_the_table(kafka: GuardedKafka, role: Role) -> None:
    """For every topic each role has the rights of the table."""
    for topic in TOPICS:
        may = rights(kafka, role, topic)
        assert (AclOperation.WRITE in may) == (role in topic.writers), topic.suffix
        assert (AclOperation.READ in may) == (role in topic.readers), topic.suffix
        assert may & {AclOperation.DELETE, AclOperation.ALTER, AclOperation.ALTER_CONFIGS} == set()


@pytest.mark.stack
def test_a_broker_writes_no_order_command_or_plan(kafka: GuardedKafka) -> None:
    """With the product's writer: permitted records are stored, others are lost and counted."""
    writer = RecordWriter(
        kafka.as_role(Role.BROKERS, "regraft-emulator"), outage_s_max=20, buffer_records_max=100, linger_ms=0
    )
    result = CommandResult("plan-1", CommandPhase.PREPARE, "b1", 1, Outcome.PREPARED, "", 3, 0)
    forbidden = [topic_name(topic, "live") for topic in (ORDERS, COMMANDS, PLANS, AUDIT, EVENTS)]
    for name in (topic_name(RESULTS, "live"), *forbidden):
        writer.write(name, "b1", result)
    assert writer.flush(PATIENCE_S) == 0
    assert writer.written == {topic_name(RESULTS, "live"): 1}
    assert writer.lost == dict.fromkeys(forbidden, 1)
    writer.close()


@pytest.mark.stack
def test_a_controller_reads_results_and_a_dashboard_does_not(kafka: GuardedKafka) -> None:
    """With the product's reader, whose group is its client id."""
    writer = RecordWriter(
        kafka.as_role(Role.BROKERS, "regraft-emulator"), outage_s_max=20, buffer_records_max=100, linger_ms=0
    )
    name, letters = topic_name(RESULTS, "live"), []  # type: ignore[var-annotated]
    readers = {
        role: TopicReader(kafka.as_role(role, client_id), {name: CommandResult}, 0, letters.append)
        for role, client_id in ((Role.CONTROLLER, "regraft-controller"), (Role.DASHBOARD, "regraft-dashboard"))
    }
    writer.write(name, "b1", CommandResult("plan-2", CommandPhase.PREPARE, "b1", 1, Outcome.PREPARED, "", 3, 0))
    assert writer.flush(PATIENCE_S) == 0
    found: list[CommandResult] = []
    wait_until(
        lambda: bool(found.extend(readers[Role.CONTROLLER].poll())) or any(one.plan == "plan-2" for one in found)
    )
    wait_until(lambda: readers[Role.CONTROLLER].committed(name) == 0)
    wait_until(lambda: readers[Role.DASHBOARD].poll() == [] and readers[Role.DASHBOARD].error_count > 0)
    for each in (*readers.values(), writer):
        each.close()
