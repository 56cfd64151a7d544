"""The dashboard's routes: the page, the stream of its state, the state for programs, orders, metrics, health.

In: the parts that do the work. Out: an ASGI application. Serving it belongs to ``run_dashboard``.
"""

import asyncio
import ipaddress
import platform
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec
from fastapi import Depends, FastAPI, Header, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, Response
from fastapi.sse import EventSourceResponse, ServerSentEvent
from fastapi.staticfiles import StaticFiles
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from regraft.dashboard.check_access import AccessCheck
from regraft.dashboard.dashboard_metrics import DashboardMetrics
from regraft.dashboard.dashboard_settings import DashboardSettings
from regraft.dashboard.guard_requests import RequestGuard
from regraft.dashboard.live_board import LiveBoard
from regraft.dashboard.operator_tokens import Operator, TokenRefusedError
from regraft.dashboard.poll_view import LIVE, UNREACHABLE, ViewPoller, ViewSource
from regraft.dashboard.read_view import SERIES
from regraft.dashboard.revoked_tokens import RevokedFileError
from regraft.dashboard.serve_sessions import add_sessions, reader_of
from regraft.dashboard.take_order import OrderDesk, OrderRefusedError, OrderRequest, Send
from regraft.dashboard.watch_inventory import InventoryWatcher
from regraft.schemas.plan import PlanPhase
from regraft.schemas.plan_life import LIFE

IPV6_SITE_BITS = 64  # A client has countless IPv6 addresses, so a limit per address would be useless.


class OpenPages:
    """The places for open pages."""

    def __init__(self, pages_max: int, pages_per_address_max: int, metrics: DashboardMetrics) -> None:
        self._pages_max = pages_max
        self._pages_per_address_max = pages_per_address_max
        self._metrics = metrics
        self._open: Counter[str] = Counter()

    async def admit(self, request: Request) -> AsyncIterator[None]:
        """Count a page while it is open; raise HTTPException if there is no place for it."""
        address = site_of(request.client.host if request.client else "")
        if self._open.total() >= self._pages_max:
            self._refuse(503, f"{self._pages_max} pages are already open, the maximum")
        if self._open[address] >= self._pages_per_address_max:
            most = self._pages_per_address_max
            self._refuse(429, f"{most} pages are already open from {address}, the maximum")
        self._open[address] += 1
        self._metrics.clients.set(self._open.total())
        try:
            yield
        finally:
            self._open[address] -= 1
            self._open += Counter()  # Drops addresses without a page.
            self._metrics.clients.set(self._open.total())

    def _refuse(self, status: int, text: str) -> None:
        self._metrics.clients_refused.inc()
        raise HTTPException(status, text)


def site_of(host: str) -> str:
    """Return what counts as one address: for IPv6, the /64 network of a site."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host  # A trusted proxy gave something other than an address.
    if address.version == 4:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((int(address), IPV6_SITE_BITS), strict=False))


STATIC = Path(__file__).parent / "static"
BEAT_S = 5.0  # A page that gets nothing for several beats says that it is disconnected.
RETRY_MS = 1000
STALE_FACTOR = 6  # Pages show that a view is stale; it is not ready after several times as long, as after a failover.
POLLS_LATE_MAX = 20  # Polls that may be overdue before the poller counts as dead.


FACTS = ("is_moving", "is_under_way", "is_committed", "is_in_force", "is_aborted", "is_final")


def phases_part() -> dict[str, Any]:
    """Return the facts and allowed orders of each phase, and the steps of a plan that succeeds."""
    facts = {
        str(phase): {
            "orders": [str(kind) for kind in one.orders],
            **{name: getattr(one, name) for name in FACTS},
        }
        for phase, one in LIFE.items()
    }
    return {"facts": facts, "steps": [str(phase) for phase in _steps()]}


def _steps() -> list[PlanPhase]:
    """Return the phases of a plan that succeeds, from the first command to before the final one."""
    steps, phase = [], PlanPhase.PREPARING
    while not LIFE[phase].is_final:
        steps.append(phase)
        phase = LIFE[phase].next[0]
    return steps


@dataclass(frozen=True)
class DashboardParts:
    """What the routes use to answer."""

    settings: DashboardSettings
    board: LiveBoard
    metrics: DashboardMetrics
    poller: ViewPoller
    desk: OrderDesk
    access: AccessCheck

    def why_not_live(self) -> str | None:
        """Return why the page's state is not live, or None if it is."""
        server = self.poller.server_part()
        if server["view"] == LIVE:
            silent_ms = _now_ms() - (server["news_ms"] or 0)
            is_stale = server["news_ms"] is not None and silent_ms > STALE_FACTOR * self.settings.stale_ms
            return f"the controller last wrote the live view {silent_ms / 1000:.0f} s ago" if is_stale else None
        state = "unreachable" if server["view"] == UNREACHABLE else server["view"]
        return f"the live view is {state}: {server['reason']}".strip(": ")


