"""Run checks on a mutated copy, from quick to slow, until one fails: `python -m ...run_killers tree`.

In: the part and the kind of overlay, how long the random search may take. Out: one JSON line on standard output when a
stage begins, and one at the end, with what failed. It runs inside the copy, in one process, because starting a process
takes longer than most tests. Copying and judging belong to :mod:`tests.mutations.kill_mutation`.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

TEST_SECONDS_MAX = 20  # for one test; each takes less than a second on correct code
SCENARIO_SECONDS_MAX = 60.0
TESTS = {
    "tree": (
        "tests/scenarios/test_rare_orders_tree.py",
        "tests/scenarios/test_rare_orders_withdrawals.py",
        "tests/scenarios/test_rare_orders_deaths.py",
        "tests/scenarios/test_rare_orders_joins.py",
        "tests/scenarios/test_rare_orders_tree_repairs.py",
        "tests/scenarios/test_rare_orders_tree_deaths.py",
        "tests/scenarios/test_living_brokers_declared_dead.py",
        "tests/scenarios/test_late_reports_of_links.py",
        "tests/producers/emulator/test_homes_in_turn.py",
        "tests/scenarios/test_rare_orders_scot.py",
        "tests/producers/brokers/test_tree_routing.py",
        "tests/producers/brokers/test_leave_clients.py",
        "tests/producers/brokers/test_outside.py",
        "tests/producers/brokers/test_command_fence.py",
        "tests/producers/emulator/test_starting_point.py",
        "tests/overlay/test_plan_digest.py",
        "tests/producers/emulator/test_publisher_clients.py",
        "tests/producers/emulator/test_subscriber_clients.py",
        "tests/producers/emulator/test_emulate_overlay.py",
        "tests/producers/brokers/test_bundles.py",
        "tests/scenarios/test_recorded_runs.py",
    ),
    "ring": (
        "tests/scenarios/test_rare_orders_ring.py",
        "tests/scenarios/test_rare_orders_users.py",
        "tests/scenarios/test_rare_orders_stays.py",
        "tests/scenarios/test_rare_orders_deaths.py",
        "tests/scenarios/test_rare_orders_ring_deaths.py",
        "tests/scenarios/test_rare_orders_ring_lost_homes.py",
        "tests/scenarios/test_rare_orders_ring_stays.py",
        "tests/scenarios/test_living_brokers_declared_dead.py",
        "tests/scenarios/test_late_reports_of_links.py",
        "tests/producers/emulator/test_homes_in_turn.py",
        "tests/producers/brokers/test_ring_broker.py",
        "tests/producers/brokers/test_outside.py",
        "tests/producers/brokers/test_command_fence.py",
        "tests/producers/emulator/test_starting_point.py",
        "tests/producers/emulator/test_user_clients.py",
        "tests/producers/emulator/test_emulate_overlay.py",
        "tests/producers/brokers/test_bundles.py",
        "tests/scenarios/test_recorded_runs.py",
    ),
    "scot": (
        "tests/scenarios/test_rare_orders_scot.py",
        "tests/scenarios/test_rare_orders_scot_plans.py",
        "tests/scenarios/test_rare_orders_scot_kept.py",
        "tests/scenarios/test_clients_left_behind.py::test_nothing_of_the_old_epoch_is_lost_to_clients_left_behind",
        "tests/scenarios/test_living_brokers_declared_dead.py",
        "tests/scenarios/test_late_reports_of_links.py",
        "tests/producers/emulator/test_homes_in_turn.py",
        "tests/scenarios/test_recorded_runs.py",
    ),
    "agents": (
        "tests/producers/agents/test_moving_on.py",
        "tests/scenarios/model/test_agent_moves.py",
        "tests/scenarios/agents/test_mqtt_agent_faults.py",
        "tests/scenarios/agents/test_publishers_follow.py",
        "tests/scenarios/agents/test_agents_in_any_order.py",
    ),
    "controller": (
        "tests/controller/execute/test_transition.py",
        "tests/controller/execute/test_witnessed_deaths.py",
        "tests/controller/execute/test_execute_plan.py",
    ),
}
DEATHS = "tests/scenarios/test_deaths_during_plans.py"
# Scenarios that take more than a second on correct code run after the random search.
SLOW = frozenset(
    (
        "ring_bypass_again",
        "ring_bypass_two",
        "ring_detour_leave",
        "ring_flush_two",
        "ring_move_change",
        "ring_move_elsewhere",
        "ring_move_from_between",
        "ring_move_rejoin",
        "ring_quiet_plan",
        "ring_turn_abort",
        "ring_two_controllers",
        "ring_two_controllers_turn",
        "scot_abort",
        "scot_back",
        "scot_cluster",
        "scot_death",
        "scot_line",
        "scot_line_abort",
        "scot_near",
        "scot_publisher",
        "scot_region",
        "scot_region_end",
        "scot_repeated",
        "scot_rival",
        "tree_abort_end",
        "tree_death_abort",
        "tree_death_exchange",
        "tree_death_exchange_advertise",
        "tree_death_exchange_end",
        "tree_death_leave",
        "tree_death_two",
        "tree_death_two_publish",
        "tree_move_middle",
        "tree_quiet_plan",
        "tree_swap_abort_subscribe",
        "tree_swap_advertise",
        "tree_swap_back",
        "tree_swap_cancel",
        "tree_swap_subscribe",
        "tree_swap_two",
        "tree_two_controllers",
        "tree_two_controllers_apart",
    )
)


class FirstFailure:
    """A pytest plugin that keeps the first failure, and whether it occurred at import."""

    def __init__(self) -> None:
        self.test = ""
        self.text = ""
        self.is_import = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record the first test that failed."""
        if report.failed and not self.test:
            self.test, self.text = report.nodeid, report.longreprtext

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Record the first file that cannot be imported."""
        if report.failed and not self.test:
            self.test, self.text, self.is_import = report.nodeid, report.longreprtext, True


def killers(part: str, overlay: str, search_seconds: float, *, is_thorough: bool) -> Iterator[tuple[str, Any]]:
    """Yield the stages for a part of the protocol: a name, and a function that returns what failed."""
    overlays = ("tree", "ring") if overlay == "both" else (overlay,)
    files = TESTS["controller"] if part == "controller" else ()
    files += tuple(dict.fromkeys(file for one in overlays for file in TESTS[one]))
    yield "tests", lambda: _failed_test(files)
    if part == "brokers":
        yield "model", lambda: _failed_scenario(overlays, is_slow=False)
    yield "search", lambda: _failed_seed(overlays, search_seconds)
    if is_thorough and part != "agents":
        yield "deaths", lambda: _failed_test((DEATHS,), *(() if overlay == "both" else ("-k", overlay)))
    if part == "brokers" and is_thorough:
        yield "slow model", lambda: _failed_scenario(overlays, is_slow=True)


def _failed_test(files: tuple[str, ...], *more: str) -> dict[str, Any]:
    first = FirstFailure()
    options = ["-x", "-q", "-p", "no:cacheprovider", f"--timeout={TEST_SECONDS_MAX}", *more]
    with contextlib.redirect_stdout(io.StringIO()):
        pytest.main([*options, *files], plugins=[first])
    return {"killer": first.test.removeprefix("tests/"), "text": first.text, "is_import": first.is_import}


def _failed_scenario(overlays: tuple[str, ...], *, is_slow: bool) -> dict[str, Any]:
    from tests.scenarios.model.ring_scenarios import RINGS
    from tests.scenarios.model.scot_scenarios import SCOTS
    from tests.scenarios.model.search_states import Bounds, Search
    from tests.scenarios.model.tree_scenarios import TREES

    kinds = {"tree": TREES, "ring": RINGS, "scot": SCOTS}
    for scenario in [one for overlay, known in kinds.items() if overlay in overlays for one in known]:
        if scenario.is_large or (scenario.name in SLOW) != is_slow:
            continue
        killer = f"model: {scenario.name}"
        try:
            model, first = scenario.model()
            result = Search(scenario.name, model, first, Bounds(seconds_max=SCENARIO_SECONDS_MAX)).run()
        except Exception as error:
            return {"killer": killer, "text": f"{type(error).__name__}: {error}"}
        if result.fault:
            return {"killer": killer, "text": result.fault}
    return {"killer": ""}


def _failed_seed(overlays: tuple[str, ...], seconds: float) -> dict[str, Any]:
    from tests.scenarios.agents.agents_run import AgentsSpec, run_agents
    from tests.scenarios.agents.site_kinds import MQTT, NATS
    from tests.scenarios.any_order_run import RunSpec, run

    end_s = time.monotonic() + seconds
    for seed in itertools.count():
        for overlay in overlays:
            if time.monotonic() > end_s:
                return {"killer": ""}
            drawn = AgentsSpec.of(seed, (NATS, MQTT)[seed % 2])
            result: Any = run_agents(drawn) if overlay == "agents" else run(RunSpec.of(seed, overlay))
            if result.kind:
                return {"killer": f"search: {overlay} seed {seed}", "text": str(result.failure)}
    raise AssertionError("seeds do not end")


def main(arguments: list[str]) -> int:
    """Run the stages that the command line selects; stop after the first failure."""
    part, overlay, seconds, thoroughness = arguments
    for stage, failed in killers(part, overlay, float(seconds), is_thorough=thoroughness == "thorough"):
        _write({"stage": stage})
        found = failed()
        if found["killer"]:
            _write(found)
            return 0
    _write({"killer": ""})
    return 0


def _write(record: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(record) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
