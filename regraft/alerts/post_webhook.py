"""Post messages to a webhook: HTTP POST with JSON.

Any 2xx status is a success; the body is not read, so an endless one delays nothing. Redirects are not followed: alerts
go only to the configured address.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import unquote

import urllib3
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError, ReadTimeoutError, SSLError
from urllib3.util import make_headers, parse_url

from regraft.alerts.alert_message import AlertMessage
from regraft.alerts.message_senders import SendError

RETRIED_STATUSES = (408, 425, 429)  # Like every 5xx; other 4xx would fail again.


class WebhookSender:
    """One URL. ``source`` says in each message which overlay it is about."""

    def __init__(self, url: str, timeout_s: float, source: str) -> None:
        parts = parse_url(url)
        self._url = parts._replace(auth=None).url
        self._headers = {"Content-Type": "application/json", "User-Agent": "regraft"}
        if parts.auth:
            self._headers |= make_headers(basic_auth=unquote(parts.auth))
        self._timeout_s = timeout_s
        self._source = source
        self._pool = urllib3.PoolManager(
            num_pools=1, maxsize=1, retries=False, timeout=urllib3.Timeout(connect=timeout_s, read=timeout_s)
        )

    def send(self, message: AlertMessage) -> None:
        """Post a message once. Raises SendError if it was not accepted."""
        headers = {**self._headers, "Idempotency-Key": message.message}
        try:
            answer = self._pool.request(
                "POST", self._url, body=message.encoded(self._source), headers=headers, redirect=False,
                preload_content=False,
            )  # fmt: skip
        except HTTPError as error:
            raise self._error(error) from None  # The library's own text contains the URL.
        try:
            status, asked = answer.status, answer.headers
        finally:
            answer.close()
        if not 200 <= status < 300:
            raise _refusal(status, asked)

    def _error(self, error: HTTPError) -> SendError:
        if isinstance(error, ConnectTimeoutError):
            return SendError(f"no connection within {self._timeout_s:g} s")
        if isinstance(error, ReadTimeoutError):
            return SendError(f"no answer within {self._timeout_s:g} s", is_uncertain=True)
        if isinstance(error, NewConnectionError):
            return SendError("no connection: check that it runs and that the address is right")
        if isinstance(error, SSLError):
            return SendError("no secure connection: check that its certificate is valid")
        return SendError(f"the connection broke ({type(error).__name__})", is_uncertain=True)


def _refusal(status: int, headers: Mapping[str, str]) -> SendError:
    if 300 <= status < 400:
        return SendError(f"it answered HTTP {status}, a redirect: use the address it points to", can_retry=False)
    can_retry = status >= 500 or status in RETRIED_STATUSES
    asked = headers.get("Retry-After", "")
    return SendError(
        f"it answered HTTP {status}", can_retry=can_retry, wait_s=float(asked) if asked.isdecimal() else None
    )
