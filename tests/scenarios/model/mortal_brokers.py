"""Brokers of the model that die: when, what is lost with them, who notices, and what a death excuses.

In: a state. Out: the moves that deaths add, and the states they lead to. A broker may die at any time; its queue and
everything on links to it are lost with it, and what it had sent either arrives or is lost, too. Neighbours notice after
what arrives, and the controller learns of it, each at any time. No client is at home there, and the broker does not
return.

A notification is excused if its path, in the tree that it is stamped with, leads over a dead broker. That is laxer than
the promise: what had crossed the broker before it died is still owed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from regraft.overlay.scot.scot_configuration import ScotConfiguration
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.producers.brokers.broker_messages import Notification
from tests.scenarios.model.kept_account import Pair

DIE, NOTICE, DECLARE = range(3, 6)  # Kinds of moves, after those of the model.
DEAD = -1  # In a state, the number of a core that no longer exists.
EMPTY = 0  # In a state, a channel without messages.


@dataclass(frozen=True)
class PeerGone:
    """A broker's internal message that a neighbour is dead."""

    peer: str


class MortalBrokers:
    """The deaths of one model; ``names`` are the brokers that die, ``homes`` all brokers a client connects to."""

    def __init__(self, model: Any, names: Iterable[str], homes: dict[str, frozenset[str]]) -> None:
        self._model = model
        self._mortals = [model.broker_at[name] for name in names]
        self._homes = homes
        self._facts: dict[int, tuple[frozenset[str], frozenset[str]]] = {}

    # --- what may happen ---------------------------------------------------------------------------------------------

    def moves(self, state: Any, declared: frozenset[str]) -> list[tuple[int, ...]]:
        """Return the moves that are possible because brokers die."""
        found = [(DIE, one) for one in self._deaths(state)] + [(NOTICE, one) for one in self._to_notice(state)]
        return found + [(DECLARE, at) for at in self._dead(state) if self._model.brokers[at] not in declared]

    def _deaths(self, state: Any) -> list[int]:
        """Return who may die now: twice the broker's position, plus one if all that it had sent is lost."""
        living = [at for at in self._mortals if state[self._model.first_core + at] != DEAD]
        return [2 * at + is_cut for at in living for is_cut in (0, 1)]

    def _to_notice(self, state: Any) -> list[int]:
        """Return the channels after which a broker may notice that a neighbour is dead."""
        model, found = self._model, []
        for at in self._dead(state):
            for peer in range(len(model.brokers)):
                number = state[model.first_core + peer]
                if peer == at or number == DEAD:
                    continue
                channel = model.channel_at[model.brokers[at], model.brokers[peer]]
                neighbours, lost = self._facts_of(number)
                is_behind = state[model.first_channel + channel] == EMPTY
                if is_behind and model.brokers[at] in neighbours - lost:
                    found.append(channel)
        return found

    def _dead(self, state: Any) -> list[int]:
        return [at for at in self._mortals if state[self._model.first_core + at] == DEAD]

    def _facts_of(self, number: int) -> tuple[frozenset[str], frozenset[str]]:
        found = self._facts.get(number)
        if found is None:
            core = self._model.cores.copy_of(number)
            found = self._facts[number] = frozenset(core.live_neighbours), frozenset(core.state.lost_peers)
        return found

    # --- what it leads to --------------------------------------------------------------------------------------------

    def die(self, after: list[int], move: int) -> None:
        """Let a broker die in a state under construction."""
        model, broker, is_cut = self._model, move // 2, move % 2 == 1
        after[model.first_core + broker] = DEAD
        for at, (source, goal) in enumerate(model.channels):
            if goal == model.brokers[broker] or (is_cut and source == model.brokers[broker]):
                after[model.first_channel + at] = EMPTY

    def excused(self, state: Any, owed: Iterable[Pair], trees: Iterable[TreeConfiguration]) -> frozenset[Pair]:
        """Return what is no longer owed in one of these trees."""
        dead = frozenset(self._model.brokers[at] for at in self._dead(state))
        return frozenset(one for one in owed for home in self._homes[one[1]] if self._is_cut(home, one[0], dead, trees))

    def excused_from(
        self, state: Any, home: str, notification: Notification, tree: TreeConfiguration
    ) -> frozenset[Pair]:
        """Return the deliveries of a notification just stamped that are not owed."""
        dead = frozenset(self._model.brokers[at] for at in self._dead(state))
        subscriptions = (name for name in self._homes if name[0] in "st")
        key = notification.publisher, notification.sequence
        return frozenset((name, *key) for name in subscriptions if dead and self._is_cut(home, name, dead, (tree,)))

    def _is_cut(self, home: str, subscription: str, dead: frozenset[str], trees: Iterable[TreeConfiguration]) -> bool:
        ends = [(home, to) for to in self._homes[subscription]]
        ways = [(tree, way) for tree in trees for way in ends if {*way} <= {*tree.brokers}]
        return any(not dead.isdisjoint(_path(tree, *way)) for tree, way in ways)


def _path(overlay: TreeConfiguration | ScotConfiguration, start: str, end: str) -> Sequence[str]:
    return overlay.path(start, end) if isinstance(overlay, TreeConfiguration) else overlay.static_route(start, end)
