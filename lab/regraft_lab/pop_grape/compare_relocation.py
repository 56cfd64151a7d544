"""Compare brokers that relocate publishers by themselves, with POP and with GRAPE (Cheung09): overheads and benefits.

    python -m regraft_lab.pop_grape.compare_relocation [--x 1 2 8 32] [--seed 1] [--seconds 240] [--json FILE]

In: X (brokers with subscribers of a publisher), seed, span. Out: tables and figures. ``--all`` adds GRAPE's other
extreme and POP with other averages; ``--triggers`` instead varies the number of notifications traced before a decision,
on the cluster with X = 16, as in section 5.2.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rich import box
from rich.table import Table

from regraft.api.programs import Figure, run_facts, show_progress, write_figures
from regraft_lab.command_parts import table_console
from regraft_lab.pop_grape.distributed_relocation import Settings
from regraft_lab.pop_grape.distributed_runs import (
    NOTIFICATIONS_PER_S,
    STATIC,
    TRIGGERS,
    VARIANTS,
    RelocationRun,
    Scene,
    run_variant,
)
from regraft_lab.pop_grape.distributed_telemetry import TelemetryTally
from regraft_lab.pop_grape.distributed_traces import MessageKind
from regraft_lab.pop_grape.quote_workload import Distribution, QuoteSettings

INTERESTED_BROKERS = (1, 2, 8, 32)
SIMULATED_S = 240.0
DISTRIBUTIONS: tuple[Distribution, ...] = ("clustered", "random")
DEFAULT_VARIANTS = (STATIC, "pop", "load100", "delay100")
TRIGGER_BROKERS = 16  # "subscribers distributed among 16 brokers" (5.2).
PAPER_S = 18 * 60.0  # "18 minutes after all clients are deployed" (5.2).
FULL_CLIENTS = QuoteSettings(publisher_count=8, notifications_per_s=NOTIFICATIONS_PER_S)
QUICK_S = 150.0  # POP first decides after two windows.
QUICK_CLIENTS = QuoteSettings(publisher_count=4, notifications_per_s=NOTIFICATIONS_PER_S)
QUICK_INTERESTED = (1, 16)
QUICK_TRIGGERS = ("load100 G=10", "delay100 G=10", "delay100 G=100", "pop P=10", "pop P=100")
TRIGGER_FAMILIES = ("load100", "delay100", "pop")
TRIGGER_S = 600.0  # Enough for POP's longest round: 200 traces at up to 100 a minute.
# Our reading of the paper's overhead: O(M) messages over the overlay's links, without the subscriptions that a
# migration forwards, which "depends if subscriptions are unique and subscription covering is available" (3.3).
GROUPS: Mapping[str, tuple[MessageKind, ...]] = {
    "tracing": (
        MessageKind.TRACE_RESULT,
        MessageKind.RELOCATION_REQUEST,
        MessageKind.RELOCATION_ANSWER,
        MessageKind.TRACE_REQUEST,
        MessageKind.TRACE_ANSWER,
    ),
    "migrating": (MessageKind.MIGRATION_UPDATE, MessageKind.MIGRATION_COMPLETE),
}
OVERHEAD = (*GROUPS["tracing"], *GROUPS["migrating"])
ON_LINKS = (*OVERHEAD, MessageKind.FORWARDED_SUBSCRIPTION)

Where = dict[str, str | int | float]
Advance = Callable[[str, int], None]


@dataclass(frozen=True, slots=True)
class Comparison:
    """The runs of a comparison: each variant on each X of each distribution."""

    testbed: str
    distributions: tuple[Distribution, ...]
    interested_brokers: tuple[int, ...]
    variants: Mapping[str, Settings]
    simulated_s: float
    settings: QuoteSettings | None = None

    @property
    def run_count(self) -> int:
        """The number of runs."""
        return len(self.distributions) * len(self.interested_brokers) * len(self.variants)


def comparison(
    interested_brokers: Sequence[int] = INTERESTED_BROKERS,
    simulated_s: float = SIMULATED_S,
    variants: Iterable[str] = DEFAULT_VARIANTS,
) -> Comparison:
    """Return the comparison of variants under both distributions of subscribers on PlanetLab."""
    chosen = {name: VARIANTS[name] for name in variants}
    return Comparison("planetlab", DISTRIBUTIONS, tuple(interested_brokers), chosen, simulated_s)


def triggers(simulated_s: float = SIMULATED_S) -> Comparison:
    """Return the experiment with G_threshold and P_threshold, with N as half of the latter (5.2)."""
    return Comparison("cluster", ("clustered",), (TRIGGER_BROKERS,), {STATIC: None, **TRIGGERS}, simulated_s)


def comparisons(size: Literal["quick", "full"]) -> list[Comparison]:
    """Return the comparisons of an evaluation, as independent parts.

    Quick takes half a minute in total; full, which measures after 18 minutes as in the paper, takes about ten.
    """
    is_quick = size == "quick"
    clients, span_s = (QUICK_CLIENTS, QUICK_S) if is_quick else (FULL_CLIENTS, PAPER_S)
    chosen = {name: VARIANTS[name] for name in DEFAULT_VARIANTS}
    results = [
        Comparison("planetlab", (distribution,), (interested_brokers,), chosen, span_s, clients)
        for distribution in DISTRIBUTIONS
        for interested_brokers in (QUICK_INTERESTED if is_quick else INTERESTED_BROKERS)
    ]
    for family in TRIGGER_FAMILIES:
        names = [name for name in (QUICK_TRIGGERS if is_quick else TRIGGERS) if name.startswith(family)]
        varied = {STATIC: None} | {name: TRIGGERS[name] for name in names}
        trigger_s = min(span_s, TRIGGER_S)
        results.append(Comparison("cluster", ("clustered",), (TRIGGER_BROKERS,), varied, trigger_s, clients))
    return results


def compare(wanted: Comparison, seed: int, advance: Advance = lambda *_: None) -> list[RelocationRun]:
    """Run everything, one after the other; raise UncleanRunError if a ledger is not clean.

    Telemetry is measured in the runs of the static overlay, in which nothing moves.
    """
    runs: list[RelocationRun] = []
    for distribution in wanted.distributions:
        for interested_brokers in wanted.interested_brokers:
            scene = Scene.of(interested_brokers, seed, distribution, wanted.testbed, wanted.settings)
            for variant, settings in wanted.variants.items():
                advance(f"{distribution} {interested_brokers} {variant}", len(runs))
                with_telemetry = variant == STATIC
                runs.append(run_variant(scene, variant, settings, wanted.simulated_s, with_telemetry=with_telemetry))
    advance("done", len(runs))
    return runs


# --- figures -----------------------------------------------------------------------------------------------------


def distributed_figures(wanted: Comparison, seed: int, advance: Advance = lambda *_: None) -> list[Figure]:
    """Run everything and return the figures."""
    return figures_of(compare(wanted, seed, advance))


def figures_of(runs: Iterable[RelocationRun]) -> list[Figure]:
    """Return the figures of runs; shares of the static overlay only if it was run with the same clients."""
    ordered = list(runs)
    static = {_scene_key(run): run for run in ordered if run.variant == STATIC}
    figures: list[Figure] = []
    for run in ordered:
        where: Where = {
            "variant": run.variant,
            "testbed": run.scene.testbed,
            "distribution": run.scene.distribution,
            "interested_brokers": run.scene.interested_brokers,
            "seed": run.scene.seed,
            "simulated_s": run.simulated_s,
        }
        figures += _message_figures(run, where) + _outcome_figures(run, where) + _time_figures(run, where)
        if _scene_key(run) in static:
            messages = run.notification_messages + run.tally.totals(ON_LINKS)[0]
            share = messages / static[_scene_key(run)].notification_messages
            figures.append(Figure("pop_grape_distributed_all_messages_share", where, round(share, 4), "1"))
        if run.telemetry is not None:
            figures += _telemetry_figures(run, run.telemetry, where)
    return figures


def _message_figures(run: RelocationRun, where: Where) -> list[Figure]:
    figures = [
        Figure("pop_grape_distributed_notification_messages", where, run.notification_messages, "1"),
        Figure("pop_grape_distributed_notification_bytes", where, run.notification_bytes, "B"),
        Figure("pop_grape_distributed_lost", where, run.account.lost, "1"),
    ]
    shown: dict[str, tuple[MessageKind, ...]] = {f"all {group}": kinds for group, kinds in GROUPS.items()}
    shown |= {"overhead": OVERHEAD} | {kind.value: (kind,) for kind in MessageKind if run.tally.messages[kind]}
    counted = {name: run.tally.totals(kinds)[:2] for name, kinds in shown.items()}
    counted["our transitions"] = (run.transition_tally.messages.total(), run.transition_tally.bytes.total())
    for name, (messages, size_bytes) in counted.items():
        there = where | {"kind": name}
        figures += [
            Figure("pop_grape_distributed_messages", there, messages, "1"),
            Figure("pop_grape_distributed_message_share", there, round(messages / run.notification_messages, 5), "1"),
            Figure("pop_grape_distributed_bytes", there, size_bytes, "B"),
            Figure("pop_grape_distributed_byte_share", there, round(size_bytes / run.notification_bytes, 5), "1"),
        ]
    peaks = run.memory_bytes_max.values()
    return [
        *figures,
        Figure("pop_grape_distributed_memory_bytes_max", where, max(peaks, default=0), "B"),
        Figure("pop_grape_distributed_memory_bytes_mean", where, round(sum(peaks) / max(len(peaks), 1), 1), "B"),
    ]


def _outcome_figures(run: RelocationRun, where: Where) -> list[Figure]:
    before, after = run.before, run.after
    moved = {move.publisher for move, _ in run.moves}
    return [
        Figure("pop_grape_distributed_rate_share", where, round(_share(run, "message_rate_per_s"), 4), "1"),
        Figure("pop_grape_distributed_cost_share", where, round(after.cost_per_s / before.cost_per_s, 4), "1"),
        Figure("pop_grape_distributed_hops_share", where, round(_share(run, "hops"), 4), "1"),
        Figure("pop_grape_distributed_delay_share", where, round(_share(run, "delay_ms"), 4), "1"),
        Figure("pop_grape_distributed_decisions", where, len(run.decisions), "1"),
        Figure("pop_grape_distributed_moves", where, len(run.moves), "1"),
        Figure("pop_grape_distributed_publishers_moved", where, len(moved), "1"),
        Figure("pop_grape_distributed_transitions", where, run.transitions, "1"),
    ]


def _time_figures(run: RelocationRun, where: Where) -> list[Figure]:
    figures = [
        Figure("pop_grape_distributed_first_decision_s", where, round(run.first_decision_s, 3), "s"),
        Figure("pop_grape_distributed_first_moves_s", where, round(run.first_moves_s, 3), "s"),
        Figure("pop_grape_distributed_last_move_s", where, round(run.last_move_s, 3), "s"),
    ]
    if run.decisions:
        spans_ms = [decision.selection_ms for decision in run.decisions]
        asked_ms = [decision.selection_ms - decision.pinged_ms for decision in run.decisions]
        for name, values_ms in (("selection", spans_ms), ("selection_without_pings", asked_ms)):
            mean_ms = sum(values_ms) / len(values_ms)
            figures += [
                Figure(f"pop_grape_distributed_{name}_ms_mean", where, round(mean_ms, 1), "ms"),
                Figure(f"pop_grape_distributed_{name}_ms_max", where, round(max(values_ms), 1), "ms"),
            ]
    if run.moves:
        waits = run.publisher_waits
        carried_ms = [over_ms - move.decided_ms for move, over_ms in run.moves]
        figures += [
            Figure(
                "pop_grape_distributed_publisher_wait_ms_mean", where, round(waits.wait_ms_sum / waits.moved, 1), "ms"
            ),
            Figure("pop_grape_distributed_publisher_wait_ms_max", where, round(waits.wait_ms_max, 1), "ms"),
            Figure("pop_grape_distributed_paper_wait_ms_max", where, round(max(run.paper_waits_ms), 1), "ms"),
            Figure("pop_grape_distributed_move_ms_max", where, round(max(carried_ms), 1), "ms"),
        ]
    return figures


def _telemetry_figures(run: RelocationRun, seen: TelemetryTally, where: Where) -> list[Figure]:
    peaks = seen.memory_bytes_max.values()
    return [
        Figure("pop_grape_telemetry_messages", where, seen.batches, "1"),
        Figure("pop_grape_telemetry_message_share", where, round(seen.batches / run.notification_messages, 5), "1"),
        Figure("pop_grape_telemetry_bytes", where, seen.bytes_whole, "B"),
        Figure("pop_grape_telemetry_byte_share", where, round(seen.bytes_whole / run.notification_bytes, 5), "1"),
        Figure("pop_grape_telemetry_cell_bytes", where, seen.bytes_of_cells, "B"),
        Figure(
            "pop_grape_telemetry_cell_byte_share", where, round(seen.bytes_of_cells / run.notification_bytes, 5), "1"
        ),
        Figure("pop_grape_telemetry_memory_bytes_max", where, max(peaks, default=0), "B"),
        Figure(
            "pop_grape_telemetry_memory_bytes_mean",
            where,
            round(sum(peaks) / len(run.scene.inventory.brokers), 1),
            "B",
        ),
    ]


def _totals(run: RelocationRun) -> tuple[int, int]:
    """Return the messages and bytes of the paper's overhead."""
    messages, size_bytes, _ = run.tally.totals(OVERHEAD)
    return messages, size_bytes


