"""Place every broker on the map: at its real position, or so that brokers near in delay are near on the page.

Without positions in the inventory, classical multidimensional scaling (Torgerson, 1952) of link costs finds the plane
whose distances approximate them best; cost O(brokers^2) for each of the few Lanczos steps. Along each axis, the gaps
are then evened out by half, keeping the order; otherwise a few distant hosts would squeeze all others into one spot.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import eigsh
from scipy.spatial import cKDTree

from regraft.overlay.inventory.inventory import Inventory

MAP_WIDTH, MAP_HEIGHT = 1000.0, 560.0  # About the aspect ratio of the page's map.
SQUEEZE = 0.5  # Distance is cost to this power.
EVENNESS = 0.5  # 0 keeps the gaps along an axis, 1 makes them all equal.
CROWDING_SHARE = 0.62  # Minimum distance of two brokers, as a share of that on an even grid.
STEPS_MAX = 200

Points = NDArray[np.float64]


def place_brokers(inventory: Inventory) -> Points:
    """Return the places, shape (n, 2); deterministic."""
    if inventory.positions is not None:
        points = inventory.positions * (1.0, -1.0)
        return _fit_box(points)
    evened = _even_out(_scale_costs(inventory.link_cost)) * (MAP_WIDTH, MAP_HEIGHT)
    return _fit_box(_separate_crowds(evened))


def _scale_costs(link_cost: Points) -> Points:
    """Return the plane of classical scaling; a circle if there are fewer than four brokers or no link costs."""
    count = len(link_cost)
    if count < 4 or not link_cost.any():
        turns = np.arange(count) * 2 * np.pi / count
        return np.column_stack([np.cos(turns), np.sin(turns)])
    squared = link_cost ** (2 * SQUEEZE)
    means = squared.mean(axis=0)
    gram = -0.5 * (squared - means[:, None] - means[None, :] + means.mean())
    start = np.linspace(-1.0, 1.0, count)  # A fixed start makes the map deterministic.
    values, vectors = eigsh(gram, k=2, which="LA", v0=start)
    order = np.argsort(values)[::-1]
    points = vectors[:, order] * np.sqrt(np.maximum(values[order], 0.0))
    # The sign of an axis is arbitrary, so the outermost broker goes to the right, or to the top.
    furthest = np.abs(points).argmax(axis=0)
    mapped: Points = points * np.sign(points[furthest, (0, 1)] + 1e-300) * (1.0, -1.0)
    return mapped


def _even_out(points: Points) -> Points:
    """Return the points in a unit box, with the gaps along each axis between the original and even ones."""
    size = np.ptp(points, axis=0)
    own = (points - points.min(axis=0)) / np.where(size > 0, size, 1.0)
    even = points.argsort(axis=0).argsort(axis=0) / max(len(points) - 1, 1)
    evened: Points = EVENNESS * even + (1 - EVENNESS) * own
    return evened


def _separate_crowds(points: Points) -> Points:
    """Push apart brokers that would overlap on the map, each no further than necessary."""
    apart = CROWDING_SHARE * float(np.sqrt(MAP_WIDTH * MAP_HEIGHT / len(points)))
    placed = points + np.column_stack([np.cos(np.arange(len(points))), np.sin(np.arange(len(points)))]) * 1e-3
    for _ in range(STEPS_MAX):
        pairs = cKDTree(placed).query_pairs(apart * 0.999, output_type="ndarray")
        if not len(pairs):
            break
        gap = placed[pairs[:, 1]] - placed[pairs[:, 0]]
        length = np.hypot(gap[:, 0], gap[:, 1])[:, None]
        push = gap / np.maximum(length, 1e-9) * (apart - length) * 0.35
        np.subtract.at(placed, pairs[:, 0], push)
        np.add.at(placed, pairs[:, 1], push)
    return placed


def _fit_box(points: Points) -> Points:
    width, height = np.ptp(points, axis=0)
    scale = min(MAP_WIDTH / width if width > 0 else np.inf, MAP_HEIGHT / height if height > 0 else np.inf)
    fitted: Points = (points - points.min(axis=0)) * (scale if np.isfinite(scale) else 1.0)
    return fitted
