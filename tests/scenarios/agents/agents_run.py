"""One run of agents in any order, from a seed: random deeds under a schedule, then rest, probes, and everybody leaves.

In: a seed. Out: the actions, and the broken promise if there is one. What must hold at the end is in
:mod:`tests.scenarios.agents.check_rest`.
"""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any
from unittest import mock

from structlog.testing import capture_logs

from regraft.controller.settings.controller_settings import TransitionLimits
from regraft.producers.agents import agent, client_moves
from regraft.producers.nodes import agent_clients, wanted_elsewhere
from regraft.producers.nodes.connectors import connector_checks, kept_connector, look_for_nodes
from regraft.schemas.agent_names import client_beside
from regraft.schemas.plan import PlanPhase
from tests.scenarios.agents.agents_site import AGENTS, Action, AgentsSite
from tests.scenarios.agents.check_rest import check_left, check_served, check_still
from tests.scenarios.agents.site_kinds import KINDS, NATS, SiteKind
from tests.scenarios.agents.wires import AnyOrderLoop, running
from tests.scenarios.any_order_account import BrokenPromiseError
from tests.scenarios.any_order_leaders import STRANGER, SUCCESSORS, TWIN
from tests.scenarios.any_order_tree import exchanges_in, tree_inventory

CLOCKED = (agent, client_moves, agent_clients, wanted_elsewhere, connector_checks, kept_connector, look_for_nodes)
LIMITS = TransitionLimits(prepare_ms=20_000, activate_ms=10**9, drain_ms=10**9, retire_ms=10**9, resend_ms=300)
FAULTS = {
    "stop": "a broker dies, and starts again",
    "refuse": "a broker refuses logins for a while",
    "cut": "a node loses the connection to its broker",
    "die": "an agent dies with its clients, and starts again",
    "node": "a node dies, the overlay is repaired, and it comes again",
    "roam": "clients leave and return, and end subscriptions or make new ones",
    "slow": "clients stop reading for a while, and flood",
    "repeat": "commands and answers are repeated, at once or late",
    "kill": "the controller dies after an effect, and starts again",
    "cancel": "an operator cancels plans while they are committed",
    "hasty": "plans are aborted after a second",
    "race": "a broker's node and clients see messages in different order",
}
RIVALS = ("", "", "", SUCCESSORS, SUCCESSORS, STRANGER, TWIN)
SCHEDULES = ("uniform", "weighted", "priorities")
STEPS, DEED_SHARE = 500, 0.12
WAITED_MS_MAX = 45_000  # In the random part of a run: beyond that, agents give up plans.
QUIET_S_MAX, STEP_MS = 260.0, 500  # Until everything that has a limit is over.
MOVES_MAX = 60_000
PROBES, ROUNDS_MAX, MENDINGS_MAX = 3, 300, 30


@dataclass(frozen=True)
class AgentsSpec:
    """One run: its seed, brokers, faults, schedule and protocol."""

    seed: int
    broker_count: int = 3
    faults: tuple[str, ...] = ()
    rival: str = ""
    schedule: str = "uniform"
    steps: int = STEPS
    protocol: str = NATS

    @classmethod
    def of(cls, seed: int, protocol: str = NATS) -> AgentsSpec:
        """Draw a run."""
        rng = random.Random(f"{seed} agents")
        faults = tuple(name for name in FAULTS if rng.random() < rng.choice((0.1, 0.3)))
        count, rival = rng.choice((2, 3, 3, 4)), rng.choice(RIVALS)
        if rival in (TWIN, STRANGER):  # Each of two controllers with separate logs would repair the overlay.
            faults = tuple(name for name in faults if name != "node")
        return cls(seed, count, faults, rival, rng.choice(SCHEDULES), protocol=protocol)


@dataclass
class AgentsResult:
    """What a run did; ``failure`` is None if every promise was kept."""

    spec: AgentsSpec
    actions: list[Action]
    failure: BrokenPromiseError | None = None
    counts: Counter[str] = field(default_factory=Counter)
    trace: list[str] = field(default_factory=list)

    @property
    def kind(self) -> str:
        """Return the sort of failure, "" for none."""
        return self.failure.kind if self.failure is not None else ""


