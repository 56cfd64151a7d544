"""One any-order run from a seed: random deeds under a schedule, then rest, one more plan, and all clients leave.

In: a RunSpec, and optionally the actions of an earlier run to repeat. Out: a RunResult with the actions performed, and
what failed and when. Equal specs give equal runs; so do equal actions. After the actions come the requirements of every
run (:func:`finish`), which draw from the seed of the spec alone.
"""

from __future__ import annotations

import contextlib
import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from regraft.schemas.plan import PlanPhase
from tests.scenarios.any_order import HASTY, PATIENT, Action, AnyOrderOverlay
from tests.scenarios.any_order_account import Account, AccountRules, BrokenPromiseError
from tests.scenarios.any_order_clients import REMOTE
from tests.scenarios.any_order_controller import UP
from tests.scenarios.any_order_deeds import DEATHS, FEATURES, LIVING, MOVERS, Deeds, RingDeeds, TreeDeeds
from tests.scenarios.any_order_leaders import RIVALS, SUCCESSORS
from tests.scenarios.any_order_members import MEMBERS
from tests.scenarios.any_order_ring import AnyOrderRing, random_ring_inventory
from tests.scenarios.any_order_schedules import QUICK, SCHEDULES, schedule_of
from tests.scenarios.any_order_scot import AnyOrderScot, scot_inventory
from tests.scenarios.any_order_tree import AnyOrderTree, tree_inventory

OVERLAYS = TREE, RING, SCOT = "tree", "ring", "scot"
SETTLE_MOVES_MAX = 100_000
LEAVES_FIRST_SHARE = 0.3
RIVALS_SHARE = 0.4  # The share of runs with more than one controller.
MEMBERS_SHARE = 0.4  # The share of runs in which brokers join and leave.
MOVERS_SHARE = 0.7  # The share of runs on trees and structured cyclic overlays in which subscribers move.
LIVING_SHARE = 0.3  # The share of runs in which living brokers are declared dead.
REMOTE_SHARE = 0.3  # The share of runs in which requests and effects take time between clients and brokers.
CUT_SHARE = 0.02  # How often another connection of a client, or none, is cut for a while.
QUICK_SHARE = 0.2  # The share of runs with a quick controller and slow links.
DEATHS_SHARE = {TREE: 0.4, RING: 0.4, SCOT: 0.4}  # The share of runs in which brokers die.
REPAIRS_SEED = "mend"  # A part of seeds that recorded runs and mutations rely on.
REPAIRS_MAX = 70  # Until one is executed: others may have used up some epochs.
REPAIRS_HASTY_MAX = 20  # Then the controller is patient: each event takes 1 ms, and there may be more than the limit.
FURTHER_PLANS_MAX = 60  # Until one is executed: others may have used up some epochs.
IDLE_ROUNDS_MAX = 6  # Times that the controller asks again without any effect before a plan counts as stuck.


@dataclass(frozen=True)
class RunSpec:
    """Everything that determines a run: ``features`` are keys of the tables of features and at most one of RIVALS.

    ``finish`` is the schedule after the actions.
    """

    seed: int
    overlay: str
    schedule: str
    features: tuple[str, ...]
    broker_count: int
    step_count: int
    deed_share: float
    finish: str

    @property
    def rival(self) -> str:
        """The kind of other controllers, empty for none."""
        return next((name for name in self.features if name in RIVALS), "")

    @property
    def spares(self) -> tuple[str, ...]:
        """The brokers that are outside at first."""
        count = random.Random(f"{self.seed} {self.overlay} spares").randint(1, 3) if "members" in self.features else 0
        return tuple(f"b{self.broker_count + number:02d}" for number in range(count))

    @staticmethod
    def of(seed: int, overlay: str, without: Iterable[str] = (), schedule: str | None = None) -> RunSpec:
        """Draw a spec from its seed: schedule, features, and numbers of brokers and steps."""
        rng = random.Random(f"{seed} {overlay}")
        chosen = rng.choice(SCHEDULES)
        share = rng.choice((0.3, 0.6, 1.0))
        features = [name for name in FEATURES if rng.random() < share]
        others = random.Random(f"{seed} {overlay} rivals")  # Drawn separately, so later draws stay the same.
        features += [others.choice(list(RIVALS))] if others.random() < RIVALS_SHARE else []
        deaths = random.Random(f"{seed} {overlay} deaths")
        features += DEATHS if deaths.random() < DEATHS_SHARE[overlay] else []
        comings = random.Random(f"{seed} {overlay} members")
        features += MEMBERS if comings.random() < MEMBERS_SHARE else []
        movers = random.Random(f"{seed} {overlay} movers")
        features += MOVERS if overlay != RING and movers.random() < MOVERS_SHARE else []
        edge = random.Random(f"{seed} {overlay} edge")
        features += LIVING if edge.random() < LIVING_SHARE else []
        features += REMOTE if edge.random() < REMOTE_SHARE else []
        chosen = QUICK if edge.random() < QUICK_SHARE else chosen
        broker_count = rng.choice((2, 2, 3, 3, 4, 5, 6, 7, 9))
        if overlay == RING and set(DEATHS).intersection(features):
            broker_count = deaths.choice((2, 3, 5, 7, 9, 12))  # Larger rings have paths over a dead broker.
            if deaths.random() < 0.5:  # With fewer other faults, more plans are under way when brokers die.
                kept = {"end", "return", "again", "late", *DEATHS, *MEMBERS, *LIVING, *REMOTE}
                features = [name for name in features if name in kept]
        return RunSpec(
            seed,
            overlay,
            schedule or chosen,
            tuple(name for name in features if name not in set(without)),
            broker_count,
            rng.choice((250, 500, 1000)),
            rng.choice((0.1, 0.25, 0.4)),
            schedule or chosen,
        )


