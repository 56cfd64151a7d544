"""Settings renamed since earlier versions, and the translation of recordings that use old names.

In: a name, or recorded tables. Out: a sentence, or the same tables with the present names. Users of an old name get an
error with the new one; recordings with old names are still read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_SWAPPING = ("swap_links_ci", "swap_links_ci_paper", "swap_links_lmst", "swap_links_lmit")
_CACHES = ("cache_ids_max", "bloom_bits", "bloom_hashes", "path_interest")
_GRAPE = ("relocate_publisher_grape", "relocate_publishers_joint")
_REASSIGNING = ("reassign_ids_ssbr", "reassign_ids_assignment")

# Settings that were controller.X and are now planners.NAME.X.
TO_PLANNERS: Mapping[str, tuple[str, ...]] = {
    "horizon_hops": _SWAPPING,
    **dict.fromkeys(_CACHES, ("swap_links_ci_paper",)),
    "grape_priority": ("relocate_publisher_grape",),
    **dict.fromkeys(("grape_weight", "grape_notifications_min", "link_delays"), _GRAPE),
    **dict.fromkeys(("pop_traces_min", "pop_traces_max", "pop_window_s"), ("relocate_publisher_pop",)),
    "delay_weight": ("relocate_publishers_joint",),
    **dict.fromkeys(("ring_free_s", "ring_demand_share_min"), _REASSIGNING),
    **dict.fromkeys(
        ("user_load_weight", "user_cluster_brokers", "user_utility_min", "users_moved_max"), ("place_users_dynatops",)
    ),
}

# Settings that have another full name now.
RENAMED: Mapping[str, str] = {
    "demo.horizon_lifetimes": "controller.horizon_lifetimes",
    **{f"planners.swap_links_ci.{name}": f"planners.swap_links_ci_paper.{name}" for name in _CACHES},
    **{
        f"planners.{planner}.looks_max": f"planners.{planner}.evaluations_max"
        for planner in ("exchange_places_scot", "link_regions_scot", "pack_drop")
    },
}


def moved_to(full_name: str) -> str:
    """Return the planners' settings that replace one such as ``controller.ring_free_s``, as text; empty if none do."""
    section, _, name = full_name.partition(".")
    planners = TO_PLANNERS.get(name, ()) if section == "controller" else ()
    return " and ".join(f"planners.{planner}.{name}" for planner in planners)


def with_new_names(recorded: Mapping[str, Any]) -> dict[str, Any]:
    """Return recorded settings with old names replaced by the new ones.

    Recordings from before ``controller.recent_lifetimes`` get 0, which is how controllers then decided.
    """
    kept = dict(recorded.get("controller", {}))
    planners = {name: dict(values) for name, values in recorded.get("planners", {}).items()}
    for name in [name for name in kept if name in TO_PLANNERS]:
        value = kept.pop(name)
        for planner in TO_PLANNERS[name]:
            planners.setdefault(planner, {}).setdefault(name, value)
    renamed: dict[str, dict[str, Any]] = {planner: {} for planner in planners}
    for planner, values in planners.items():
        for name, value in values.items():
            full_name = f"planners.{planner}.{name}"
            _, to, new_name = RENAMED.get(full_name, full_name).split(".")
            renamed.setdefault(to, {})[new_name] = value
    if "horizon_lifetimes" in kept:
        kept.setdefault("recent_lifetimes", 0.0)
    named = {"controller": kept} if "controller" in recorded else {}
    if "demo" in recorded:
        named["demo"] = {name: value for name, value in recorded["demo"].items() if f"demo.{name}" not in RENAMED}
    return {**recorded, **named, **({"planners": renamed} if renamed else {})}
