"""``regraft topics``: show the table of Kafka topics, and make them in Kafka.

In: the table of ``schemas``. Out: tables, JSON, topics. Creating them belongs to :mod:`infra.create_topics`.
"""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from regraft.commands.command_options import AsJson, Assignments, Bootstrap, SettingsFile, settings_of

WIDE_TABLE_WIDTH = 120


def topics(
    create: Annotated[
        bool, typer.Option("--create", help="Create the topics that are missing, check the rest.")
    ] = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = None,
    settings_file: SettingsFile = None,
    assignments: Assignments = None,
) -> None:
    """Show the table of Kafka topics; with --create make them in Kafka.

    Examples: `regraft topics`; `regraft topics --create --bootstrap kafka:9092 --set kafka.namespace=lab`.
    """
    from schemas.topics import TOPICS, topic_name

    kafka = settings_of(assignments, settings_file, bootstrap).kafka
    rows = [
        {
            "topic": topic_name(topic, kafka.namespace),
            "record": topic.record,
            "key": topic.key,
            "partitions": topic.partitions,
            "retention_h": None if topic.retention_ms is None else topic.retention_ms / 3_600_000,
            "writers": topic.writers,
            "readers": topic.readers,
        }
        for topic in TOPICS
    ]
    created: list[str] = []
    if create:
        from infra.compare_topics import durability_note
        from infra.create_topics import count_brokers, create_topics
        from regraft.stages.run_loop import require_kafka

        require_kafka(kafka.access)
        created = create_topics(kafka.access, namespace=kafka.namespace)
        if note := durability_note(count_brokers(kafka.access)):
            typer.echo(note, err=True)
    if as_json:
        typer.echo(json.dumps({"topics": rows, "created": created if create else None}, indent=2))
        return
    _show_topics(rows, Console())
    if create:
        there = len(rows) - len(created)
        typer.echo(f"{len(created)} topics created at {kafka.bootstrap}, {there} were there and are as they should be.")


def _show_topics(rows: list[dict[str, Any]], console: Console) -> None:
    heads = {"topic": "topic", "record": "record", "partitions": "parts", "kept": "kept", "key": "key"}
    if console.width >= WIDE_TABLE_WIDTH:
        heads |= {"writers": "writers", "readers": "readers"}
    table = Table(box=None, pad_edge=False)
    for name, head in heads.items():
        table.add_column(head, no_wrap=name not in ("key", "readers"))
    for row in rows:
        kept = "newest per key" if row["retention_h"] is None else f"{row['retention_h']:g} h"
        table.add_row(*(str({**row, "kept": kept}[name]) for name in heads))
    console.print(table)
