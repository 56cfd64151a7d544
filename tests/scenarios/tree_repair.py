"""A tree of which a broker dies, and what follows from it, one message after the other."""

from __future__ import annotations

from collections.abc import Sequence

from regraft.overlay.overlay_configuration import link
from regraft.overlay.tree.configuration import TreeConfiguration
from regraft.schemas.command import CommandPhase
from tests.scenarios.step_by_step import StepByStep

PREPARE, ACTIVATE, RETIRE = CommandPhase.PREPARE, CommandPhase.ACTIVATE, CommandPhase.RETIRE
ABORT = CommandPhase.ABORT
LINE = TreeConfiguration.of(0, ("b0", "b1", "b2", "b3"), [("b0", "b1"), ("b1", "b2"), ("b2", "b3")])
WITHOUT_B1 = TreeConfiguration.of(1, ("b0", "b2", "b3"), [("b0", "b2"), ("b2", "b3")])
FIVE = TreeConfiguration.of(0, (*LINE.brokers, "b4"), [*LINE.links, ("b2", "b4")])
FIVE_WITHOUT_B1 = TreeConfiguration.of(1, ("b0", "b2", "b3", "b4"), [*WITHOUT_B1.links, ("b2", "b4")])
EXCHANGED = LINE.replaced(1, [link("b1", "b2")], [link("b0", "b2")])
WITHOUT_B1_LATER = TreeConfiguration.of(2, WITHOUT_B1.brokers, WITHOUT_B1.links)


class Repair(StepByStep):
    """A line of brokers, or a given overlay, of which b1 dies: what it holds and what is on its links is lost."""

    def __init__(self, configuration: TreeConfiguration = LINE) -> None:
        super().__init__(configuration)

    def die(self) -> None:
        """Let b1 die; its neighbours have not noticed yet."""
        for pair in list(self.links):
            if "b1" in pair:
                del self.links[pair]

    def command_survivors(
        self, phase: CommandPhase, target: TreeConfiguration = WITHOUT_B1, brokers: Sequence[str] = ()
    ) -> None:
        """Let the survivors, or some, obey a command of the repair in turn, each with all that follows from it."""
        for broker in brokers or [one for one in self.brokers if one != "b1"]:
            self.command(broker, phase, target, lost_brokers=("b1",))
            self.links = type(self.links)(self.links.default_factory, self._alive())
            self.run()

    def _alive(self) -> dict[tuple[str, str], object]:
        return {pair: queue for pair, queue in self.links.items() if "b1" not in pair}