@dataclass
class RunResult:
    """The result of a run. ``position`` is the number of actions before the failure."""

    spec: RunSpec
    actions: list[Action]
    overlay: AnyOrderOverlay
    failure: BrokenPromiseError | None = None
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """The sort of failure, empty for none."""
        return "" if self.failure is None else self.failure.kind


class Driver:
    """An overlay with its deeds and schedule; keeps the actions that were performed."""

    def __init__(self, spec: RunSpec, rules: AccountRules | None = None, *, is_traced: bool = False) -> None:
        self.spec = spec
        self.rng = random.Random(f"{spec.seed} {spec.overlay} run")
        limits = HASTY if "hasty" in spec.features else PATIENT
        account = Account(rules)
        self.overlay: Any
        self.deeds: Deeds
        if spec.overlay == TREE:
            inventory = tree_inventory(spec.broker_count, self.rng)
            self.overlay = AnyOrderTree(inventory, limits, account, spec.rival, spec.spares)
            self.overlay.subscribers_move = "movers" in spec.features
            self.deeds = TreeDeeds(self.overlay, self.rng, spec.features)
        elif spec.overlay == SCOT:
            inventory = scot_inventory(spec.broker_count, self.rng)
            account = Account(replace(rules or AccountRules(), orders_stays=False))
            self.overlay = AnyOrderScot(inventory, limits, account, spec.rival, spec.spares)
            self.overlay.subscribers_move = "movers" in spec.features
            self.deeds = TreeDeeds(self.overlay, self.rng, spec.features)
        else:
            inventory = random_ring_inventory(spec.broker_count, self.rng)
            self.overlay = AnyOrderRing(inventory, limits, account, spec.rival, spec.spares)
            self.deeds = RingDeeds(self.overlay, self.rng, spec.features)
        self.overlay.is_remote = "remote" in spec.features
        if is_traced:
            self.overlay.trace = []
        self.actions: list[Action] = []
        self.schedule = self.new_schedule(spec.schedule, self.rng)

    def new_schedule(self, kind: str, rng: random.Random) -> Any:
        """Return a schedule with the faults that the features allow."""
        features = self.spec.features
        return schedule_of(kind, self.overlay, rng, may_repeat="late" in features, may_kill="kill" in features)

    def do(self, actions: Iterable[Action]) -> None:
        """Perform these actions."""
        for action in actions:
            self.actions.append(action)
            if not self.overlay.apply(action):
                self.actions.pop()

    def move(self) -> bool:
        """Let one ready event happen; return whether there was any."""
        action = self.schedule.next_action()
        if action is not None:
            self.do([action])
        return action is not None

    def run_randomly(self) -> None:
        """Perform the random part of the run."""
        self.do(self.deeds.first_actions())
        for _ in range(self.spec.step_count):
            if self.rng.random() < self.spec.deed_share:
                self.do(self.deeds.next_actions())
            elif "deaf" in self.spec.features and self.rng.random() < 0.02:
                self.schedule.deaf = self.rng.choice(("", *self.overlay.names))
            elif self.overlay.asks and self.rng.random() < CUT_SHARE:
                self.schedule.cut = self.rng.choice((None, *self.overlay.asks))
            else:
                self.move()

    def settle(self) -> None:
        """Let events happen until nothing is under way, with a living controller, no deaf broker, a working store."""
        overlay = self.overlay
        self.schedule.deaf, self.schedule.cut = "", None
        self.schedule.may_repeat = self.schedule.may_kill = False
        self.do([("store", UP), ("declare", tuple(overlay.undeclared))])
        if overlay.rivals:
            self._leave_one()
        self._bring_to_rest()
        rng = random.Random(f"{self.spec.seed} {overlay.now_ms} {REPAIRS_SEED}")
        for attempt in range(REPAIRS_MAX):
            if attempt == REPAIRS_HASTY_MAX:
                overlay.controller.limits = PATIENT
                self.do([("kill",), ("restart",)])
            repairs = overlay.repair_actions(rng)
            if not repairs:
                return
            self.do(repairs)
            self._bring_to_rest()
        raise BrokenPromiseError("not repaired", f"after {REPAIRS_MAX} times: {list(overlay.controller.events)[-2:]}")

    def _bring_to_rest(self) -> None:
        overlay, controller, idle_rounds, before = self.overlay, self.overlay.controller, 0, ""
        for _ in range(SETTLE_MOVES_MAX):
            if controller.runner is None:
                self.do([("restart",)])
            if self.move():
                continue
            if (next_ms := overlay.clock.next_ms) is not None:  # A publisher catches up.
                self.do([("wait", max(math.ceil(next_ms) - overlay.now_ms, 0))])
                continue
            if controller.is_idle:
                return
            state = controller.describe()
            idle_rounds, before = (idle_rounds + 1 if state == before else 0), state
            if idle_rounds > IDLE_ROUNDS_MAX:
                break
            self.do([("wait", controller.limits.resend_ms), ("advance", 0)])
        else:
            raise BrokenPromiseError("not quiet", f"after {SETTLE_MOVES_MAX} moves: {controller.describe()}")
        phase = controller.log.moving.phase if controller.log.moving else None
        waits = {name: str(getattr(core.state.under_way, "waiting_for", "")) for name, core in overlay.cores.items()}
        raise BrokenPromiseError(f"stuck {phase}", f"{controller.describe()}; {waits}; {list(controller.events)[-2:]}")

    def _leave_one(self) -> None:
        """Let all controllers continue until nothing remains to do, then one alone, as an operator would ensure.

        If each has a separate log, each first brings its plan under way to an end, and the one that remains is the one
        whose last plan is in force.
        """
        overlay = self.overlay
        for _ in range(IDLE_ROUNDS_MAX):
            self.do(("rival", at, "wake") for at in sorted(overlay.suspended))
            self.do(("rival", at, "restart") for at in overlay.rivals)
            while self.move():
                pass
            self.do([("wait", overlay.controller.limits.resend_ms)])
        places = overlay.controllers.index(overlay.controller), *overlay.rivals
        if overlay.rival == SUCCESSORS:
            overlay.leave_alone(places[0])
            return
        for at in places:
            self.do([("lead", at)])
            self._bring_to_rest()
        newest = max(places, key=lambda at: overlay.controllers[at].log.present.epoch)
        self.do([("lead", newest)])
        overlay.leave_alone(newest)


