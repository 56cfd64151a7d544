"""Read the inventory as soon as it exists, and again when it changes, for the places of brokers on the map.

If the inventory is missing or invalid, the page gets the reason instead of places, and lays out the overlay itself.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import structlog

from regraft.dashboard.live_board import LiveBoard
from regraft.dashboard.place_brokers import place_brokers
from regraft.overlay.read_inventory import load_inventory

POLL_S = 5.0

log = structlog.get_logger(__name__)

FileMark = tuple[int, int] | None


class InventoryWatcher:
    """Keeps the map up to date with the file."""

    def __init__(self, path: Path, board: LiveBoard) -> None:
        self._path = path
        self._board = board
        self._mark: FileMark = None
        self._reason = ""

    async def run(self) -> None:
        """Watch the file until cancelled."""
        while True:
            await self.poll()
            await asyncio.sleep(POLL_S)

    async def poll(self) -> None:
        """Read the file if it has changed since the last time."""
        mark = _mark_of(self._path)
        if mark is None:
            await self._report_error(f"no inventory exists at {self._path} yet")
            return
        if mark == self._mark:
            return
        try:
            part = await asyncio.to_thread(_map_part, self._path)
        except Exception as error:  # Whatever an invalid inventory raises, the page continues without places.
            await self._report_error(str(error))
            return
        self._mark, self._reason = mark, ""
        log.info("broker_positions_read", brokers=len(part["places"]), source=part["source"])
        await self._board.replace({"map": part})

    async def _report_error(self, reason: str) -> None:
        if reason != self._reason:
            log.warning("broker_positions_unknown", reason=reason)
            self._reason = reason
        if self._mark is None:
            await self._board.replace({"map": {"source": "none", "reason": reason, "places": {}}})


def _mark_of(path: Path) -> FileMark:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


def _map_part(path: Path) -> dict[str, Any]:
    inventory = load_inventory(path)
    points = place_brokers(inventory).round(1).tolist()
    loads = inventory.load_max_per_s
    return {
        "source": "costs" if inventory.positions is None else "positions",
        "reason": "",
        "places": dict(zip(inventory.brokers, points, strict=True)),
        "load_max_per_s": None if loads is None else dict(zip(inventory.brokers, loads.tolist(), strict=True)),
    }
