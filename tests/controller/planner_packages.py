"""Packages with planners, installed for one test: a module and what an installer would write next to it."""

from pathlib import Path
from textwrap import dedent

import pytest

SOURCE = """
from dataclasses import dataclass
from typing import Annotated

from regraft.controller.state.planner_interface import PlannerSettings, PlannerSpec
from regraft.overlay.overlay_configuration import link
from regraft.schemas.plan import Proposal


@dataclass(frozen=True)
class JoinSettings(PlannerSettings):
    '''Which broker is joined.'''

    broker: Annotated[str, "which broker is joined to all others"] = "b00"
    gain_per_s: Annotated[float, "what is promised for it"] = 1.0

    def errors(self):
        return [] if self.gain_per_s > 0 else [f"gain_per_s is {self.gain_per_s}: must be above 0"]


def join_all(state, settings, context, rng):
    tree, found = state.configuration, []
    for other in tree.brokers:
        added = link(settings.broker, other) if other != settings.broker else None
        if added and added not in tree.links and len(found) < context.proposals_max:
            removed = link(*tree.path(settings.broker, other)[-2:])
            tree = tree.replaced(tree.epoch + 1, [removed], [added])
            found.append(Proposal("join_all", (removed,), (added,), 0.0, -settings.gain_per_s, 0.0, "a star"))
    return found


SPEC = PlannerSpec("join_all", "tree", join_all, JoinSettings, "links of a tree, into a star", "a test")
"""


class PlannerPackages:
    """A directory on the path into which packages are installed."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def install(self, package: str, source: str, /, group: str = "regraft.planners", **parts: str) -> None:
        """Install a package of one module; ``parts`` maps each planner's name to its object in the module."""
        (self._directory / f"{package}.py").write_text(dedent(source), encoding="utf-8")
        metadata = self._directory / f"{package}-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        lines = [f"{name} = {package}:{what}\n" for name, what in parts.items()]
        (metadata / "entry_points.txt").write_text("".join([f"[{group}]\n", *lines]))


def planner_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PlannerPackages:
    """Return an empty directory that is on the path until the test ends."""
    directory = tmp_path / "site"
    directory.mkdir()
    monkeypatch.syspath_prepend(str(directory))
    return PlannerPackages(directory)