def build_app(settings: DashboardSettings, source: ViewSource, send: Send) -> FastAPI:
    """Return the application, with its DashboardParts in ``app.state.parts``. Raises TokenSecretError."""
    access = AccessCheck(settings)
    board, metrics = LiveBoard(SERIES), DashboardMetrics()
    poller = ViewPoller(source, board, settings, metrics, can_order=access.can_order)
    watcher = InventoryWatcher(settings.inventory_path, board)
    parts = DashboardParts(settings, board, metrics, poller, OrderDesk(board, send), access)

    @asynccontextmanager
    async def run_tasks(_: FastAPI) -> AsyncIterator[None]:
        await board.replace({"phases": phases_part()})
        tasks = [asyncio.create_task(poller.run()), asyncio.create_task(watcher.run())]
        try:
            yield
        finally:
            await board.close()
            for task in tasks:
                task.cancel()
            for task in tasks:
                with suppress(asyncio.CancelledError):
                    await task

    app = FastAPI(title="Regraft dashboard", lifespan=run_tasks, docs_url=None, redoc_url=None)
    app.state.parts = parts
    _add_reading(app, parts)
    add_sessions(app, parts.access)
    _add_orders(app, parts)
    _add_health(app, parts)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    app.add_middleware(RequestGuard, host_names=settings.host_names)
    return app


def _add_reading(app: FastAPI, parts: DashboardParts) -> None:
    board, metrics = parts.board, parts.metrics
    settings = parts.settings
    pages = OpenPages(settings.clients_max, settings.clients_per_address_max, metrics)

    @app.get("/", include_in_schema=False)
    async def page() -> FileResponse:
        return FileResponse(STATIC / "index.html")

    reader = reader_of(parts.access)

    @app.get("/api/stream", response_class=EventSourceResponse, dependencies=[Depends(reader), Depends(pages.admit)])
    async def stream(who: Annotated[Operator | None, Depends(reader)]) -> AsyncIterator[ServerSentEvent]:
        """Send the whole state, then changes, and a beat while nothing changes."""
        async for event in follow_board(board, metrics, lambda: parts.access.is_still_valid(who)):
            yield event

    @app.get("/api/state", dependencies=[Depends(reader)])
    async def state() -> Response:
        """Return the whole state that pages show, as one JSON document."""
        document = {"boot": board.boot, "version": board.version, "now_ms": _now_ms(), "parts": board.values()}
        return Response(msgspec.json.encode(document), media_type="application/json")


async def follow_board(
    board: LiveBoard, metrics: DashboardMetrics, may_read: Callable[[], bool]
) -> AsyncIterator[ServerSentEvent]:
    """Yield the whole state, then changes, until the board is closed or ``may_read`` is False.

    A slow page skips states. ``may_read`` is checked at least every 5 s.
    """
    seen, kind = 0, "snapshot"
    while not board.is_closed and may_read():
        text = board.text_since(seen)
        if seen:
            metrics.skipped.inc(board.version - seen - 1)
        seen = board.version
        yield _event(kind, text, metrics, retry=RETRY_MS if kind == "snapshot" else None)
        if kind == "snapshot":
            yield _event("beat", _beat(), metrics)  # Gives the page the server's time.
        kind = "change"
        while board.version == seen and not board.is_closed and may_read():
            await board.wait_beyond(seen, BEAT_S)
            if board.version == seen and not board.is_closed:
                yield _event("beat", _beat(), metrics)


