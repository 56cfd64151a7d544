"""Sources of inventories: tables, nodes' status files, networks. What is wrong is named by line, link or column."""

import json
from pathlib import Path

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regraft.inventories.build_inventory import read_prices
from regraft.inventories.read_brokers import read_brokers, read_round_trips
from regraft.inventories.read_nats import duration_ms
from regraft.inventories.read_topology import read_topology
from regraft.inventories.source_error import SourceError

ZOO = """graph [
  node [ id 0 label "Zurich" Longitude 8.55 Latitude 47.37 ]
  node [ id 1 label "Paris" Longitude 2.35 Latitude 48.86 ]
  node [ id 2 label "Paris" Longitude 2.4 Latitude 48.9 ]
  edge [ source 0 target 1 ]
  edge [ source 0 target 1 ]
  edge [ source 1 target 2 ]
]
"""


def test_names_alone_are_brokers() -> None:
    """Spaces and empty parts do not count."""
    assert read_brokers(" b02, b01,,eu.west ").names == ["b02", "b01", "eu.west"]


def test_a_table_of_brokers_has_what_is_known(tmp_path: Path) -> None:
    """Every column but the name is optional, in any row."""
    file = tmp_path / "brokers.csv"
    file.write_text("broker,latitude,longitude,processing_cost,agent,region\nb01,47.4,8.5,0.1,west,eu\n\nb02,,,,,\n")
    found = read_brokers(str(file))
    assert found.names == ["b01", "b02"]
    assert found.places == {"b01": (8.5, 47.4)}
    assert found.processing_ms == {"b01": 0.1}
    assert (found.agent_of, found.region_of) == ({"b01": "west"}, {"b01": "eu"})


def test_all_errors_of_a_table_are_named_by_line(tmp_path: Path) -> None:
    """One reading shows them all."""
    file = tmp_path / "brokers.csv"
    file.write_text("broker,processing_cost\n,1\nb01,fast\nb02,-1\nb03,1,2\nb04,inf\n")
    with pytest.raises(SourceError) as raised:
        read_brokers(str(file))
    assert raised.value.errors == (
        f"{file}, line 2: broker is empty",
        f"{file}, line 3: processing_cost is 'fast': it must be a number of at least 0",
        f"{file}, line 4: processing_cost is '-1': it must be a number of at least 0",
        f"{file}, line 5 has 3 values, but there are 2 columns",
        f"{file}, line 6: processing_cost is 'inf': it must be a number of at least 0",
    )


def test_a_misspelt_column_is_answered_with_the_right_one(tmp_path: Path) -> None:
    """A column that is required and missing is named, too."""
    file = tmp_path / "rtt.csv"
    file.write_text("from,too,rtt_ms\na,b,3\n")
    with pytest.raises(SourceError) as raised:
        read_round_trips([file])
    assert raised.value.errors == (
        f"{file}: too is not a column: did you mean to?",
        f"{file} has no column to: its first line must name it",
    )
    with pytest.raises(SourceError, match=r"none\.csv cannot be read \(No such file"):
        read_round_trips([tmp_path / "none.csv"])


def test_round_trips_come_from_tables_and_nodes(tmp_path: Path) -> None:
    """Half of each is the one-way delay; a node's status has those to its peers."""
    table, status = tmp_path / "rtt.csv", tmp_path / "node-b01.json"
    table.write_text("from,to,rtt_ms\nb02,b03,8\n")
    status.write_text(json.dumps({"broker": "b01", "peers": {"b02": {"rtt_ms": 5.0}, "b04": {"rtt_ms": None}}}))
    found = read_round_trips([table, status])
    assert found.names == ["b01", "b02", "b03"]
    assert found.delays_ms == {("b01", "b02"): 2.5, ("b02", "b03"): 4.0}
    status.write_text("[]")
    with pytest.raises(SourceError, match="is not the status of a node"):
        read_round_trips([status])
    table.write_text("from,to,rtt_ms\n")
    with pytest.raises(SourceError, match="it contains no round trip"):
        read_round_trips([table])


