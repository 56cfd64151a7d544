"""What a connector between a node and its real broker implements.

docs/tutorial.md, part 6, builds one and makes it known by an entry point of the group ``regraft.connectors``.
"""

from regraft.producers.connector_settings import ConnectorSettings
from regraft.producers.nodes.connectors.ask_api import BrokerApi
from regraft.producers.nodes.connectors.connector import ConnectorError, LocalMessage, PlainConnector
from regraft.producers.nodes.connectors.connector_spec import ConnectorContext, ConnectorSpec

__all__ = [
    "BrokerApi",
    "ConnectorContext",
    "ConnectorError",
    "ConnectorSettings",
    "ConnectorSpec",
    "LocalMessage",
    "PlainConnector",
]
