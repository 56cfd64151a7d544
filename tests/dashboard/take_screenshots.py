"""Take the README's pictures of the dashboard: real loops on the virtual clock, the page in Chromium.

``python -m tests.dashboard.take_screenshots [--out DIR]``. Every picture shows a state that the loop was really in: the
documents are the controller's, with all times shifted so that the last document is current.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from regraft.controller.planners.shared_settings import ReassignmentSettings
from regraft.controller.settings.controller_settings import ControllerSettings
from regraft.overlay.inventory.inventory import Inventory
from regraft.producers.emulator.place_overlay import place_overlay, place_ring
from regraft.producers.workloads.checkin_settings import CheckinSettings
from regraft.producers.workloads.stock_settings import WorkloadSettings
from tests.dashboard.served_dashboard import ServedDashboard, served_dashboard
from tests.dashboard.test_dashboard_page import FOUND
from tests.dashboard.view_documents import moved_in_time, store_document
from tests.scenarios.closed_loop import ClosedLoop

SEED = 1
BROKERS = 40
COLOURS = 256  # of a picture; more would enlarge the file without a visible difference
FILE_BYTES_MAX = 250_000
STOCKS = WorkloadSettings(
    publisher_count=30, interested_broker_count=10, lifetime_s_mean=20.0, regime_change_s=90.0
)  # fmt: skip
CHECKINS = CheckinSettings(
    user_count=400, days_per_s=0.1, grid_rows=8, grid_columns=8, notifications_per_s=60.0, connect_spread_s=2.0
)

Document = dict[str, Any]


@dataclass
class Course:
    """The documents of a loop's windows, oldest first, and its inventory."""

    inventory: Inventory
    documents: list[Document]

    def as_of_now(self) -> list[Document]:
        """Return the documents with all times shifted so that the last one is current."""
        shift_ms = time.time_ns() // 1_000_000 - self.documents[-1]["time_ms"]
        return [moved_in_time(document, shift_ms) for document in self.documents]


class Recorder:
    """Runs a loop and keeps one document of each window, the newest last."""

    def __init__(self, loop: ClosedLoop) -> None:
        self.loop = loop
        self._documents: list[Document] = []

    def run_until(self, is_reached: Callable[[Document], bool], least_ms: int, most_ms: int) -> Course:
        """Run for ``least_ms``, then until a document satisfies the condition; fail if none does within ``most_ms``."""
        begun_ms = self.loop.virtual.now_ms
        while True:
            self.loop.step()
            document: Document = json.loads(self.loop.ports.view.text or "{}")
            if not document or document["window"] is None:
                continue
            last = self._documents[-1] if self._documents else None
            if last is None or document["window"]["end_ms"] != last["window"]["end_ms"]:
                self._documents.append(document)
            ran_ms = self.loop.virtual.now_ms - begun_ms
            if ran_ms >= least_ms and is_reached(document):
                return Course(self.loop.inventory, [*self._documents, document])
            assert ran_ms < most_ms, "the loop did not come to what the picture shows"


def phase_of_last(document: Document) -> str:
    """Return the phase of the newest plan."""
    return str(document["plans"][-1]["phase"]) if document["plans"] else ""


def stock_settings(*, dry_run: bool) -> ControllerSettings:
    """Return the demo's settings: two shadow planners, a horizon of one lifetime."""
    return ControllerSettings(
        bootstrap="virtual",
        inventory_path=Path("virtual"),
        dry_run=dry_run,
        horizon_lifetimes=1.0,
        shadow_planners=("swap_links_ci", "swap_links_cost"),
        status_ms=100,
    )


def review_course() -> Course:
    """Return a tree whose loop acted until interests had shifted; its next plan then waits for approval."""
    inventory = place_overlay(BROKERS, 8, random.Random(SEED))
    recorder = Recorder(ClosedLoop(inventory, STOCKS, SEED, stock_settings(dry_run=False)))
    recorder.run_until(lambda document: True, 97_000, 98_000)
    recorder.loop.settings = replace(recorder.loop.settings, dry_run=True)
    recorder.loop.kill_controller()
    return recorder.run_until(lambda document: phase_of_last(document) == "proposed", 0, 60_000)


