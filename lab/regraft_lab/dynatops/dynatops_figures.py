"""Turn the samples of all tasks into figures: means over draws with their 95 % intervals."""

from __future__ import annotations

from collections.abc import Sequence

from regraft.api.programs import Figure
from regraft_lab.dynatops.run_dynatops import TaskResult
from regraft_lab.mean_figures import with_interval

Setting = tuple[tuple[str, str | int | float], ...]


def mean_figures(results: Sequence[TaskResult]) -> list[Figure]:
    """Return the mean over draws for each name and setting, in order of first occurrence."""
    values: dict[tuple[str, Setting, str], list[float]] = {}
    for result in results:
        for each in result.samples:
            values.setdefault((each.name, tuple(each.where.items()), each.unit), []).append(each.value)
    figures: list[Figure] = []
    for (name, setting, unit), numbers in values.items():
        figures += with_interval(name, {**dict(setting), "draws": len(numbers)}, numbers, unit)
    return figures
