"""``regraft topics``: show the Kafka topics and the rights to them, and create both in Kafka.

In: the table of ``schemas``. Out: tables, JSON, topics, access rules. Creating belongs to
:mod:`infra.kafka.create_topics` and :mod:`infra.kafka.access_rules`.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regraft.commands.command_options import AsJson, Assignments, Bootstrap, SettingsFile, settings_of
from regraft.commands.print_table import print_table, print_text
from regraft.infra.process.exit_codes import EXIT_FAILED
from regraft.schemas.topics import AGENT_PATTERN, NO_AGENT, TOPICS, Role, topic_names
from regraft.settings.server_settings import KafkaSettings

if TYPE_CHECKING:
    from regraft.infra.kafka.access_rules import AccessRule
    from regraft.settings.run_settings import Settings
    from regraft.settings.server_settings import KafkaSettings

SHOWN_MAX = 10_000
SHOW_S_MAX = 30.0

AgentPrincipals = Annotated[
    list[str] | None,
    typer.Option(
        "--agent-principal",
        metavar="AGENT=NAME",
        help="Principal of an agent's brokers. Default: User:NAMESPACE-brokers-AGENT.",
    ),
]
NewAgents = Annotated[
    list[str] | None,
    typer.Option("--agent", metavar="AGENT", help="An agent that the inventory does not name yet; repeat for more."),
]

Show = Annotated[
    str | None,
    typer.Option(
        "--show",
        metavar="TOPIC",
        help="Print the last records of a topic, one line of JSON each.",
    ),
]
Last = Annotated[
    int,
    typer.Option("--last", min=1, max=SHOWN_MAX, metavar="N", help="With --show: number of records of each partition."),
]


def topics(
    create: Annotated[bool, typer.Option("--create", help="Create missing topics, and check the others.")] = False,
    acls: Annotated[
        bool, typer.Option("--acls", help="Also show the rights of each role; with --create, grant them in Kafka.")
    ] = False,
    principals: Annotated[
        list[str] | None,
        typer.Option(
            "--principal",
            metavar="ROLE=NAME",
            help="Principal of a role; repeat for more. Default: User:NAMESPACE-ROLE.",
        ),
    ] = None,
    agent_principals: AgentPrincipals = None,
    new_agents: NewAgents = None,
    show: Show = None,
    last: Last = 10,
    as_json: AsJson = False,
    bootstrap: Bootstrap = None,
    settings_file: SettingsFile = None,
    assignments: Assignments = None,
) -> None:
    """Show the table of Kafka topics, create them (--create) or read one of them (--show).

    Examples: `regraft topics`; `regraft topics --show telemetry --last 1 | jq .record`;
    `regraft topics --create --bootstrap kafka:9092 --set kafka.namespace=lab`;
    `regraft topics --acls`; `regraft topics --create --acls --agent north`;
    `regraft topics --create --acls --principal operator=User:ana --principal brokers=User:b1`.
    """
    settings = settings_of(assignments, settings_file, bootstrap)
    kafka, agents = settings.kafka, _agents(settings, new_agents or [])
    if show is not None:
        _show_records(kafka, agents, show, last)
        return
    rows = _rows(settings, agents)
    rules = _rules(kafka.namespace, agents, principals or [], agent_principals or []) if acls else []
    created = _create(settings, agents, rules) if create else []
    if as_json:
        acls_part = {"acls": [asdict(rule) for rule in rules]} if acls else {}
        typer.echo(json.dumps({"topics": rows, "created": created if create else None, **acls_part}, indent=2))
        return
    _show_topics(rows)
    _show_rules(rules)
    if create:
        _print_created(kafka, len(created), len(rows), rules)


def _agents(settings: Settings, new: list[str]) -> tuple[str, ...]:
    """Return the agents of the inventory, if there is one, and those given by option."""
    if wrong := [agent for agent in new if not AGENT_PATTERN.fullmatch(agent)]:
        raise typer.BadParameter(f"--agent is {wrong[0]!r}: 1 to 64 letters, digits, _ or -")
    from regraft.overlay.inventory.inventory import InventoryError
    from regraft.settings.place_demo import agents_of

    try:
        return tuple(sorted({*agents_of(settings), *new}))
    except InventoryError as error:
        raise typer.BadParameter(f"{error}: correct it, because it defines the agents and their topics") from error


def _show_records(kafka: KafkaSettings, agents: tuple[str, ...], name: str, last: int) -> None:
    from regraft.commands.show_records import SHOWN_TYPES, shown_message
    from regraft.infra.kafka.read_messages import read_last
    from regraft.infra.process.stack_error import StackError
    from regraft.stages.run_loop import require_kafka

    topic = next((each for each in TOPICS if each.suffix == name.removeprefix(f"{kafka.namespace}.")), None)
    if topic is None or topic.suffix not in SHOWN_TYPES:
        raise typer.BadParameter(f"--show is {name!r}: name one of {', '.join(sorted(SHOWN_TYPES))}")
    require_kafka(kafka.access)
    try:
        messages = read_last(kafka.access, topic_names(topic, kafka.namespace, agents), last, SHOW_S_MAX)
    except StackError as error:
        print_text(str(error), err=True)
        raise typer.Exit(EXIT_FAILED) from error
    for message in messages:
        typer.echo(json.dumps(shown_message(message, topic)))


def _create(settings: Settings, agents: tuple[str, ...], rules: list[AccessRule]) -> list[str]:
    """Create what is missing and grant the rights; return the names of the topics created."""
    from regraft.infra.kafka.access_rules import create_access_rules
    from regraft.infra.kafka.compare_topics import durability_note
    from regraft.infra.kafka.create_topics import count_brokers
    from regraft.settings.shape_topics import create_run_topics
    from regraft.stages.run_loop import require_kafka

    kafka = settings.kafka
    require_kafka(kafka.access)
    created = create_run_topics(settings, agents)
    create_access_rules(kafka.access, rules)
    if note := durability_note(count_brokers(kafka.access)):
        typer.echo(note, err=True)
    return created


def _print_created(kafka: KafkaSettings, created: int, count: int, rules: list[AccessRule]) -> None:
    there = count - created
    typer.echo(f"{created} topics created at {kafka.bootstrap}, {there} already existed as required.")
    if rules:
        typer.echo(f"{len(rules)} rights granted to {len({rule.principal for rule in rules})} principals.")


def _rows(settings: Settings, agents: tuple[str, ...]) -> list[dict[str, Any]]:
    from regraft.settings.shape_topics import telemetry_partitions

    partitions = telemetry_partitions(settings)
    return [
        {
            "topic": name,
            "record": topic.record,
            "key": topic.key,
            "partitions": partitions.get(topic, topic.partitions),
            "retention_h": None if topic.retention_ms is None else topic.retention_ms / 3_600_000,
            "writers": ", ".join(topic.writers),
            "readers": ", ".join(topic.readers),
        }
        for topic in TOPICS
        for name in topic_names(topic, settings.kafka.namespace, agents)
    ]


def _rules(namespace: str, agents: tuple[str, ...], named: list[str], named_agents: list[str]) -> list[AccessRule]:
    from regraft.infra.kafka.access_rules import access_rules, agent_principals, default_principals

    given = _by_owner("--principal", "ROLE", named, tuple(Role))
    if Role.BROKERS in given and NO_AGENT not in agents:
        raise typer.BadParameter(
            "--principal is given for brokers, but each broker has an agent: use --agent-principal"
        )
    principals = default_principals(namespace) | {Role(role): names for role, names in given.items()}
    own_agents = tuple(agent for agent in agents if agent != NO_AGENT)
    speakers = {agent: agent_principals(namespace, agent) for agent in own_agents}
    speakers |= _by_owner("--agent-principal", "AGENT", named_agents, own_agents)
    if NO_AGENT in agents:
        speakers[NO_AGENT] = principals[Role.BROKERS]
    return access_rules(principals, namespace, agents=speakers)


def _by_owner(option: str, what: str, named: list[str], known: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Return the principals given by the option, by role or agent."""
    given: dict[str, tuple[str, ...]] = {}
    for text in named:
        owner, _, name = text.partition("=")
        if owner not in known or not name:
            hint = f"with one of {', '.join(known)}" if known else "and the inventory names none"
            raise typer.BadParameter(f"{option} is {text!r}: {what}=NAME, {hint}")
        given[owner] = (*given.get(owner, ()), name)
    return given


def _show_topics(rows: list[dict[str, Any]]) -> None:
    heads = ("topic", "record", "parts", "kept", "key", "writers", "readers")
    names = ("topic", "record", "partitions", "kept", "key", "writers", "readers")
    cells = []
    for row in rows:
        kept = "newest per key" if row["retention_h"] is None else _span(row["retention_h"])
        cells.append([str({**row, "kept": kept}[name]) for name in names])
    print_table(heads, cells, wraps=["key", "writers", "readers"], drops=["readers", "writers", "key"])


def _span(hours: float) -> str:
    days = hours / 24
    return f"{days:g} days" if days.is_integer() and days > 7 else f"{hours:g} h"


def _show_rules(rules: list[AccessRule]) -> None:
    if rules:
        cells = [
            (rule.principal, rule.operation.lower(), rule.resource.lower().replace("_", " "), rule.name)
            for rule in rules
        ]
        print_table(("principal", "may", "of", "name"), cells, drops=["of"])
