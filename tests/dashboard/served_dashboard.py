"""A dashboard with its own Valkey, served as in a run, for tests that need a real connection."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from regraft.dashboard import run_dashboard as module
from regraft.dashboard.dashboard_settings import DashboardSettings
from regraft.dashboard.operator_tokens import SCOPE, make_token
from regraft.infra.local.supervise import Supervisor
from regraft.infra.local.valkey_server import is_redis_ready, start_valkey_service
from regraft.schemas.order import Order
from tests.dashboard.view_documents import small_inventory
from tests.wait_until import wait_until

SECRET = "k" * 40
TOKEN_HOURS_MAX = 24.0


@dataclass
class ServedDashboard:
    """Where the dashboard is served, which orders it got, and the Valkey behind it."""

    url: str
    redis_url: str
    supervisor: Supervisor
    orders: list[Order] = field(default_factory=list)

    def token(self, name: str = "Ana", scope: str = SCOPE) -> str:
        """Return a token that the dashboard accepts."""
        return make_token(SECRET, name, "regraft", 1, TOKEN_HOURS_MAX, time.time(), scope)

    def view(self) -> dict[str, Any]:
        """Return what pages get of the live view."""
        headers = {"Authorization": f"Bearer {self.token()}"}
        answer: dict[str, Any] = httpx2.get(f"{self.url}api/state", headers=headers).json()["parts"].get("server", {})
        return answer

    def wait_view(self, state: str) -> None:
        """Wait until the live view has this state: live, empty or away."""
        wait_until(lambda: self.view().get("view") == state)

    def kill_valkey(self) -> None:
        """Kill Valkey's process; the supervisor restarts it after a pause."""
        pid = self.supervisor.pid("valkey")
        assert pid is not None
        os.kill(pid, signal.SIGKILL)

    def wait_valkey(self) -> None:
        """Wait until Valkey answers."""
        wait_until(lambda: is_redis_ready(self.redis_url))


@contextmanager
def served_dashboard(directory: Path, **given: Any) -> Iterator[ServedDashboard]:
    """Serve a dashboard on a free port until the block ends; orders are kept instead of sent."""
    small_inventory().save(directory / "inventory.json")
    status_file = directory / "dashboard.json"
    with Supervisor() as supervisor:
        address = start_valkey_service(supervisor, directory)
        options = {"port": 0, "poll_ms": 100, "stale_ms": 3000, "secret": SECRET, "redis_url": address.url} | given
        settings = DashboardSettings(
            bootstrap="none", inventory_path=directory / "inventory.json", status_file=status_file, **options
        )
        stop = threading.Event()
        orders: list[Order] = []
        earlier = module.send_order
        module.send_order = lambda _kafka, order, _namespace: orders.append(order)  # type: ignore[assignment]
        thread = threading.Thread(target=module.run_dashboard, args=(settings, stop))
        thread.start()
        try:
            wait_until(status_file.exists)
            url = json.loads(status_file.read_text())["url"]
            yield ServedDashboard(url, address.url, supervisor, orders)
        finally:
            stop.set()
            thread.join(20)
            module.send_order = earlier
            assert not thread.is_alive()
