"""Settings of 0.2.0: which were renamed, and which are constants now.

In: a name, or tables as given or recorded. Out: a sentence, or the same tables with the present names. A renamed
setting is accepted for one release, with a warning; a fixed one is an error that says what holds. Recordings
with any of them are still read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from regraft.producers.workloads.field_texts import EMULATOR_TEXTS, WORKLOAD_TEXTS

_CACHES = ("cache_ids_max", "bloom_bits", "bloom_hashes", "path_interest")

# Settings that named a variable of the environment, which the file's setting now names as env:NAME.
_VARIABLES = tuple(
    f"{server}.security.{name}_variable" for server in ("kafka", "redis") for name in ("password", "key_password")
)
# Settings that are words of one text now.
_TEXTS = {"emulator": EMULATOR_TEXTS, "emulator.workload": WORKLOAD_TEXTS}
_SERVING = ("emulator", "node", "streaming", "controller", "alerts")

# Settings that have another full name now; from before 0.3.0, to be dropped in the release after it.
RENAMED: Mapping[str, str] = {
    **{f"node.door{rest}": f"node.connector{rest}" for rest in ("", "_user", "_password_file")},
    "demo.shadow_planners": "controller.shadow_planners",
    **{f"{stage}.metrics_host": "run.metrics_host" for stage in _SERVING},
    **{old: old.replace("_variable", "_file") for old in _VARIABLES},
    **{f"planners.swap_links_ci.{name}": f"planners.swap_links_ci_paper.{name}" for name in _CACHES},
}

# Settings that are constants since 0.3.0, with their values; a test compares these with the code. The comment at each
# constant says why nobody needs another value.
FIXED: Mapping[str, Any] = {
    "demo.regime_change_share": 0.5,
    "emulator.workload.popularity_sigma": 0.5,
    "emulator.workload.regime_change_factor": 20.0,
    "emulator.checkins.user_count": 1_225,
    "emulator.checkins.notifications_per_s": 150.0,
    "emulator.checkins.friend_count": 4,
    "emulator.checkins.days_per_s": 0.15,
    "emulator.checkins.grid_rows": 12,
    "emulator.checkins.grid_columns": 10,
    "emulator.checkins.linger_days": 14.0,
    "emulator.checkins.connect_spread_s": 5.0,
    "demo.drain_s_max": 60.0,
    "emulator.flush_ms": 250.0,
    "emulator.settle_s": 300.0,
    "emulator.sample_counts_s": 5,
    "emulator.control_service_ms": 0.05,
    "emulator.queue_length_max": 10_000,
    "emulator.command_poll_ms": 20.0,
    "emulator.kafka_outage_s_max": 600.0,
    "emulator.kafka_buffer_records_max": 500_000,
    "emulator.chaos_down_share_max": 0.25,
    "emulator.drain_s_max": 60.0,
    "emulator.candidate_probes_per_s": 40.0,
    "emulator.workload.regime_change_for_s": 60.0,
    "controller.decision.mute_ms": 300_000,
    "controller.decision.pay_back_lifetimes": 4.0,
    "controller.decision.window_age_ms_max": 60_000,
    "controller.decision.moves_per_plan_max": 24,
    "planners.place_users_dynatops.user_load_weight": 1.0,
    "planners.place_users_dynatops.users_moved_max": 500,
    "emulator.outage_notice_ms": 2_000.0,
    "emulator.sample_run": 4,
    "node.flush_ms": 250.0,
    "node.command_poll_ms": 20.0,
    "node.link_bytes_max": 67_108_864,
    "node.link_silence_ms_max": 5_000.0,
    "node.kafka_outage_s_max": 600.0,
    "node.kafka_buffer_records_max": 100_000,
    "node.sample_run": 4,
    "node.sample_counts_s": 5,
    "streaming.telemetry_topic": "",
    "streaming.trigger_ms": 50,
    "streaming.past_ms_max": 3_600_000,
    "streaming.silence_ms_max": 180_000,
    "streaming.pause_ms_max": 1_000,
    "streaming.read_partitions_min": 0,
    "streaming.write_timeout_ms": 60_000,
    "controller.quiet_windows_per_change": 2_000.0,
    "controller.decision.cool_down_windows": 0,
    "controller.horizon_windows_min": 2,
    "controller.horizon_windows_max": 60,
    "controller.recent_lifetimes": 1.0,
    "controller.proposals_max": 16,
    "controller.ring_delay_weight": 1.0,
    "controller.verify_windows": 2,
    "controller.verify_ms_max": 120_000,
    "controller.lookback_ms": 300_000,
    "controller.stop_ms_max": 15_000,
    "controller.tick_ms": 100,
    "controller.status_ms": 1_000,
    "controller.decision.tabu_lifetimes": 2.0,
    "controller.decision.change_share_min": 0.0005,
    "controller.decision.change_noise_factor": 1.0,
    "controller.decision.broker_congestion_max": 10.0,
    "controller.decision.link_congestion_max": 100.0,
    "controller.decision.queue_wait_ms_max": 1_000.0,
    "controller.assembly.completeness_share_min": 0.95,
    "controller.assembly.future_ms_max": 600_000,
    "controller.assembly.rows_wait_ms": 10_000,
    "controller.assembly.windows_pending_max": 64,
    "controller.assembly.rows_per_window_max": 500_000,
    "controller.transition.prepare_ms": 20_000,
    "controller.transition.activate_ms": 20_000,
    "controller.transition.drain_ms": 60_000,
    "controller.transition.retire_ms": 20_000,
    "controller.transition.resend_ms": 2_000,
    "controller.members.return_pause_ms": 5_000,
    "controller.members.return_pause_ms_max": 600_000,
    "controller.members.batch_ms": 2_000,
    "controller.members.drain_ms_max": 600_000,
    "controller.members.retry_ms": 5_000,
    "controller.members.retry_ms_max": 120_000,
    "controller.members.announced_max": 20,
    "controller.members.come_ms_max": 600_000,
    "controller.links.correction_share_min": 0.25,
    "controller.links.drift_share_max": 0.15,
    "controller.sampling.delay_windows_max": 3.0,
    "controller.sampling.calm_windows": 12,
    "alerts.timeout_s": 5.0,
    "alerts.attempts_max": 4,
    "alerts.backoff_s": 1.0,
    "alerts.backoff_s_max": 10.0,
    "alerts.queue_max": 100,
    "alerts.resume_ms_max": 3_600_000,
    "alerts.tick_ms": 200,
    "alerts.status_ms": 1_000,
    "alerts.stop_ms_max": 15_000,
    "dashboard.poll_ms": 1_000,
    "dashboard.answer_ms_max": 800,
    "dashboard.stale_ms": 5_000,
    "dashboard.clients_max": 64,
    "dashboard.clients_per_address_max": 16,
    "dashboard.token_hours_max": 24.0,
    "dashboard.windows_max": 2_000,
    "recordings.block_mb_max": 64,
    "recordings.overlap_mb_max": 1_024,
    "planners.search_overlay_cost.search_words_max": 1_000_000_000,
    "planners.search_overlay_cost.escape_words_max": 100_000_000,
    "planners.pack_drop.evaluations_max": 24,
    "planners.pack_drop.saving_share_min": 0.0005,
    "planners.pack_drop.single_max": 8,
    "planners.pack_drop.search_words_max": 500_000_000,
    "planners.pack_drop.escape_words_max": 50_000_000,
    "planners.swap_links_cost.search_words_max": 4_000_000_000,
    "planners.swap_links_cost.escape_words_max": 30_000_000,
    "planners.swap_links_ci.order": "gain",
    "planners.relocate_publisher_pop.order": "gain",
    "planners.relocate_publisher_grape.order": "gain",
    "planners.relocate_publisher_grape.grape_weight": 100,
    "planners.relocate_publisher_grape.grape_priority": "load",
    "planners.relocate_publisher_grape.link_delays": False,
    "planners.relocate_publishers_joint.grape_weight": 100,
    "planners.relocate_publishers_joint.link_delays": False,
    "planners.relocate_publisher_pop.pop_traces_min": 100,
    "planners.relocate_publisher_pop.pop_traces_max": 50,
    "planners.relocate_publisher_pop.pop_window_s": 60.0,
    "planners.relocate_publisher_grape.grape_notifications_min": 100,
    "planners.relocate_publishers_joint.grape_notifications_min": 100,
    "planners.reassign_ids_ssbr.ring_demand_share_min": 0.1,
    "planners.reassign_ids_assignment.ring_demand_share_min": 0.1,
    "planners.relieve_links_scot.congested_windows": 6,
    "planners.relieve_links_scot.relief_share_min": 0.2,
    "planners.exchange_places_scot.exchanges_max": 6,
    "planners.exchange_places_scot.evaluations_max": 2_000,
    "planners.exchange_places_scot.gain_share_min": 0.005,
    "planners.link_regions_scot.exchanges_max": 2,
    "planners.link_regions_scot.evaluations_max": 1_000,
    "planners.link_regions_scot.gain_share_min": 0.005,
}

FIXED_SINCE = "0.3.0"
_UNITS = ("ms", "s", "days", "windows", "lifetimes")


def fixed_text(full_name: str) -> str:
    """Return what now holds instead of a former setting, such as "fixed at 5 s since 0.3.0"; empty if nothing does."""
    if full_name not in FIXED:
        return ""
    value = FIXED[full_name]
    words = full_name.rpartition(".")[2].removesuffix("_max").removesuffix("_min").split("_")
    has_unit = words[-1] in _UNITS and "per" not in words and value is not None
    unit = f" {words[-1]}" if has_unit else ""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    shown = f"{value:,g}" if is_number else "none" if value in (None, "") else str(value).lower()
    return f"fixed at {shown}{unit} since {FIXED_SINCE}"


def with_renamed(tables: Mapping[str, Any], warn: Callable[[str, str], None]) -> dict[str, Any]:
    """Return given tables with renamed settings under their new names, after a warning for each.

    If both names are given, or two old ones with different values, the old one stays, so that it is an error.
    """
    named, made = _copied(tables), set[str]()
    for old, new in RENAMED.items():
        *path, name = old.split(".")
        *new_path, new_name = new.split(".")
        table = _table(named, path, is_made=False)
        if table is None or name not in table:
            continue
        target = _table(named, new_path, is_made=True)
        is_alike = new in made and target is not None and target[new_name] == table[name]
        if target is not None and (is_alike or new_name not in target):
            target[new_name] = renamed_value(old, table.pop(name))
            made.add(new)
            warn(old, new)
    return named


def renamed_value(old: str, value: Any) -> Any:
    """Return what a renamed setting's value is under its new name."""
    return f"env:{value}" if old in _VARIABLES and value not in (None, "none") else value


