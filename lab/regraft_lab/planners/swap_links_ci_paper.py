"""Swap links by Cost and Interest with what the paper's brokers exchange: bounded caches and Bloom filters.

Source: Jaeger07, sections 4 and 5; "conjunction" is its section 6.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from regraft.api.planners import LocalKnowledge, agreed_swaps, mean_common_interest, rank_swaps
from regraft.api.planning import HorizonSettings, PlannerSpec, TreeContext, TreeState
from regraft.api.records import Proposal
from regraft.api.trees import Paths, TreeConfiguration, paths_within
from regraft_lab.yardsticks.bloom_filters import HASHES_MAX, PAPER_HASHES, FilterShape
from regraft_lab.yardsticks.interest_caches import InterestCaches, newest_ids

PLANNER = "swap_links_ci_paper"


@dataclass(frozen=True)
class InterestSettings(HorizonSettings):
    """What brokers know of common interest."""

    cache_ids_max: Annotated[
        int | None,
        "how many notifications a broker remembers having received, the newest; the paper's 8,192. Default none, all "
        "of the horizon",
    ] = None
    bloom_bits: Annotated[int | None, "bits of the Bloom filters that they exchange, the paper's 100,000"] = None
    bloom_hashes: Annotated[int, "hash functions of these filters, the paper's 5"] = PAPER_HASHES
    path_interest: Annotated[
        Literal["estimate", "conjunction"],
        'common interest of three brokers, the paper\'s "estimate" by the mean over the neighbourhood, or counted as '
        'a "conjunction" of what two of them sent the third, which the paper leaves to future work',
    ] = "estimate"

    @property
    def filter_shape(self) -> FilterShape | None:
        """The shape of the brokers' Bloom filters, None for exact masks."""
        return None if self.bloom_bits is None else FilterShape(self.bloom_bits, self.bloom_hashes)

    def errors(self) -> list[str]:
        """Return what is wrong with the settings, one sentence each."""
        errors = super().errors()
        if self.cache_ids_max is not None and self.cache_ids_max < 1:
            errors.append(f"cache_ids_max is {self.cache_ids_max}: must be at least 1, or none for the whole horizon")
        if self.bloom_bits is not None and self.bloom_bits < 1:
            errors.append(f"bloom_bits is {self.bloom_bits}: must be at least 1, or none for exact masks")
        if not 1 <= self.bloom_hashes <= HASHES_MAX:
            errors.append(f"bloom_hashes is {self.bloom_hashes}: must be from 1 to {HASHES_MAX}")
        if self.path_interest not in ("estimate", "conjunction"):
            errors.append(f"path_interest is {self.path_interest!r}: estimate or conjunction")
        return errors


def swap_links_ci_paper(
    state: TreeState, settings: InterestSettings, context: TreeContext, rng: random.Random
) -> list[Proposal]:
    """Return the swaps on which brokers would agree that know only what their caches and filters hold.

    Source: Jaeger07, sections 4.1 to 4.3. Cost and guarantee are those of ``swap_links_ci``, whose readings hold here,
    too, plus one look-up for each cached identifier and filter.
    """
    paths = paths_within(state.configuration, settings.horizon_hops)
    known = local_knowledge(state, settings, paths)
    return rank_swaps(state, settings.order, context, PLANNER, agreed_swaps(state, context, paths, known), rng)


def local_knowledge(state: TreeState, settings: InterestSettings, paths: Mapping[int, Paths]) -> LocalKnowledge:
    """Return what the brokers know from their caches, in the form that the settings choose.

    ``paths`` is from ``controller.planners.tree.swap_links_ci`` for the settings' horizon.
    """
    counted = settings.path_interest == "conjunction"
    caches = None
    if counted or settings.cache_ids_max is not None or settings.filter_shape is not None:
        caches = interest_caches(state, settings.cache_ids_max, settings.filter_shape)
    interest = state.interest if caches is None else caches.interest
    phi = mean_common_interest(paths, interest)
    inventory = state.inventory
    return LocalKnowledge(inventory.link_cost, inventory.processing_cost, interest, phi, caches if counted else None)


def interest_caches(state: TreeState, ids_max: int | None, shape: FilterShape | None) -> InterestCaches:
    """Return what the brokers remember of the horizon and exchange.

    ``ids_max`` None remembers all of it; ``shape`` None exchanges it exactly instead of as Bloom filters.
    """
    sets = state.sets if ids_max is None else newest_ids(state.window_sets, ids_max)
    return InterestCaches.of_masks(sets) if shape is None else InterestCaches.of_filters(sets, shape)


SPEC = PlannerSpec(
    PLANNER,
    TreeConfiguration.KIND,
    swap_links_ci_paper,
    InterestSettings,
    summary="links of a tree, by cost and common interest from caches and Bloom filters",
    source="Jaeger07, sections 4 to 6",
)
