"""One kind of connector: how it is found, configured and made."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from regraft.producers.connector_settings import ConnectorSettings
from regraft.producers.node_settings import NodeSettings
from regraft.producers.nodes.connectors.ask_api import BrokerApi
from regraft.producers.nodes.connectors.connector import Connector

SettingsT = TypeVar("SettingsT", bound=ConnectorSettings)


@dataclass(frozen=True, kw_only=True)
class ConnectorContext:
    """What a connector gets besides its own settings, from those that all connectors share.

    ``broker`` is the node's broker, ``url`` the address of the real one next to it; the login is empty if none is
    given. ``tls`` and ``api`` are None without TLS and without ``node.connector_api``. ``overlay`` is the namespace of
    the overlay, and ``state_file`` may keep what the connector must know in the node's next incarnation.
    """

    url: str
    broker: str
    user: str = ""
    password: str = ""
    api: BrokerApi | None = None
    tls: ssl.SSLContext | None = None
    overlay: str
    state_file: Path


def no_errors(node: NodeSettings, settings: Any) -> Iterable[str]:
    """Return nothing: the connector can be used with whatever the shared settings say."""
    return ()


@dataclass(frozen=True, kw_only=True)
class ConnectorSpec(Generic[SettingsT]):
    """One kind of connector: what makes it, and what is needed to find and configure it.

    ``name`` is the scheme of its addresses and, as ``[connectors.name]``, the table of its settings; ``secure_scheme``
    is that of addresses with TLS, empty if it has none. ``connect`` makes a connector without opening it, and raises
    ConnectorError for an address that is none. ``broker`` names the kind of broker, ``form`` an address of it.

    ``node_errors`` says which of the settings that all connectors share do not fit its own.
    """

    name: str
    settings: type[SettingsT]
    connect: Callable[[ConnectorContext, SettingsT], Connector]
    broker: str
    form: str
    secure_scheme: str = ""
    node_errors: Callable[[NodeSettings, SettingsT], Iterable[str]] = no_errors


AnyConnectorSpec = ConnectorSpec[Any]
