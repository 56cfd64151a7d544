"""Check that the dashboard keeps up with 1,000 brokers whose loads all change every second; asserts results and limits.

``python -m lab.benchmarks.bench_dashboard [--seed N] [--seconds N] [--json FILE]``. Every second a writer puts a
synthetic document into a real Valkey: brokers on a tree or a Chord ring, all loads changed, a cost series of 2,000
points with one new point. Three parts are timed. Server: one poll (MGET, decoding, comparing) and one message to a
page, in this process. Stream: from writing a document until an HTTP client of the dashboard has read the change. Page:
headless Chromium if it is installed, from receiving a change to the frame after drawing it; its contents are checked as
well.
"""

import argparse
import asyncio
import json
import random
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import redis

from regraft.controller.ports.write_live_view import ValkeyView
from regraft.dashboard.dashboard_metrics import DashboardMetrics
from regraft.dashboard.dashboard_settings import DashboardSettings
from regraft.dashboard.live_board import LiveBoard
from regraft.dashboard.poll_view import ViewPoller
from regraft.dashboard.read_view import SERIES
from regraft.dashboard.run_dashboard import run_dashboard, view_client
from regraft.infra.live.redis_access import RedisAccess
from regraft.infra.local.supervise import Supervisor
from regraft.infra.local.valkey_server import start_valkey_service
from regraft.infra.process.measured_figures import Figure, run_facts, write_figures
from regraft.overlay.inventory.inventory import Inventory
from regraft.producers.emulator.place_overlay import place_overlay, place_ring
from regraft.schemas.live_view import LiveView

BROKERS = 1000
COST_POINTS = 2000
PLANS = 100
WINDOW_MS = 1000
LIMITS = {
    "look_ms_p50": 250.0,  # A poll may take a quarter of its one-second period.
    "message_ms_p50": 100.0,
    "message_bytes_p50": 800_000.0,
    "arrival_ms_p50": 1500.0,  # A page lags by at most one poll and one message.
    "draw_ms_p50": 1000.0,  # Headless browsers render on the processor.
}
SHARE_SEEN_MIN = 0.8  # Of the documents written; a busy page may skip the rest.
LINKS_DRAWN_MAX = 3000  # The page's limit (show_map.js).
BROWSERS = ("chromium", "chromium-browser", "google-chrome")

Document = dict[str, Any]


