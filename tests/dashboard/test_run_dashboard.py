"""The dashboard as it is served: its stream over a real connection, with a Valkey that dies and returns."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from regraft.dashboard.dashboard_settings import DashboardSettings
from regraft.dashboard.run_dashboard import DashboardError, run_dashboard
from regraft.infra.process.find_port import choose_ports
from tests.dashboard.served_dashboard import ServedDashboard, served_dashboard
from tests.dashboard.test_live_board import Page
from tests.dashboard.view_documents import store_document, written_document
from tests.wait_until import wait_until

pytestmark = pytest.mark.stack


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedDashboard]:
    with served_dashboard(tmp_path_factory.mktemp("served"), clients_max=3) as dashboard:
        yield dashboard


class Stream:
    """The events of one open page, one after the other."""

    def __init__(self, response: httpx2.Response) -> None:
        self._lines = response.iter_lines()

    def next(self) -> tuple[str, Any]:
        """Return kind and content of the next event; comments that keep the connection open are skipped."""
        kind, data = "", ""
        for line in self._lines:
            if line.startswith("event: "):
                kind = line[7:]
            elif line.startswith("data: "):
                data = line[6:]
            elif not line and kind:
                return kind, json.loads(data)
        raise AssertionError("the stream ended")

    def read_to_its_end(self) -> None:
        """Read the rest of the stream; raises a client error if the stream was cut."""
        for _ in self._lines:
            continue

    def until(self, page: Page, part: str) -> dict[str, Any]:
        """Merge events into the page until it has the part, and return it."""
        while True:
            kind, message = self.next()
            if kind == "beat":
                continue
            page.take(json.dumps(message))
            if part in message["parts"]:
                found: dict[str, Any] = message["parts"][part]
                return found


def open_stream(served: ServedDashboard) -> Any:
    return httpx2.stream("GET", f"{served.url}api/stream", timeout=30)


def test_a_page_gets_everything_and_then_what_changes(served: ServedDashboard) -> None:
    """First the full state and the server's clock; a new window then adds one point to the cost, not all of them."""
    document = written_document()
    newest = document["cost"].pop()
    store_document(served.redis_url, document)
    served.wait_view("live")
    with open_stream(served) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        stream, page = Stream(response), Page()
        kind, message = stream.next()
        assert kind == "snapshot"
        page.take(json.dumps(message))
        if not page.parts.get("cost"):
            stream.until(page, "cost")
        store_document(served.redis_url, {**document, "cost": [*document["cost"], newest]})
        change = stream.until(page, "cost")
        assert [entry for _, entry in change["entries"]] == [newest]
        assert page.parts["cost"][-1] == newest
        assert page.parts["plans"] == document["plans"]


def test_a_reconnecting_page_gets_the_full_state_again(served: ServedDashboard) -> None:
    """Whichever id a browser saw last, a new connection begins with the full state."""
    store_document(served.redis_url, written_document())
    with httpx2.stream("GET", f"{served.url}api/stream", headers={"Last-Event-ID": "7"}, timeout=30) as response:
        kind, message = Stream(response).next()
        assert kind == "snapshot"
        assert {"configuration", "cost", "server"} <= message["parts"].keys()


def test_the_page_survives_the_loss_of_valkey(served: ServedDashboard) -> None:
    """While Valkey is away a page keeps its content and shows since when; afterwards it recovers by itself."""
    document = written_document()
    store_document(served.redis_url, document)
    served.wait_view("live")
    with open_stream(served) as response:
        stream, page = Stream(response), Page()
        stream.until(page, "server")
        served.kill_valkey()
        while page.parts["server"]["view"] != "away":
            stream.until(page, "server")
        assert page.parts["server"]["reason"]
        assert page.parts["plans"]
        served.wait_valkey()
        store_document(served.redis_url, {**document, "refusals": {"conflict": 7}})
        while page.parts["server"]["view"] != "live":
            stream.until(page, "server")
        while page.parts["refusals"] != {"conflict": 7}:
            stream.until(page, "refusals")


