"""Ask a broker's HTTP interface for what it knows as JSON, once or again and again.

In: an address and a login. Out: the answer, or why there is none. A question blocks until it is answered or too late,
so ask it off the loop. Waits and answers have bounds.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar
from urllib.request import Request, urlopen

import msgspec
import structlog

log = structlog.get_logger(__name__)

POLL_S = 2.0
ANSWER_S_MAX = 5.0
ANSWER_BYTES_MAX = 64 << 20
AnswerT = TypeVar("AnswerT")


class NoAnswerError(RuntimeError):
    """The interface does not answer as it should; the message says why."""


@dataclass(frozen=True, slots=True)
class BrokerApi:
    """The interface at ``url``, such as http://127.0.0.1:15672; no ``user`` asks without a login."""

    url: str
    user: str = ""
    password: str = ""
    tls: ssl.SSLContext | None = None

    def ask(self, path: str, kind: type[AnswerT]) -> AnswerT:
        """Return the answer to a GET of ``path``, such as /api/overview; raise NoAnswerError for none of its kind."""
        place = f"{self.url.rstrip('/')}{path}"
        headers = {}
        if self.user:
            login = base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
            headers["Authorization"] = f"Basic {login}"
        try:
            with urlopen(Request(place, headers=headers), timeout=ANSWER_S_MAX, context=self.tls) as answer:
                text = answer.read(ANSWER_BYTES_MAX + 1)
            if len(text) > ANSWER_BYTES_MAX:
                raise NoAnswerError(f"{place} answers with more than {ANSWER_BYTES_MAX >> 20} MiB: ask for less")
            return msgspec.json.decode(text, type=kind)
        except (OSError, ValueError) as error:  # msgspec's errors are ValueErrors.
            raise NoAnswerError(f"{place} gives no answer ({error})") from error


async def keep_asking(ask: Callable[[], Awaitable[None]], broker: str) -> None:
    """Ask what clients want until cancelled; what was wanted stands while the interface gives no answer."""
    while True:
        await asyncio.sleep(POLL_S)
        try:
            await ask()
        except NoAnswerError as error:
            log.warning("interest_not_reported", broker=broker, reason=str(error))
