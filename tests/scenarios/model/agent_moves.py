"""All orders of events around a client that a plan moves: `python -m tests.scenarios.model.agent_moves [NAME ...]`.

A breadth-first search over worlds, which are kept as bytes.

In: a scenario. Out: how many worlds there are, or a Violation with the shortest way to it. Where nothing more can
happen, everybody has to be at rest, and what is published then has to come once.
"""

from __future__ import annotations

import pickle
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from unittest import mock

from regraft.producers.agents import client_homes, client_moves
from regraft.producers.brokers.broker_reports import BrokerPhase
from regraft.producers.nodes import agent_clients
from tests.scenarios.model.agent_world import (
    ABORT,
    ACTIVATE,
    BROKERS,
    NEW,
    OLD,
    PREPARE,
    RETIRE,
    AgentWorld,
    Message,
)
from tests.scenarios.model.kept_account import Violation

Move = tuple[str, str]
Kept = tuple[bytes, tuple[Any, ...], list[Move]]  # A world, the way to it, what may happen next.


@dataclass(frozen=True)
class AgentScenario:
    """``publishes`` are the brokers at which a client publishes, once for each; ``dies`` is one that may, at any time.

    ``may_abort``: the controller may, while that is possible. ``may_refuse``: the next broker may refuse the login.
    ``repeats``: nodes say again how far they are, once each, as after a cut. ``hands_over_to_all``: as with MQTT.
    ``kills`` is the broker whose node may die; it begins again, and is admitted once the plan is over.
    """

    name: str
    hands_over_to_all: bool = False
    publishes: tuple[str, ...] = ()
    may_abort: bool = False
    may_refuse: bool = False
    repeats: bool = False
    is_large: bool = False
    dies: str = ""
    kills: str = ""

    def first(self) -> AgentWorld:
        """Return the world in which the plan begins."""
        world: Any = AgentWorld(hands_over_to_all=self.hands_over_to_all, publishes=self.publishes)
        world.may_repeat = list(BROKERS) if self.repeats else []
        world.may_die, world.may_kill = self.dies, self.kills
        world.plan.begin(PREPARE)
        return world

    # --- moves -------------------------------------------------------------------------------------------------------

    def moves(self, world: Any) -> list[Move]:
        """Return what may happen next."""
        plan = world.plan
        can = [("publish", name) for name in BROKERS if world.left[name] and not world.brokers[name].is_dead]
        can += [("agent", name) for name in BROKERS if world.brokers[name].to_agent]
        can += [("node", name) for name in BROKERS if world.brokers[name].to_node]
        can += [("cross", name) for name in BROKERS if world.nodes[name].from_peer]
        can += [("obey", name) for name in BROKERS if plan.waiting[name]]
        can += [("open", "")] if world.agent.opening else []
        can += [("refuse", "")] if self.may_refuse and world.agent.opening[:1] and not world.is_refused else []
        can += [("repeat", name) for name in world.may_repeat]
        can += [("die", world.may_die)] if world.may_die else []
        can += [("kill", world.may_kill)] if world.may_kill else []
        return can + self._of_death(world) + self._controllers(world)

    @staticmethod
    def _of_death(world: Any) -> list[Move]:
        """Return what may follow the death of a node: the other one notices it, behind all that it had sent."""
        dead = [name for name in BROKERS if world.nodes[name].is_dead]
        if not dead or world.peer(dead[0]).from_peer:
            return []
        if not world.is_noticed:
            return [("notice", world.peer(dead[0]).name)]
        is_over = world.plan.phase in (RETIRE, ABORT) and not any(world.plan.waiting.values())
        return [("return", dead[0])] if is_over else []

    def _controllers(self, world: Any) -> list[Move]:
        plan = world.plan
        if plan.phase == PREPARE:
            is_late = not self._can_go_on(world)
            goes = [("begin", ACTIVATE)] if plan.is_done and not plan.is_refused else []
            return goes + ([("begin", ABORT)] if self.may_abort or plan.is_refused or is_late else [])
        return [("begin", RETIRE)] if plan.phase == ACTIVATE and plan.is_done else []

    @staticmethod
    def _can_go_on(world: Any) -> bool:
        return not any(each.is_dead for each in (*world.brokers.values(), *world.nodes.values()))

    def take(self, world: Any, move: Move) -> None:
        """Let one thing happen; raise Violation if it breaks the promise."""
        what, name = move
        match what:
            case "publish":
                world.left[name] -= 1
                message = Message(name, 1 + sum(each[0] == name for each in world.published))
                world.published.append((name, message.number))
                world.brokers[name].publish(message)
            case "agent":
                world.agent.take(name, world.brokers[name].to_agent.pop(0))
            case "node":
                world.nodes[name].take_local(world.brokers[name].to_node.pop(0))
            case "cross":
                world.nodes[name].cross()
            case "obey":
                world.nodes[name].obey(world.plan.waiting[name].pop(0))
            case "open":
                world.agent.open_next()
            case "refuse":
                world.is_refused = True
                world.agent.open_next()
            case "repeat":
                world.may_repeat.remove(name)
                world.nodes[name].line.on_open()
            case "die":
                self._die(world, name)
            case "kill":
                world.kill(name)
            case "notice":
                world.is_noticed = True
                world.nodes[name].lose_peer()
            case "return":
                world.nodes[name].return_at(world.peer(name).epoch)
            case "begin":
                world.plan.begin(name)

    @staticmethod
    def _die(world: Any, name: str) -> None:
        world.may_die = ""
        world.brokers[name].die()
        upstream = world.agent.homes.upstreams.get(name)
        if upstream is not None:
            upstream.is_closing, upstream.is_ready = True, False
            world.agent.homes.lose(upstream, "dead")

    # --- endings -----------------------------------------------------------------------------------------------------

    def check_ending(self, world: Any) -> None:
        """Check a world in which nothing more can happen; then publish at each broker that lives.

        What follows without any event, as time passes: the agent waits no longer for copies that were lost with a
        broker or node, and closes what it has kept open for them.
        """
        agent = world.agent
        for number in list(agent.moves._arrived):
            move = agent.moves.moving[number]
            if move.is_joined and (move.home_from == world.plan.lost or world.brokers[move.home_from].is_dead):
                agent.moves._forget_arrived(number)
        agent.homes.leave_unused()
        self._check_rest(world)
        is_struck, world.is_struck = world.is_struck, False
        if not (self.dies or is_struck) and len(world.agent.came) != len(world.published):
            raise Violation(f"lost: {sorted({*world.published} - {*world.agent.came})}")
        came = len(world.agent.came)
        living = [name for name in BROKERS if not world.brokers[name].is_dead]
        for name in living:
            world.left[name] = 1
        while moves := [each for each in self.moves(world) if each[0] in ("publish", "agent", "node", "cross")]:
            self.take(world, moves[0])
        if len(world.agent.came) != came + len(living):
            raise Violation(f"served no more: {world.agent.came}")

    @staticmethod
    def _check_rest(world: Any) -> None:
        moves, homes = world.agent.moves, world.agent.homes
        [subscription] = world.agent.client.subscriptions.values()
        left = [moves.moving, moves._kept, moves._arrived, moves._before, moves._names]
        if any(left):
            raise Violation(f"the agent is not at rest: {left}")
        if {*homes.upstreams} != {homes.home, homes.subscribing, subscription.home} or len(homes.upstreams) > 1:
            raise Violation(f"connections to {[*homes.upstreams]}, at home at {subscription.home}")
        expected = {name: [subscription.number] if name == subscription.home else [] for name in BROKERS}
        if (there := {name: broker.subscribed for name, broker in world.brokers.items()}) != expected:
            raise Violation(f"subscriptions {there}, not {expected}")
        for name, node in world.nodes.items():
            forgotten = world.brokers[name].is_dead  # What it had reported of a plan's, the node forgets after a while.
            if node.phase is not BrokerPhase.STEADY or (node.agents._moving and not forgotten) or node.agents._left:
                raise Violation(f"the node of {name} is {node.phase}, {node.agents._moving}, {node.agents._left}")


