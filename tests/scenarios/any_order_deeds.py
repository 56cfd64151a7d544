"""What clients, operators and faults do in an any-order run: random deeds as lists of actions.

In: an any-order overlay and random numbers. Out: actions, none if a deed is not possible. Features determine the deeds
that a run may have, so that the faults shown by one do not hide those shown by another.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

from regraft.producers.brokers.broker_messages import UnadvertiseRequest
from regraft.schemas.plan import PlanPhase
from regraft.schemas.plan_life import LIFE
from tests.scenarios.any_order import Action, AnyOrderOverlay
from tests.scenarios.any_order_controller import AWAY, UNACKNOWLEDGED, UP
from tests.scenarios.any_order_leaders import STRANGER, SUCCESSORS, TWIN
from tests.scenarios.any_order_ring import AnyOrderRing
from tests.scenarios.any_order_tree import AnyOrderTree

FEATURES = {
    "end": "publishers end",
    "early": "publishers end before they may publish",
    "between": "publishers end between two homes",
    "return": "publishers come again under their name",
    "again": "users come again under their name",
    "kill": "the controller dies, also behind any effect",
    "late": "commands and answers are repeated and come late, also those of plans that are over",
    "store": "plans cannot be stored for a while",
    "hasty": "prepares are aborted by time-out",
    "mistaken": "plans name wrong homes of clients",
    "deaf": "a broker hears no commands for a while",
}
ASTRAY_SHARE = 0.03  # The share of clients that connect to any broker, even one outside.
DEATHS = {"die": "brokers die, and the overlay is repaired"}
DEATHS_MAX = 4
LIVING = {"living": "living brokers are declared dead, and readmitted later"}
MOVERS = {"movers": "plans move subscribers of a tree, too"}
Deed = Callable[[], list[Action]]


class Deeds(ABC):
    """Random deeds and their weights on any overlay; ``features`` are those of this run."""

    def __init__(self, overlay: AnyOrderOverlay, rng: random.Random, features: Iterable[str]) -> None:
        self.overlay = overlay
        self.rng = rng
        self.features = frozenset(features)
        self.kinds = overlay.kinds[: rng.randint(1, len(overlay.kinds))]  # The fewer, the denser.
        self.publishers_max = rng.randint(2, 8)
        self._planned: tuple[Any, Any] | None = None
        self._is_of_edge = bool({"living", "remote"} & self.features)
        self.deeds: dict[Deed, float] = {
            self.publish: 6.0,
            self.advertise: 0.2,
            self.end_publisher: 0.3 * ("end" in self.features),
            self.return_publisher: 0.4 * ("return" in self.features),
            self.plan: 0.8,
            self.kill: 0.3 * ("kill" in self.features),
            self.restart: 1.0,
            self.send_late: 0.6 * ("late" in self.features),
            self.change_store: 0.2 * ("store" in self.features),
            self.plan_as_rival: 0.8 * (overlay.rival in (TWIN, STRANGER)),
            self.let_rival_fail: 0.3 * (overlay.rival in (TWIN, STRANGER)),
            self.give_same_log: 0.5 * (overlay.rival in (TWIN, STRANGER)),
            self.take_over: 0.3 * (overlay.rival == SUCCESSORS),
            self.wake: 0.5 * (overlay.rival == SUCCESSORS),
        }
        if overlay.members_change:
            self.deeds |= {self.install: 0.6, self.empty: 0.3}
        if "die" in self.features:
            self.deeds |= {self.die: 0.15, self.cut: 0.3, self.declare: 0.4, self.repair: 1.0, self.come_again: 0.5}
            self.deeds |= {self.give_back: 0.2, self.take_back: 0.8} if overlay.members_change else {}
        if "living" in self.features:
            self.deeds |= {self.misjudge: 0.15, self.install: 0.6, self.take_back: 0.8}
            self.deeds |= {self.repair: 0.5, self.come_again: 0.5}
        if self._is_of_edge:
            self.deeds |= {self.commute: 0.5}

    def next_actions(self) -> list[Action]:
        """Return the actions of a deed chosen by weight; while a plan is under way, some are more frequent."""
        moving = self.overlay.controller.log.moving
        if moving is not None and "die" in self.features and self.rng.random() < 0.02:
            return self.die()
        if moving is not None and "living" in self.features and self.rng.random() < 0.04:
            return self.misjudge()
        if moving is not None and LIFE[moving.phase].is_committed and self.rng.random() < 0.2:
            return self.want_more() + self.publish()
        if moving is not None and moving.phase is PlanPhase.PREPARING and self.rng.random() < 0.05:
            return self.end_publisher() if "end" in self.features else []
        if moving is not None and moving.brokers_lost and self._is_of_edge and self.rng.random() < 0.2:
            return self.commute()
        if moving is None and self.overlay.asks and self.rng.random() < 0.1:
            return self.plan()
        return self.rng.choices(list(self.deeds), list(self.deeds.values()))[0]()

    def first_actions(self) -> list[Action]:
        """Return what a run begins with."""
        return [one for _ in range(3) for one in self.advertise()]

    @abstractmethod
    def want_more(self) -> list[Action]:
        """Let a subscriber or user request something new."""

    # --- publishers --------------------------------------------------------------------------------------------

    def publish(self) -> list[Action]:
        """Let publishers publish that may."""
        ready = sorted(self.overlay.allowed - self.overlay.ending)
        count = self.rng.randint(1, 3) if ready else 0
        return [("publish", self.rng.choice(ready), self.rng.randint(0, 9)) for _ in range(count)]

    def advertise(self) -> list[Action]:
        """Connect a new publisher, occasionally one that ends at once."""
        overlay = self.overlay
        name = f"p{len(overlay.publisher_homes)}"
        if len(overlay.publisher_homes) >= self.publishers_max + len(overlay.ending):
            return []
        coming: Action = ("advertise", name, self._a_broker(), self.rng.choice(self.kinds))
        ends_at_once = "early" in self.features and self.rng.random() < 0.1
        return [coming, ("unadvertise", name)] if ends_at_once else [coming]

    def end_publisher(self) -> list[Action]:
        """End a publisher, often one that a plan moves; it may reconnect at once."""
        overlay = self.overlay
        here = [name for name in sorted(overlay.publisher_homes) if overlay.publishers.home_of(name) is not None]
        moved = self._clients_of_plan().intersection(here)
        if moved and self.rng.random() < 0.5:
            here = sorted(moved)
        names = [name for name in here if name not in overlay.ending and self._may_end(name)]
        if not names:
            return []
        name = self.rng.choice(names)
        returns = "return" in self.features and self.rng.random() < 0.4
        return [("unadvertise", name), *(self._coming_again(name) if returns else ())]

    def commute(self) -> list[Action]:
        """End a publisher's stay and begin the next one elsewhere, perhaps before the earlier home hears of the end."""
        overlay, rng = self.overlay, self.rng
        names = sorted(overlay.allowed - overlay.ending)
        name = rng.choice(names) if names else ""
        if not name or overlay.is_between_homes(name):
            return []
        what = str(overlay.publisher_filters[name][0].value)
        home = self._a_broker()
        return [("unadvertise", name), ("advertise", name, home, what), ("ask", name, home)]

    def return_publisher(self) -> list[Action]:
        """Reconnect a publisher that has left, perhaps at another home."""
        gone = [name for name in sorted(self.overlay.ending) if self.overlay.publishers.home_of(name) is None]
        return self._coming_again(self.rng.choice(gone)) if gone else []

    def _may_end(self, name: str) -> bool:
        if self.overlay.is_between_homes(name):
            return "between" in self.features
        return name in self.overlay.allowed or "early" in self.features

    def _coming_again(self, name: str) -> list[Action]:
        home = self.overlay.publisher_homes[name] if self.rng.random() < 0.5 else self._a_broker()
        before = str(self.overlay.publisher_filters[name][0].value)
        what = before if self.rng.random() < 0.7 else self.rng.choice(self.kinds)
        return [("advertise", name, home, what)]

    # --- plans, the controller, faults -------------------------------------------------------------------------

    def plan(self) -> list[Action]:
        """Begin a plan at the controller if none is under way."""
        overlay, rng = self.overlay, self.rng
        if not overlay.controller.is_idle or overlay.lost_in_force:
            return []
        mistaken_share = 0.05 if "mistaken" in self.features else 0.0
        changes = overlay.random_changes(rng.choice((0, 1, 1, 2, 4)), rng)
        moves = overlay.random_moves(rng.randint(0, 4), mistaken_share, rng)
        if overlay.publishers_move and (back := self._moves_back()):
            moves = (*(move for move in moves if move[0] not in back), *back.values())
        self._planned = (changes, overlay.with_leaving(changes, moves, rng))
        return [("plan", *self._planned)]

    def _moves_back(self) -> dict[str, tuple[str, Any, str]]:
        """Return moves of publishers to earlier homes that have not heard of the end of the stay there."""
        found = {}
        for (name, broker), lane in self.overlay.asks.items():
            home = self.overlay.publishers.home_of(name)
            is_ending = any(isinstance(request, UnadvertiseRequest) for _, request in lane)
            if is_ending and home not in (None, broker) and {home, broker} <= {*self.overlay.names}:
                found[name] = name, home, broker
        return found

    def kill(self) -> list[Action]:
        """Kill the controller."""
        return [("kill",)]

    def restart(self) -> list[Action]:
        """Restart a dead controller."""
        return [("restart",)] if self.overlay.controller.runner is None else []

    def send_late(self) -> list[Action]:
        """Repeat an earlier command or answer."""
        if self.rng.random() < 0.7:
            sent = list(self.overlay.sent_commands)
            return [("late_command", *self.rng.choice(sent))] if sent else []
        given = list(self.overlay.given_results)
        return [("late_result", *self.rng.choice(given))] if given else []

    def change_store(self) -> list[Action]:
        """Make the store of plans unavailable or available."""
        is_up = self.overlay.controller.shelf.state == UP
        return [("store", self.rng.choice((AWAY, UNACKNOWLEDGED)) if is_up or self.rng.random() < 0.2 else UP)]

    # --- deaths ------------------------------------------------------------------------------------------------

    def die(self) -> list[Action]:
        """Kill a broker, occasionally two; some of what it had sent is lost on its links."""
        rng, living = self.rng, self.overlay.names
        count = min(rng.choice((1, 1, 1, 2)), DEATHS_MAX - len(self.overlay.dead), len(living) - 1)
        names = rng.sample(living, max(count, 0))
        cut = [(name, peer) for name in names for peer in self.overlay.fleet if rng.random() < 0.2]
        dying: list[Action] = [("die", name) for name in names]
        return dying + [("cut", *pair) for pair in cut if pair in self.overlay.on_links]

    def misjudge(self) -> list[Action]:
        """Let the controllers declare a living broker dead, with or without its clients noticing."""
        names, moving = self.overlay.names, self.overlay.controller.log.moving
        if len(names) < 2 or len(self.overlay.returned) >= DEATHS_MAX:
            return []
        moves = () if moving is None else moving.moves
        homes = sorted({home for move in moves for home in (move.home_from, move.home_to)}.intersection(names))
        name = self.rng.choice(homes if homes and self.rng.random() < 0.7 else names)  # Those with most to lose.
        return [("misjudge", name, int(self.rng.random() < 0.3))]

    def cut(self) -> list[Action]:
        """Lose what a dead broker had sent and is still under way."""
        links = [pair for pair in self.overlay.on_links if pair[0] in self.overlay.dead]
        return [("cut", *self.rng.choice(links))] if links else []

    def declare(self) -> list[Action]:
        """Let the controller learn of deaths."""
        names = self.overlay.undeclared
        return [("declare", tuple(self.rng.sample(names, self.rng.randint(1, len(names)))))] if names else []

    def repair(self) -> list[Action]:
        """Let the controller repair the overlay."""
        lost = self.overlay.lost_in_force
        return [self.overlay.random_repair(lost, self.rng)] if lost and self.overlay.controller.is_idle else []

    def give_back(self) -> list[Action]:
        """Return a dead broker, perhaps before the overlay is repaired."""
        return [("return", self.rng.choice(list(self.overlay.dead)))] if self.overlay.dead else []

    def take_back(self) -> list[Action]:
        """Let the controller install the overlay in force at returned brokers, and admit them."""
        overlay, rng = self.overlay, self.rng
        at = overlay.controller.log.present.epoch
        behind = [("install", name) for name in overlay.returned if overlay.cores[name].epoch != at]
        near = [name for name in overlay.returned if overlay.cores[name].epoch == at or rng.random() < 0.1]
        if not near or not overlay.controller.is_idle or rng.random() < 0.3:
            return behind
        backs = tuple((name, overlay.place_of(name, rng)) for name in rng.sample(near, rng.randint(1, len(near))))
        return [*behind, ("take_back", backs, *overlay.random_repair(overlay.lost_in_force, rng)[1:])]

    def come_again(self) -> list[Action]:
        """Reconnect a publisher that has lost its home elsewhere."""
        names = self.overlay.homeless
        return [("come_again", self.rng.choice(names), self._a_broker())] if names else []

    # --- other controllers -------------------------------------------------------------------------------------

    def plan_as_rival(self) -> list[Action]:
        """Begin a plan at a second controller, often the same change that the first one has begun."""
        overlay, rng = self.overlay, self.rng
        planned = self._planned if rng.random() < 0.5 else None
        if planned is None:
            planned = (
                overlay.random_changes(rng.choice((0, 1, 2)), rng),
                overlay.random_moves(rng.randint(0, 3), 0.0, rng),
            )
        return [("rival", at, "plan", *planned) for at in overlay.rivals]

    def let_rival_fail(self) -> list[Action]:
        """Kill or restart a second controller."""
        is_alive = {at: self.overlay.controllers[at].runner is not None for at in self.overlay.rivals}
        return [("rival", at, "kill" if alive else "restart") for at, alive in is_alive.items()]

    def give_same_log(self) -> list[Action]:
        """Give two controllers the same log again if no plan of theirs is under way."""
        return [("same_log",)]

    def take_over(self) -> list[Action]:
        """Let another controller take over; the leader is suspended."""
        return [("take_over",)]

    def wake(self) -> list[Action]:
        """Resume a suspended leader, which continues as if nothing had happened."""
        asleep = sorted(self.overlay.suspended)
        return [("rival", self.rng.choice(asleep), "wake")] if asleep else []

    # --- brokers that come and go ------------------------------------------------------------------------------

    def install(self) -> list[Action]:
        """Notify a broker outside which overlay is in force."""
        outside = [name for name in self.overlay.fleet if name not in self.overlay.names]
        return [("install", self.rng.choice(outside))] if outside else []

    def empty(self) -> list[Action]:
        """End all clients of a broker that no plan moves, so that it may leave."""
        return self.overlay.ends_of(self.overlay.staying_at(self._a_broker()))

    def _a_broker(self) -> str:
        overlay = self.overlay
        if not overlay.members_change:
            return self.rng.choice(overlay.names)
        if self.rng.random() < ASTRAY_SHARE:
            return self.rng.choice(overlay.fleet)
        return self.rng.choice([name for name in overlay.names if overlay.cores[name].takes_clients] or overlay.names)

    def _clients_of_plan(self) -> set[str]:
        moving = self.overlay.controller.log.moving
        return set() if moving is None else {move.client for move in moving.moves}


