"""What a connector between a node and its real broker implements.

docs/tutorial.md, part 6, builds one.
"""

from regraft.producers.nodes.connectors.connector import LocalMessage, PlainConnector

__all__ = [
    "LocalMessage",
    "PlainConnector",
]