class _Silent:
    def __getattr__(self, name: str) -> Any:
        return lambda *_args, **_fields: None


@contextmanager
def no_time() -> Iterator[None]:
    """Let no time pass in the product's parts, and nothing be logged: worlds that differ in that alone are the same."""
    with ExitStack() as stack:
        for module in (client_moves, agent_clients):
            stack.enter_context(mock.patch.object(module, "time", SimpleNamespace(monotonic=lambda: 0.0)))
        for module in (client_moves, client_homes):
            stack.enter_context(mock.patch.object(module, "log", _Silent()))
        yield


@dataclass(frozen=True)
class Found:
    """How many worlds and endings a search has seen, and a fault with the way to it."""

    worlds: int
    endings: int
    fault: str = ""
    way: tuple[Move, ...] = ()


def explore(scenario: AgentScenario, worlds_max: int = 200_000) -> Found:
    """Try all orders; return after the first fault."""
    with no_time():
        world = scenario.first()
        level: list[Kept] = [(pickle.dumps(world), (), scenario.moves(world))]
        seen, endings = {world.key()}, 0
        while level:
            following = []
            for kept, way, moves in level:
                taken: tuple[Any, ...] = way
                try:
                    if not moves:
                        endings += 1
                        scenario.check_ending(pickle.loads(kept))
                    for move in moves:
                        world, taken = pickle.loads(kept), (way, move)
                        scenario.take(world, move)
                        if (key := world.key()) not in seen:
                            seen.add(key)
                            following.append((pickle.dumps(world), taken, scenario.moves(world)))
                except Violation as violation:
                    return Found(len(seen), endings, str(violation), _unrolled(taken))
            assert len(seen) < worlds_max, f"{scenario.name} has more worlds"
            level = following
        return Found(len(seen), endings)


