"""The shortest controller that can be: drives one plan through its phases on a virtual overlay, without failures."""

from __future__ import annotations

import random

from overlay.configuration import Configuration, link
from overlay.tree import cycle_links
from producers.virtual_overlay import VirtualOverlay
from schemas.command import Command, CommandPhase, Outcome

PHASES = (
    (CommandPhase.PREPARE, Outcome.PREPARED),
    (CommandPhase.ACTIVATE, Outcome.DRAINED),
    (CommandPhase.RETIRE, Outcome.RETIRED),
)
STEP_MS = 50.0


def swap_links(virtual: VirtualOverlay, target: Configuration, wait_ms_max: float = 120_000.0) -> None:
    """Bring all brokers to ``target``, whose epoch is the next; raise AssertionError when a phase does not end."""
    present = next(iter(virtual.cores.values())).tables[target.epoch - 1].configuration
    removed = tuple(sorted(set(present.links) - set(target.links)))
    added = tuple(sorted(set(target.links) - set(present.links)))
    plan = f"plan-{target.epoch}"
    for phase, outcome in PHASES:
        for broker in target.brokers:
            virtual.send_command(
                Command(plan, phase, broker, present.epoch, target.epoch, removed, added, target.digest)
            )
        deadline_ms = virtual.now_ms + wait_ms_max
        while not _answered(virtual, plan, outcome) >= set(target.brokers):
            assert virtual.now_ms < deadline_ms, f"{plan} is stuck before {outcome}"
            virtual.run_for(STEP_MS)


def _answered(virtual: VirtualOverlay, plan: str, outcome: Outcome) -> set[str]:
    return {result.broker for result in virtual.results.results if (result.plan, result.outcome) == (plan, outcome)}


def random_swaps(present: Configuration, count: int, degree_max: int, rng: random.Random) -> Configuration:
    """Return the tree of the next epoch with this many random links exchanged under the degree cap."""
    links = set(present.links)
    for _ in range(count):
        tree = Configuration.of(present.epoch + 1, present.brokers, links)
        roomy = [broker for broker in tree.brokers if len(tree.neighbours[broker]) < degree_max]
        pairs = [link(a, b) for i, a in enumerate(roomy) for b in roomy[i + 1 :] if link(a, b) not in links]
        added = rng.choice(pairs)
        links.remove(rng.choice(cycle_links(tree, added)))
        links.add(added)
    return Configuration.of(present.epoch + 1, present.brokers, links)