def _copied(tables: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _copied(value) if isinstance(value, Mapping) else value for name, value in tables.items()}


def _table(tables: dict[str, Any], path: list[str], is_made: bool) -> dict[str, Any] | None:
    """Return the table at a path; without one, None or a new one."""
    for part in path:
        inner = tables.setdefault(part, {}) if is_made else tables.get(part)
        if not isinstance(inner, dict):
            return None
        tables = inner
    return tables


def text_with(full_name: str) -> tuple[str, str] | None:
    """Return the setting whose text holds a former one, and an example of that text; None if none does."""
    if full_name == "alerts.quiet_below":
        return "alerts.quiet_hours", "22:00-07:00 Europe/Berlin below warning"
    for section, forms in _TEXTS.items():
        for name, form in forms.items():
            if full_name in [f"{section}.{field}" for field in form.field_names()]:
                return f"{section}.{name}", form.example
    return None


def _with_texts(emulator: Mapping[str, Any]) -> dict[str, Any]:
    """Return the emulator's recorded settings with texts in place of the fields that they give now."""
    changed = {**emulator, "workload": dict(emulator.get("workload", {}))}
    for table, forms in ((changed, EMULATOR_TEXTS), (changed["workload"], WORKLOAD_TEXTS)):
        for name, form in forms.items():
            former = {field: table.pop(field) for field in form.field_names() if field in table}
            if former and (text := form.text(former)):
                table[name] = text
    return changed


def with_new_names(recorded: Mapping[str, Any]) -> dict[str, Any]:
    """Return recorded settings with old names replaced by the new ones."""
    planners = recorded.get("planners", {})
    renamed: dict[str, dict[str, Any]] = {planner: {} for planner in planners}
    for planner, values in planners.items():
        for name, value in values.items():
            full_name = f"planners.{planner}.{name}"
            _, to, new_name = RENAMED.get(full_name, full_name).split(".")
            renamed.setdefault(to, {})[new_name] = value
    named: dict[str, Any] = {}
    if "emulator" in recorded:
        named["emulator"] = _with_texts(recorded["emulator"])
    if "demo" in recorded:
        named["demo"] = {name: value for name, value in recorded["demo"].items() if f"demo.{name}" not in RENAMED}
    return {**recorded, **named, **({"planners": renamed} if renamed else {})}
