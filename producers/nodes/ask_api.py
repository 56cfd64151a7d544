"""Ask a broker's HTTP interface for what it knows as JSON.

In: an address and a login. Out: the answer, or why there is none. A question blocks until it is answered or too late,
so ask it off the loop. Waits and answers have bounds.
"""

from __future__ import annotations

import base64
import json
import ssl
from dataclasses import dataclass
from typing import Any
from urllib.request import Request, urlopen

ANSWER_S_MAX = 5.0
ANSWER_BYTES_MAX = 64 << 20


class NoAnswerError(RuntimeError):
    """The interface does not answer as it should; the message says why."""


@dataclass(frozen=True, slots=True)
class BrokerApi:
    """The interface at ``url``, such as http://127.0.0.1:15672; no ``user`` asks without a login."""

    url: str
    user: str = ""
    password: str = ""
    tls: ssl.SSLContext | None = None

    def ask(self, path: str) -> Any:
        """Return the answer to a GET of ``path``, such as /api/overview; raise NoAnswerError without one."""
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
            return json.loads(text)
        except (OSError, ValueError) as error:
            raise NoAnswerError(f"{place} gives no answer ({error})") from error
