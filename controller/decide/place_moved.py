"""Compute where the subscribers that a plan has moved would be without it, on the windows after it.

Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from regraft.controller.state.closed_window import ClosedWindow
from regraft.controller.state.window_parts import PartKey
from regraft.schemas.agent_names import client_beside, client_of, publishing_client
from regraft.schemas.part_blocks import number_of_moved, number_of_subscriber
from regraft.schemas.plan import ClientMove, HomeMove, Plan, Proposal

CameFrom = Callable[[str, str], Sequence[str]]  # Maps (former broker, present broker) to the subscribers that moved.


def homes_filled(plan: Plan) -> frozenset[str]:
    """Return the brokers to which a plan moves clients."""
    return frozenset({move.home_to for move in plan.subscribers_moved} | {move.home_to for move in plan.moves})


def follower_of(plan: Plan, in_force: Iterable[Plan]) -> Plan | None:
    """Return the first later plan that moves all subscribers away from a broker that this one moved any to, or None."""
    homes = homes_filled(plan)
    later = (one for one in in_force if one.epoch_to > plan.epoch_to)
    return next((one for one in later if homes & {move.home_from for move in one.subscribers_moved}), None)


@dataclass(frozen=True)
class MovedSubscribers:
    """The subscribers a plan moved: ``emptied`` lists brokers that all left together, ``single`` those moved by name.

    All that moved from one broker to another are reported as one part; clients beside agents each as one.
    """

    epoch: int
    emptied: tuple[HomeMove, ...] = ()
    single: tuple[ClientMove, ...] = ()

    @classmethod
    def of(cls, plan: Plan, came_from: CameFrom, movable: Mapping[str, str] | None = None) -> MovedSubscribers:
        """Return the subscribers of a plan that are still where it moved them.

        ``movable`` has the homes of some, which show that even after a restart, when ``came_from`` does not.
        """
        pairs = {(move.home_from, move.home_to) for move in plan.moves}
        came = {name for pair in pairs for name in came_from(*pair)}
        came |= {move.client for move in plan.moves if (movable or {}).get(move.client) == move.home_to}
        return cls(plan.epoch_to, plan.subscribers_moved, tuple(one for one in plan.moves if one.client in came))

    @property
    def names(self) -> frozenset[str]:
        """The subscribers that were moved by name."""
        return frozenset(move.client for move in self.single)

    @property
    def groups(self) -> tuple[HomeMove, ...]:
        """Each pair of brokers between which any moved."""
        single = (HomeMove(move.home_from, move.home_to) for move in self.single)
        return tuple(dict.fromkeys((*self.emptied, *single)))

    def are_reported(self, windows: Sequence[ClosedWindow]) -> bool:
        """Return True if each broker that received any reports parts or delivered nothing."""
        homes = {group.home_to for group in self.groups}
        return all(
            window.parts.are_reported_at(home)
            for window in windows
            for home in homes.intersection(broker for _, broker in window.local_deliveries)
        )

    def publishers(self, windows: Sequence[ClosedWindow]) -> tuple[ClientMove, ...]:
        """Return the moves of what moved clients beside agents publish, by the publishers' names at their new homes."""
        clients = {(client_of(move.client), move.home_to): move.home_from for move in self.single}
        homes = {publisher: home for window in windows for publisher, home in window.homes.items()} if clients else {}
        names = {publisher: (publishing_client(publisher), home) for publisher, home in sorted(homes.items())}
        return tuple(ClientMove(one, clients[at], at[1]) for one, at in names.items() if at in clients)

    def before(self, windows: Sequence[ClosedWindow]) -> Sequence[ClosedWindow]:
        """Return the windows as if the plan had moved nobody; unchanged if moves are not reported."""
        if not self.groups or not self.are_reported(windows):
            return windows
        emptied = {(one.home_to, number_of_moved(self.epoch, one.home_from)): one.home_from for one in self.emptied}
        back = emptied | {(one.home_to, _part_of(one, self.epoch)): one.home_from for one in self.single}
        return [window.with_parts_moved(back) for window in windows]


def _part_of(move: ClientMove, epoch: int) -> int:
    """Return the number of the part in which a moved subscriber is reported."""
    client = client_beside(move.client)
    return number_of_subscriber(client) if client else number_of_moved(epoch, move.home_from)


class FollowedMoves:
    """The groups of subscribers that a plan moved, followed through its proposals one by one.

    Single subscribers with the same two brokers form one group, which counts for the first proposal that moves any.
    """

    def __init__(self, moved: MovedSubscribers) -> None:
        self._epoch = moved.epoch
        self._emptied = {move.home_from: move.home_from for move in moved.emptied}
        self._single = {(_part_of(move, moved.epoch), move.home_from, move.home_to) for move in moved.single}

    def after(self, proposal: Proposal, windows: Sequence[ClosedWindow]) -> Sequence[ClosedWindow]:
        """Return the windows with the groups where the next proposal moves them; the same windows if it moves none."""
        to: dict[PartKey, str] = {}
        targets = {move.home_from: move.home_to for move in proposal.subscribers_moved}
        for first, now in self._emptied.items():
            if now in targets:
                to[now, number_of_moved(self._epoch, first)] = self._emptied[first] = targets[now]
        for move in proposal.moves:
            part = _part_of(move, self._epoch)
            if (part, move.home_from, move.home_to) in self._single:
                self._single.remove((part, move.home_from, move.home_to))
                to[move.home_from, part] = move.home_to
        return [window.with_parts_moved(to) for window in windows] if to else windows