class DocumentMaker:
    """Makes documents of an overlay; every load changes from one document to the next."""

    def __init__(self, inventory: Inventory, seed: int) -> None:
        self._rng = random.Random(seed)
        self._inventory = inventory
        self.links = inventory.bootstrap.links
        self._ends_ms = time.time_ns() // 1_000_000 // WINDOW_MS * WINDOW_MS
        self._cost = [self._cost_point(self._ends_ms - back * WINDOW_MS) for back in range(COST_POINTS, 0, -1)]
        self._plans = [self._plan(number) for number in range(PLANS)]
        self.made = 0

    def next(self) -> Document:
        """Return the document of the next window."""
        self.made += 1
        self._ends_ms += WINDOW_MS
        self._cost = [*self._cost[1:], self._cost_point(self._ends_ms)]
        brokers = self._inventory.brokers
        ring = getattr(self._inventory.bootstrap, "id_of", None)
        return {
            "time_ms": time.time_ns() // 1_000_000,
            "started_ms": self._cost[0]["window_end_ms"],
            "planner": "swap_links_cost",
            "dry_run": False,
            "plan_in_review": "",
            "plan_running": "",
            "horizon": None,
            "windows_closed": self.made,
            "windows_incomplete": 0,
            "late_rows": 0,
            "client_changes": 0,
            "plans_completed": PLANS,
            "plans_aborted": 0,
            "plans_undone": 0,
            "window_close_to_command_ms": {},
            "window_end_to_state_ms": [2100] * COST_POINTS,
            "decision_ms": {},
            "configuration": {
                "epoch": 1,
                "brokers": list(brokers),
                "links": [list(pair) for pair in self.links],
                "degree_max": 8,
            }
            | ({} if ring is None else {"ring": [list(pair) for pair in ring.items()]}),
            "window": {
                "start_ms": self._ends_ms - WINDOW_MS,
                "end_ms": self._ends_ms,
                "notifications": 5000,
                "epoch_min": 1,
                "epoch_max": 1,
                "is_complete": True,
                "error": "",
                "short_brokers": [],
                "client_changes": 0,
                "late_rows": 0,
                "queue_length_max": 9,
                "rtt_ms_max": 200.0,
                "users": None,
                "users_strayed": 0,
            },
            "network": {
                "window_end_ms": self._ends_ms,
                "links": [{"a": a, "b": b, "rtt_ms": 20.0, **self._load()} for a, b in self.links],
                "brokers": [
                    {"broker": name, "busy_share": self._rng.random(), "queue_length_last": 1, "publishers": 1}
                    | self._load()
                    for name in brokers
                ],
            },
            "cost": self._cost,
            "plans": self._plans,
            "orders": {"paused": None, "maintenance": []},
            "refusals": {"conflict": self.made},
            "events": [],
            "errors": {},
            "shadows": {},
            "last_decision": None,
        }

    def _load(self) -> Document:
        return {
            "notifications_per_s": round(self._rng.expovariate(1 / 50), 2),
            "bytes_per_s": round(self._rng.expovariate(1 / 9000), 1),
            "queue_length_max": self._rng.randrange(20),
            "congestion": round(self._rng.expovariate(1 / 3), 3),
        }

    def _cost_point(self, end_ms: int) -> Document:
        cost = self._rng.uniform(9e5, 1.1e6)
        return {
            "window_end_ms": end_ms,
            "cost_per_s": cost,
            "cost_bootstrap_per_s": 2 * cost,
            "cost_counted_per_s": cost,
            "epoch": 1,
            "is_one_epoch": True,
            "is_complete": True,
            "cost_shadows_per_s": {"swap_links_ci": 1.1 * cost},
        }

    def _plan(self, number: int) -> Document:
        pairs = [list(pair) for pair in self._rng.sample(self.links, 12)]
        change = {"links_removed": pairs[:1], "links_added": pairs[1:2], "moves": [], "id_moves": []}
        proposal = {
            **change, "planner": "swap_links_cost", "cost_before_per_s": 2.0, "cost_after_per_s": 1.0,
            "price_per_s": 0.1, "reason": "of all swaps of the tree this one saves most", "verdict": "accepted",
            "verdict_reason": "", "gain_observed_per_s": 1.0, "move_count": 0, "id_move_count": 0,
        }  # fmt: skip
        return {
            **change, "plan": f"plan-{number}", "epoch_from": number, "epoch_to": number + 1,
            "window_end_ms": self._ends_ms, "proposals": [proposal] * 12, "refused": [proposal] * 20,
            "cost_before_per_s": 2.0, "cost_predicted_per_s": 1.0, "phase": "completed", "undoes": "",
            "cost_observed_per_s": 1.0, "control_messages": 100, "move_count": 0, "id_move_count": 0,
            "history": [{"phase": "activating", "time_ms": self._ends_ms, "reason": "chosen"}],
        }  # fmt: skip


class Writer:
    """Writes documents to Valkey the way the controller does."""

    def __init__(self, url: str) -> None:
        self._client = redis.Redis.from_url(url)
        self._view = ValkeyView(self._client, "regraft")

    def write(self, document: Document) -> None:
        """Write a document and verify that it arrived."""
        self._view.publish(msgspec.convert(document, LiveView), 0)
        assert self._view.failures == 0, "Valkey did not accept a document"


