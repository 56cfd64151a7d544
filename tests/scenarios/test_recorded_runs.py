"""Runs that once broke the promise, found by :mod:`tests.scenarios.search`, keep it."""

import json
from pathlib import Path

import pytest

from tests.scenarios.any_order_run import RunSpec, run
from tests.scenarios.trace_run import record_of, recorded_run

RUNS = sorted((Path(__file__).parent / "recorded_runs").glob("*.json"))


@pytest.mark.parametrize("path", RUNS, ids=[path.stem for path in RUNS])
def test_a_run_that_broke_the_promise_keeps_it(path: Path) -> None:
    """The fault found earlier is gone; the file says what broke."""
    spec, actions = recorded_run(json.loads(path.read_text()))
    result = run(spec, actions)
    assert result.failure is None, f"{result.failure}"


@pytest.mark.parametrize("overlay", ["tree", "ring"])
def test_a_recorded_run_is_the_same_run(overlay: str) -> None:
    """The actions of a run, stored and repeated, have the same effects, line by line."""
    first = run(RunSpec.of(3, overlay), is_traced=True)
    spec, actions = recorded_run(json.loads(json.dumps(record_of(first))))
    again = run(spec, actions, is_traced=True)
    assert again.kind == first.kind
    assert again.overlay.trace == first.overlay.trace
