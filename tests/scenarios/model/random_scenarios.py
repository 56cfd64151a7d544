"""Random scenarios, for orders of events that the tables do not cover; equal seeds give equal scenarios.

In: a seed. Out: a scenario of two or three brokers, few clients and one or two plans. A random scenario that shows a
fault belongs in the tables, in its smallest form.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from regraft.overlay.ring.chord_configuration import RingConfiguration
from regraft.overlay.tree.build_tree import cycle_links, random_tree
from regraft.overlay.tree.configuration import TreeConfiguration
from tests.scenarios.model.plain_controller import PlannedChange, plan
from tests.scenarios.model.scripted_scenario import BITS, Scenario, topic_at

STEPS_MAX = 4  # Of all clients together, in addition to those taken before the search begins.


def random_scenario(seed: int) -> Scenario:
    """Return the scenario of a seed; every other one has a ring."""
    rng = random.Random(seed)
    brokers = [f"b{at}" for at in range(rng.choice((2, 2, 3)))]
    if seed % 2:
        ids = rng.sample(range(1 << BITS), len(brokers))
        while not all(_has_topic(ids, at) for at in range(len(ids))):
            ids = rng.sample(range(1 << BITS), len(brokers))
        ring = RingConfiguration.of(0, BITS, dict(zip(brokers, ids, strict=True)))
        scripts = _scripts(rng, brokers, ("p", "q"), ("u", "v"))
        plans = _plans(rng, lambda: _id_change(rng, ring), scripts, "uv", brokers)
        return Scenario(f"random-{seed}", "drawn", ring, scripts, plans, topic_at(ring, rng.choice(brokers)))
    tree = random_tree(brokers, len(brokers), rng)
    tree = TreeConfiguration.of(0, tree.brokers, tree.links)
    scripts = _scripts(rng, brokers, ("p", "q"), ("s", "t"))
    return Scenario(
        f"random-{seed}",
        "drawn",
        tree,
        scripts,
        _plans(rng, lambda: _link_change(rng, tree), scripts, "pq", brokers),
    )


def _has_topic(ids: list[int], at: int) -> bool:
    configuration = RingConfiguration.of(0, BITS, {f"b{number}": one for number, one in enumerate(ids)})
    return any(configuration.rendezvous(topic) == f"b{at}" for topic in "ABCDEFGHIJKLMNOPQRSTUVWXYZ")


def _scripts(
    rng: random.Random, brokers: list[str], publishers: tuple[str, ...], others: tuple[str, ...]
) -> dict[str, str]:
    names = [publishers[0], others[0]]
    names += [name for name in (publishers[1], others[1]) if rng.random() < 0.35]
    left, scripts = STEPS_MAX, {}
    for name in names:
        before = f"@{rng.choice(brokers)} |" if rng.random() < 0.75 else ""
        count = rng.randint(0, min(left, 3))
        steps = _steps(rng, name, brokers, is_here=bool(before))[:count]
        left -= len(steps)
        scripts[name] = " ".join([before, *steps]).strip()
    return {name: script for name, script in scripts.items() if script}


def _steps(rng: random.Random, name: str, brokers: list[str], *, is_here: bool) -> list[str]:
    steps: list[str] = []
    for _ in range(3):
        if not is_here:
            if name[0] in "st" and "-" in steps:
                break  # A subscription's name is never used again.
            steps.append(f"@{rng.choice(brokers)}")
            is_here = True
        else:
            steps.append(rng.choice({"p": "**-", "q": "**-", "u": "-=", "v": "-="}.get(name[0], "-")))
            is_here = steps[-1] != "-"
            if name[0] in "st" and not is_here:
                break
            if steps[-1] == "=":
                steps.append("=+")
    return steps


def _plans(
    rng: random.Random, change: Callable[[], dict[str, Any]], scripts: dict[str, str], movers: str, brokers: list[str]
) -> tuple[PlannedChange, ...]:
    plans = []
    for _ in range(rng.choice((1, 1, 2))):
        names = [name for name in scripts if name in movers and rng.random() < 0.5]
        moves = []
        for name in names:
            homes = [word[1:] for word in scripts[name].split() if word[0] == "@"] or brokers[:1]
            home = rng.choice(homes)
            moves.append((name, home, rng.choice([broker for broker in brokers if broker != home])))
        changed = change() if rng.random() < 0.6 else {}
        plans.append(plan(moves=tuple(moves), may_abort=rng.random() < 0.25, **changed))
    return tuple(plans)


def _id_change(rng: random.Random, ring: RingConfiguration) -> dict[str, Any]:
    ids = list(ring.ids)
    rng.shuffle(ids)
    return {"ids": dict(zip(ring.brokers, ids, strict=True))}


def _link_change(rng: random.Random, tree: TreeConfiguration) -> dict[str, Any]:
    others = [(a, b) for a in tree.brokers for b in tree.brokers if a < b and (a, b) not in tree.links]
    if not others:
        return {}
    added = rng.choice(others)
    removed = rng.choice(cycle_links(tree, added))
    return {"links": (*(pair for pair in tree.links if pair != removed), added)}
