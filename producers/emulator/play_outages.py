"""Play outages on an emulated overlay on its clock, and report them.

In: planned and random outages. Out: brokers that die, return, hang and resume, links that are slow or cut.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import structlog

from regraft.producers.emulator.emulate_overlay import EmulatedOverlay
from regraft.producers.emulator.outage_schedule import Chaos, Outage, OutageKind, random_outages
from regraft.schemas.units import SECOND_MS

NOTES_KEPT_MAX = 1_000

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class OutageNote:
    """The beginning or the end of one outage."""

    time_ms: int
    kind: OutageKind
    targets: tuple[str, ...]
    is_over: bool

    @property
    def text(self) -> str:
        """The note in words."""
        return f"{', '.join(self.targets)}: {OUTAGE_TEXTS[self.kind][self.is_over]}"


OUTAGE_TEXTS = {
    OutageKind.DEATH: ("died", "restarted, empty"),
    OutageKind.SUSPENSION: ("hangs", "resumes"),
    OutageKind.SLOW: ("link is slow", "link has recovered"),
    OutageKind.CUT: ("link is cut", "link is restored"),
    OutageKind.AGENT: ("agent is dead", "agent has restarted"),
}


class OutagePlayer:
    """The outages of one run. ``notes`` holds the newest; ``counts`` how many began, by kind."""

    def __init__(
        self,
        overlay: EmulatedOverlay,
        outages: Iterable[Outage],
        notice_ms: float,
        chaos: Chaos | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self.notes: deque[OutageNote] = deque(maxlen=NOTES_KEPT_MAX)
        self.counts: Counter[str] = Counter()
        self._overlay = overlay
        self._outages = tuple(outages)
        self._notice_ms = notice_ms
        self._chaos = chaos
        self._rng = rng or random.Random()
        self._down: dict[str, OutageKind] = {}
        self._is_running = False

    def start(self) -> None:
        """Schedule the outages, counting their times from now."""
        self._is_running = True
        for outage in self._outages:
            self._after(outage.at_s, self._begin, outage)
        if self._chaos is not None:
            bootstrap = self._overlay.inventory.bootstrap
            self._draw_next(random_outages(self._chaos, bootstrap.brokers, bootstrap.links, self._rng), 0.0)

    def stop(self) -> None:
        """Stop all outages; suspended brokers resume, dead ones stay dead."""
        self._is_running = False
        for name in [name for name, kind in self._down.items() if kind is OutageKind.SUSPENSION]:
            self._overlay.resume(name)
            del self._down[name]

    def down(self, kind: OutageKind) -> list[str]:
        """Return the brokers that are dead, or those that are suspended, sorted."""
        return sorted(name for name, what in self._down.items() if what is kind)

    def status(self) -> dict[str, Any]:
        """Return the outages' part of the status file."""
        return {
            "outages": dict(self.counts),
            "brokers_dead": len(self.down(OutageKind.DEATH)),
            "brokers_suspended": len(self.down(OutageKind.SUSPENSION)),
            "outage_notes": [[note.time_ms, note.text] for note in self.notes],
        }

    def _after(self, seconds: float, act: Callable[[Outage], None], outage: Outage) -> None:
        def on_time(_: object) -> None:
            if self._is_running:
                act(outage)

        self._overlay.env.timeout(seconds * SECOND_MS).callbacks.append(on_time)

    def _draw_next(self, outages: Iterator[Outage], last_s: float) -> None:
        outage = next(outages, None)
        if outage is None:
            return

        def act(due: Outage) -> None:
            self._begin(due)
            self._draw_next(outages, due.at_s)

        self._after(outage.at_s - last_s, act, outage)

    def _begin(self, outage: Outage) -> None:
        targets = outage.targets if outage.kind.is_of_link else self._taken_down(outage)
        if not targets:
            return
        begun = Outage(outage.kind, targets, outage.at_s, outage.for_s, outage.factor)
        overlay = self._overlay
        match outage.kind:
            case OutageKind.DEATH:
                for name in targets:
                    overlay.kill(name, self._notice_ms)
            case OutageKind.SUSPENSION:
                for name in targets:
                    overlay.suspend(name)
            case OutageKind.SLOW:
                overlay.link_faults.slow(targets[0], targets[1], outage.factor, outage.for_s * SECOND_MS)
            case OutageKind.CUT:
                overlay.link_faults.cut(targets[0], targets[1], outage.for_s * SECOND_MS)
        self.counts[outage.kind] += 1
        self._note(begun, is_over=False)
        self._after(outage.for_s, self._end, begun)

    def _taken_down(self, outage: Outage) -> tuple[str, ...]:
        """Return the brokers that go down: those that are up, limited to the share that may be down at once."""
        up = [name for name in outage.targets if name not in self._down]
        if self._chaos is not None:
            share_max = self._chaos.down_share_max
            up = up[: max(int(len(self._overlay.brokers) * share_max) - len(self._down), 0)]
        self._down |= dict.fromkeys(up, outage.kind)
        return tuple(up)

    def _end(self, outage: Outage) -> None:
        if not outage.kind.is_of_link:
            for name in outage.targets:
                del self._down[name]
                if outage.kind is OutageKind.DEATH:
                    self._overlay.restart_broker(name)
                else:
                    self._overlay.resume(name)
        self._note(outage, is_over=True)

    def _note(self, outage: Outage, *, is_over: bool) -> None:
        note = OutageNote(int(self._overlay.env.now), outage.kind, outage.targets, is_over)
        self.notes.append(note)
        log.info("outage_over" if is_over else "outage", kind=note.kind, whom=note.targets)
