"""That a server which refuses writes is recognised by its own figures."""

from typing import Any

import pytest

from regraft.infra.live.ask_server import refusal_of

WELL = {"role": "master", "used_memory": 2_000_000, "maxmemory": 0, "rdb_last_bgsave_status": "ok"}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, ""),
        ({"maxmemory": 1_900_000}, "its memory is full (2.0 of 1.9 MB)"),
        ({"maxmemory": 2_100_000}, ""),
        ({"maxmemory": 1_900_000, "maxmemory_policy": "allkeys-lru"}, ""),
        ({"role": "slave", "slave_read_only": 1}, "read-only replica"),
        ({"role": "slave", "slave_read_only": 0}, ""),
        ({"rdb_last_bgsave_status": "err"}, "it cannot store its data"),
        ({"aof_last_write_status": "err"}, "it cannot store its data"),
    ],
)
def test_the_reason_is_given(changes: dict[str, Any], reason: str) -> None:
    """A server that evicts other keys, or replicates but takes writes, refuses none."""
    given = refusal_of(WELL | changes)
    assert given.startswith(reason) if not reason else reason in given
    assert bool(given) is bool(reason)
