"""Read brokers and links of a network from GraphML or GML, as in the Internet Topology Zoo."""

from __future__ import annotations

import math
import re
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import networkx as nx

from regraft.inventories.found_brokers import FoundBrokers, both_ways, counted
from regraft.inventories.measure_sphere import delay_ms_between
from regraft.inventories.read_tables import read_text
from regraft.inventories.source_error import SourceError

WEIGHT = "weight"
MULTIGRAPH = re.compile(r"^\s*multigraph\s", re.MULTILINE)
SHOWN_MAX = 5


def read_topology(file: Path, weight: str | None = None) -> FoundBrokers:
    """Return the network of a file. A link's delay in ms is its attribute ``weight``, or else that of its length.

    Its length follows from Latitude and Longitude of its ends. Raises SourceError.
    """
    graph = _graph(file)
    if not graph.number_of_edges():
        raise SourceError([f"{file} has no links"])
    names = _names(graph)
    places = {names[node]: place for node, values in graph.nodes(data=True) if (place := _place(values))}
    brokers = FoundBrokers(list(names.values()), places=places)
    links = [(names[a], names[b], values) for a, b, values in graph.edges(data=True) if a != b]
    weighed = weight or (WEIGHT if all(WEIGHT in values for *_, values in links) else None)
    if weighed:
        delays_ms = [(one, other, _number(values.get(weighed))) for one, other, values in links]
        errors = [
            f"{file}, link {one} to {other}: {weighed} is {values.get(weighed)!r}: it must be a delay in ms"
            for (one, other, values), (*_, delay_ms) in zip(links, delays_ms, strict=True)
            if math.isnan(delay_ms)
        ]
    else:
        errors = _place_errors(file, sorted({name for *ends, _ in links for name in ends if name not in places}))
        delays_ms = [] if errors else [(a, b, delay_ms_between(places[a], places[b])) for a, b, _ in links]
    if errors:
        raise SourceError(errors)
    brokers.delays_ms, brokers.notes = both_ways(delays_ms)
    if not weighed:
        brokers.notes.append("delays of links are those of light in fibre along the shortest line, a lower bound")
    return brokers


def _place_errors(file: Path, nowhere: list[str]) -> list[str]:
    """Return one sentence on nodes whose place would give the delays of their links, but is not known."""
    if not nowhere:
        return []
    more = ", ..." if len(nowhere) > SHOWN_MAX else ""
    return [
        f"{file}: {counted(len(nowhere), 'node')} without Latitude and Longitude "
        f"({', '.join(nowhere[:SHOWN_MAX])}{more}): add them, or name the links' attribute that is their delay in ms "
        "with --weight"
    ]


def _graph(file: Path) -> nx.Graph[Any]:
    text = read_text(file)
    try:
        with warnings.catch_warnings(action="ignore"):  # Of values without a type, which are checked here.
            return _parsed(text, file)
    except SourceError:
        raise
    except Exception as error:  # networkx raises what its parser meets: many kinds, of XML and of values.
        raise SourceError([f"{file} cannot be read as {file.suffix[1:]} ({str(error)[:200]})"]) from error


def _parsed(text: str, file: Path) -> nx.Graph[Any]:
    if file.suffix not in (".graphml", ".gml"):
        raise SourceError([f"{file} must end with .graphml or .gml: other formats are not read"])
    # Some files of the Zoo have parallel links without saying so.
    several = text if MULTIGRAPH.search(text) else text.replace("graph [", "graph [\n  multigraph 1", 1)
    is_xml = file.suffix == ".graphml"
    graph: nx.Graph[Any] = nx.parse_graphml(text) if is_xml else nx.parse_gml(several.splitlines(), label="id")
    return graph


def _names(graph: nx.Graph[Any]) -> dict[Any, str]:
    """Return the name of each node: its label if it has one that no other has, else its ID."""
    labels = {node: str(values.get("label", "")).strip() for node, values in graph.nodes(data=True)}
    count = Counter(labels.values())
    return {node: label if label and count[label] == 1 else f"{label}-{node}" if label else str(node)
            for node, label in labels.items()}  # fmt: skip


def _place(values: dict[str, Any]) -> tuple[float, float] | None:
    position = _number(values.get("Longitude"), -180.0), _number(values.get("Latitude"), -90.0)
    return None if math.isnan(position[0]) or math.isnan(position[1]) else position


def _number(value: Any, least: float = 0.0) -> float:
    """Return a finite number of at least ``least``, else NaN."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan
    return number if math.isfinite(number) and number >= least else math.nan
