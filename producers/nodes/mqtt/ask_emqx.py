"""Ask EMQX's REST interface what the clients of a broker, or of its whole cluster, want.

Source: EMQX 5, ``GET /api/v5/subscriptions``.
"""

from __future__ import annotations

import asyncio
import time

import msgspec

from regraft.producers.nodes.connectors.ask_api import BrokerApi, NoAnswerError
from regraft.producers.nodes.mqtt.mqtt_interest import MqttInterest

PAGE = 1_000  # Subscriptions per answer.
PAGES_MAX = 100
PAUSE_S = 0.1
PATH = "/api/v5/subscriptions"
_PREFIXES = ("$queue/", "$exclusive/")  # EMQX's own; they restrict who receives, not which topics match.


class _Subscription(msgspec.Struct):
    clientid: str
    topic: str


class _Meta(msgspec.Struct):
    hasnext: bool | None = None


class _Page(msgspec.Struct):
    data: list[_Subscription]
    meta: _Meta


def filters_of_clients(api: BrokerApi) -> dict[str, list[str]]:
    """Return each client's filters; raise NoAnswerError if the interface does not answer, or lists too many."""
    by_client: dict[str, list[str]] = {}
    for page in range(1, PAGES_MAX + 1):
        answer = api.ask(f"{PATH}?page={page}&limit={PAGE}", _Page)
        for each in answer.data:
            prefix = next((prefix for prefix in _PREFIXES if each.topic.startswith(prefix)), "")
            by_client.setdefault(each.clientid, []).append(each.topic.removeprefix(prefix))
        has_more = len(answer.data) == PAGE if answer.meta.hasnext is None else answer.meta.hasnext
        if not has_more:
            return by_client
    raise NoAnswerError(
        f"{api.url}{PATH} lists more than {PAGE * PAGES_MAX:,} subscriptions, which is the limit: name what crosses in "
        "connectors.mqtt.filters, and give no node.connector_api"
    )


async def learn_interest(api: BrokerApi, interest: MqttInterest) -> bool:
    """Update the interest to what clients want now; return False if the node itself is not listed.

    Raises NoAnswerError if the interface does not answer.
    """
    loop = asyncio.get_running_loop()
    return interest.replace(await loop.run_in_executor(None, filters_of_clients, api))


async def learn_first(api: BrokerApi, interest: MqttInterest, s_max: float) -> None:
    """Update the interest once the node itself is listed; raise NoAnswerError if it is not within ``s_max``.

    The interface of another broker also has a list, and nothing in it would look wrong.
    """
    until_s = time.monotonic() + s_max
    while not await learn_interest(api, interest):
        if time.monotonic() > until_s:
            raise NoAnswerError(
                f"{api.url}{PATH} does not list this node's own subscription, so it belongs to another broker"
            )
        await asyncio.sleep(PAUSE_S)