def _share(run: RelocationRun, measure: str) -> float:
    before = float(getattr(run.before, measure))
    return float(getattr(run.after, measure)) / before if before else 1.0


def _scene_key(run: RelocationRun) -> tuple[str, str, int, int]:
    scene = run.scene
    return scene.testbed, scene.distribution, scene.interested_brokers, scene.seed


# --- tables ------------------------------------------------------------------------------------------------------


def table_of(runs: Iterable[RelocationRun]) -> Table:
    """Return the runs as a table, one row per run."""
    table = Table(
        box=box.SIMPLE,
        title="Brokers that relocate publishers by themselves",
        caption="Overhead, bytes: traces, MUM and MCM over the notifications on all links. Plans: messages of our\n"
        "transitions over the same. Rate, cost, hops: last homes over first. First: until decided about,\n"
        "last: until the last move. Memory: traces at the fullest broker. Batches: bytes of windowed telemetry\n"
        "in the static overlay over the notifications'; cells: of its delivery cells.",
    )
    headings = "workload X variant overhead bytes plans rate cost hops moves first last memory batches cells"
    for heading in headings.split():
        justify = "left" if heading in ("workload", "variant") else "right"
        table.add_column(heading, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    for run in runs:
        messages, size_bytes = _totals(run)
        seen = run.telemetry
        table.add_row(
            run.scene.distribution,
            str(run.scene.interested_brokers),
            run.variant,
            f"{messages / run.notification_messages:.1%}",
            f"{size_bytes / run.notification_bytes:.1%}",
            f"{run.transition_tally.messages.total() / run.notification_messages:.1%}",
            *(f"{_share(run, each):.3f}" for each in ("message_rate_per_s", "cost_per_s", "hops")),
            str(len(run.moves)),
            f"{run.first_decision_s:.0f} s",
            f"{run.last_move_s:.0f} s",
            f"{max(run.memory_bytes_max.values(), default=0) / 1000:.1f} kB",
            f"{seen.bytes_whole / run.notification_bytes:.1%}" if seen else "",
            f"{seen.bytes_of_cells / run.notification_bytes:.1%}" if seen else "",
        )
    return table


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--x", type=int, nargs="+", default=list(INTERESTED_BROKERS), help="brokers with subscribers")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=SIMULATED_S, help="virtual time of each run")
    parser.add_argument("--all", action="store_true", help="every variant")
    parser.add_argument("--triggers", action="store_true", help="vary the thresholds instead")
    parser.add_argument("--json", type=Path, help="file for the figures")
    given = parser.parse_args()
    variants = VARIANTS if given.all else DEFAULT_VARIANTS
    wanted = triggers(given.seconds) if given.triggers else comparison(given.x, given.seconds, variants)
    with show_progress("publisher relocation", wanted.run_count) as advance:
        runs = compare(wanted, given.seed, advance)
    table_console().print(table_of(runs))
    if given.json is not None:
        settings = {
            "testbed": wanted.testbed,
            "interested_brokers": list(wanted.interested_brokers),
            "seconds": wanted.simulated_s,
            "variants": list(wanted.variants),
        }
        write_figures(given.json, run_facts(settings, given.seed), figures_of(runs))


if __name__ == "__main__":
    main()
