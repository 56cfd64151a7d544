"""Sequences of swaps of a tree's links: find one for an exchange of links, and move a tree's costs along them.

In: costs of a tree and links or swaps. Out: swaps, and the same costs elsewhere. Pricing a swap belongs to
:mod:`overlay.tree.tree_costs`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from regraft.overlay.overlay_configuration import Link
from regraft.overlay.tree.tree_configuration import NotATreeError
from regraft.overlay.tree.tree_costs import LinkSwap, TreeCosts
from regraft.schemas.arrays import Floats

COPY_BYTES_MAX = 1 << 24  # Below it a copy costs less than undoing the swaps of a plan.


def as_swaps(costs: TreeCosts, removed: Iterable[Link], added: Iterable[Link]) -> tuple[LinkSwap, ...]:
    """Return swaps that, made in order on ``costs``, exchange the links; ``costs`` is left unchanged.

    Raises NotATreeError if the numbers of links differ or the exchange does not leave a tree. A single swap is returned
    unchecked.
    """
    going, coming = set(removed), list(added)
    if len(going) != len(coming):
        raise NotATreeError(
            f"{len(going)} links are removed and {len(coming)} added, but a tree keeps its number of links"
        )
    if len(coming) == 1:
        return (LinkSwap(going.pop(), coming[0]),)
    trial, swaps = SwapCursor(costs), []
    try:
        for new in coming:
            # If the result is a tree, the cycle of each new link has at least one link to remove.
            usable = sorted(going.intersection(costs.cycle(new)))
            swaps.append(LinkSwap(usable[0] if usable else min(going), new))
            trial.go_to(swaps)
            going.remove(swaps[-1].removed)
    finally:
        trial.go_to(())
    return tuple(swaps)


class SwapCursor:
    """A tree that moves back and forth along sequences of swaps: as good as a copy, at the cost of a swap.

    Going back is exact: counts are integers, and the cost, which is not, is saved.
    """

    def __init__(self, tree: TreeCosts) -> None:
        self.tree = tree
        self._made: list[tuple[LinkSwap, Floats]] = []

    def go_to(self, swaps: Sequence[LinkSwap]) -> TreeCosts:
        """Return the tree after these swaps, made in order on the initial tree.

        Raises NotATreeError like :meth:`TreeCosts.apply`; the tree is then in the state before the impossible swap.
        """
        same = 0
        while same < min(len(self._made), len(swaps)) and self._made[same][0] == swaps[same]:
            same += 1
        while len(self._made) > same:
            swap, costs = self._made.pop()
            self.tree.undo(swap, costs)
        for swap in swaps[same:]:
            costs = self.tree.costs_by_span
            self.tree.apply(swap)
            self._made.append((swap, costs))
        return self.tree


@contextmanager
def lent_costs(
    costs: TreeCosts, copy_bytes_max: int = COPY_BYTES_MAX
) -> Iterator[tuple[TreeCosts, list[tuple[LinkSwap, Floats]]]]:
    """Lend costs to make swaps on, and a list for each swap with the costs by span before it.

    Small costs are copied; large ones are lent themselves, and the listed swaps undone in the end.
    """
    made: list[tuple[LinkSwap, Floats]] = []
    if costs.side.nbytes <= copy_bytes_max:
        yield costs.copy(), made
        return
    try:
        yield costs, made
    finally:
        for swap, before in reversed(made):
            costs.undo(swap, before)
