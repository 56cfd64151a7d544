"""Clients publish where a plan has brought their subscriptions, while the next plan is under way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from regraft.schemas.agent_names import client_beside
from tests.scenarios.agents.agents_run import AgentsDriver, AgentsSpec, virtual_time
from tests.scenarios.agents.site_kinds import KINDS
from tests.scenarios.agents.wires import AnyOrderLoop

Lane = tuple[str, ...]
ROUNDS_MAX, WAIT_MS = 100, 20


def let(driver: AgentsDriver, is_held: Callable[[Lane], bool], is_done: Callable[[], Any]) -> bool:
    """Let everything move for a while, except what is held, until something is done; return whether it is."""
    for _ in range(ROUNDS_MAX):
        while lanes := [each for each in driver.lanes() if not is_held(each)]:
            driver.do(driver._action_of(lanes[0]))
            if is_done():
                return True
        driver.do(("wait", WAIT_MS), *(("tick", name) for name in driver.site.nodes))
    return False


def move(driver: AgentsDriver, name: str, target: str) -> None:
    """Begin a plan that moves one client."""
    client, homes = driver.site.sessions[name].client.name, driver.site.movable()
    driver.do(
        ("plan", (), tuple((each, home, target) for each, home in homes.items() if client_beside(each) == client))
    )


@pytest.mark.parametrize("protocol", KINDS)
def test_what_a_client_publishes_at_its_next_home_overtakes_nothing_that_the_next_plan_holds_back(
    protocol: str,
) -> None:
    """Its agent's message passed what it had published before it, which was held for another client that moved."""
    loop, kind = AnyOrderLoop(), KINDS[protocol]()
    with virtual_time(loop, kind):
        driver = AgentsDriver(AgentsSpec(0, 2, protocol=protocol), loop, kind)
        site, (_, new) = driver.site, driver.site.names
        driver.do(("come", "c0", "web1", 1), ("come", "c1", "web2", 1))
        driver.rest()
        driver.serve()
        session = site.sessions["c0"]

        def is_answer(lane: Lane) -> bool:
            reader = site.wires.ends[lane[1]].peer.protocol if lane[0] == "arrive" else None
            return session.publishing._is_moving and reader is session.homes.upstreams.get(new)

        def is_end(lane: Lane) -> bool:
            return lane[0] == "command" and ("retire", lane[1]) in {each[1:] for each in site.commands}

        def has_moved() -> bool:
            return bool(site.agents["web2"].counts["subscriptions_moved"])

        move(driver, "c0", new)
        assert let(driver, is_answer, lambda: session.publishing._is_moving and site.controller.is_idle)
        move(driver, "c1", new)
        assert let(driver, lambda lane: is_answer(lane) or is_end(lane), has_moved)
        driver.do(("publish", "c0", 1))  # At its old home: the next one's node holds it back for c1.
        let(driver, is_end, lambda: session.homes.home == new)
        driver.do(("publish", "c0", 1))
        driver.rest()
        assert session.homes.home == new
        driver.finish()
