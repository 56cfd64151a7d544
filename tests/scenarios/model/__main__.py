"""Check scenarios from the command line: `python -m tests.scenarios.model [--scenario NAME | --all] ...`."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys

from tests.scenarios.model.kept_account import Rules
from tests.scenarios.model.random_scenarios import random_scenario
from tests.scenarios.model.ring_scenarios import RINGS
from tests.scenarios.model.scot_scenarios import SCOTS
from tests.scenarios.model.scripted_scenario import Scenario
from tests.scenarios.model.search_states import Bounds, Result, Search
from tests.scenarios.model.tell_traces import trace_lines
from tests.scenarios.model.tree_scenarios import TREES

SCENARIOS = TREES + RINGS + SCOTS


def main(arguments: list[str] | None = None) -> int:
    """Check what the arguments name; return 1 if a fault is found, otherwise 0."""
    asked = _parser().parse_args(arguments)
    drawn = [random_scenario(asked.seed + at) for at in range(asked.random)]
    chosen = drawn or [one for one in SCENARIOS if one.name in asked.scenario or _is_of_size(one, asked)]
    unknown = sorted(set(asked.scenario) - {one.name for one in SCENARIOS})
    if unknown or not chosen:
        names = ", ".join(one.name for one in SCENARIOS)
        print(f"no scenario called {', '.join(unknown)}; there are {names}", file=sys.stderr)  # noqa: T201
        return 2
    bounds = Bounds(asked.states_max, asked.seconds, is_reduced=not asked.full)
    rules = Rules(asked.early, asked.late, is_ordered_across_stays=not asked.order_in_stays)
    has_fault = False
    for scenario in chosen:
        model, first = scenario.model(rules)
        result = Search(scenario.name, model, first, bounds).run()
        lines = trace_lines(model, first, result.moves, result.fault) if result.fault else []
        _print_result(scenario, result, lines, as_json=asked.json)
        has_fault |= bool(result.fault)
    return int(has_fault)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.scenarios.model", description=__doc__)
    parser.add_argument("--scenario", action="append", default=[], help="check this one; may be repeated")
    parser.add_argument("--all", action="store_true", help="check all of the size (the default without --scenario)")
    parser.add_argument("--size", choices=("small", "large"), default="small", help="large ones are checked as well")
    parser.add_argument("--random", type=int, default=0, metavar="COUNT", help="check COUNT drawn ones instead")
    parser.add_argument("--seed", type=int, default=0, help="the seed of the first drawn one (even: tree, odd: ring)")
    parser.add_argument("--states-max", type=int, default=Bounds.states_max, help="the most states of one search")
    parser.add_argument("--seconds", type=float, default=Bounds.seconds_max, help="the longest time of one search")
    parser.add_argument("--full", action="store_true", help="take all moves, without partial-order reduction")
    parser.add_argument(
        "--early",
        choices=("wrong", "after_request", "fine"),
        default=Rules.early,
        help="what hand-overs of notifications published before the confirmation are (see kept_account.Rules)",
    )
    parser.add_argument(
        "--late",
        choices=("wrong", "fine"),
        default=Rules.late,
        help="what hand-overs of notifications published when the subscription had ended are",
    )
    parser.add_argument("--order-in-stays", action="store_true", help="order counts only within a publisher's stay")
    parser.add_argument("--json", action="store_true", help="one JSON object for each scenario")
    return parser


def _is_of_size(scenario: Scenario, asked: argparse.Namespace) -> bool:
    return (asked.all or not asked.scenario) and (asked.size == "large" or not scenario.is_large)


def _print_result(scenario: Scenario, result: Result, lines: list[str], *, as_json: bool) -> None:
    if as_json:
        found = dataclasses.asdict(result) | {"scenario": scenario.name, "trace": lines}
        del found["moves"]
        print(json.dumps(found), flush=True)  # noqa: T201
        return
    ended = "FAULT" if result.fault else "clean" if result.is_complete else "cut, no fault so far"
    counts = f"{result.states:>9,} states {result.transitions:>10,} transitions  depth {result.depth:>3}"
    if scenario.name.startswith("random"):
        print(scenario.configuration, dict(scenario.scripts), scenario.plans, scenario.topic)  # noqa: T201
    print(f"{scenario.name:<26} {counts} {result.seconds:>7.1f} s  {ended}", flush=True)  # noqa: T201
    for line in lines:
        print(line)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
