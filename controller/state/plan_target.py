"""Where a plan leads: the configuration that it intends, as a tree or as a ring. Pure.

In: a plan and the configuration before it. Out: the configuration after it. Whether the plan was carried out is not
known here (:mod:`controller.state.plan_log`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from controller.state.find_homes import homes_after
from overlay.chord_configuration import AnyConfiguration, ChordConfiguration
from overlay.chord_ring import DEFAULT_BITS
from overlay.configuration import Configuration
from schemas.plan import Plan


def target_of(plan: Plan, brokers: Sequence[str], ring_bits: int = DEFAULT_BITS) -> AnyConfiguration:
    """Return the overlay that the plan leads to, without homes; ``ring_bits`` counts only where that is a ring.

    Raises NotATreeError, or on a ring RingError, when what the plan intends is no overlay over these brokers.
    """
    if not plan.ring_target:
        return Configuration.of(plan.epoch_to, brokers, plan.links_target)
    ring = ChordConfiguration.of(plan.epoch_to, ring_bits, {one.broker: one.ring_id for one in plan.ring_target})
    if ring.brokers != tuple(sorted(brokers)):
        raise ValueError(
            f"plan {plan.plan} leads to a ring of {len(ring.brokers)} brokers, which are not the {len(brokers)} of the "
            "inventory: take the inventory that it was made for, or another namespace"
        )
    return ring


def configuration_after(plan: Plan, before: AnyConfiguration) -> AnyConfiguration:
    """Return the configuration that the plan leads to from ``before``, with the homes of all clients moved so far."""
    target = target_of(plan, before.brokers, ring_bits_of(before))
    return with_homes_of(target, before.home_of | homes_after([plan]))


def with_homes_of(configuration: AnyConfiguration, homes: Mapping[str, str]) -> AnyConfiguration:
    """Return the same overlay with exactly these homes."""
    return replace(configuration, homes=tuple(sorted(homes.items())))


def ring_bits_of(configuration: AnyConfiguration) -> int:
    """Return the bits of a ring's IDs; on a tree, where they count for nothing, those of a ring by default."""
    return configuration.bits if isinstance(configuration, ChordConfiguration) else DEFAULT_BITS
