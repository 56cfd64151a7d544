"""EMQX's list of subscriptions as its REST interface gives it (EMQX 5, ``GET /api/v5/subscriptions``), page by page.

EMQX is not available where these tests run: this stand-in follows the description of the interface.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tests.producers.nodes.http_stand_in import answering

KEY, SECRET = "key", "secret"


class EmqxList:
    """Subscriptions as pairs of client and topic; ``page_max`` is the most that one answer holds."""

    def __init__(self, page_max: int = 1_000) -> None:
        self.subscriptions: list[tuple[str, str]] = []
        self.page_max = page_max
        self.asked = 0
        self.is_broken = False

    @contextmanager
    def serving(self) -> Iterator[str]:
        """Yield the address of the interface."""
        with answering(self._answer) as url:
            yield url

    def _answer(self, path: str, asked: Mapping[str, str], login: str) -> tuple[int, Any]:
        self.asked += 1
        if login != "Basic " + base64.b64encode(f"{KEY}:{SECRET}".encode()).decode():
            return 401, {"code": "BAD_API_KEY_OR_SECRET", "message": "Check api_key/api_secret"}
        if self.is_broken:
            return 503, {"code": "SERVICE_UNAVAILABLE"}
        if path != "/api/v5/subscriptions":
            return 404, {"code": "NOT_FOUND"}
        page, limit = int(asked["page"]), min(int(asked["limit"]), self.page_max)
        listed = self.subscriptions[(page - 1) * limit : page * limit]
        data = [
            {"clientid": client, "topic": topic, "qos": 1, "nl": 0, "rap": 0, "rh": 0, "node": "emqx@127.0.0.1"}
            for client, topic in listed
        ]
        has_more = page * limit < len(self.subscriptions)
        meta = {"page": page, "limit": limit, "hasnext": has_more, "count": len(self.subscriptions)}
        return 200, {"data": data, "meta": meta}
