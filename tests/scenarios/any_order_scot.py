"""The any-order overlay as a structured cyclic one: places and region links are exchanged, publishers move.

Static routing only: around congestion copies overtake each other, which is not a fault there.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec

from regraft.controller.kinds.repair import RepairTask
from regraft.controller.kinds.scot.repair_scot import repaired_scot
from regraft.controller.state.plan_log import PlanLog
from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.overlay_configuration import BrokerChange
from regraft.overlay.scot.scot_configuration import ScotConfiguration
from regraft.overlay.tree.build_tree import random_tree
from regraft.schemas.plan import ClientMove, Plan
from tests.scenarios.any_order import Action
from tests.scenarios.any_order_account import BrokenPromiseError
from tests.scenarios.any_order_controller import new_plan
from tests.scenarios.any_order_members import BROKERS_MIN, JOIN, LEAVE, MISTAKEN_SHARE, ChangingMembers
from tests.scenarios.any_order_tree import EVERYBODY, AnyOrderTree, homes_moved, tree_inventory

SWAP, RELINK = "swap", "relink"


def scot_inventory(broker_count: int, rng: random.Random) -> Inventory:
    """Return brokers in clusters of at least two; brokers left over from the product get separate regions."""
    inventory = tree_inventory(broker_count, rng)
    clusters = rng.randint(1, max(min(3, broker_count // 2), 1))
    regions = broker_count // clusters
    whole, names = clusters * regions, inventory.brokers
    rows = tuple(names[number * clusters : (number + 1) * clusters] for number in range(regions))
    links = random_tree([f"{number:02d}" for number in range(regions)], regions, rng).links
    overlay = ScotConfiguration(0, rows, tuple(sorted((int(a), int(b)) for a, b in links)))
    if names[whole:]:
        overlay = changed(overlay, inventory, BrokerChange(joined=frozenset(names[whole:])))
    return replace(inventory, bootstrap=overlay)


def changed(overlay: ScotConfiguration, fleet: Inventory, change: BrokerChange) -> ScotConfiguration:
    """Return the overlay over other brokers, in the same epoch. Raises ValueError if that is impossible."""
    target = repaired_scot(overlay.with_homes({}), RepairTask(change, fleet), overlay.degree_max).target
    assert isinstance(target, ScotConfiguration)
    return target.at_epoch(overlay.epoch)


class AnyOrderScot(AnyOrderTree):
    """Brokers of a structured cyclic overlay and their clients, which are those of a tree."""

    def _fleet_inventory(self) -> Inventory:
        return tree_inventory(len(self.brokers), random.Random(0))

    def _with(self, overlay: ScotConfiguration, change: Sequence[Any]) -> ScotConfiguration:
        """Return the overlay after one change of a plan. Raises ValueError if that is impossible."""
        if change[0] == JOIN:
            return changed(overlay, self._fleet_inventory(), BrokerChange(joined=frozenset({change[1]})))
        if change[0] == LEAVE:
            if change[1] not in overlay.brokers or len(overlay.brokers) <= BROKERS_MIN:
                raise ValueError(f"{change[1]} cannot leave {len(overlay.brokers)} brokers")
            return changed(overlay, self._fleet_inventory(), BrokerChange(left=frozenset({change[1]})))
        if change[0] == SWAP:
            other = {change[1]: change[2], change[2]: change[1]}
            regions = tuple(tuple(other.get(name, name) for name in region) for region in overlay.regions)
            return ScotConfiguration(overlay.epoch, regions, overlay.region_links)
        return ScotConfiguration(overlay.epoch, overlay.regions, change[1])

    def plan_of(self, log: PlanLog, changes: Sequence[Any], moves: Sequence[ClientMove]) -> Plan | None:
        """Return a plan with these changes one after the other, as far as they are possible."""
        before = log.present
        assert isinstance(before, ScotConfiguration)
        emptied = homes_moved(moves)
        moves = [move for move in moves if not move.client.startswith(EVERYBODY)]
        target = before.at_epoch(log.epoch_next).with_homes({})
        for change in changes:
            with contextlib.suppress(ValueError):
                target = self._with(target, change)
        moves = [self._announced(move, before, target) for move in moves]
        if target.digest == before.at_epoch(log.epoch_next).digest and not (moves or emptied):
            return None
        plan = msgspec.structs.replace(new_plan(log, target, moves), subscribers_moved=emptied)
        return target.as_target(plan, before)

    def _moves_of_subscribers(
        self, living: Sequence[str], mistaken_share: float, rng: random.Random
    ) -> Sequence[Sequence[str]]:
        """Return no moves: either all subscribers of a broker move, or none."""
        return ()

    def moving_from(self, broker: str) -> list[str]:
        """Return the publishers at home at a broker; its subscribers move all together."""
        return [name for name in sorted(self.publisher_homes) if self.publishers.home_of(name) == broker]

    def with_leaving(
        self,
        changes: Sequence[Any],
        moves: Sequence[Sequence[str]],
        rng: random.Random,
        mistaken_share: float = MISTAKEN_SHARE,
    ) -> Sequence[Sequence[str]]:
        """Return the moves, with all clients of leaving brokers, except for mistakes, and sometimes of others."""
        found = ChangingMembers.with_leaving(self, changes, moves, rng, mistaken_share)
        if not self.subscribers_move:
            return found
        leaving = [change[1] for change in changes if change[0] == LEAVE]
        homes = [name for name in self.names if name not in leaving]
        emptied = {*leaving} if rng.random() >= mistaken_share else set[str]()
        emptied.update(rng.sample(self.names, rng.randint(0, 1)) if rng.random() < 0.3 else [])
        pairs = [(name, [home for home in homes if home != name]) for name in sorted(emptied)]
        return (*found, *((EVERYBODY + name, name, rng.choice(others)) for name, others in pairs if others))

    @staticmethod
    def _announced(move: ClientMove, before: ScotConfiguration, target: ScotConfiguration) -> ClientMove:
        """Return the move, to a broker of both overlays if it would lead from a leaving broker to a joining one."""
        both = sorted(set(before.brokers) & set(target.brokers) - {move.home_from})
        is_apart = move.home_from not in target.brokers and move.home_to not in before.brokers
        return ClientMove(move.client, move.home_from, both[0]) if is_apart and both else move

    def random_changes(self, count: int, rng: random.Random) -> Sequence[Any]:
        """Return brokers that exchange their places, or other links between regions; some join or leave first."""
        overlay, found = self.controller.log.present, []
        assert isinstance(overlay, ScotConfiguration)
        wanted = [*self.random_joins_and_leaves(rng)]
        for change in wanted:
            with contextlib.suppress(ValueError):
                overlay = self._with(overlay, change)
                found.append(change)
        for _ in range(count):
            if rng.random() < 0.6:
                found.append((SWAP, *rng.sample(overlay.brokers, 2)))
            else:
                names = [f"{number:02d}" for number in range(len(overlay.regions))]
                links = random_tree(names, len(names), rng).links
                found.append((RELINK, tuple(sorted((int(a), int(b)) for a, b in links))))
        return tuple(found)

    def _overlays_to_come(self) -> list[set[str]]:
        """Return groups of brokers in which some must live: two of all brokers. A cluster may die as a whole."""
        logs = [one.log for one in self.met_controllers]
        overlays: list[Any] = [log.present for log in logs]
        overlays += [log.target_of(log.moving) for log in logs if log.moving is not None]
        return [set(one.brokers) - {name} for one in overlays for name in one.brokers]

    # --- repairs -----------------------------------------------------------------------------------------------

    def repaired(self, log: PlanLog, lost: Sequence[str], *change: Any) -> Any:
        """Return the overlay without the lost brokers, or None if too few are left."""
        before = log.present
        assert isinstance(before, ScotConfiguration)
        gone = frozenset(lost) & set(before.brokers)
        try:
            return changed(before, self._fleet_inventory(), BrokerChange(lost=gone)).at_epoch(log.epoch_next)
        except ValueError:
            return None

    def with_joined(self, target: Any, name: str, place: Any) -> Any:
        """Return the overlay with one more broker."""
        return changed(target, self._fleet_inventory(), BrokerChange(joined=frozenset({name})))

    def random_repair(self, lost: Sequence[str], rng: random.Random) -> Action:
        """Return the only possible repair."""
        return ("repair", (), (), self.random_moves(rng.choice((0, 0, 1, 2)), 0.0, rng))

    def ways(self, epoch: int, home: str, subscription: str) -> list[Sequence[str]]:
        """Return the path of static routing."""
        return [self.overlay_of(epoch).static_route(home, self.serving(epoch, subscription))]

    # --- checks ------------------------------------------------------------------------------------------------

    def check_at_rest(self) -> None:
        """Check that every home knows its clients, and the region its publishers; ended ones may still be served."""
        connected = {name for name in self.publisher_homes if self.publishers.home_of(name) is not None}
        hosted: dict[str, str] = {}
        for name, core in self.cores_inside.items():
            tables = core.state.tables[core.epoch]
            hosted |= dict.fromkeys(tables.hosted, name)
            if tables.earlier:
                raise BrokenPromiseError("state of publishers", f"{name} has earlier stays: {tables.earlier}")
            waits = [one for one in tables.hosted.values() if one.awaited]
            waits += [one for one in tables.remotes.values() if one.unanswered]
            waits += [one for one in tables.entries.values() if not one.is_confirmed]
            if waits:
                raise BrokenPromiseError("answer awaited at rest", f"{name} waits for {waits}")
            for publisher, one in tables.hosted.items():
                for peer in tables.region:
                    if (
                        peer != name
                        and (publisher, one.connection) not in self.cores[peer].state.tables[core.epoch].remotes
                    ):
                        raise BrokenPromiseError("state of publishers", f"{peer} does not know {publisher} at {name}")
        homes = {name: self.publishers.home_of(name) for name in connected}
        if hosted != homes:
            raise BrokenPromiseError("state of publishers", f"hosted are {hosted}, connected {homes}")
        served = {
            name
            for core in self.cores_inside.values()
            for name, one in core.routing.interests.locals.items()
            if not one.has_ended
        }
        if served != set(self.open_names):
            raise BrokenPromiseError("leak of locals", f"{sorted(served.symmetric_difference(self.open_names))}")

    def check_unsubscribed(self) -> None:
        """Check nothing: ended subscriptions are served a while longer."""

    def check_left(self) -> None:
        """Check that all is at rest; ended subscriptions are served a while longer."""
        self.check_settled()
