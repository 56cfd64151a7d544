"""Which ready event happens next: uniformly at random, by weights that are redrawn, or by strict priorities.

In: an any-order overlay and a generator of random numbers. Out: actions. A lane is a sequence that keeps its order, or
events that one broker waits for: a link, a broker's queue, the commands to a broker, its answers, the controller.
Random orders seldom let one lane wait for long while all others run, as strict priorities do all the time.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

from tests.scenarios.any_order import Action, AnyOrderOverlay
from tests.scenarios.any_order_controller import AnyOrderController

Lane = tuple[str, ...]
UNIFORM, WEIGHTED, PRIORITIES = "uniform", "weighted", "priorities"
PLAIN, QUICK = "plain", "quick"
SCHEDULES = (UNIFORM, WEIGHTED, PRIORITIES)  # Seeds draw one of these; QUICK takes the place of a share of them.
QUICK_SHARE = 0.9  # How often a schedule with a quick controller prefers it to links.
KIND_WEIGHTS = {
    "link": 3.0,
    "broker": 4.0,
    "commands": 1.0,
    "results": 1.0,
    "controller": 2.0,
    "rival": 2.0,
    "notice": 1.0,
    "ask": 3.0,
    "tell": 3.0,
}
REPEATED_SHARE = 0.1  # The share of commands and answers that are repeated.
KILLED_SHARE = 0.02  # The share of the controller's steps in which it dies.
STEP_PAUSE_MS = 40  # The controller looks at the clock at least this often, if the schedule lets it.


class Schedule:
    """Chooses the next action; the base class is uniform.

    ``may_repeat``, ``may_kill``: whether commands and answers are repeated and the controller dies in its steps.
    ``deaf`` brokers receive no commands; nothing arrives on the connection from a client to a broker that is ``cut``.
    """

    def __init__(self, overlay: AnyOrderOverlay, rng: random.Random, *, may_repeat: bool, may_kill: bool) -> None:
        self.overlay = overlay
        self.rng = rng
        self.may_repeat = may_repeat
        self.may_kill = may_kill
        self.deaf = ""
        self.cut: tuple[str, str] | None = None
        self._stepped_ms: dict[str, int] = {}

    def next_action(self) -> Action | None:
        """Return the next action, or None if nothing is ready."""
        lanes = self._ready()
        return self._action_of(self._choose(lanes)) if lanes else None

    def _choose(self, lanes: list[Lane]) -> Lane:
        kinds = sorted({lane[0] for lane in lanes})
        kind = self.rng.choices(kinds, [KIND_WEIGHTS[one] for one in kinds])[0]
        return self.rng.choice([lane for lane in lanes if lane[0] == kind])

    def _ready(self) -> list[Lane]:
        overlay = self.overlay
        lanes: list[Lane] = [("link", *pair) for pair in overlay.on_links]
        lanes += [("broker", name) for name in overlay.busy]
        lanes += _unique(("commands", broker) for _, _, broker in overlay.commands if broker != self.deaf)
        lanes += _unique(("results", broker) for _, _, broker, _ in overlay.results)
        lanes += [("notice", *pair) for pair in overlay.to_notice()]
        lanes += [("ask", *pair) for pair in overlay.asks if pair != self.cut] + [
            ("tell", *pair) for pair in overlay.tells
        ]
        if self._may_step(overlay.controller, "controller"):
            lanes.append(("controller",))
        for at in overlay.rivals:
            if at not in overlay.suspended and self._may_step(overlay.controllers[at], str(at)):
                lanes.append(("rival", str(at)))
        return lanes

    def _may_step(self, controller: AnyOrderController, name: str) -> bool:
        if controller.has_work:
            return True
        is_time = self.overlay.now_ms - self._stepped_ms.get(name, 0) >= STEP_PAUSE_MS
        return is_time and not controller.is_idle and not controller.is_out

    def _action_of(self, lane: Lane) -> Action:
        rng, overlay = self.rng, self.overlay
        is_kept = int(self.may_repeat and rng.random() < REPEATED_SHARE)
        if lane[0] == "link":
            return ("cross", *lane[1:])
        if lane[0] in ("notice", "ask", "tell"):
            return lane
        if lane[0] == "broker":
            return ("serve", lane[1])
        if lane[0] == "commands":
            command = rng.choice([key for key in overlay.commands if key[2] == lane[1]])
            return ("command", *command, is_kept)
        if lane[0] == "results":
            result = rng.choice([key for key in overlay.results if key[2] == lane[1]])
            return ("result", *result, is_kept)
        self._stepped_ms[lane[-1]] = overlay.now_ms
        step = ("advance", rng.randint(1, 8) if self.may_kill and rng.random() < KILLED_SHARE else 0)
        return step if lane[0] == "controller" else ("rival", int(lane[1]), *step)


class WeightedSchedule(Schedule):
    """Slow links and starving brokers: every lane has a weight between 1 and 1000, which is redrawn occasionally."""

    weights: dict[Lane, float]

    def _choose(self, lanes: list[Lane]) -> Lane:
        if not hasattr(self, "weights") or self.rng.random() < 0.005:
            self.weights = {}
        for lane in lanes:
            if lane not in self.weights:
                self.weights[lane] = 10 ** self.rng.uniform(-3, 0)
        return self.rng.choices(lanes, [self.weights[lane] for lane in lanes])[0]


class QuickSchedule(WeightedSchedule):
    """A quick controller and slow links: commands, their answers and brokers are fast, links and connections are not.

    A plan then passes its phases while messages of the previous one, or requests of clients, are still under way.
    """

    def _choose(self, lanes: list[Lane]) -> Lane:
        quick = [lane for lane in lanes if lane[0] in ("commands", "results", "controller", "broker")]
        return super()._choose(quick if quick and self.rng.random() < QUICK_SHARE else lanes)


class PrioritySchedule(Schedule):
    """A total order of lanes: the highest ready one goes first. Rarely a lane gets another place in the order."""

    priorities: dict[Lane, float]

    def _choose(self, lanes: list[Lane]) -> Lane:
        if not hasattr(self, "priorities"):
            self.priorities = {}
        for lane in lanes:
            if lane not in self.priorities:
                self.priorities[lane] = self.rng.random()
        highest = max(lanes, key=self.priorities.__getitem__)
        if self.rng.random() < 0.01:
            self.priorities[highest] = self.rng.random() * min(self.priorities.values())  # A change point.
        return highest


class PlainSchedule(Schedule):
    """The schedule that is easiest to follow: each event's consequences run to their end before the next event."""

    def _choose(self, lanes: list[Lane]) -> Lane:
        kinds = ("broker", "tell", "ask", "link", "notice", "results", "controller", "rival", "commands")
        return min(lanes, key=lambda lane: (kinds.index(lane[0]), lane))


def schedule_of(
    kind: str, overlay: AnyOrderOverlay, rng: random.Random, *, may_repeat: bool, may_kill: bool
) -> Schedule:
    """Return the schedule of this kind."""
    classes = {UNIFORM: Schedule, WEIGHTED: WeightedSchedule, PRIORITIES: PrioritySchedule, PLAIN: PlainSchedule}
    return (classes | {QUICK: QuickSchedule})[kind](overlay, rng, may_repeat=may_repeat, may_kill=may_kill)


def _unique(lanes: Iterable[Lane]) -> list[Lane]:
    return list(dict.fromkeys(lanes))