def _event(kind: str, text: str, metrics: DashboardMetrics, retry: int | None = None) -> ServerSentEvent:
    metrics.sent.labels(kind).inc()
    metrics.sent_bytes.inc(len(text))
    return ServerSentEvent(raw_data=text, event=kind, retry=retry)


def _add_orders(app: FastAPI, parts: DashboardParts) -> None:
    metrics = parts.metrics

    def operator(authorization: Annotated[str | None, Header()] = None) -> Operator:
        return parts.access.operator(authorization)

    @app.post("/api/orders", status_code=202)
    async def give_order(
        request: OrderRequest, http_request: Request, who: Annotated[Operator, Depends(operator)]
    ) -> dict[str, Any]:
        """Store an order for the controller; an event reports its outcome."""
        address = http_request.client.host if http_request.client is not None else "unknown"
        try:
            order = await parts.desk.give(
                request, who.name, f"dashboard on {platform.node()}, requested from {address}"
            )
        except OrderRefusedError as error:
            metrics.orders.labels(request.kind, "failed" if error.status == 503 else "refused").inc()
            raise
        metrics.orders.labels(request.kind, "stored").inc()
        shown = {name: value for name, value in msgspec.to_builtins(order).items() if name != "signature"}
        return {"order": shown, "text": "Stored; the controller decides what follows."}

    @app.exception_handler(TokenRefusedError)
    async def refuse_token(_: Request, error: TokenRefusedError) -> JSONResponse:
        metrics.tokens_refused.labels(error.why).inc()
        headers = {"WWW-Authenticate": 'Bearer realm="regraft"'} if error.status == 401 else None
        return JSONResponse({"error": error.why, "text": error.text}, error.status, headers)

    @app.exception_handler(RevokedFileError)
    async def refuse_all(_: Request, error: RevokedFileError) -> JSONResponse:
        metrics.tokens_refused.labels("revoked_file").inc()
        return JSONResponse({"error": "revoked_file", "text": str(error)}, 503)

    @app.exception_handler(OrderRefusedError)
    async def refuse_order(_: Request, error: OrderRefusedError) -> JSONResponse:
        return JSONResponse({"error": "order_refused", "text": error.text}, error.status)

    @app.exception_handler(RequestValidationError)
    async def refuse_form(_: Request, error: RequestValidationError) -> JSONResponse:
        errors = [f"{'.'.join(map(str, entry['loc'][1:])) or 'body'}: {entry['msg']}" for entry in error.errors()]
        return JSONResponse({"error": "form", "text": "; ".join(errors)}, 422)


def _add_health(app: FastAPI, parts: DashboardParts) -> None:
    polls_late_ms_max = POLLS_LATE_MAX * max(parts.settings.poll_ms, 1000)

    def answer(is_ready: bool, errors: list[str], status: int) -> JSONResponse:
        return JSONResponse({"is_ready": is_ready, "errors": errors}, status)

    @app.get("/metrics")
    async def metrics() -> Response:
        """Return the metrics for Prometheus."""
        return Response(generate_latest(parts.metrics.registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    @app.get("/health")
    async def health() -> JSONResponse:
        """Report whether the poller is alive: status 503 means that a restart could help."""
        late_ms = parts.poller.silent_ms()
        errors = [f"the live view was last polled {late_ms} ms ago"] if late_ms > polls_late_ms_max else []
        return answer(parts.why_not_live() is None, errors, 503 if errors else 200)

    @app.get("/ready")
    async def ready() -> JSONResponse:
        """Report whether the state that pages show is live."""
        reason = parts.why_not_live()
        return answer(reason is None, [reason] if reason else [], 200 if reason is None else 503)


def _beat() -> str:
    return f'{{"now_ms":{_now_ms()}}}'


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
