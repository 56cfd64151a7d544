"""Compare brokers that decide by themselves (Jaeger07, section 4) with a central planner: decisions, cost, messages.

    python -m regraft_lab.psoop.compare_distributed [--brokers 30] [--seed 1] [--seconds 45] [--all] [--json F]

In: brokers, seed, span. Out: a table and figures. ``--all`` adds a variant for each of the paper's open questions.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from regraft.api.programs import Figure, run_facts, show_progress, write_figures
from regraft_lab.psoop.distributed_messages import MessageKind
from regraft_lab.psoop.distributed_variants import STATIC, VARIANTS, DistributedRun, Scene, run_variant

BROKER_COUNT = 30
SIMULATED_S = 45.0
TABLE_WIDTH = 140  # In a narrower terminal lines wrap, not columns.
DEFAULT_VARIANTS = (STATIC, "distributed", "distributed_fitted_conjunction", "central_ci", "central_cost")
DECIDING = (MessageKind.BROADCAST, MessageKind.PROBE, MessageKind.REQUEST, MessageKind.AGREED, MessageKind.RELEASE)
EXCHANGING = (
    MessageKind.HAND_OVER,
    MessageKind.COMMAND,
    MessageKind.RESULT,
    MessageKind.MARKER,
    MessageKind.SUBSCRIPTION,
)
# Kinds of messages that the table and the figures sum up.
GROUPS = {"deciding": (*DECIDING, MessageKind.REPORT), "exchanging": EXCHANGING}

Where = dict[str, str | int | float]


class UncleanRunError(RuntimeError):
    """Notifications were lost, repeated or reordered, so the figures of the run are meaningless."""


def compare_distributed(
    broker_count: int = BROKER_COUNT,
    seed: int = 1,
    simulated_s: float = SIMULATED_S,
    variants: Sequence[str] = DEFAULT_VARIANTS,
    advance: Callable[[str, int], None] = lambda *_: None,
) -> list[DistributedRun]:
    """Run the variants one after the other; raise UncleanRunError if a ledger is not clean."""
    scene = Scene.of(broker_count, seed)
    runs = []
    for done, variant in enumerate(variants):
        advance(variant, done)
        run = run_variant(scene, variant, simulated_s)
        if not (run.account.final and run.account.is_clean):
            raise UncleanRunError(f"{variant} with seed {seed}: {run.account}")
        runs.append(run)
    advance("done", len(variants))
    return runs


def distributed_figures(
    broker_count: int = BROKER_COUNT,
    seed: int = 1,
    simulated_s: float = SIMULATED_S,
    variants: Sequence[str] = DEFAULT_VARIANTS,
    advance: Callable[[str, int], None] = lambda *_: None,
) -> list[Figure]:
    """Run the variants and return the figures; raise UncleanRunError if a ledger is not clean."""
    return figures_of(compare_distributed(broker_count, seed, simulated_s, variants, advance), seed)


def figures_of(runs: Iterable[DistributedRun], seed: int) -> list[Figure]:
    """Return the figures of runs of one seed."""
    figures = []
    for run in runs:
        where: Where = {
            "variant": run.variant,
            "brokers": run.broker_count,
            "seed": seed,
            "simulated_s": run.simulated_s,
        }
        figures += [
            Figure("psoop_distributed_cost_share", where, round(run.cost_share, 4), "1"),
            Figure("psoop_distributed_cost_share_mean", where, round(run.cost_share_mean, 4), "1"),
            Figure("psoop_distributed_degree_max", where, run.degree_max, "1"),
            Figure("psoop_distributed_exchanged_links", where, run.exchanged, "1"),
            Figure("psoop_distributed_transitions", where, run.transitions, "1"),
            Figure("psoop_distributed_delivered", where, run.account.delivered, "1"),
            Figure("psoop_distributed_lost", where, run.account.lost, "1"),
            Figure("psoop_distributed_repeated", where, run.account.repeated, "1"),
            Figure("psoop_distributed_out_of_order", where, run.account.out_of_order, "1"),
            Figure("psoop_distributed_notification_messages", where, run.notification_messages, "1"),
            Figure("psoop_distributed_notification_bytes", where, run.notification_bytes, "B"),
        ]
        for kind in MessageKind:
            if run.tally.messages[kind]:
                figures += _message_figures(run, where | {"kind": kind.value}, (kind,))
        for group, kinds in GROUPS.items():
            figures += _message_figures(run, where | {"kind": f"all {group}"}, kinds)
        figures += _decision_figures(run, where)
    return figures


def _message_figures(run: DistributedRun, where: Where, kinds: Iterable[MessageKind]) -> list[Figure]:
    messages, size_bytes, cost = _totals(run, kinds)
    return [
        Figure("psoop_distributed_messages", where, messages, "1"),
        Figure(
            "psoop_distributed_messages_per_broker",
            where,
            round(messages / run.broker_count / run.simulated_s, 4),
            "1/s",
        ),
        Figure("psoop_distributed_message_share", where, round(messages / run.notification_messages, 5), "1"),
        Figure("psoop_distributed_bytes", where, size_bytes, "B"),
        Figure("psoop_distributed_byte_share", where, round(size_bytes / run.notification_bytes, 5), "1"),
        Figure("psoop_distributed_message_cost_share", where, round(cost / run.notification_cost, 5), "1"),
    ]


def _decision_figures(run: DistributedRun, where: Where) -> list[Figure]:
    if run.agreement is None:
        return []
    agreement = run.agreement
    figures = [
        Figure("psoop_distributed_agreed", where, run.agreed, "1"),
        Figure("psoop_distributed_agreed_taken_share", where, round(agreement.agreed_taken_share, 4), "1"),
        Figure("psoop_distributed_proposed", where, agreement.proposed, "1"),
        Figure("psoop_distributed_proposed_known", where, agreement.proposed_known, "1"),
        Figure("psoop_distributed_proposed_taken_share", where, round(agreement.proposed_taken_share, 4), "1"),
    ]
    return figures + [
        Figure("psoop_distributed_released", where | {"reason": reason}, count, "1")
        for reason, count in sorted(run.outcomes.items())
    ]


def _totals(run: DistributedRun, kinds: Iterable[MessageKind]) -> tuple[int, int, float]:
    chosen = tuple(kinds)
    return (
        sum(run.tally.messages[kind] for kind in chosen),
        sum(run.tally.bytes[kind] for kind in chosen),
        sum(run.tally.cost[kind] for kind in chosen),
    )


def table_of(runs: Iterable[DistributedRun]) -> Table:
    """Return the runs as a table, one row per variant."""
    table = Table(
        box=box.SIMPLE,
        title="Brokers that decide by themselves, and central planners, on the same traffic",
        caption="Cost: over that of the first tree, last tree and mean of the last traffic. Messages and bytes: over\n"
        "the notifications' on all links. Alike: exchanges that the central rule takes, and the reverse.",
    )
    headings = "variant cost mean degree links plans deciding bytes carrying bytes alike reverse"
    for heading in headings.split():
        table.add_column(heading, justify="left" if heading == "variant" else "right", no_wrap=True)
    for run in runs:
        shares = []
        for kinds in GROUPS.values():
            messages, size_bytes, _ = _totals(run, kinds)
            shares += [f"{messages / run.notification_messages:.1%}", f"{size_bytes / run.notification_bytes:.1%}"]
        agreement = run.agreement
        table.add_row(
            run.variant,
            f"{run.cost_share:.3f}",
            f"{run.cost_share_mean:.3f}",
            str(run.degree_max),
            str(run.exchanged),
            str(run.transitions),
            *shares,
            "" if agreement is None else f"{agreement.agreed_taken} of {agreement.agreed}",
            "" if agreement is None else f"{agreement.proposed_taken} of {agreement.proposed}",
        )
    return table


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--brokers", type=int, default=BROKER_COUNT)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=SIMULATED_S, help="virtual time of each run")
    parser.add_argument("--all", action="store_true", help="every variant")
    parser.add_argument("--json", type=Path, help="file for the figures")
    given = parser.parse_args()
    variants = VARIANTS if given.all else DEFAULT_VARIANTS
    with show_progress("psoop distributed", len(variants)) as advance:
        runs = compare_distributed(given.brokers, given.seed, given.seconds, variants, advance)
    Console(width=max(Console().width, TABLE_WIDTH)).print(table_of(runs))
    if given.json is not None:
        settings = {"brokers": given.brokers, "seconds": given.seconds, "variants": list(variants)}
        write_figures(given.json, run_facts(settings, given.seed), figures_of(runs, given.seed))


if __name__ == "__main__":
    main()
