"""Slots of a structured cyclic overlay and links between its regions, as encoded in plans and commands.

A slot encodes region and cluster as one number, which uses the field that plans of a ring have for IDs; links between
regions use the field that plans of a tree have for links. So a plan needs no extra field for this kind. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import zip_longest

from regraft.overlay.scot.structured_cyclic import OverlayShapeError
from regraft.schemas.plan import CLUSTERS_MAX, OFF_RING, IdMove, LinkPair, slot_text

REGION = "region "

Regions = tuple[tuple[str, ...], ...]
Slots = Mapping[int, str]  # The broker at each slot.


def slots_of(regions: Regions) -> dict[int, str]:
    """Return the broker at each slot."""
    return {
        number * CLUSTERS_MAX + cluster: broker
        for number, region in enumerate(regions)
        for cluster, broker in enumerate(region)
    }


def regions_of(slots: Slots) -> Regions:
    """Return the regions that the slots form. Raises OverlayShapeError if a slot is missing."""
    count = 1 + max((slot // CLUSTERS_MAX for slot in slots), default=0)
    clusters = 1 + max((slot % CLUSTERS_MAX for slot in slots), default=0)
    wanted = [number * CLUSTERS_MAX + cluster for number in range(count) for cluster in range(clusters)]
    if missing := [slot_text(slot) for slot in wanted if slot not in slots]:
        others = f", and {len(missing) - 1} more have none either" if len(missing) > 1 else ""
        raise OverlayShapeError(f"no broker would have the slot of {missing[0]}{others}")
    row = range(clusters)
    return tuple(tuple(slots[number * CLUSTERS_MAX + cluster] for cluster in row) for number in range(count))


def moved_slots(slots: Slots, id_moves: Iterable[IdMove]) -> dict[int, str]:
    """Return the slots after the moves.

    Raises ValueError if a broker gives up a slot that it does not have, or gets one that is taken.
    """
    moved, moves = dict(slots), list(id_moves)
    for move in moves:
        if move.id_from == OFF_RING:
            continue
        if moved.pop(move.id_from, "") != move.broker:
            raise ValueError(
                f"{move.broker} must give up the slot of {slot_text(move.id_from)}, which it does not have"
            )
    for move in moves:
        if move.id_to == OFF_RING:
            continue
        if move.id_to in moved:
            raise ValueError(f"{move.broker} must get the slot of {slot_text(move.id_to)}, which is taken")
        moved[move.id_to] = move.broker
    return moved


def id_moves_between(before: Slots, after: Slots) -> tuple[IdMove, ...]:
    """Return the slots that brokers give up and get; OFF_RING if a broker only gives one up or only gets one."""
    given: dict[str, list[int]] = {}
    got: dict[str, list[int]] = {}
    for slot in sorted({*before, *after}):
        old, new = before.get(slot), after.get(slot)
        if old != new:
            if old is not None:
                given.setdefault(old, []).append(slot)
            if new is not None:
                got.setdefault(new, []).append(slot)
    pairs = (
        IdMove(broker, was, becomes)
        for broker in {*given, *got}
        for was, becomes in zip_longest(given.get(broker, ()), got.get(broker, ()), fillvalue=OFF_RING)
    )
    return tuple(sorted(pairs))


def region_link_names(region_links: Iterable[tuple[int, int]]) -> tuple[LinkPair, ...]:
    """Return links between regions as names instead of numbers, sorted."""
    return tuple(sorted((f"{REGION}{one}", f"{REGION}{other}") for one, other in region_links))


def region_links_of(names: Iterable[LinkPair]) -> tuple[tuple[int, int], ...]:
    """Return the links that :func:`region_link_names` named. Raises OverlayShapeError if a name is not a region."""
    try:
        pairs = [tuple(sorted(int(name.removeprefix(REGION)) for name in pair)) for pair in names]
    except ValueError as error:
        raise OverlayShapeError(f"links of a structured cyclic overlay join regions: {error}") from error
    return tuple(sorted((one, other) for one, other in pairs))