def test_a_network_of_the_zoo_has_delays_by_distance(tmp_path: Path) -> None:
    """Labels that occur twice get their ID; parallel links are one."""
    file = tmp_path / "Small.gml"
    file.write_text(ZOO)
    found = read_topology(file)
    assert sorted(found.names) == ["Paris-1", "Paris-2", "Zurich"]
    assert found.delays_ms["Paris-1", "Zurich"] == pytest.approx(2.46, abs=0.03)
    assert "a lower bound" in found.notes[-1]


def test_graphml_with_weights_has_these_delays(tmp_path: Path) -> None:
    """Of attributes, the named one counts; a link without it is named."""
    graph = nx.Graph()
    graph.add_edge("a", "b", weight=2.0, rtt=7.0)
    graph.add_edge("b", "c", weight=3.0)
    file = tmp_path / "net.graphml"
    nx.write_graphml(graph, file)
    assert read_topology(file).delays_ms == {("a", "b"): 2.0, ("b", "c"): 3.0}
    with pytest.raises(SourceError, match="link b to c: rtt is None: it must be a delay in ms"):
        read_topology(file, "rtt")


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("x.gml", "graph [", "cannot be read as gml"),
        ("x.graphml", "<graphml", "cannot be read as graphml"),
        ("x.txt", "a b", r"must end with \.graphml or \.gml"),
        ("x.gml", "graph [\n node [ id 0 ]\n]\n", "has no links"),
        (
            "x.gml",
            "graph [\n node [ id 0 ]\n node [ id 1 ]\n edge [ source 0 target 1 ]\n]\n",
            "2 nodes without Latitude and Longitude",
        ),
    ],
)
def test_networks_that_cannot_be_used_are_one_sentence(tmp_path: Path, name: str, text: str, why: str) -> None:
    """No parser's traceback reaches an operator."""
    file = tmp_path / name
    file.write_text(text)
    with pytest.raises(SourceError, match=why):
        read_topology(file)


def test_prices_are_those_of_the_table(tmp_path: Path) -> None:
    """Clients are the word for subscribers; a row without a price is named."""
    file = tmp_path / "prices.csv"
    file.write_text("from,to,price_per_gb\neu,us,0.02\neu,clients,0.09\n")
    tariff = read_prices(file, "USD", 500.0)
    assert (tariff.link_per_gb, tariff.access_per_gb) == ({("eu", "us"): 0.02}, {"eu": 0.09})
    file.write_text("from,to,price_per_gb\neu,us,\n")
    with pytest.raises(SourceError, match="line 2: there is no price_per_gb from eu to us"):
        read_prices(file, "USD", 500.0)


@pytest.mark.parametrize(
    ("text", "ms"), [("151µs", 0.151), ("1.5ms", 1.5), ("2s", 2000.0), ("1m2.5s", 62_500.0), ("", None), ("5", None)]
)
def test_durations_of_nats_are_read(text: str, ms: float | None) -> None:
    """As Go prints them."""
    assert duration_ms(text) == (None if ms is None else pytest.approx(ms))


@given(st.text(), st.sampled_from(["x.gml", "x.graphml", "x.csv", "x.json"]))
def test_any_text_is_a_source_or_a_sentence(tmp_path_factory: pytest.TempPathFactory, text: str, name: str) -> None:
    """No file ends a command with a traceback."""
    file = tmp_path_factory.getbasetemp() / name
    file.write_text(f"graph [ {text}" if name == "x.gml" else text, encoding="utf-8", errors="replace")
    errors: tuple[str, ...] = ("none",)
    try:
        read_topology(file) if name in ("x.gml", "x.graphml") else read_round_trips([file])
    except SourceError as error:
        errors = error.errors
    assert all(errors)
