"""Planners of tests under a name, as the settings refer to them."""

import pytest

from regraft.controller.planners import planner_registry
from regraft.controller.settings.planner_settings import PlannerSettings
from regraft.controller.state.planner_interface import AnyPlannerSpec, Planner, PlannerSpec


def name_planner(monkeypatch: pytest.MonkeyPatch, name: str, planner: Planner, kind: str) -> None:
    """Make a planner without settings available under a name until the test ends."""
    spec: AnyPlannerSpec = PlannerSpec(
        name, kind, lambda state, _, context, rng: planner(state, context, rng), PlannerSettings, "a test's", "tests"
    )
    monkeypatch.setitem(planner_registry.PLANNERS, name, spec)