def measure_server(url: str, inventory: Inventory, seed: int, rounds: int) -> dict[str, list[float]]:
    """Time polls of the view, and messages to a page that lacks only the last document."""
    maker, writer = DocumentMaker(inventory, seed), Writer(url)
    measured: dict[str, list[float]] = {"look_ms": [], "message_ms": [], "message_bytes": [], "snapshot_bytes": []}

    async def poll_repeatedly() -> None:
        board = LiveBoard(SERIES)
        settings = DashboardSettings(bootstrap="none", inventory_path=Path("none"), redis_url=url)
        client = view_client(RedisAccess(url), settings.answer_ms_max)
        poller = ViewPoller(client, board, settings, DashboardMetrics(), can_order=False)
        for number in range(rounds + 1):
            document = maker.next()
            writer.write(document)
            seen, began_s = board.version, time.perf_counter()
            await poller.poll()
            looked_s = time.perf_counter()
            text = board.text_since(seen)
            made_s = time.perf_counter()
            assert poller.state == "live", poller.server_part()
            assert board.value("network")["window_end_ms"] == document["window"]["end_ms"]
            if number == 0:
                measured["snapshot_bytes"].append(len(text))
                continue
            assert len(json.loads(text)["parts"]["cost"]["entries"]) == 1, "the cost is sent point by point"
            assert "plans" not in json.loads(text)["parts"]
            measured["look_ms"].append((looked_s - began_s) * 1000)
            measured["message_ms"].append((made_s - looked_s) * 1000)
            measured["message_bytes"].append(len(text))
        await client.aclose()

    asyncio.run(poll_repeatedly())
    return measured


@contextmanager
def served(url: str, directory: Path) -> Iterator[str]:
    """Serve a dashboard in this process and yield its address."""
    status_file = directory / "dashboard.json"
    settings = DashboardSettings(
        bootstrap="none", inventory_path=directory / "inventory.json", redis_url=url, status_file=status_file, port=0
    )
    stop = threading.Event()
    thread = threading.Thread(target=run_dashboard, args=(settings, stop))
    thread.start()
    try:
        while not status_file.exists():
            time.sleep(0.02)
        yield json.loads(status_file.read_text())["url"]
    finally:
        stop.set()
        thread.join()


class WrittenTimes:
    """Writes a document every second in a thread and records when each window was written."""

    def __init__(self, url: str, maker: DocumentMaker) -> None:
        self._writer, self._maker = Writer(url), maker
        self.at_s: dict[int, float] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write)

    def __enter__(self) -> "WrittenTimes":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _write(self) -> None:
        while not self._stop.wait(1.0):
            document = self._maker.next()
            self._writer.write(document)
            self.at_s[document["window"]["end_ms"]] = time.monotonic()


def measure_stream(url: str, address: str, maker: DocumentMaker, seconds: float) -> tuple[list[float], float]:
    """Return the ms from writing each change until it was read, and the share of documents that arrived."""
    arrived_ms: dict[int, float] = {}
    with WrittenTimes(url, maker) as written, httpx2.stream("GET", f"{address}api/stream", timeout=30) as response:
        ends_s = time.monotonic() + seconds
        for line in response.iter_lines():
            if line.startswith("data: {") and '"window"' in line:
                end_ms = json.loads(line[6:])["parts"].get("window", {}).get("whole", {}).get("end_ms")
                if end_ms in written.at_s:
                    arrived_ms[end_ms] = (time.monotonic() - written.at_s[end_ms]) * 1000
            if time.monotonic() > ends_s:
                break
        count = len(written.at_s)
    return list(arrived_ms.values()), len(arrived_ms) / max(count - 1, 1)


WATCH_DRAWING = """() => {
  const store = window.regraft.store;
  const take = store.take.bind(store);
  window.drawn = [];
  store.take = (message) => {
    const began = performance.now();
    take(message);
    if (!message.parts.network) return;
    requestAnimationFrame(() => requestAnimationFrame(() => {
      window.drawn.push({ all: performance.now() - began, map: window.regraft.map.drawnMs });
    }));
  };
}"""


