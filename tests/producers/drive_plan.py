"""A minimal controller: executes one plan phase by phase on a virtual overlay, without failures."""

from __future__ import annotations

import random

from regraft.overlay.overlay_configuration import link
from regraft.overlay.tree.build_tree import cycle_links
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.producers.virtual_overlay import VirtualOverlay
from regraft.schemas.command import Command, CommandPhase, Outcome
from regraft.schemas.plan import ClientMove, HomeMove

PHASES = (
    (CommandPhase.PREPARE, Outcome.PREPARED),
    (CommandPhase.ACTIVATE, Outcome.DRAINED),
    (CommandPhase.RETIRE, Outcome.RETIRED),
)
STEP_MS = 50.0


def drive_plan(
    virtual: VirtualOverlay,
    target: TreeConfiguration,
    moves: tuple[ClientMove, ...] = (),
    wait_ms_max: float = 120_000.0,
    step_ms: float = STEP_MS,
    emptied: tuple[HomeMove, ...] = (),
) -> None:
    """Bring all brokers to ``target``, whose epoch is the next; raise AssertionError if a phase does not end."""
    for phase, outcome in PHASES:
        send_phase(virtual, target, phase, moves, emptied)
        deadline_ms = virtual.now_ms + wait_ms_max
        while not answered(virtual, target, outcome) >= set(target.brokers):
            assert virtual.now_ms < deadline_ms, f"the plan to epoch {target.epoch} is stuck before {outcome}"
            virtual.run_for(step_ms)


def send_phase(
    virtual: VirtualOverlay,
    target: TreeConfiguration,
    phase: CommandPhase,
    moves: tuple[ClientMove, ...] = (),
    emptied: tuple[HomeMove, ...] = (),
) -> None:
    """Send every broker the command of one phase."""
    present = next(iter(virtual.cores.values())).state.tables[target.epoch - 1].configuration
    removed = tuple(sorted(set(present.links) - set(target.links)))
    added = tuple(sorted(set(target.links) - set(present.links)))
    for broker in target.brokers:
        command = Command(
            f"plan-{target.epoch}", phase, broker, present.epoch, target.epoch, removed, added, target.digest, moves,
            subscribers_moved=emptied,
        )  # fmt: skip
        virtual.send_command(command)


def answered(virtual: VirtualOverlay, target: TreeConfiguration, outcome: Outcome) -> set[str]:
    """Return the brokers that have answered with this outcome for the plan to ``target``."""
    plan = f"plan-{target.epoch}"
    return {result.broker for result in virtual.results.results if (result.plan, result.outcome) == (plan, outcome)}


def random_swaps(present: TreeConfiguration, count: int, degree_max: int, rng: random.Random) -> TreeConfiguration:
    """Return the tree of the next epoch with ``count`` random links exchanged under the degree cap."""
    links = set(present.links)
    for _ in range(count):
        tree = TreeConfiguration.of(present.epoch + 1, present.brokers, links)
        roomy = [broker for broker in tree.brokers if len(tree.neighbours[broker]) < degree_max]
        pairs = [link(a, b) for i, a in enumerate(roomy) for b in roomy[i + 1 :] if link(a, b) not in links]
        added = rng.choice(pairs)
        links.remove(rng.choice(cycle_links(tree, added)))
        links.add(added)
    return TreeConfiguration.of(present.epoch + 1, present.brokers, links)
