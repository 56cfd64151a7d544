"""What the settings of every kind of connector have in common.

Each connector has a class of its own in its own file; the settings of a node hold one value of each.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ConnectorSettings:
    """The settings of a connector that has none; those of all others are frozen dataclasses derived from it.

    Every field has a default. One of the form ``Annotated[int, "what it is"]`` is a setting of the connector's table.
    """

    def errors(self) -> list[str]:
        """Return what is wrong with the settings, one sentence each."""
        return []
