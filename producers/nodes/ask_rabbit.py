"""Ask RabbitMQ's management interface for the bindings of an exchange.

In: the interface's address and who asks. Out: bindings, or why there are none. The question waits for an answer, so it
is asked off the loop. When it is asked is decided by :mod:`producers.nodes.amqp_door`.
"""

from __future__ import annotations

import base64
import json
import ssl
from dataclasses import dataclass
from urllib.parse import quote
from urllib.request import Request, urlopen

from regraft.producers.nodes.amqp_interest import Binding

ANSWER_S_MAX = 5.0
ANSWER_BYTES_MAX = 64 << 20


class NoAnswerError(RuntimeError):
    """The interface does not answer as it should; the message says why."""


@dataclass(frozen=True, slots=True)
class RabbitApi:
    """The interface at ``url``, such as http://127.0.0.1:15672."""

    url: str
    user: str
    password: str
    tls: ssl.SSLContext | None = None

    def bindings(self, vhost: str, exchange: str) -> list[Binding]:
        """Return what the exchange routes to; raise NoAnswerError when the interface does not say."""
        place = (
            f"{self.url.rstrip('/')}/api/exchanges/{quote(vhost, safe='')}/{quote(exchange, safe='')}/bindings/source"
        )
        login = base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
        request = Request(place, headers={"Authorization": f"Basic {login}"})
        try:
            with urlopen(request, timeout=ANSWER_S_MAX, context=self.tls) as answer:
                said = json.loads(answer.read(ANSWER_BYTES_MAX))
            return [Binding(each["destination_type"], each["destination"], each["routing_key"]) for each in said]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise NoAnswerError(f"{place} does not report the bindings ({error})") from error
