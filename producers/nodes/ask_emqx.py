"""Ask EMQX's REST interface, again and again, what the clients of a broker, or of its whole cluster, want.

In: the interface and a key for it. Out: each client's filters, which :mod:`producers.nodes.mqtt_interest` compares with
what was wanted before. Source: EMQX 5, ``GET /api/v5/subscriptions``.
"""

from __future__ import annotations

import asyncio

import structlog

from regraft.producers.nodes.ask_api import BrokerApi, NoAnswerError
from regraft.producers.nodes.mqtt_interest import MqttInterest

log = structlog.get_logger(__name__)

POLL_S = 2.0
PAGE = 1_000  # Subscriptions in one answer.
PAGES_MAX = 100
PATH = "/api/v5/subscriptions"
_PREFIXES = ("$queue/", "$exclusive/")  # EMQX's own: who may subscribe, not which topics.


def filters_of_clients(api: BrokerApi) -> dict[str, list[str]]:
    """Return what each client wants; raise NoAnswerError when the interface does not say, or there is too much."""
    found: dict[str, list[str]] = {}
    for page in range(1, PAGES_MAX + 1):
        answer = api.ask(f"{PATH}?page={page}&limit={PAGE}")
        try:
            if not isinstance(answer["data"], list):
                raise TypeError(f"{type(answer['data']).__name__} instead of a list")
            listed = [(str(each["clientid"]), str(each["topic"])) for each in answer["data"]]
            has_more = answer["meta"].get("hasnext", len(listed) == PAGE)
        except (AttributeError, KeyError, TypeError) as error:
            raise NoAnswerError(f"{api.url}{PATH} lists no subscriptions ({error!r})") from error
        for client, wanted in listed:
            prefix = next((each for each in _PREFIXES if wanted.startswith(each)), "")
            found.setdefault(client, []).append(wanted.removeprefix(prefix))
        if not has_more:
            return found
    raise NoAnswerError(
        f"{api.url}{PATH} lists more than {PAGE * PAGES_MAX:,} subscriptions, which is the limit: name what crosses in "
        "node.door_filters, and give no node.door_api"
    )


async def learn_interest(api: BrokerApi, interest: MqttInterest) -> None:
    """Let the interest be what clients want now; raise NoAnswerError when the interface does not say."""
    loop = asyncio.get_running_loop()
    interest.replace(await loop.run_in_executor(None, filters_of_clients, api))


async def keep_learning(api: BrokerApi, interest: MqttInterest, broker: str) -> None:
    """Do so until cancelled; what was wanted stands while the interface gives no answer."""
    while True:
        await asyncio.sleep(POLL_S)
        try:
            await learn_interest(api, interest)
        except NoAnswerError as error:
            log.warning("interest_not_reported", broker=broker, reason=str(error))