def test_more_pages_than_allowed_are_refused(served: ServedDashboard) -> None:
    """With a limit of three, the fourth page gets a sentence; closing one makes room."""
    with open_stream(served) as first, open_stream(served) as second, open_stream(served) as third:
        pages = [Stream(response) for response in (first, second, third)]
        assert [page.next()[0] for page in pages] == ["snapshot"] * 3
        refused = httpx2.get(f"{served.url}api/stream", timeout=5)
        assert refused.status_code == 503
        assert "already open, the maximum" in refused.json()["detail"]
        assert "regraft_dashboard_clients 3.0" in httpx2.get(f"{served.url}metrics").text
    wait_until(lambda: "regraft_dashboard_clients 0.0" in httpx2.get(f"{served.url}metrics").text)
    with open_stream(served) as again:
        assert Stream(again).next()[0] == "snapshot"


def test_the_pages_of_one_address_are_bounded(tmp_path: Path) -> None:
    """The third page from an address that may have two is refused, one from another address is not.

    A trusted proxy may report the client's address: the one that it saw, not the one in a header that it received.
    """
    with served_dashboard(tmp_path, clients_per_address_max=2, trusted_proxies=("127.0.0.1",)) as dashboard:

        def opened(forwarded: str) -> Any:
            headers = {"X-Forwarded-For": forwarded}
            return httpx2.stream("GET", f"{dashboard.url}api/stream", headers=headers, timeout=30)

        with opened("192.0.2.7") as first, opened("198.51.100.1, 192.0.2.7") as second:
            assert [response.status_code for response in (first, second)] == [200, 200]
            with opened("203.0.113.5, 192.0.2.7") as third:
                assert third.status_code == 429
                assert "2 pages are already open from 192.0.2.7" in third.read().decode()
            with opened("192.0.2.8") as other:
                assert other.status_code == 200


def test_a_forwarded_address_needs_a_trusted_proxy(tmp_path: Path) -> None:
    """Without a trusted proxy anybody could send the header: pages count for the connection's own address."""
    with served_dashboard(tmp_path, clients_per_address_max=1) as dashboard:
        first, second = ({"X-Forwarded-For": address} for address in ("192.0.2.7", "192.0.2.8"))
        with httpx2.stream("GET", f"{dashboard.url}api/stream", headers=first, timeout=30) as response:
            assert response.status_code == 200
            refused = httpx2.get(f"{dashboard.url}api/stream", headers=second, timeout=5)
            assert refused.status_code == 429
            assert "from 127.0.0.1" in refused.json()["detail"]


def test_it_starts_before_valkey_and_ends_with_a_page_open(tmp_path: Path) -> None:
    """The page reports that nothing answers at the live view's address; a stop closes open pages."""
    away = f"redis://127.0.0.1:{choose_ports(1)[0]}/0"
    with served_dashboard(tmp_path, redis_url=away) as dashboard:
        dashboard.wait_view("away")
        assert httpx2.get(f"{dashboard.url}ready").status_code == 503
        assert httpx2.get(f"{dashboard.url}health").status_code == 200
        opened = open_stream(dashboard)
        page = Stream(opened.__enter__())
        assert page.next()[0] == "snapshot"
    page.read_to_its_end()
    opened.__exit__(None, None, None)


def test_a_taken_port_and_a_missing_address_are_reported(tmp_path: Path, served: ServedDashboard) -> None:
    """Each ends the start with one sentence that says what to do."""
    port = int(served.url.rstrip("/").rpartition(":")[2])
    common = {"bootstrap": "none", "inventory_path": tmp_path / "none.json"}
    with pytest.raises(DashboardError, match=f"127.0.0.1:{port} .*--port"):
        run_dashboard(DashboardSettings(**common, redis_url=served.redis_url, port=port), threading.Event())
    with pytest.raises(DashboardError, match="REGRAFT_REDIS_URL"):
        run_dashboard(DashboardSettings(**common), threading.Event())
