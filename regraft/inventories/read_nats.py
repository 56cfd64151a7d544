"""Read the servers of running NATS clusters and the round trips between them from their monitoring ports."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from regraft.inventories.found_brokers import FoundBrokers, both_ways
from regraft.inventories.source_error import SourceError
from regraft.producers.nodes.connectors.ask_api import BrokerApi, NoAnswerError

MS_OF = {"h": 3_600_000.0, "m": 60_000.0, "s": 1_000.0, "ms": 1.0, "us": 1e-3, "µs": 1e-3, "ns": 1e-6}
PART = re.compile(r"(\d+(?:\.\d+)?)(h|ms|m|s|us|µs|ns)")


class Server(msgspec.Struct):
    """/varz."""

    server_id: str
    server_name: str


class Connection(msgspec.Struct):
    """A route, a gateway's connection or a leaf link, by the ID or the name of the server at its other end."""

    rtt: str = ""
    remote_id: str = ""
    remote_name: str = ""
    name: str = ""


class Routes(msgspec.Struct):
    """/routez."""

    routes: list[Connection] | None = None


class Gateway(msgspec.Struct):
    """One entry of /gatewayz."""

    connection: Connection


class Gateways(msgspec.Struct):
    """/gatewayz."""

    outbound_gateways: dict[str, Gateway] = {}
    inbound_gateways: dict[str, list[Gateway]] = {}


class Leafs(msgspec.Struct):
    """/leafz."""

    leafs: list[Connection] | None = None


def read_nats(addresses: Sequence[str]) -> FoundBrokers:
    """Return the servers, and half of the round trips of their routes, gateways and leaf links. Raises SourceError."""
    names: dict[str, str] = {}
    connections: list[tuple[str, Connection]] = []
    errors: list[str] = []
    asked = set()
    for address in addresses:
        api = BrokerApi(address)
        try:
            server = api.ask("/varz", Server)
            routes, gateways = api.ask("/routez", Routes).routes or [], api.ask("/gatewayz", Gateways)
            leafs = api.ask("/leafz", Leafs).leafs or []
        except NoAnswerError as error:
            errors.append(f"{error}: give the address of its monitoring port, such as http://10.0.0.1:8222")
            continue
        asked.add(server.server_name)
        names[server.server_id] = server.server_name
        names |= {route.remote_id: route.remote_name for route in routes if route.remote_name}
        each = [
            *gateways.outbound_gateways.values(),
            *(one for all_ in gateways.inbound_gateways.values() for one in all_),
        ]
        for connection in (*routes, *(one.connection for one in each), *leafs):
            connections.append((server.server_name, connection))
    if errors:
        raise SourceError(errors)
    return _found(names, asked, connections)


def _found(names: Mapping[str, str], asked: set[str], connections: Sequence[tuple[str, Connection]]) -> FoundBrokers:
    delays_ms, notes = both_ways(_delays(names, connections))
    servers = sorted(set(names.values()))
    notes.append(
        "each server is a broker: before nodes start, remove the links between the servers, or give one node to a "
        "whole cluster (docs/nodes.md)"
    )
    if silent := [name for name in servers if name not in asked]:
        notes.append(f"the monitoring ports of {', '.join(silent)} were not given: their other links are unknown")
    return FoundBrokers(servers, delays_ms, notes=notes)


def _delays(
    names: Mapping[str, str], connections: Sequence[tuple[str, Connection]]
) -> Iterator[tuple[str, str, float]]:
    brokers = set(names.values())
    for server, connection in connections:
        peer = connection.remote_name or names.get(connection.name, connection.name)
        rtt_ms = duration_ms(connection.rtt)
        if peer in brokers and peer != server and rtt_ms:  # 0 is not measured yet.
            yield server, peer, rtt_ms / 2


def duration_ms(text: str) -> float | None:
    """Return a duration as NATS writes it (1m2.5s, 151µs) in ms, None if it is none."""
    parts = PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    return sum(float(number) * MS_OF[unit] for number, unit in parts)
