"""Read a list of brokers and measured round trips."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from regraft.inventories.found_brokers import FoundBrokers, both_ways
from regraft.inventories.read_tables import Row, read_table, read_text
from regraft.inventories.source_error import SourceError
from regraft.schemas.parse_text import parse_json

BROKER_COLUMNS = ("latitude", "longitude", "processing_cost", "load_max_per_s", "agent", "region")


def read_brokers(text: str) -> FoundBrokers:
    """Return brokers from names with commas, or from a CSV file if the text ends with .csv. Raises SourceError."""
    brokers = FoundBrokers()
    if not text.endswith(".csv"):
        brokers.names = [name.strip() for name in text.split(",") if name.strip()]
        return brokers

    def take(row: Row) -> None:
        name = row.name("broker")
        brokers.names.append(name)
        place = row.number("longitude", -180), row.number("latitude", -90)
        if place[0] is not None and place[1] is not None:
            brokers.places[name] = place[0], place[1]
        for column, values in (("processing_cost", brokers.processing_ms), ("load_max_per_s", brokers.load_max_per_s)):
            if (number := row.number(column)) is not None:
                values[name] = number
        for column, texts in (("agent", brokers.agent_of), ("region", brokers.region_of)):
            if row.text(column):
                texts[name] = row.text(column)

    read_table(Path(text), ("broker",), BROKER_COLUMNS, take)
    return brokers


def read_round_trips(files: Sequence[Path]) -> FoundBrokers:
    """Return half of each round trip: from tables of from, to and rtt_ms, or status files of nodes (node-*.json).

    Raises SourceError.
    """
    delays_ms: list[tuple[str, str, float]] = []

    def take(row: Row) -> None:
        ends, rtt_ms = (row.name("from"), row.name("to")), row.number("rtt_ms")
        if rtt_ms is not None:
            delays_ms.append((*ends, rtt_ms / 2))

    for file in files:
        if file.suffix == ".json":
            delays_ms += _of_node(file)
        else:
            read_table(file, ("from", "to", "rtt_ms"), (), take)
    means, notes = both_ways(delays_ms)
    if not means:
        raise SourceError([f"{', '.join(map(str, files))}: it contains no round trip"])
    return FoundBrokers(sorted({name for pair in means for name in pair}), means, notes=notes)


def _of_node(file: Path) -> list[tuple[str, str, float]]:
    """Return half of the round trips in the status of a node."""
    try:
        status = parse_json(read_text(file))
        peers = {str(peer): known["rtt_ms"] for peer, known in status["peers"].items()}
        broker = str(status["broker"])
        round_trips = [(broker, peer, float(rtt_ms) / 2) for peer, rtt_ms in peers.items() if rtt_ms is not None]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SourceError([f"{file} is not the status of a node (node-BROKER.json of its run directory)"]) from error
    return [one for one in round_trips if math.isfinite(one[2]) and one[2] >= 0]