def measure_page(
    url: str, address: str, maker: DocumentMaker, seconds: float
) -> tuple[dict[str, list[float]], float] | None:
    """Return drawing times in the browser and the share of documents drawn; None if no browser is installed."""
    browser_path = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if browser_path is None:
        return None
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path)
        page = browser.new_page(viewport={"width": 1480, "height": 1000})
        page.goto(address)
        links = min(len(maker.links), LINKS_DRAWN_MAX)
        wanted = f"cy.nodes('[name]').length === {BROKERS} && cy.edges('[pair]').length === {links}"
        page.wait_for_function(f"() => {{ const cy = window.regraft?.map.cy; return cy && {wanted}; }}", timeout=60_000)
        page.wait_for_timeout(2000)
        page.evaluate(WATCH_DRAWING)
        with WrittenTimes(url, maker) as written:
            page.wait_for_timeout(seconds * 1000)
            count = len(written.at_s)
        drawn = page.evaluate("() => window.drawn")
        browser.close()
    times = {"draw_ms": [one["all"] for one in drawn], "map_ms": [one["map"] for one in drawn]}
    return times, len(drawn) / max(count - 1, 1)


def measure(kind: str, inventory: Inventory, seed: int, seconds: float) -> list[Figure]:
    """Measure server, stream and page on one overlay."""
    links = len(inventory.bootstrap.links)
    where: dict[str, str | int | float] = {"overlay": kind, "brokers": BROKERS, "links": links}
    figures: list[Figure] = []

    def note(name: str, value: float, unit: str) -> None:
        figures.append(Figure(name, where, value, unit))

    with tempfile.TemporaryDirectory() as folder, Supervisor() as supervisor:
        directory = Path(folder)
        inventory.save(directory / "inventory.json")
        url = start_valkey_service(supervisor, directory).url
        for name, values in measure_server(url, inventory, seed, int(seconds)).items():
            note(f"{name}_p50", statistics.median(values), "bytes" if name.endswith("bytes") else "ms")
        maker = DocumentMaker(inventory, seed)
        Writer(url).write(maker.next())
        with served(url, directory) as address:
            arrived_ms, share_arrived = measure_stream(url, address, maker, seconds)
            note("arrival_ms_p50", statistics.median(arrived_ms), "ms")
            note("share_arrived", share_arrived, "share")
            page = measure_page(url, address, maker, seconds)
            if page is None:
                print("no browser is installed: the page was not measured", file=sys.stderr)
            else:
                times, share_drawn = page
                for name, values in times.items():
                    note(f"{name}_p50", statistics.median(values), "ms")
                    note(f"{name}_max", max(values), "ms")
                note("share_drawn", share_drawn, "share")
    return figures


def errors_of(figures: list[Figure]) -> list[str]:
    """Return a message for each figure beyond its limit."""
    errors = [
        f"{figure.name} is {figure.value:.1f} {figure.unit} at {figure.where}: at most {LIMITS[figure.name]:g}"
        for figure in figures
        if figure.name in LIMITS and figure.value > LIMITS[figure.name]
    ]
    return errors + [
        f"{figure.name} is {figure.value:.2f} at {figure.where}: at least {SHARE_SEEN_MIN}"
        for figure in figures
        if figure.name.startswith("share_") and figure.value < SHARE_SEEN_MIN
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    figures: list[Figure] = []
    for kind, inventory in (
        ("tree", place_overlay(BROKERS, 8, random.Random(given.seed))),
        ("ring", place_ring(BROKERS, random.Random(given.seed))),
    ):
        figures += measure(kind, inventory, given.seed, given.seconds)
    for figure in figures:
        print(f"{figure.where['overlay']:5} {figure.name:20} {figure.value:12.1f} {figure.unit}")
    if given.json:
        write_figures(given.json, run_facts({"brokers": BROKERS, "seconds": given.seconds}, given.seed), figures)
    errors = errors_of(figures)
    for error in errors:
        print(f"not met: {error}", file=sys.stderr)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
