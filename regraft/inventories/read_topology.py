"""Read brokers and links of a network from GraphML or GML, as in the Internet Topology Zoo.

In: a file. Out: FoundBrokers with a delay for each link of the network; those of other pairs follow along paths.
"""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import networkx as nx

from regraft.inventories.found_brokers import FoundBrokers, both_ways
from regraft.inventories.measure_sphere import delay_ms_between
from regraft.inventories.read_tables import read_text
from regraft.inventories.source_error import SourceError

WEIGHT = "weight"


def read_topology(file: Path, weight: str | None = None) -> FoundBrokers:
    """Return the network of a file. A link's delay in ms is its attribute ``weight``, or else that of its length.

    Its length follows from Latitude and Longitude of its ends. Raises SourceError.
    """
    graph = _graph(file)
    if not graph.number_of_edges():
        raise SourceError([f"{file} has no links"])
    names = _names(graph)
    places = {names[node]: place for node, values in graph.nodes(data=True) if (place := _place(values))}
    found = FoundBrokers(list(names.values()), places=places)
    links = [(names[a], names[b], values) for a, b, values in graph.edges(data=True) if a != b]
    weighed = weight or (WEIGHT if all(WEIGHT in values for *_, values in links) else None)
    faults: list[str] = []
    delays_ms: list[tuple[str, str, float]] = []
    for one, other, values in links:
        if weighed:
            delay_ms = _number(values.get(weighed))
            fault = f"{weighed} is {values.get(weighed)!r}: it must be a delay in ms of at least 0"
        else:
            delay_ms = delay_ms_between(places[one], places[other]) if one in places and other in places else math.nan
            fault = f"its ends have no Latitude and Longitude, and it has no {WEIGHT}: name an attribute by --weight"
        if delay_ms >= 0:
            delays_ms.append((one, other, delay_ms))
        else:
            faults.append(f"{file}, link {one} to {other}: {fault}")
    if faults:
        raise SourceError(faults)
    found.delays_ms, found.notes = both_ways(delays_ms)
    if not weighed:
        found.notes.append("delays of links are those of light in fibre along the shortest line, a lower bound")
    return found


def _graph(file: Path) -> nx.Graph[Any]:
    text = read_text(file)
    try:
        if file.suffix == ".graphml":
            graph: nx.Graph[Any] = nx.parse_graphml(text)
        elif file.suffix == ".gml":
            # Some files of the Zoo have parallel links without saying so.
            several = text if "multigraph" in text else text.replace("graph [", "graph [\n  multigraph 1", 1)
            graph = nx.parse_gml(several.splitlines(), label="id")
        else:
            raise SourceError([f"{file} must end with .graphml or .gml: these are read"])
    except SourceError:
        raise
    except Exception as error:  # networkx raises what its parser meets: many kinds, of XML and of values.
        raise SourceError([f"{file} cannot be read as {file.suffix[1:]} ({str(error)[:200]})"]) from error
    return graph


def _names(graph: nx.Graph[Any]) -> dict[Any, str]:
    """Return the name of each node: its label if it has one that no other has, else its ID."""
    labels = {node: str(values.get("label", "")).strip() for node, values in graph.nodes(data=True)}
    count = Counter(labels.values())
    return {node: label if label and count[label] == 1 else f"{label}-{node}" if label else str(node)
            for node, label in labels.items()}  # fmt: skip


def _place(values: dict[str, Any]) -> tuple[float, float] | None:
    found = _number(values.get("Longitude"), -180.0), _number(values.get("Latitude"), -90.0)
    return None if math.isnan(found[0]) or math.isnan(found[1]) else found


def _number(value: Any, least: float = 0.0) -> float:
    """Return a finite number of at least ``least``, else NaN."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan
    return number if math.isfinite(number) and number >= least else math.nan