def run(
    spec: RunSpec,
    actions: Sequence[Action] | None = None,
    *,
    rules: AccountRules | None = None,
    is_traced: bool = False,
) -> RunResult:
    """Perform a run, or these actions of one, and return its result."""
    driver = Driver(spec, rules, is_traced=is_traced)
    result = RunResult(spec, driver.actions, driver.overlay)
    try:
        if actions is None:
            driver.run_randomly()
        else:
            driver.do(actions)
        result.actions = list(driver.actions)
        finish(driver)
    except BrokenPromiseError as failure:
        result.failure = failure
        if len(result.actions) > len(driver.actions):
            result.actions = list(driver.actions)
    result.counts = _counts(driver.overlay)
    return result


def finish(driver: Driver) -> None:
    """Require what must hold after every run: rest, one more plan, and nothing left once all clients have gone."""
    spec, overlay = driver.spec, driver.overlay
    rng = random.Random(f"{spec.seed} {spec.overlay} finish")
    driver.schedule = driver.new_schedule(spec.finish, rng)
    driver.settle()
    overlay.check_settled()
    if rng.random() < LEAVES_FIRST_SHARE:  # Before new publishers could repair leftovers of subscriptions.
        driver.do(action for action in overlay.leave_all() if action[0] != "unadvertise")
        driver.settle()
        overlay.check_settled()
        overlay.check_unsubscribed()
    overlay.controller.limits = PATIENT
    driver.do([("kill",), ("restart",)])
    coming = [("advertise", f"new{kind}", rng.choice(overlay.names), kind) for kind in overlay.kinds]
    driver.do(coming)  # Subscriptions also cover publishers that connect late.
    for _ in range(2):
        driver.settle()
        overlay.check_settled()
        _publish_all(driver)
    _execute_one_more(driver, rng)
    _publish_all(driver)
    driver.settle()
    overlay.check_settled()
    _take_back(driver, rng)
    driver.do(overlay.leave_all())
    driver.settle()
    overlay.check_left()


