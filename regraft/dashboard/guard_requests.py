"""Guard all requests: security headers, allowed host names, and a limit on the size of bodies."""

from __future__ import annotations

from collections.abc import Iterable

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

BODY_BYTES_MAX = 16_384  # An order takes a few hundred bytes.
# Everything from this origin, nothing inline, no frames: text in a name or reason can never become a script.
CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": CONTENT_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


class RequestGuard:
    """ASGI middleware around the whole application."""

    def __init__(self, app: ASGIApp, host_names: Iterable[str]) -> None:
        self._app = app
        self._host_names = frozenset(name.lower() for name in host_names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or refuse it because of its host name or size."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-cache")
            await send(message)

        headers = Headers(scope=scope)
        host = _name_of(headers.get("host", ""))
        if "*" not in self._host_names and host not in self._host_names:
            text = f"This dashboard does not serve the host name {host!r}: add it to dashboard.host_names."
            await JSONResponse({"error": "host_name", "text": text}, 400)(scope, receive, send_guarded)
            return
        if _body_bytes(headers) > BODY_BYTES_MAX:
            text = f"The body is larger than {BODY_BYTES_MAX} bytes, or does not state its size."
            await JSONResponse({"error": "body_too_large", "text": text}, 413)(scope, receive, send_guarded)
            return
        await self._app(scope, receive, send_guarded)


def _name_of(host: str) -> str:
    """Return the name in a Host header, without its port."""
    name, colon, port = host.lower().rpartition(":")
    return name if colon and port.isdigit() else host.lower()


def _body_bytes(headers: Headers) -> int:
    """Return the declared size of the body; a body of unknown size counts as too large."""
    if "transfer-encoding" in headers:
        return BODY_BYTES_MAX + 1
    length = headers.get("content-length", "0")
    return int(length) if length.isdigit() else BODY_BYTES_MAX + 1