def _unrolled(way: tuple[Any, ...]) -> tuple[Move, ...]:
    moves: list[Move] = []
    while way:
        way, move = way
        moves.append(move)
    return tuple(reversed(moves))


SCENARIOS = (
    AgentScenario("abort_old", may_abort=True, publishes=(OLD,)),
    AgentScenario("abort_both", may_abort=True, publishes=BROKERS, is_large=True),
    AgentScenario("abort_new", may_abort=True, publishes=(NEW,), is_large=True),
    AgentScenario("old_two", publishes=(OLD, OLD), is_large=True),
    AgentScenario("mqtt_old", hands_over_to_all=True, publishes=(OLD,)),
    AgentScenario("mqtt_new", hands_over_to_all=True, publishes=(NEW,), is_large=True),
    AgentScenario("refused", may_refuse=True),
    AgentScenario("refused_old", may_refuse=True, may_abort=True, publishes=(OLD,), is_large=True),
    AgentScenario("old_dies", dies=OLD),
    AgentScenario("old_dies_publish", dies=OLD, publishes=(NEW,), is_large=True),
    AgentScenario("new_dies", dies=NEW),
    AgentScenario("new_dies_publish", dies=NEW, publishes=(OLD,), is_large=True),
    AgentScenario("repeated", repeats=True, is_large=True),
    AgentScenario("old_node_dies", kills=OLD),
    AgentScenario("new_node_dies", kills=NEW),
    AgentScenario("old_node_dies_mqtt", kills=OLD, hands_over_to_all=True, publishes=(NEW,), is_large=True),
    AgentScenario("new_node_dies_mqtt", kills=NEW, hands_over_to_all=True, publishes=(OLD,), is_large=True),
    AgentScenario("old_node_dies_publish", kills=OLD, publishes=(OLD,), is_large=True),
    AgentScenario("new_node_dies_publish", kills=NEW, publishes=(OLD,), is_large=True),
)


def main(names: Sequence[str]) -> int:
    """Explore the scenarios that the command line names, or all; return 1 if one has a fault."""
    faults = 0
    for scenario in [each for each in SCENARIOS if not names or each.name in names]:
        began_s, found = time.process_time(), explore(scenario)
        faults += bool(found.fault)
        seconds = time.process_time() - began_s
        sys.stdout.write(f"{scenario.name}: {found.worlds} worlds, {found.endings} endings, {seconds:.0f} s\n")
        sys.stdout.write(
            "".join(f"  {' '.join(move)}\n" for move in found.way) + f"{found.fault}\n" * bool(found.fault)
        )
    return int(faults > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
