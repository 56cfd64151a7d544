"""Let brokers join an emulated overlay on its clock: each announces itself until it is a member.

The controller then lets them join the overlay.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import simpy
import structlog
from msgspec.structs import replace

from regraft.producers.emulator.emit_telemetry import TelemetryEmitter
from regraft.producers.emulator.emulate_overlay import EmulatedOverlay
from regraft.producers.emulator.emulated_broker import EmulatedBroker
from regraft.producers.emulator.emulator_ports import MembershipPort
from regraft.producers.emulator.newcomers import Newcomer
from regraft.schemas.announcement import REPEAT_MS, Announcement
from regraft.schemas.units import SECOND_MS

CHECK_MS = 1_000.0  # Between two checks for its admission.

log = structlog.get_logger(__name__)


class NewcomerPlayer:
    """The newcomers of one run; one that is already in the overlay at the start is skipped."""

    def __init__(
        self,
        overlay: EmulatedOverlay,
        newcomers: Iterable[Newcomer],
        emitter: TelemetryEmitter,
        membership: MembershipPort,
    ) -> None:
        self._overlay = overlay
        self._emitter = emitter
        self._membership = membership
        self._newcomers = {one.broker: one for one in newcomers if one.broker not in overlay.brokers}
        self._announced_ms: dict[str, float] = {}

    def start(self) -> None:
        """Schedule the newcomers, counting their times from now."""
        for one in self._newcomers.values():
            self._overlay.env.timeout(one.at_s * SECOND_MS, one.broker).callbacks.append(self._start_broker)

    def _start_broker(self, event: simpy.Event) -> None:
        overlay, name = self._overlay, cast(str, event.value)
        core = overlay.start.outsider(name, int(overlay.env.now))
        broker = overlay.brokers[name] = EmulatedBroker(core, overlay.cells.new_cells())
        broker.is_outside = True
        log.info("broker_joining", broker=name)
        self._check_membership(event)

    def _check_membership(self, event: simpy.Event) -> None:
        """Announce a broker from time to time until it is a member; from then on it sends telemetry."""
        overlay, name = self._overlay, cast(str, event.value)
        now_ms = float(overlay.env.now)
        if self._membership.is_member(name):
            log.info("broker_admitted", broker=name)
            self._emitter.begin(name, CHECK_MS)
            return
        if now_ms - self._announced_ms.get(name, -REPEAT_MS) >= REPEAT_MS:
            self._announced_ms[name] = now_ms
            cost = float(overlay.inventory.processing_cost[overlay.inventory.index[name]])
            facts = replace(self._newcomers[name].facts, processing_cost=cost)
            self._membership.announce(Announcement(name, facts, int(now_ms)))
        overlay.env.timeout(CHECK_MS, name).callbacks.append(self._check_membership)
