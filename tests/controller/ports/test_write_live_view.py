"""The live view and the status file: best effort, whole, and back after an outage."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from controller.ports.write_live_view import VIEW_PARTS, ValkeyView
from controller.ports.write_status import StatusView
from infra.live_keys import PAUSE_MS_MAX
from infra.supervise import Supervisor
from infra.valkey_server import start_valkey_service

DOCUMENT = {part: {"of": part} for part in VIEW_PARTS} | {"windows_closed": 3, "planner": "swap_links_ci"}


class MemoryClient:
    """Keys in memory; ``is_away`` makes every call fail."""

    def __init__(self) -> None:
        self.keys: dict[str, str] = {}
        self.calls = 0
        self.is_away = False

    def mset(self, mapping: dict[str, str]) -> None:
        self.calls += 1
        if self.is_away:
            raise redis.ConnectionError("nobody there")
        self.keys.update(mapping)


def test_view_has_a_key_for_each_part_and_one_for_the_numbers() -> None:
    """Parts are written as JSON under the namespace, single numbers together under counts."""
    client = MemoryClient()
    ValkeyView(client, "regraft").publish(DOCUMENT, 0)
    assert set(client.keys) == {f"regraft:live:{part}" for part in (*VIEW_PARTS, "counts")}
    assert json.loads(client.keys["regraft:live:plans"]) == {"of": "plans"}
    assert json.loads(client.keys["regraft:live:counts"]) == {"windows_closed": 3, "planner": "swap_links_ci"}


def test_lost_view_costs_one_attempt_for_each_growing_pause() -> None:
    """While the server is away the view is tried less and less often; nothing is raised."""
    client = MemoryClient()
    client.is_away = True
    view = ValkeyView(client, "regraft")
    for now_ms in range(0, 120_000, 100):
        view.publish(DOCUMENT, now_ms)
    assert view.failures == client.calls
    assert 8 <= client.calls <= 120_000 // PAUSE_MS_MAX + 6


def test_view_is_whole_again_after_the_server_lost_everything() -> None:
    """A server that returns empty has every key again with the next writing."""
    client = MemoryClient()
    view = ValkeyView(client, "regraft")
    view.publish(DOCUMENT, 0)
    client.is_away = True
    view.publish(DOCUMENT, 100)
    client.is_away, client.keys = False, {}
    view.publish(DOCUMENT, 200)
    assert client.keys == {}
    view.publish(DOCUMENT, 700)
    assert len(client.keys) == len(VIEW_PARTS) + 1
    view.publish(DOCUMENT, 701)
    assert client.calls == 4


def test_the_status_file_is_one_of_the_views(tmp_path: Path) -> None:
    """The file holds the loop's newest document."""
    status = StatusView(tmp_path / "controller.json")
    status.publish({"windows_closed": 1}, 0)
    status.publish({"windows_closed": 2}, 1)
    assert json.loads((tmp_path / "controller.json").read_text()) == {"windows_closed": 2}


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[Any]:
    with Supervisor() as supervisor:
        yield redis.Redis.from_url(start_valkey_service(supervisor, tmp_path).url)


@pytest.mark.stack
def test_view_on_a_real_server(valkey: Any) -> None:
    """The same keys on Valkey, and again after everything in it was lost."""
    view = ValkeyView(valkey, "regraft")
    view.publish(DOCUMENT, 0)
    valkey.flushall()
    view.publish(DOCUMENT, 1000)
    assert json.loads(valkey.get("regraft:live:configuration")) == {"of": "configuration"}
