"""Why a server of the live view refuses writes, as far as its own figures say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def refusal_of(info: Mapping[str, Any]) -> str:
    """Return why writes are refused, and what to do, from the server's answer to INFO; empty if they are not."""
    used, limit = info.get("used_memory", 0), info.get("maxmemory", 0)
    if info.get("role") == "slave" and info.get("slave_read_only", 1):
        return "it is a read-only replica: set redis.url to its primary"
    if 0 < limit <= used and info.get("maxmemory_policy", "noeviction") == "noeviction":
        return f"its memory is full ({used / 1e6:.1f} of {limit / 1e6:.1f} MB): raise maxmemory, or delete other keys"
    if "err" in (info.get("rdb_last_bgsave_status"), info.get("aof_last_write_status")):
        return "it cannot store its data: see its log, and make room on its disk"
    return ""
