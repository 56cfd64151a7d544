"""The live view and the status file: best effort, complete, and restored after an outage."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from regraft.controller.ports.write_live_view import StatusView, ValkeyView
from regraft.infra.live.live_keys import PAUSE_MS_MAX
from regraft.infra.local.supervise import Supervisor
from regraft.infra.local.valkey_server import start_valkey_service
from regraft.schemas.live_view import VIEW_KEYS, decode_keys, decode_view
from tests.schemas.shown_views import view_of

VIEW = view_of(windows_closed=3, refusals={"degree": 2})


class MemoryClient:
    """Keys in memory; ``is_unavailable`` makes every call fail."""

    def __init__(self) -> None:
        self.keys: dict[str, bytes] = {}
        self.calls = 0
        self.is_unavailable = False

    def mset(self, mapping: dict[str, bytes]) -> None:
        self.calls += 1
        if self.is_unavailable:
            raise redis.ConnectionError("nobody there")
        self.keys.update(mapping)


def test_view_has_a_key_for_each_part_and_one_for_the_numbers() -> None:
    """Parts are written as JSON under the namespace, single numbers together under counts."""
    client = MemoryClient()
    ValkeyView(client, "regraft").publish(VIEW, 0)
    assert set(client.keys) == {f"regraft:live:{key}" for key in VIEW_KEYS}
    assert json.loads(client.keys["regraft:live:refusals"]) == {"degree": 2}
    assert json.loads(client.keys["regraft:live:counts"])["windows_closed"] == 3


def test_a_view_that_is_away_is_retried_after_growing_pauses() -> None:
    """While the server is away writing is attempted less and less often, and nothing is raised."""
    client = MemoryClient()
    client.is_unavailable = True
    view = ValkeyView(client, "regraft")
    for now_ms in range(0, 120_000, 100):
        view.publish(VIEW, now_ms)
    assert view.failures == client.calls
    assert 8 <= client.calls <= 120_000 // PAUSE_MS_MAX + 6


def test_the_view_is_complete_again_after_the_server_lost_everything() -> None:
    """A server that returns empty has every key again after the next write."""
    client = MemoryClient()
    view = ValkeyView(client, "regraft")
    view.publish(VIEW, 0)
    client.is_unavailable = True
    view.publish(VIEW, 100)
    client.is_unavailable, client.keys = False, {}
    view.publish(VIEW, 200)
    assert client.keys == {}
    view.publish(VIEW, 700)
    assert len(client.keys) == len(VIEW_KEYS)
    view.publish(VIEW, 701)
    assert client.calls == 4


def test_the_status_file_is_one_of_the_views(tmp_path: Path) -> None:
    """The file holds the loop's newest view."""
    status = StatusView(tmp_path / "controller.json")
    status.publish(view_of(windows_closed=1), 0)
    status.publish(view_of(windows_closed=2), 1)
    assert decode_view((tmp_path / "controller.json").read_bytes()) == view_of(windows_closed=2)


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[Any]:
    with Supervisor() as supervisor:
        yield redis.Redis.from_url(start_valkey_service(supervisor, tmp_path).url)


@pytest.mark.stack
def test_view_on_a_real_server(valkey: Any) -> None:
    """The same keys on Valkey, also after it lost everything."""
    view = ValkeyView(valkey, "regraft")
    view.publish(VIEW, 0)
    valkey.flushall()
    view.publish(VIEW, 1000)
    assert decode_keys({key: valkey.get(f"regraft:live:{key}") for key in VIEW_KEYS}) == VIEW
