"""What a node waits for: in its log at once and then ever more rarely, in its status file, and for its health."""

from __future__ import annotations

import time
from collections.abc import Callable

import structlog

from regraft.schemas.status_file import StatusFile
from regraft.schemas.units import SECOND_MS

log = structlog.get_logger(__name__)

AGAIN_S = 2.0
ADMITTED = (
    "the members to include this node: an operator admits it (`regraft members add {broker}`), or a controller with "
    "controller.members.admit_announced"
)
PLAN = "a plan that admits this node to the overlay, which a running controller proposes: until then nothing crosses"
LEFT = (
    "an order to come back (`regraft members readmit {broker}`): the node has left the overlay, and nothing crosses to "
    "or from the clients of its broker; it can be stopped"
)
REPAIR = (
    "a plan without the lost {peers}, which a running controller proposes: until then nothing crosses to or through it"
)


class NodeWaiting:
    """``what`` the node waits for, empty if for nothing."""

    def __init__(self, broker: str, file: StatusFile, stopwatch_s: Callable[[], float] = time.monotonic) -> None:
        self.what = ""
        self._broker, self._file, self._stopwatch_s = broker, file, stopwatch_s
        self._since_s = self._logged_s = self._pause_s = 0.0

    def note(self, what: str) -> None:
        """Note what the node waits for now, empty if for nothing."""
        now_s = self._stopwatch_s()
        if what != self.what:
            self.what, self._since_s, self._pause_s = what, now_s, 0.0
        elif now_s - self._logged_s < self._pause_s:
            return
        self._logged_s, self._pause_s = now_s, max(2 * self._pause_s, AGAIN_S)
        if what:
            log.warning("node_waiting", broker=self._broker, waiting_for=what, seconds=round(now_s - self._since_s))

    def note_before_start(self, what: str) -> None:
        """Note it while there is nothing else to show, in the status file as well."""
        self.note(what)
        document = {"broker": self._broker, "time_ms": int(time.time() * SECOND_MS), "waiting_for": what}
        self._file.write(document)


def waiting_for(broker: str, *, is_member: bool, is_in_overlay: bool, lost: list[str], has_left: bool = False) -> str:
    """Return what a running node waits for, empty if for nothing; ``lost`` are neighbours that are considered dead."""
    if has_left and not is_in_overlay:  # Also one that the inventory does not name: only that order brings it back.
        return LEFT.format(broker=broker)
    if not is_member:
        return ADMITTED.format(broker=broker)
    if not is_in_overlay:
        return PLAN
    return REPAIR.format(peers=", ".join(lost)) if lost else ""
