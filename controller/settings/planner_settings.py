"""What the settings of all planners have in common."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PlannerSettings:
    """The settings of a planner that has none; those of all others are frozen dataclasses derived from it.

    Every field has a default, and is described in the docstring of its class, from which the example of settings is
    generated.
    """

    def errors(self) -> list[str]:
        """Return what is wrong with the settings, one sentence each."""
        return []
