"""An any-order run as JSON: what determines it and what was done, so that a failure can become a test."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from tests.scenarios.any_order import Action
from tests.scenarios.any_order_run import RunResult, RunSpec


def record_of(result: RunResult) -> dict[str, Any]:
    """Return a run as a JSON-ready document; ``broke`` says what happened when it was recorded."""
    return {"broke": str(result.failure or ""), "spec": asdict(result.spec), "actions": result.actions}


def text_of(record: dict[str, Any]) -> str:
    """Return a record as JSON text with one action per line."""
    parts = [f'"{name}": {json.dumps(value)}' for name, value in record.items() if name != "actions"]
    actions = ",\n  ".join(json.dumps(action) for action in record["actions"])
    return "{\n " + ",\n ".join(parts) + ',\n "actions": [\n  ' + actions + "\n ]\n}\n"


def recorded_run(document: dict[str, Any]) -> tuple[RunSpec, list[Action]]:
    """Return the spec and the actions of a recorded run."""
    spec = dict(document["spec"], features=tuple(document["spec"]["features"]))
    return RunSpec(**spec), [tuple(_tuples(part) for part in action) for action in document["actions"]]


def _tuples(value: Any) -> Any:
    return tuple(_tuples(one) for one in value) if isinstance(value, list) else value