def _execute_one_more(driver: Driver, rng: random.Random) -> None:
    """Require that a further plan is executed; if others have used up epochs, one of several plans."""
    spec, overlay = driver.spec, driver.overlay
    for attempt in range(1, FURTHER_PLANS_MAX + 1):
        changes, moves = overlay.random_changes(1, rng), overlay.random_moves(2, 0.0, rng)
        driver.do([("plan", changes, overlay.with_leaving(changes, moves, rng, mistaken_share=0.0))])
        plans = list(overlay.plans)
        for _ in range(4 * spec.broker_count):
            driver.move()
        _publish_all(driver)
        driver.settle()
        overlay.check_settled()
        if not any(plan.phase is PlanPhase.ABORTED for plan in overlay.plans[len(plans) :]):
            return
        if attempt == FURTHER_PLANS_MAX or len(overlay.met_controllers) == 1:
            raise BrokenPromiseError("a further plan is aborted", f"{list(overlay.controller.events)[-2:]}")


def _take_back(driver: Driver, rng: random.Random) -> None:
    """Require that returned brokers can be admitted, whatever plans they heard of outside."""
    overlay = driver.overlay
    for _ in range(FURTHER_PLANS_MAX):
        if not overlay.returned:
            return
        driver.do(("install", name) for name in list(overlay.returned))
        driver.settle()
        backs = tuple((name, overlay.place_of(name, rng)) for name in overlay.returned)
        driver.do([("take_back", backs, *overlay.random_repair(overlay.lost_in_force, rng)[1:])])
        driver.settle()
        overlay.check_settled()
    raise BrokenPromiseError("not readmitted", f"{sorted(overlay.returned)}: {list(overlay.controller.events)[-2:]}")


def _publish_all(driver: Driver) -> None:
    driver.do([("publish", name, 1) for name in sorted(driver.overlay.allowed - driver.overlay.ending)])


def _counts(overlay: AnyOrderOverlay) -> dict[str, int]:
    shelves = {id(one.shelf): one.shelf for one in overlay.met_controllers}
    phases = [phase for shelf in shelves.values() for _, phase in shelf.phases]
    logs = [one.log for one in {id(one.shelf): one for one in overlay.met_controllers}.values()]
    changes = [log.change_of(plan) for log in logs for plan in log.in_force]
    return overlay.account.counts | {
        "plans": phases.count(PlanPhase.VERIFYING),
        "aborted": phases.count(PlanPhase.ABORTED),
        "kills": sum(one.kills for one in overlay.met_controllers),
        "fenced": sum(one.fenced for one in overlay.met_controllers),
        "deposed": sum(one.runner is not None and one.is_out for one in overlay.met_controllers),
        "controllers": len(overlay.met_controllers),
        **{name: overlay.refusals.get(name, 0) for name in ("refused_plan", "refused_term", "refused_epoch")},
        "publishers_moved": overlay.publishers.moves.moved,
        "users_moved": overlay.users.counts.moved,
        "subscribers_moved": overlay.subscribers.moved_count,
        "waited": overlay.publishers.moves.notifications_waited,
        "deaths": len(overlay.lives_from),
        "misjudged": len(overlay.ever_misjudged),
        "ignored": overlay.turns.ignored_count,
        "came_back": sum(math.isfinite(epoch) for epoch in overlay.lives_from.values()),
        "repairs": overlay.repairs,
        "held_max": max(core.held_count_max for core in overlay.cores.values()),
        "joined": sum(len(change.joined) for change in changes),
        "left": sum(len(change.left) for change in changes),
        "stays": sum(overlay.account.stays.values()),
    }


def gentle_spec(seed: int, overlay: str, *, is_hasty: bool = False, kills: bool = False) -> RunSpec:
    """Return a run without faults, under each schedule in turn, for comparing brokers without a safeguard."""
    rng = random.Random(f"{seed} {overlay} gentle")
    features = [name for name, is_wanted in (("hasty", is_hasty), ("kill", kills)) if is_wanted]
    spec = RunSpec.of(seed, overlay, schedule=SCHEDULES[seed % len(SCHEDULES)])
    return replace(
        spec, features=("again", *features), broker_count=rng.randint(2, 9), step_count=1000, deed_share=0.25
    )


def count_faults(spec: RunSpec) -> dict[str, int]:
    """Return the counts of a run that continues after faults; "lost" is 0 unless it comes to rest."""
    driver = Driver(spec, AccountRules(raises=False))
    lost = 0
    with contextlib.suppress(BrokenPromiseError):
        driver.run_randomly()
        driver.settle()
        lost = len(driver.overlay.account.lost())
    return _counts(driver.overlay) | {"lost": lost}