@contextlib.contextmanager
def virtual_time(loop: AnyOrderLoop, kind: SiteKind) -> Iterator[list[Any]]:
    """Let the product's parts read the loop's time, and return what they log."""
    clock = SimpleNamespace(monotonic=loop.time, time=loop.time, perf_counter=loop.time)
    with contextlib.ExitStack() as stack:
        for module in (*CLOCKED, *kind.clocked):
            stack.enter_context(mock.patch.object(module, "time", clock))
        for module, name, value in kind.limits:
            stack.enter_context(mock.patch.object(module, name, value))
        stack.enter_context(running(loop))
        yield stack.enter_context(capture_logs())


class AgentsDriver:
    """Performs the actions of a run and keeps them."""

    def __init__(self, spec: AgentsSpec, loop: AnyOrderLoop, kind: SiteKind) -> None:
        self.spec, self.rng = spec, random.Random(f"{spec.seed} agents run")
        limits = replace(LIMITS, prepare_ms=1_000) if "hasty" in spec.faults else LIMITS
        inventory = tree_inventory(spec.broker_count, random.Random(spec.seed))
        self.site = AgentsSite(inventory, limits, loop, spec.seed, spec.rival, kind)
        for server in self.site.servers.values():
            server.has_races = "race" in spec.faults
        self.actions: list[Action] = []
        self._weights: dict[tuple[str, ...], float] = {}
        self._waited_ms = 0
        self._ticked_ms: Counter[str] = Counter()
        self._stepped_ms: Counter[str] = Counter()  # When each controller took its last step.

    def do(self, *actions: Action) -> None:
        """Perform actions; those that are impossible do nothing."""
        for action in actions:
            self.actions.append(action)
            if not self.site.apply(action):
                self.actions.pop()

    # --- what may happen next ----------------------------------------------------------------------------------------

    def lanes(self) -> list[tuple[str, ...]]:
        """Return what is ready, without the passing of time."""
        site = self.site
        found: list[tuple[str, ...]] = [("arrive", name) for name in site.wires.ready()]
        found += [("answer", name) for name in site.wires.calls]
        found += [("cross", *pair) for pair in site.links.lanes]
        found += [("notice", *pair) for pair in site.to_notice()]
        found += dict.fromkeys(("command", broker) for _, _, broker in site.commands)
        found += dict.fromkeys(("result", broker) for _, _, broker, _ in site.results)
        if site.controller.has_work or (self._is_time("advance") and not site.controller.is_idle):
            found.append(("advance",))
        for at in site.rivals:
            rival = site.controllers[at]
            if at not in site.suspended and (rival.has_work or (self._is_time(str(at)) and not rival.is_idle)):
                found.append(("rival", str(at)))
        return found

    def _is_time(self, controller: str) -> bool:
        return self.site.now_ms - self._stepped_ms[controller] >= 100

    def move(self) -> bool:
        """Let one thing that is ready happen; return False if nothing is."""
        lanes = self.lanes()
        if lanes:
            self.do(self._action_of(self._choose(lanes)))
        return bool(lanes)

    def _choose(self, lanes: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
        rng = self.rng
        if self.spec.schedule == "uniform":
            return rng.choice(lanes)
        if rng.random() < 0.005:
            self._weights = {}
        for lane in lanes:
            if lane not in self._weights:
                self._weights[lane] = 10 ** rng.uniform(-3, 0)
        if self.spec.schedule == "weighted":
            return rng.choices(lanes, [self._weights[lane] for lane in lanes])[0]
        return max(lanes, key=self._weights.__getitem__)

    def _action_of(self, lane: tuple[str, ...]) -> Action:
        rng, site = self.rng, self.site
        is_kept = int("repeat" in self.spec.faults and rng.random() < 0.1)
        match lane[0]:
            case "command":
                return ("command", *rng.choice([key for key in site.commands if key[2] == lane[1]]), is_kept)
            case "result":
                return ("result", *rng.choice([key for key in site.results if key[2] == lane[1]]), is_kept)
            case "advance" | "rival":
                self._stepped_ms[lane[-1]] = site.now_ms
                killed = rng.randint(1, 8) if "kill" in self.spec.faults and rng.random() < 0.03 else 0
                return ("advance", killed) if lane[0] == "advance" else ("rival", int(lane[1]), "advance", 0)
        return lane

    # --- deeds -------------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Let clients come, and everything be known; from then on the ledger counts."""
        site, rng = self.site, self.rng
        for number, place in enumerate(rng.choices((*AGENTS, *AGENTS, *site.names), k=rng.randint(3, 6))):
            self.do(("come", f"c{number}", place, rng.choice((0, 1, 1, 2, 3))))
        self.do(("come", "c9", AGENTS[0], 1))
        self.rest()
        self.serve()
        site.ledger.open_all()

    def run_randomly(self) -> None:
        """Perform random deeds while everything moves in any order."""
        rng = self.rng
        for _ in range(self.spec.steps):
            if rng.random() < DEED_SHARE:
                self.do(*self._deed())
            elif rng.random() < 0.05 or not self.move():
                self._wait()

    def _wait(self) -> None:
        pause_ms = self.rng.choice((5, 20, 100, 100, 300, 1_000, 3_000))
        if self._waited_ms + pause_ms < WAITED_MS_MAX:
            self._waited_ms += pause_ms
            self.do(("wait", pause_ms))
        self.do(*(("tick", name) for name in self.site.nodes))

    def _deed(self) -> Sequence[Action]:
        rng, site = self.rng, self.site
        kinds = ["publish"] * 6 + ["plan"] * 3 + [name for name in self.spec.faults for _ in range(1)]
        kinds += ["take_over"] if site.rival == SUCCESSORS else []
        kind = rng.choice(kinds)
        clients, broker = sorted(site.clients), rng.choice(site.names)
        match kind:
            case "publish":
                return [("publish", rng.choice(clients), rng.choice((1, 1, 2, 3)))] if clients else []
            case "plan":
                return [self._plan()]
            case "stop":
                is_last = sum(not server.is_down for server in site.servers.values()) < 2
                return [("start" if site.servers[broker].is_down or is_last else "stop", broker)]
            case "refuse":
                is_refusing = not site.servers[broker].refuses_logins and rng.random() < 0.5
                return [("refuse", broker, is_refusing * rng.choice(site.kind.refusals))]
            case "cut":
                return [("cut", broker)]
            case "node":
                mending = site.mending()
                return mending or ([("die_node", broker)] if rng.random() < 0.2 else [])
            case "die":
                return [("die", rng.choice(AGENTS))] if rng.random() < 0.3 else []
            case "cancel":
                return [("cancel_plan",)]
            case "kill":
                return [("kill",) if rng.random() < 0.2 else ("restart",)]
            case "take_over":
                return [("take_over",)] if rng.random() < 0.3 else [("rival", rng.randrange(8), "wake")]
            case "repeat":
                return [self._late()]
        return self._clients_deed(kind, clients)

    def _clients_deed(self, kind: str, clients: Sequence[str]) -> Sequence[Action]:
        rng, site = self.rng, self.site
        away = sorted(set(site.places) - set(clients))
        if kind == "roam" and away and rng.random() < 0.4:
            name = rng.choice(away)
            return [("come", name, *site.places[name])]
        if not clients:
            return []
        name = rng.choice(clients)
        if kind == "roam":
            return [(rng.choice(("leave", "subscribe", "unsubscribe")), name)]
        if kind == "slow":
            return [("publish", name, 40)] if rng.random() < 0.2 else [("read", name, rng.randint(0, 1))]
        return []

    def _late(self) -> Action:
        rng, site = self.rng, self.site
        if rng.random() < 0.5 and site.sent_commands:
            return ("late_command", *rng.choice(list(site.sent_commands)))
        return ("late_result", *rng.choice(list(site.given_results))) if site.given_results else ("tick", "")

    def _plan(self) -> Action:
        """Return a plan that moves some clients, each with all its subscriptions, and exchanges links."""
        rng, site = self.rng, self.site
        beside: dict[tuple[str, str], list[str]] = {}
        for name, home in site.movable().items():
            beside.setdefault((client_beside(name), home), []).append(name)
        moves = []
        for (_, home), names in beside.items():
            others = [other for other in site.controller.log.present.brokers if other != home]
            if others and rng.random() < 0.6:
                target = rng.choice(others)
                moves += [(name, home, target) for name in names if rng.random() < 0.95]
        if moves and rng.random() < 0.05:
            moves[0] = (moves[0][0], moves[0][2], moves[0][1])  # It is not there.
        present: Any = site.controller.log.present
        plan = ("plan", exchanges_in(present, rng.choice((0, 0, 1)), rng), tuple(moves))
        if site.rivals and rng.random() < 0.4:
            return ("rival", rng.choice(site.rivals), *plan)
        return plan

    # --- rest --------------------------------------------------------------------------------------------------------

    def rest(self) -> None:
        """Let everything run to its end, however long that takes; raise BrokenPromiseError if it has none."""
        site, quiet_ms = self.site, 0
        for _ in range(MOVES_MAX):
            if self.move():
                continue
            if site.controller.runner is None:
                self.do(("restart",))
            # Agents wait for a plan as long as its controller is suspended.
            is_alone = not site.suspended or self.spec.rival == SUCCESSORS
            if quiet_ms > 2_000 and site.controller.is_idle and not (is_alone and check_still(site)):
                return
            if quiet_ms > QUIET_S_MAX * 1_000:
                break
            quiet_ms += STEP_MS
            self.do(("wait", STEP_MS), *(("tick", name) for name in site.nodes))
        raise BrokenPromiseError("stuck", f"{check_still(site)} {site.controller.describe()}")

    def serve(self) -> None:
        """Publish until everybody gets everything, and then, with nobody excused, a few messages more."""
        site = self.site
        for _ in range(ROUNDS_MAX):
            site.ledger.open_all()
            self._probe(1)
            if not site.ledger.missing():
                break
            self.do(("wait", 1_000), *(("tick", name) for name in site.nodes))
        site.ledger.open_all()
        self._probe(PROBES)
        site.ledger.check()
        check_served(site)

    def _probe(self, count: int) -> None:
        for _ in range(count):
            self.do(*(("publish", name, 1) for name in sorted(self.site.clients)))
            self.rest()

    def finish(self) -> None:
        """Require what must hold after every run."""
        site, self.rng, self._weights = self.site, random.Random(f"{self.spec.seed} agents finish"), {}
        self._stepped_ms.clear()
        self.do(*(("refuse", name, 0) for name in site.names), *(("start", name) for name in site.names))
        self.do(*(("read", name, 1) for name in sorted(site.clients)))
        self.do(*(("declare", name) for name in sorted(site.dead)))
        self._leave_one_controller()
        self.rest()
        for _ in range(MENDINGS_MAX):
            if not (mending := site.mending()):
                break
            self.do(*mending)
            self.rest()
        else:
            raise BrokenPromiseError("not repaired", f"{site.mending()} {list(site.controller.events)[-3:]}")
        site.strike_doubtful()
        site.ledger.check()
        self.serve()
        self.do(self._plan())
        self.rest()
        site.ledger.check()
        self.serve()
        self.do(*(("leave", name) for name in sorted(site.clients)))
        self.rest()
        check_left(site)

    def _leave_one_controller(self) -> None:
        """Let all controllers end their plans one after the other, then leave the one with the newest in force."""
        site = self.site
        self.do(*(("rival", at, "wake") for at in sorted(site.suspended)))
        places = [site.controllers.index(site.controller), *site.rivals]
        if len(places) == 1:
            return
        if site.rival == SUCCESSORS:
            self.do(("restart",))
            self.rest()
            site.leave_alone(places[0])
            return
        for at in places:
            self.do(("lead", at))
            self.rest()
        newest = max(places, key=lambda at: site.controllers[at].log.present.epoch)
        self.do(("lead", newest))
        site.leave_alone(newest)


def run_agents(spec: AgentsSpec, actions: Sequence[Action] | None = None, *, is_traced: bool = False) -> AgentsResult:
    """Perform a run, or these actions of one in the place of the random ones."""
    loop, kind = AnyOrderLoop(), KINDS[spec.protocol]()
    with virtual_time(loop, kind) as logged:
        driver = AgentsDriver(spec, loop, kind)
        result = AgentsResult(spec, driver.actions)
        driver.site.trace = result.trace if is_traced else None
        begun = 0
        try:
            driver.begin()
            begun = len(driver.actions)
            if actions is None:
                driver.run_randomly()
            else:
                driver.do(*actions)
            result.actions = driver.actions[begun:]
            driver.finish()
        except BrokenPromiseError as failure:
            result.failure = failure
            result.actions = result.actions if result.actions is not driver.actions else driver.actions[begun:]
        errors = [each for each in logged if each["log_level"] in ("error", "critical")]
        if errors and result.failure is None:
            result.failure = BrokenPromiseError(f"logged {errors[0]['event']}", str(errors[0]))
        result.counts = _counts(driver.site)
    return result


def _counts(site: AgentsSite) -> Counter[str]:
    shelves = {id(one.shelf): one.shelf for one in site.met_controllers}
    phases = [phase for shelf in shelves.values() for _, phase in shelf.phases]
    counts: Counter[str] = Counter(
        plans=phases.count(PlanPhase.VERIFYING), aborted=phases.count(PlanPhase.ABORTED), came=site.ledger.came_count
    )
    for each in site.agents.values():
        counts.update(each.counts)
    counts.update({name: count for name, count in site.refusals.items() if count})
    return counts
