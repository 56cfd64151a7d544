"""Who may do what in Kafka: the rights that each role needs according to the table of topics, and no others.

In: the table (schemas/topics.py), and the principals of each role. Out: rules, printed or created in Kafka. Principals
and how they log in belong to the cluster.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # it re-exports them without saying so
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from regraft.infra.kafka.kafka_access import KafkaAccess
from regraft.infra.kafka.kafka_clients import open_admin
from regraft.infra.process.stack_error import StackError
from regraft.schemas.topics import NAMES_OF, NO_AGENT, TOPICS, Role, topic_names

TIMEOUT_S = 30.0
SEEN_S_MAX = 30.0
SEEN_POLL_S = 0.1
ANY_HOST = "*"
PREFIX_MARK = "*"
EVERY_RULE = AclBindingFilter(
    ResourceType.ANY,
    None,  # type: ignore[arg-type]  # any name, here and below; its stub knows only one
    ResourcePatternType.ANY,
    None,  # type: ignore[arg-type]
    None,  # type: ignore[arg-type]
    AclOperation.ANY,
    AclPermissionType.ANY,
)


class AccessRulesError(StackError):
    """Reports which rights could not be granted, and what to do."""


@dataclass(frozen=True, slots=True, order=True)
class AccessRule:
    """A principal may do something with a topic, group or transactional id; a name that ends in ``*`` is a prefix."""

    principal: str
    resource: str
    name: str
    operation: str


def default_principals(namespace: str) -> dict[Role, tuple[str, ...]]:
    """Return the default principals of each role."""
    return {role: (f"User:{namespace}-{role}",) for role in Role}


def agent_principals(namespace: str, agent: str) -> tuple[str, ...]:
    """Return the default principals that speak for an agent's brokers."""
    return (f"User:{namespace}-{Role.BROKERS}-{agent}",)


def access_rules(
    principals: Mapping[Role, Collection[str]],
    namespace: str,
    agents: Mapping[str, Collection[str]] | None = None,
) -> list[AccessRule]:
    """Return all rules, sorted; anything else is reserved to the cluster's super users.

    ``agents``: the principals that speak for each agent's brokers, which get rights to this agent's topics only. If it
    is None, the principals of the role BROKERS speak for all brokers.
    """
    speakers = {NO_AGENT: principals.get(Role.BROKERS, ())} if agents is None else agents
    users: list[tuple[Role, str, Sequence[str]]] = [
        (Role.BROKERS, name, (agent,)) for agent, names in speakers.items() for name in names
    ]
    for role in set(principals) - {Role.BROKERS}:
        users += [(role, name, tuple(speakers)) for name in principals[role]]
    rules = (AccessRule(name, *right) for role, name, own in users for right in _rights(role, namespace, own))
    return sorted(set(rules))


def create_access_rules(kafka: KafkaAccess, rules: Sequence[AccessRule]) -> None:
    """Grant the rights in Kafka and wait until it applies them; existing ones stay. Raises AccessRulesError."""
    admin = open_admin(kafka, TIMEOUT_S)
    wanted = {_binding(rule): rule for rule in rules}
    futures = admin.create_acls(list(wanted), request_timeout=TIMEOUT_S) if wanted else {}
    for binding, future in futures.items():
        try:
            future.result()
        except KafkaException as error:
            rule = wanted[binding]
            raise AccessRulesError(
                f"{rule.principal} could not be granted {rule.operation} on {rule.name} at "
                f"{kafka.bootstrap} ({error.args[0].str()}): check that Kafka has an authorizer "
                "(authorizer.class.name) "
                "and that this principal may alter the cluster."
            ) from error
    _wait_seen(admin, kafka, set(wanted))


def _wait_seen(admin: AdminClient, kafka: KafkaAccess, bindings: set[AclBinding]) -> None:
    """Wait until the broker has the rights, which reach it a moment after they are granted."""
    deadline_s = time.monotonic() + SEEN_S_MAX
    while missing := bindings - set(admin.describe_acls(EVERY_RULE, request_timeout=TIMEOUT_S).result()):
        if time.monotonic() > deadline_s:
            raise AccessRulesError(
                f"Kafka at {kafka.bootstrap} has not applied {len(missing)} of {len(bindings)} rights after "
                f"{SEEN_S_MAX:g} s: see its log."
            )
        time.sleep(SEEN_POLL_S)


def _rights(role: Role, namespace: str, agents: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Yield resource, name and operation of each right that a role needs, in the topics of these agents."""
    for topic in TOPICS:
        operations = ["WRITE"] if role in topic.writers else []
        if role in topic.readers:
            operations += ["READ", "DESCRIBE_CONFIGS"] if topic.timestamps else ["READ"]  # Checks its clock.
        if role is Role.OPERATOR:  # Checks topics at the start.
            operations += ["DESCRIBE", "DESCRIBE_CONFIGS"]
        for operation in operations:  # WRITE and READ include DESCRIBE.
            for name in topic_names(topic, namespace, agents):
                yield "TOPIC", name, operation
    for group in NAMES_OF[role].groups:
        yield "GROUP", group.format(namespace=namespace), "READ"
    for transaction in NAMES_OF[role].transactions:
        yield "TRANSACTIONAL_ID", transaction.format(namespace=namespace), "WRITE"


def _binding(rule: AccessRule) -> AclBinding:
    is_prefix = rule.name.endswith(PREFIX_MARK)
    return AclBinding(
        ResourceType[rule.resource],
        rule.name.removesuffix(PREFIX_MARK),
        ResourcePatternType.PREFIXED if is_prefix else ResourcePatternType.LITERAL,
        rule.principal,
        ANY_HOST,
        AclOperation[rule.operation],
        AclPermissionType.ALLOW,
    )