def running_course() -> Course:
    """Return the same tree while a plan drains."""
    inventory = place_overlay(BROKERS, 8, random.Random(SEED))
    recorder = Recorder(ClosedLoop(inventory, STOCKS, SEED, stock_settings(dry_run=False)))
    return recorder.run_until(lambda document: phase_of_last(document) == "draining", 95_000, 200_000)


def ring_course() -> Course:
    """Return a ring of mobile users while a plan is being verified."""
    settings = ControllerSettings(
        bootstrap="virtual",
        inventory_path=Path("virtual"),
        planner="place_users_dynatops+reassign_ids_assignment",
        dry_run=False,
        horizon_lifetimes=1.0,
        planners={"reassign_ids_assignment": ReassignmentSettings(ring_free_s=60.0)},
        status_ms=100,
    )
    inventory = place_ring(32, random.Random(SEED))
    recorder = Recorder(ClosedLoop(inventory, CHECKINS, SEED, settings))
    return recorder.run_until(lambda document: phase_of_last(document) == "verifying", 70_000, 150_000)


def show_course(served: ServedDashboard, course: Course) -> Document:
    """Publish the documents one by one, so that the dashboard sees each window; return the last one."""
    quiet = {"time_ms": 1, "active": [], "recent": []}
    documents = course.as_of_now()
    for document in documents:
        store_document(served.redis_url, document, quiet)
        time.sleep(0.12)
    return documents[-1]


def save_picture(page: Page, path: Path, **clip: Any) -> None:
    """Save a screenshot of the page with a reduced palette."""
    image = Image.open(BytesIO(page.screenshot(**clip))).convert("RGB")
    few = image.quantize(COLOURS, method=Image.Quantize.MAXCOVERAGE, kmeans=3, dither=Image.Dither.NONE)
    few.save(path, optimize=True)
    size = path.stat().st_size
    assert size <= FILE_BYTES_MAX, f"{path} has {size} bytes, at most {FILE_BYTES_MAX}"
    sys.stderr.write(f"{path}: {size / 1000:.0f} kB\n")


def picture(
    course: Course, scheme: str, path: Path, prepare: Callable[[Page], None] | None = None, height: int = 1120
) -> None:
    """Show a course in a page and save its picture."""
    with (
        tempfile.TemporaryDirectory() as folder,
        served_dashboard(Path(folder), poll_ms=50, stale_ms=60_000) as served,
        sync_playwright() as playwright,
    ):
        course.inventory.save(Path(folder) / "inventory.json")
        last = show_course(served, course)
        browser = playwright.chromium.launch(executable_path=FOUND)
        page = browser.new_page(viewport={"width": 1480, "height": height}, color_scheme=scheme)  # type: ignore[arg-type]
        page.goto(served.url)
        page.evaluate("(token) => sessionStorage.setItem('regraft-token', token)", served.token("Ana Silva"))
        page.reload()
        names = len(last["configuration"]["brokers"])
        page.wait_for_function(
            "(names) => { const cy = window.regraft?.map.cy; const placed = cy?.nodes('[name]') ?? [];"
            " return placed.length === names && placed.some((node) => node.position('x') !== 0); }",
            arg=names,
        )
        store_document(served.redis_url, last)
        page.wait_for_timeout(6000)  # until the inventory has been read and animations have ended
        if prepare:
            prepare(page)
            page.wait_for_timeout(600)
        save_picture(page, path)
        browser.close()


def open_reasons(page: Page) -> None:
    """Expand the newest executed plan and scroll it into view."""
    row = page.locator(".plan", has_text="completed").first
    row.locator("summary").click()
    page.locator("#tabs").scroll_into_view_if_needed()
    page.evaluate("() => document.getElementById('tabs').scrollIntoView()")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("regraft/dashboard/drawings"))
    out = parser.parse_args().out
    if FOUND is None:
        sys.stderr.write("no browser is installed: install chromium\n")
        return 1
    out.mkdir(parents=True, exist_ok=True)
    review, running = review_course(), running_course()
    picture(review, "light", out / "review-light.png")
    picture(running, "dark", out / "running-dark.png")
    picture(running, "light", out / "reasons-light.png", open_reasons, height=900)
    picture(ring_course(), "light", out / "ring-light.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
