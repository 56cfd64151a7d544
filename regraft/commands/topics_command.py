"""``regraft topics``: show the table of Kafka topics and of the rights to them, and make both in Kafka.

In: the table of ``schemas``. Out: tables, JSON, topics, access rules. Creating belongs to :mod:`infra.create_topics`
and :mod:`infra.access_rules`.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from regraft.commands.command_options import AsJson, Assignments, Bootstrap, SettingsFile, settings_of
from regraft.settings.server_settings import KafkaSettings
from schemas.topics import TOPICS, Role, topic_name

if TYPE_CHECKING:
    from infra.access_rules import AccessRule
    from regraft.settings.server_settings import KafkaSettings

WIDE_TABLE_WIDTH = 120


def topics(
    create: Annotated[
        bool, typer.Option("--create", help="Create the topics that are missing, check the rest.")
    ] = False,
    acls: Annotated[
        bool, typer.Option("--acls", help="Also the rights of each role; with --create give them in Kafka.")
    ] = False,
    principals: Annotated[
        list[str] | None,
        typer.Option(
            "--principal", metavar="ROLE=NAME", help="Who has a role; repeat for more. Default: User:NAMESPACE-ROLE."
        ),
    ] = None,
    as_json: AsJson = False,
    bootstrap: Bootstrap = None,
    settings_file: SettingsFile = None,
    assignments: Assignments = None,
) -> None:
    """Show the table of Kafka topics; with --create make them in Kafka.

    Examples: `regraft topics`; `regraft topics --create --bootstrap kafka:9092 --set kafka.namespace=lab`;
    `regraft topics --acls`; `regraft topics --create --acls --principal operator=User:ana --principal brokers=User:b1`.
    """
    kafka = settings_of(assignments, settings_file, bootstrap).kafka
    rows, rules = _rows(kafka.namespace), _rules(kafka.namespace, principals or []) if acls else []
    created = _create(kafka, rules) if create else []
    if as_json:
        told = {"acls": [asdict(rule) for rule in rules]} if acls else {}
        typer.echo(json.dumps({"topics": rows, "created": created if create else None, **told}, indent=2))
        return
    _show_topics(rows, Console())
    _show_rules(rules, Console())
    if create:
        there = len(rows) - len(created)
        typer.echo(f"{len(created)} topics created at {kafka.bootstrap}, {there} were there and are as they should be.")
        if rules:
            typer.echo(f"{len(rules)} rights given to {len({rule.principal for rule in rules})} principals.")


def _create(kafka: KafkaSettings, rules: list[AccessRule]) -> list[str]:
    """Create what is missing, and give the rights; return the names of the topics that were made."""
    from infra.access_rules import create_access_rules
    from infra.compare_topics import durability_note
    from infra.create_topics import count_brokers, create_topics
    from regraft.stages.run_loop import require_kafka

    require_kafka(kafka.access)
    created = create_topics(kafka.access, namespace=kafka.namespace)
    create_access_rules(kafka.access, rules)
    if note := durability_note(count_brokers(kafka.access)):
        typer.echo(note, err=True)
    return created


def _rows(namespace: str) -> list[dict[str, Any]]:
    return [
        {
            "topic": topic_name(topic, namespace),
            "record": topic.record,
            "key": topic.key,
            "partitions": topic.partitions,
            "retention_h": None if topic.retention_ms is None else topic.retention_ms / 3_600_000,
            "writers": ", ".join(topic.writers),
            "readers": ", ".join(topic.readers),
        }
        for topic in TOPICS
    ]


def _rules(namespace: str, named: list[str]) -> list[AccessRule]:
    from infra.access_rules import access_rules, default_principals

    given: dict[Role, list[str]] = {}
    for text in named:
        role, _, name = text.partition("=")
        if role not in set(Role) or not name:
            raise typer.BadParameter(f"--principal is {text!r}: ROLE=NAME, with one of {', '.join(Role)}")
        given.setdefault(Role(role), []).append(name)
    return access_rules({**default_principals(namespace), **given}, namespace)


def _show_topics(rows: list[dict[str, Any]], console: Console) -> None:
    heads = {"topic": "topic", "record": "record", "partitions": "parts", "kept": "kept", "key": "key"}
    if console.width >= WIDE_TABLE_WIDTH:
        heads |= {"writers": "writers", "readers": "readers"}
    table = Table(box=None, pad_edge=False)
    for name, head in heads.items():
        table.add_column(head, no_wrap=name not in ("key", "writers", "readers"))
    for row in rows:
        kept = "newest per key" if row["retention_h"] is None else f"{row['retention_h']:g} h"
        table.add_row(*(str({**row, "kept": kept}[name]) for name in heads))
    console.print(table)


def _show_rules(rules: list[AccessRule], console: Console) -> None:
    if not rules:
        return
    table = Table(box=None, pad_edge=False)
    for head in ("principal", "may", "of", "name"):
        table.add_column(head, overflow="fold")
    for rule in rules:
        table.add_row(rule.principal, rule.operation.lower(), rule.resource.lower().replace("_", " "), rule.name)
    console.print(table)
