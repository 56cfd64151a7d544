"""Means over draws, and differences within each draw between two routings on the same publishers and subscribers.

The location of the high-rate publisher differs between draws and matters more than the routing, so routings are
compared draw by draw.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from regraft.api.programs import Figure
from regraft_lab.mean_figures import with_interval
from regraft_lab.octopia.octopia_tasks import TaskResult

COMPARED = ("delay_ms_mean", "drain_s", "queue_measure_mean", "messages")
PAPER_ROUTING, PAPER_RULE = "idr", "product"

Setting = tuple[tuple[str, str | int | float], ...]
Draws = dict[tuple[str, Setting, str], list[float]]


def draw_figures(results: Sequence[TaskResult]) -> list[Figure]:
    """Return the mean of each name and setting, and as ``NAME_saved`` how far IDR is below another one.

    The setting of ``NAME_saved`` is that of the other one: another routing, or IDR with another predicate.
    """
    draws: Draws = {}
    for result in results:
        for each in result.samples:
            draws.setdefault((each.name, tuple(each.where.items()), each.unit), []).append(each.value)
    means = [
        figure
        for (name, setting, unit), values in draws.items()
        for figure in with_interval(name, dict(setting), values, unit)
    ]
    return [*means, *_saved(draws)]


def _saved(draws: Draws) -> Iterator[Figure]:
    for (name, setting, unit), values in draws.items():
        where = dict(setting)
        paper = {**where, "routing": PAPER_ROUTING, "rule": PAPER_RULE}
        ours = draws.get((name, tuple(paper.items()), unit))
        if name in COMPARED and where != paper and ours is not None:
            differences = [other - own for other, own in zip(values, ours, strict=True)]
            yield from with_interval(f"{name}_saved", where, differences, unit)
