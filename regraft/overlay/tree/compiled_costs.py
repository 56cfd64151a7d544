"""The compiled inner loops of tree costs, if numba is installed: several times faster, with the same results.

Out: kernels for a tree's costs, or None where the numpy code has to do. Nothing is compiled on first use: who wants
kernels prepares them, which takes seconds the first time on a machine, so set-up does it. The loops themselves are in
:mod:`overlay.tree.compiled_kernels`, :mod:`overlay.tree.compiled_tree` and :mod:`overlay.tree.compiled_annealing`, the
places of compiled code in :mod:`overlay.tree.kept_code`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.sets.span_sets import SpanSets
from regraft.overlay.sets.weighted_sets import WeightedSets
from regraft.schemas.arrays import Floats, Places, Words

KERNELS_MODULE = "regraft.overlay.tree.compiled_kernels"
TREE_MODULE = "regraft.overlay.tree.compiled_tree"
ANNEALING_MODULE = "regraft.overlay.tree.compiled_annealing"
PLACES_MODULE = "regraft.overlay.tree.kept_code"


@dataclass(frozen=True, eq=False)
class Kernels:
    """The compiled functions, described in the modules that hold them."""

    best_links: Callable[..., tuple[Floats, Places]]
    count_steps: Callable[..., tuple[Floats, Floats]]
    fill_tree: Callable[..., None]
    update_line: Callable[..., None]
    passing_each: Callable[..., Floats]
    sides_of: Callable[..., tuple[Words, Words]]
    anneal_links: Callable[..., tuple[Places, float, int]]


class _Prepared:
    """The kernels of this process, None until they are prepared."""

    kernels: Kernels | None = None


def prepare_compiled() -> str:
    """Compile the kernels, or load what was compiled before; return why they are not available, empty if they are.

    Costs some 19 s of processor time and 280 MB the first time on a machine, 0.7 s and 130 MB later. It may run in a
    thread: until it is done, new tree costs use numpy.
    """
    if _Prepared.kernels is not None:
        return ""
    try:
        kernels, tree, annealing = map(importlib.import_module, (KERNELS_MODULE, TREE_MODULE, ANNEALING_MODULE))
    except Exception as error:  # Whatever numba and its compiler raise: numpy does the same, only slower.
        return f"{type(error).__name__}: {error}"
    if directory := kernels.best_links.stats.cache_path:
        importlib.import_module(PLACES_MODULE).mark_complete(Path(directory))
    of_trees = kernels.best_links, kernels.count_steps, kernels.fill_tree, kernels.update_line
    _Prepared.kernels = Kernels(*of_trees, tree.passing_each, tree.sides_of, annealing.anneal_links)
    return ""


def find_compiled() -> Path | None:
    """Return the directory from which a process would load the kernels; None if it would compile them, or cannot."""
    try:
        places: Any = importlib.import_module(PLACES_MODULE)
    except (ImportError, AttributeError):  # Without numba, or with one that is built otherwise.
        return None
    directory: Path | None = places.find_kept_code()
    return directory


def prepared_kernels() -> Kernels | None:
    """Return the kernels if they are prepared."""
    return _Prepared.kernels


def kernels_for(inventory: Inventory, sets: WeightedSets | SpanSets) -> Kernels | None:
    """Return the kernels if they are prepared and give exactly the results of the numpy code for these arrays."""
    arrays: tuple[tuple[NDArray[np.generic], type[np.generic]], ...] = (
        (inventory.link_cost, np.float64),
        (inventory.processing_cost, np.float64),
        (sets.words, np.uint64),
    )
    if _Prepared.kernels is None or sets.whole is None:
        return None
    return _Prepared.kernels if all(one.dtype == kind and one.flags.c_contiguous for one, kind in arrays) else None
