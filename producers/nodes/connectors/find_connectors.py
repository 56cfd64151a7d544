"""Find the kind of connector that a node's address names, a built-in one or that of another package.

Built-in kinds are listed in :mod:`producers.nodes`. Another package offers kinds by entry points of the group
``regraft.connectors``: the scheme of their addresses and the location of the ConnectorSpec
(``redis = "redis_connector:SPEC"``). Such a package is imported only if one of its connectors is named, so a broken one
does not affect others.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint
from typing import Any

from regraft.infra.process.plug_ins import (
    PlugInError,
    load_part,
    name_fault,
    offered_parts,
    place_of,
    settings_fault,
    the_only_one,
)
from regraft.producers.connector_settings import ConnectorSettings
from regraft.producers.node_settings import NodeSettings
from regraft.producers.nodes import BUILT_IN
from regraft.producers.nodes.connectors.connector import ConnectorError
from regraft.producers.nodes.connectors.connector_addresses import split_connector
from regraft.producers.nodes.connectors.connector_spec import AnyConnectorSpec, ConnectorSpec
from regraft.schemas.name_near import name_near

GROUP = "regraft.connectors"


def _built_in() -> dict[str, AnyConnectorSpec]:
    specs: list[AnyConnectorSpec] = [import_module(path).SPEC for path in BUILT_IN]
    return {spec.name: spec for spec in specs}


CONNECTORS: Mapping[str, AnyConnectorSpec] = _built_in()


def connector_spec(name: str) -> AnyConnectorSpec:
    """Return the kind of this name. Raises ConnectorError if there is none, more than one, or it is broken."""
    offered = offered_parts(GROUP, tuple(sys.path)).get(name, ())
    if not offered and name in CONNECTORS:
        return CONNECTORS[name]
    if not offered:
        way_out = name_near(name, known_names(), f"there are {', '.join(known_names())}")
        raise ConnectorError(f"{name!r} is unknown: {way_out}")
    try:
        return _loaded(the_only_one(name, name in CONNECTORS, offered))
    except PlugInError as error:
        raise ConnectorError(str(error)) from error


def known_names() -> list[str]:
    """Return the names of all kinds, built-in ones and those of other packages; imports none of the latter."""
    return sorted({*CONNECTORS, *offered_parts(GROUP, tuple(sys.path))})


def spec_of(connector: str) -> AnyConnectorSpec | None:
    """Return the kind that an address names by its scheme, None if there is none.

    Raises ValueError for brackets without IPv6, and ConnectorError if the package that offers it cannot be used.
    """
    scheme = split_connector(connector)[0].scheme
    for spec in CONNECTORS.values():
        if scheme in (spec.name, spec.secure_scheme):
            return connector_spec(spec.name)
    # Another package's address with TLS begins with its name and an s, so that no package is imported to find it.
    for name in (scheme, scheme.removesuffix("s")):
        if name in known_names():
            spec = connector_spec(name)
            return spec if scheme in (spec.name, spec.secure_scheme) else None
    return None


def own_settings(node: NodeSettings, spec: AnyConnectorSpec) -> Any:
    """Return the settings of a node for this kind of connector."""
    return node.connectors.get(spec.name) or spec.settings()


@cache
def _loaded(entry: EntryPoint) -> AnyConnectorSpec:
    spec = load_part(entry)
    fault = _spec_fault(entry.name, spec)
    if fault:
        raise ConnectorError(f"{entry.name!r} of {place_of(entry)} is not a connector: {fault}")
    found: AnyConnectorSpec = spec
    return found


def _spec_fault(name: str, spec: object) -> str:
    """Return what is wrong with a package's connector of this name, or an empty string."""
    if not isinstance(spec, ConnectorSpec):
        return f"it is a {type(spec).__name__}, not a ConnectorSpec"
    if spec.name != name:
        return f"it calls itself {spec.name!r}, its entry point must have the same name"
    if fault := name_fault(name):
        return fault
    if "_" in name:
        return "its name is the scheme of its addresses, so it has no underscore"
    if spec.secure_scheme not in ("", f"{name}s"):
        return f"its secure_scheme is {spec.secure_scheme!r}, it must be '{name}s', or empty without TLS"
    connect: Any = spec.connect
    if not callable(connect):
        return f"its connect is a {type(connect).__name__}, not a function"
    return settings_fault(spec.settings, ConnectorSettings)
