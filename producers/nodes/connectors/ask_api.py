"""Query a broker's HTTP interface for JSON.

A query blocks until it is answered or times out, so run it off the event loop. Waits and answers are bounded.
"""

from __future__ import annotations

import base64
import ssl
from dataclasses import dataclass
from http.client import HTTPException
from typing import TypeVar
from urllib.request import HTTPSHandler, ProxyHandler, Request, build_opener

import msgspec
import structlog

log = structlog.get_logger(__name__)

ANSWER_S_MAX = 5.0
ANSWER_BYTES_MAX = 64 << 20
AnswerT = TypeVar("AnswerT")


class NoAnswerError(RuntimeError):
    """The interface gives no usable answer; the message says why."""


@dataclass(frozen=True, slots=True)
class BrokerApi:
    """The interface at ``url``, such as http://127.0.0.1:15672; without a ``user``, queries carry no login.

    Several addresses, of one cluster, are separated by commas, and asked in turn until one answers.
    """

    url: str
    user: str = ""
    password: str = ""
    tls: ssl.SSLContext | None = None

    def ask(self, path: str, kind: type[AnswerT]) -> AnswerT:
        """Return the answer to a GET of ``path`` (/api/overview); raise NoAnswerError if it is not of type ``kind``."""
        *others, last = self.url.split(",")
        for url in others:
            try:
                return self._ask_at(f"{url.strip().rstrip('/')}{path}", kind)
            except NoAnswerError as error:
                log.debug("api_not_reached", reason=str(error))
        return self._ask_at(f"{last.strip().rstrip('/')}{path}", kind)

    def _ask_at(self, place: str, kind: type[AnswerT]) -> AnswerT:
        headers = {}
        if self.user:
            login = base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
            headers["Authorization"] = f"Basic {login}"
        # Proxies of the environment are for the web; a broker's interface is near, and its answers are not for them.
        opener = build_opener(ProxyHandler({}), HTTPSHandler(context=self.tls))
        try:
            with opener.open(Request(place, headers=headers), timeout=ANSWER_S_MAX) as answer:
                text = answer.read(ANSWER_BYTES_MAX + 1)
            if len(text) > ANSWER_BYTES_MAX:
                raise NoAnswerError(f"{place} sent more than {ANSWER_BYTES_MAX >> 20} MiB: ask for less")
            return msgspec.json.decode(text, type=kind)
        except (OSError, ValueError, HTTPException, RecursionError) as error:  # msgspec's errors are ValueErrors.
            raise NoAnswerError(f"{place} did not answer ({error})") from error
