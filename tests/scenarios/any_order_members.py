"""Brokers that join and leave an any-order overlay, and brokers outside that are brought to its epoch.

In: an any-order overlay and random numbers. Out: changes of a plan, the moves that go with them, and installs. The
fleet is all existing brokers; ``names`` are those in the overlay of the leading controller.
"""

from __future__ import annotations

import random
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

from regraft.overlay.overlay_configuration import plan_digest
from regraft.producers.emulator.delivery_cells import DeliveryCells
from regraft.producers.emulator.emulate_overlay import EmulatedBroker
from regraft.schemas.command import Command, CommandPhase
from regraft.schemas.plan import OFF_RING, IdMove, Plan, PlanPhase

JOIN, LEAVE = "join", "leave"  # The first word of a change in a plan.
MEMBERS = {"members": "brokers join the overlay and leave it"}
BROKERS_MIN = 2
CHANGES_SHARE = 0.5  # The share of plans by which brokers come or go, in runs in which they do.
MISTAKEN_SHARE = 0.1  # The share of plans with leaving brokers that leave clients behind.
NO_PLAN = "bootstrap"
NOBODY = Plan("none", 0, 0, 0, (), (), (), (), 0.0, 0.0, PlanPhase.COMPLETED, ())


class ChangingMembers:
    """The brokers of the fleet. A part of an any-order overlay; ``members_change``: plans may add or remove some."""

    brokers: dict[str, EmulatedBroker]
    controller: Any
    start: Any
    dead: dict[str, None]
    declared: set[str]
    returned: dict[str, None]

    def set_up_members(self, spares: Iterable[str]) -> None:
        """Add brokers that are in no overlay; without any, no broker joins or leaves."""
        for name in spares:
            self.brokers[name] = EmulatedBroker(self.start.core_of(name, 0), DeliveryCells(1))
        self.members_change = bool(spares)

    @property
    def names(self) -> tuple[str, ...]:
        """The living brokers of the overlay in force."""
        if not self.members_change:
            return tuple(name for name in self.fleet if name not in self.returned)
        gone = self.dead.keys() | self.returned.keys()
        return tuple(name for name in self.controller.log.present.brokers if name not in gone)

    @property
    def fleet(self) -> tuple[str, ...]:
        """All living brokers."""
        return tuple(name for name, broker in sorted(self.brokers.items()) if not broker.is_dead)

    @property
    def cores(self) -> dict[str, Any]:
        """The protocol cores of the living brokers, by name."""
        return {name: self.brokers[name].core for name in self.fleet}

    @property
    def cores_inside(self) -> dict[str, Any]:
        """The protocol cores of the brokers in the overlay in force."""
        names = set(self.names)
        return {name: core for name, core in self.cores.items() if name in names}

    @abstractmethod
    def place_of(self, broker: str, rng: random.Random) -> Any:
        """Return the place in the overlay at which a broker joins."""

    @abstractmethod
    def moving_from(self, broker: str) -> list[str]:
        """Return the clients at home at a broker that a plan may move."""

    @abstractmethod
    def staying_at(self, broker: str) -> list[str]:
        """Return the clients at home at a broker that no plan moves."""

    @abstractmethod
    def ends_of(self, clients: Sequence[str]) -> list[Any]:
        """Return the actions that end clients that no plan moves."""

    @abstractmethod
    def _take_command(self, command: Command, instance: str) -> None:
        """Send a command."""

    # --- plans -------------------------------------------------------------------------------------------------

    def random_joins_and_leaves(self, rng: random.Random) -> list[tuple[Any, ...]]:
        """Return brokers that join and leave, in any order; none in runs without such changes."""
        if not self.members_change or rng.random() >= CHANGES_SHARE:
            return []
        outside = [name for name in self.fleet if name not in self.names and self._is_near(name)]
        outside = [name for name in outside if name not in self.returned]  # They are admitted by a repair.
        empty = [name for name in self.names if not self.staying_at(name)]
        joins = rng.sample(outside, min(len(outside), rng.choice((0, 1, 1, 2))))
        may_leave = max(len(self.names) - BROKERS_MIN, 0)  # Some of the living must stay.
        leaves = rng.sample(empty, min(len(empty), may_leave, rng.choice((0, 0, 1, 1, 2))))
        found = [(JOIN, name, self.place_of(name, rng)) for name in joins] + [(LEAVE, name) for name in leaves]
        rng.shuffle(found)
        return found

    def _is_near(self, name: str) -> bool:
        return self.brokers[name].core.epoch == self.controller.log.present.epoch

    def with_leaving(
        self,
        changes: Sequence[Any],
        moves: Sequence[Sequence[str]],
        rng: random.Random,
        mistaken_share: float = MISTAKEN_SHARE,
    ) -> Sequence[Sequence[str]]:
        """Return the moves adapted to joins and leaves: away from leaving brokers, occasionally to joining ones."""
        if not self.members_change:
            return moves
        leaving = [change[1] for change in changes if change[0] == LEAVE]
        joining = [change[1] for change in changes if change[0] == JOIN]
        homes = [name for name in self.names if name not in leaving] + joining
        if rng.random() < mistaken_share or not homes:
            return moves
        found = {move[0]: tuple(move) for move in moves if move[1] in self.names and move[1] not in leaving}
        for client, home, home_to in list(found.values()):
            other = rng.choice(joining) if joining and rng.random() < 0.5 else home_to
            others = [name for name in homes if name != home]
            found[client] = (client, home, other if other in others else rng.choice(others or homes))
        for broker in leaving:
            found |= {client: (client, broker, rng.choice(homes)) for client in self.moving_from(broker)}
        return tuple(found[client] for client in sorted(found) if found[client][1] != found[client][2])

    # --- brokers outside ---------------------------------------------------------------------------------------

    def do_install(self, name: str) -> bool:
        """Let the controller notify a broker outside which overlay is in force."""
        controller = self.controller
        moving = controller.log.moving
        if controller.runner is None or name in self.names:
            return False
        if moving is not None and name in controller.log.target_of(moving).brokers:
            return False
        self._take_command(self._install_of(name), controller._name)
        return True

    def _install_of(self, name: str) -> Command:
        log, term = self.controller.log, self.controller.term
        held = log.present.as_target(NOBODY, log.present.with_homes({}))
        in_force = next((plan for plan in log.in_force if plan.epoch_to == log.present.epoch), None)
        plan, digest = (
            (NO_PLAN, "") if in_force is None else (in_force.plan, plan_digest(in_force, log.target_of(in_force)))
        )
        ids = tuple(IdMove(one.broker, OFF_RING, one.ring_id) for one in held.ring_target)
        return Command(
            plan, CommandPhase.INSTALL, name, log.present.epoch, log.present.epoch, digest=digest, term=term,
            links_added=held.links_target, id_moves=ids, brokers_joined=log.present.brokers,
        )  # fmt: skip
