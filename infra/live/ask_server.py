"""Ask a server of the live view one short question, such as why it refuses writes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from regraft.infra.live.redis_access import RedisAccess


def open_client(access: RedisAccess, timeout_s: float) -> redis.Redis:
    """Return a client that tries once, for at most this time. Raises SecretMissingError."""
    options = {**access.client_options(), "retry": Retry(NoBackoff(), 0)}  # By default it retries for many seconds.
    return redis.Redis.from_url(access.url, socket_timeout=timeout_s, socket_connect_timeout=timeout_s, **options)


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


def why_refused(access: RedisAccess, timeout_s: float) -> str:
    """Ask the server why it refuses writes; empty if it does not, or does not say."""
    try:
        with open_client(access, timeout_s) as client:
            return refusal_of(cast(dict[str, Any], client.info()))
    except redis.RedisError:  # Such as a user who may not ask.
        return ""
