"""Find the kind of connector that a node's address names, a built-in one or that of another package.

Built-in kinds are listed in :mod:`producers.nodes`. Another package offers kinds by entry points of the group
``regraft.connectors``: the scheme of their addresses and the location of the ConnectorSpec
(``redis = "redis_connector:SPEC"``). Such a package is imported only if one of its connectors is named, so a broken one
does not affect others.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from regraft.infra.process.plug_ins import (
    PlugInError,
    load_part,
    offered_parts,
    settings_error,
    the_only_one,
)
from regraft.producers.connector_settings import ConnectorSettings
from regraft.producers.node_settings import NodeSettings
from regraft.producers.nodes import BUILT_IN
from regraft.producers.nodes.connectors.connector import ConnectorError
from regraft.producers.nodes.connectors.connector_addresses import split_connector
from regraft.producers.nodes.connectors.connector_spec import AnyConnectorSpec, ConnectorSpec
from regraft.schemas.texts import name_near

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
        spec: AnyConnectorSpec = load_part(
            the_only_one(name, name in CONNECTORS, offered), "connector", ConnectorSpec, _spec_error
        )
        return spec
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


def _spec_error(spec: AnyConnectorSpec) -> str:
    """Return what else is wrong with a package's connector, or an empty string."""
    if "_" in spec.name:
        return "its name is the scheme of its addresses, so it has no underscore"
    if spec.secure_scheme not in ("", f"{spec.name}s"):
        return f"its secure_scheme is {spec.secure_scheme!r}, but must be '{spec.name}s', or empty without TLS"
    connect: Any = spec.connect
    if not callable(connect):
        return f"its connect is a {type(connect).__name__}, not a function"
    return settings_error(spec.settings, ConnectorSettings)