class TreeDeeds(Deeds):
    """Deeds on a tree, with subscribers."""

    overlay: AnyOrderTree

    def __init__(self, overlay: AnyOrderTree, rng: random.Random, features: Iterable[str]) -> None:
        super().__init__(overlay, rng, features)
        self.deeds |= {self.subscribe: 1.6, self.cancel: 1.0}

    def want_more(self) -> list[Action]:
        """Connect a subscriber."""
        return self.subscribe()

    def subscribe(self) -> list[Action]:
        """Connect a subscriber."""
        price_max = self.rng.choice((0, self.rng.randint(1, 9)))
        name = f"s{len(self.overlay.account.subscriptions)}"
        return [("subscribe", name, self._a_broker(), self.rng.choice(self.kinds), price_max)]

    def cancel(self) -> list[Action]:
        """Disconnect a subscriber."""
        names = self.overlay.open_names
        return [("cancel", self.rng.choice(names))] if names else []


class RingDeeds(Deeds):
    """Deeds on a ring, with users."""

    overlay: AnyOrderRing

    def __init__(self, overlay: AnyOrderRing, rng: random.Random, features: Iterable[str]) -> None:
        super().__init__(overlay, rng, features)
        self.deeds |= {self.connect: 0.8, self.change: 2.0, self.disconnect: 0.6}

    def first_actions(self) -> list[Action]:
        """Return what a run begins with."""
        users = [("connect", f"u{number}", self._a_broker(), self._some_topics()) for number in range(3)]
        return super().first_actions() + users

    def connect(self) -> list[Action]:
        """Connect a user, possibly again."""
        names, gone = self.overlay.user_homes, self._gone()
        if gone and "again" in self.features and self.rng.random() < 0.6:
            name = self.rng.choice(gone)
        else:
            name = f"u{len(names)}"
        return [("connect", name, self._a_broker(), self._some_topics())]

    def want_more(self) -> list[Action]:
        """Connect a user, or change a user's topics."""
        return self.connect() if self.rng.random() < 0.5 else self.change()

    def change(self) -> list[Action]:
        """Change a user's topics."""
        names = self.overlay.connected
        return [("topics", self.rng.choice(names), self._some_topics())] if names else []

    def disconnect(self) -> list[Action]:
        """Disconnect a user, often one that a plan moves; it may reconnect at once, often to the same home."""
        here = self.overlay.connected
        moved = self._clients_of_plan().intersection(here)
        if moved and self.rng.random() < 0.5:
            here = sorted(moved)
        if not here:
            return []
        name = self.rng.choice(here)
        leaving: list[Action] = [("disconnect", name)]
        if "again" in self.features and self.rng.random() < 0.4:
            home = self.overlay.user_homes[name] if self.rng.random() < 0.5 else self._a_broker()
            leaving.append(("connect", name, home, self._some_topics()))
        return leaving

    def _gone(self) -> list[str]:
        return [name for name in self.overlay.user_homes if self.overlay.users.home_of(name) is None]

    def _some_topics(self) -> tuple[str, ...]:
        return tuple(self.rng.sample(self.kinds, self.rng.randint(0, min(3, len(self.kinds)))))
