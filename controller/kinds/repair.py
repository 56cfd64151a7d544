"""Repair: an overlay over other brokers than the present one, and the plan that leads there. Pure.

Computing the overlay belongs to the kind (:meth:`controller.kinds.overlay_kind.OverlayKind.repaired`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import msgspec

from regraft.controller.state.closed_window import ClosedWindow
from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.overlay_configuration import BrokerChange, OverlayConfiguration
from regraft.schemas.plan import MEMBERSHIP, REPAIR, ClientMove, HomeMove, Plan, PlanPhase, Proposal
from regraft.schemas.texts import name_some

BROKERS_MIN = 2  # As in inventories.
NAMED_MAX = 12  # Brokers or links named in a reason; the others are only counted.


@dataclass(frozen=True, eq=False)
class RepairTask:
    """The input of a repair.

    ``fleet`` has the costs of links between all brokers of the later overlay, and may include more brokers. ``windows``
    are the last complete ones, oldest first; empty if the traffic is unknown. ``avoided`` brokers get no clients, and
    links only if there is no other way. At most ``moves_max`` clients move, and only ``priced_max`` of them to the
    cheapest home: pricing all of many would delay the repair.
    """

    change: BrokerChange
    fleet: Inventory
    windows: Sequence[ClosedWindow] = ()
    avoided: Collection[str] = ()
    moves_max: int = 1 << 30
    priced_max: int = 1 << 30

    def brokers_after(self, present: OverlayConfiguration) -> tuple[str, ...]:
        """Return the brokers of the later overlay, sorted. Raises ValueError if there are too few or unknown ones."""
        brokers = tuple(sorted(self.change.of(present.brokers)))
        if len(brokers) < BROKERS_MIN:
            raise ValueError(f"{len(brokers)} brokers would be left, but an overlay needs at least {BROKERS_MIN}")
        if unknown := [broker for broker in brokers if broker not in self.fleet.index]:
            raise ValueError(f"the cost of links to {', '.join(unknown)} is unknown: add them with their costs")
        return brokers

    def emptied(self, present: OverlayConfiguration) -> frozenset[str]:
        """Return the brokers of the present overlay at which clients cannot stay; returning ones keep their clients."""
        return frozenset(present.brokers) - self.change.of(present.brokers)


@dataclass(frozen=True)
class Repair:
    """The overlay that a change of brokers leads to, its clients at their new homes, and its quality.

    ``cost_before_per_s`` and ``cost_after_per_s`` are of the traffic of the windows, before without what has been lost
    since; both 0 if unknown. ``subscribers_moved`` are the targets of the subscribers of leaving brokers of a tree.
    ``exceeded`` describes each broker that the repair leaves above a cap, one sentence each.
    """

    target: OverlayConfiguration
    change: BrokerChange
    moves: tuple[ClientMove, ...]
    cost_before_per_s: float
    cost_after_per_s: float
    reason: str
    subscribers_moved: tuple[HomeMove, ...] = ()
    exceeded: tuple[str, ...] = ()

    def plan(self, present: OverlayConfiguration, epoch_to: int, window_end_ms: int) -> Plan:
        """Return the plan, not yet begun, that leads from ``present`` to the target at ``epoch_to``."""
        target = self.target.at_epoch(epoch_to)
        bare = Plan(
            plan=f"plan-{epoch_to}",
            epoch_from=present.epoch,
            epoch_to=epoch_to,
            window_end_ms=window_end_ms,
            proposals=(),
            links_removed=(),
            links_added=(),
            links_target=(),
            cost_before_per_s=self.cost_before_per_s,
            cost_predicted_per_s=self.cost_after_per_s,
            phase=PlanPhase.PREPARING,
            history=(),
            moves=self.moves,
            brokers_lost=tuple(sorted(self.change.lost)),
            subscribers_moved=self.subscribers_moved,
        )
        plan = target.as_target(bare, present)
        proposal = Proposal(
            planner=REPAIR if self.change.lost else MEMBERSHIP,
            links_removed=plan.links_removed,
            links_added=plan.links_added,
            cost_before_per_s=self.cost_before_per_s,
            cost_after_per_s=self.cost_after_per_s,
            price_per_s=0.0,
            reason=self.reason,
            moves=self.moves,
            id_moves=plan.id_moves,
        )
        return msgspec.structs.replace(plan, proposals=(proposal,))


def change_text(change: BrokerChange) -> str:
    """Describe which brokers are lost, leave, come back and join, for people."""
    parts = (
        ("lost", change.lost - change.joined),
        ("restarted", change.lost & change.joined),
        ("leaving", change.left),
        ("joining", change.joined - change.lost),
    )
    return "; ".join(f"{named_text(sorted(brokers))} {what}" for what, brokers in parts if brokers)


def named_text(names: Sequence[str]) -> str:
    """Return the names separated by commas, at most NAMED_MAX and the number of the others."""
    return name_some(names, NAMED_MAX)


def moved_text(moves: Sequence[ClientMove], clients: str) -> str:
    """Describe how many clients move; ``clients`` is their plural noun."""
    return f"{len(moves)} {clients} move" if len(moves) > 1 else f"1 {clients.removesuffix('s')} moves"
