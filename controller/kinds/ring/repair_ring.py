"""Make a ring over other brokers than the present one: close the gaps of deaths, let brokers join and leave."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regraft.controller.kinds.repair import Repair, RepairTask, change_text, moved_text, named_text
from regraft.controller.kinds.ring.evacuate_users import moves_elsewhere
from regraft.controller.kinds.ring.ring_state import filtered_rates, rates_of
from regraft.overlay.ring.chord_ring import RingError, ring_key
from regraft.overlay.ring.ring_configuration import RingConfiguration
from regraft.overlay.ring.ring_costs import overlay_ring_cost
from regraft.overlay.ring.user_interests import UserInterests
from regraft.schemas.plan import ClientMove

CANDIDATES_MAX = 8  # Free IDs priced for a joining broker; each reprices all topics.


def repaired_ring(present: RingConfiguration, task: RepairTask, user_load_max: float, delay_weight: float) -> Repair:
    """Return the ring over the brokers after the change.

    A broker that stays keeps its ID, one that comes back gets its old one. The place of a broker that is gone is
    vacated: its successor takes over its arc. A joining broker takes the cheapest of some free IDs derived from its
    name, or the first one if the traffic is unknown. Users whose broker is gone go where most of their topics are
    wanted already and there is room, else to the least loaded broker.
    """
    brokers = task.brokers_after(present)
    traffic = _Traffic.of(present, task, delay_weight)
    moves = () if traffic is None else _moves(traffic.interests, present, task, user_load_max)
    homes = {user: home for user, home in present.homes if home in set(brokers)}
    homes |= {move.client: move.home_to for move in moves}
    id_of = {broker: number for broker, number in present.id_of.items() if broker in set(brokers)}
    settled = None if traffic is None else traffic.settled(moves, brokers)
    for broker in brokers:
        if broker not in id_of:
            id_of[broker] = _free_id(broker, id_of, present.bits, settled)
    target = RingConfiguration.of(present.epoch + 1, present.bits, id_of, homes)
    before = 0.0 if traffic is None else traffic.cost_per_s(present)
    after = 0.0 if settled is None else settled.cost_per_s(target)
    return Repair(target, task.change, moves, before, after, _reason(task, present, target, moves))


@dataclass(frozen=True, eq=False)
class _Traffic:
    """What users want and where, how often each topic is published, and the weight of a hop of delay."""

    interests: UserInterests
    rates_per_s: NDArray[np.float64]
    delay_weight: float

    @classmethod
    def of(cls, present: RingConfiguration, task: RepairTask, delay_weight: float) -> _Traffic | None:
        """Return the traffic of the windows at the homes of the present ring; None if no window has interests."""
        newest = next((window for window in reversed(task.windows) if window.interests is not None), None)
        if newest is None or newest.interests is None:
            return None
        homes = {user: home for user, home in present.homes if home in newest.interests.brokers}
        interests = newest.interests_at(homes)
        rates = filtered_rates([rates_of(window, interests) for window in task.windows])
        return cls(interests.over(present.brokers), rates, delay_weight)

    def settled(self, moves: Collection[ClientMove], brokers: tuple[str, ...]) -> _Traffic:
        """Return the traffic at the brokers after the change, once the users have moved."""
        at_home = self.interests.at_homes({move.client: move.home_to for move in moves})
        return _Traffic(at_home.over(brokers), self.rates_per_s, self.delay_weight)

    def cost_per_s(self, ring: RingConfiguration) -> float:
        """Return the cost of the traffic on a ring, with the interests at its brokers."""
        return overlay_ring_cost(ring, self.interests.over(ring.brokers), self.rates_per_s).total_per_s(
            self.delay_weight
        )


def _moves(
    interests: UserInterests, present: RingConfiguration, task: RepairTask, user_load_max: float
) -> tuple[ClientMove, ...]:
    """Return the moves of users whose broker is gone to brokers of the present ring that stay."""
    emptied = task.emptied(present)
    closed = emptied | task.change.lost | set(task.avoided)
    if closed >= set(present.brokers):
        closed = emptied | task.change.lost
    if closed >= set(present.brokers):
        return ()
    return moves_elsewhere(interests, closed, emptied, task.moves_max, user_load_max, leave_none=True)


def _free_id(broker: str, id_of: Mapping[str, int], bits: int, traffic: _Traffic | None) -> int:
    """Return the ID of a joining broker: the cheapest of the free ones that its name hashes to.

    Raises RingError if the ring has no free ID.
    """
    taken, size = set(id_of.values()), 1 << bits
    if len(taken) == size:
        raise RingError(f"all {size} IDs of a ring of {bits} bits are taken: {broker} cannot join")
    free: list[int] = []
    for number in range(CANDIDATES_MAX if traffic is not None else 1):
        key = ring_key(broker if not number else f"{broker}/{number}", bits)
        while key in taken:
            key = (key + 1) % size
        if key not in free:
            free.append(key)
    if traffic is None or len(free) == 1:
        return free[0]
    costs = [traffic.cost_per_s(RingConfiguration.of(0, bits, {**id_of, broker: key})) for key in free]
    return free[int(np.argmin(costs))]


def _reason(
    task: RepairTask, present: RingConfiguration, target: RingConfiguration, moves: tuple[ClientMove, ...]
) -> str:
    """Describe what is done, for people."""
    reasons = [change_text(task.change)]
    gone = sorted(set(present.brokers) - set(target.brokers))
    successors = {broker: target.broker_at[target.ring.owner(present.id_of[broker])] for broker in gone}
    if successors:
        reasons.append(named_text([f"{one} takes over the arc of {broker}" for broker, one in successors.items()]))
    new = [f"{broker} gets ID {target.id_of[broker]}" for broker in target.brokers if broker not in present.id_of]
    if new:
        reasons.append(named_text(new))
    if moves:
        reasons.append(moved_text(moves, RingConfiguration.CLIENTS))
    return "; ".join(reasons)
