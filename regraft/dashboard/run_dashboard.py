"""Serve the dashboard until asked to stop.

In: settings. Out: pages over HTTP and a status file. The only module of this stage that opens a port.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
import time
from typing import Any

import redis.asyncio
import structlog
import uvicorn
from fastapi import FastAPI
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from regraft.dashboard.dashboard_settings import DashboardSettings
from regraft.dashboard.take_order import Send
from regraft.dashboard.web_app import DashboardParts, build_app
from regraft.infra.live.redis_access import RedisAccess
from regraft.infra.orders.send_orders import send_order
from regraft.infra.process.stack_error import StackError
from regraft.schemas.order import Order
from regraft.schemas.status_file import StatusFile

STATUS_S = 2.0
STOP_S_MAX = 5  # Limit on closing open pages.

log = structlog.get_logger(__name__)


class DashboardError(StackError):
    """The dashboard cannot be served; the message says why."""


def run_dashboard(settings: DashboardSettings, stop: threading.Event) -> None:
    """Serve until ``stop`` is set. Nothing is raised if Valkey, Kafka or the inventory is unavailable.

    Raises DashboardError if no live view is configured, or the port or the certificate cannot be used; TokenSecretError
    if the secret, OrderKeyError if the key for orders cannot be used.
    """
    if settings.redis is None:
        raise DashboardError(
            "The dashboard has no live view to show: set redis.url or REGRAFT_REDIS_URL to the URL of the server "
            "that the controller uses."
        )
    _check_certificate(settings)
    listener = _listen(settings.host, settings.port)
    try:
        app = build_app(settings, view_client(settings.redis, settings.answer_ms_max), _sender(settings))
        _serve(app, listener, settings, stop)
    finally:
        listener.close()


def view_client(access: RedisAccess, answer_ms_max: int) -> redis.asyncio.Redis:
    """Return a client that answers or fails within a bounded time and never retries on its own."""
    bound_s = answer_ms_max / 1000
    options = {**access.client_options(), "retry": Retry(NoBackoff(), 0)}
    return redis.asyncio.Redis.from_url(access.url, socket_timeout=bound_s, socket_connect_timeout=bound_s, **options)


def _check_certificate(settings: DashboardSettings) -> None:
    """Raise DashboardError if certificate and key cannot be used, before the port is opened."""
    if settings.certificate_file is None or settings.key_file is None:
        return
    try:
        for file in (settings.certificate_file, settings.key_file):
            if "-----BEGIN " not in file.read_text(encoding="utf-8", errors="replace"):
                raise DashboardError(f"The dashboard cannot be served over TLS: {file} is not a PEM file.")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(settings.certificate_file, settings.key_file, password=_no_passphrase)
    except OSError as error:  # Includes SSLError.
        files = f"certificate {settings.certificate_file}, key {settings.key_file}"
        raise DashboardError(f"The dashboard cannot be served over TLS ({error}; {files}): fix the files.") from error


def _no_passphrase() -> str:
    raise DashboardError(
        "The dashboard cannot be served over TLS: its key has a passphrase. Give one without "
        "that nobody else can read (`openssl pkey -in KEY -out NEW`)."
    )


def _sender(settings: DashboardSettings) -> Send:
    key = settings.orders.dashboard_key()
    if key is None:
        log.warning(
            "dashboard_orders_unsigned", text="orders from here are executed only if unsigned orders are allowed"
        )

    def send(order: Order) -> Order:
        signed = order if key is None else key.sign(order, settings.namespace)
        send_order(settings.kafka, signed, settings.namespace)
        return signed

    return send


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen()
    except OSError as error:
        raise DashboardError(
            f"The dashboard cannot be served on {host}:{port} ({error.strerror}): stop the process that "
            "listens there, or choose another address with --port and --host."
        ) from error
    return listener


def _server_options(app: FastAPI, settings: DashboardSettings) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=list(settings.trusted_proxies),
        ws="none",
        timeout_graceful_shutdown=STOP_S_MAX,
        ssl_certfile=settings.certificate_file,
        ssl_keyfile=settings.key_file,
    )


def _serve(app: FastAPI, listener: socket.socket, settings: DashboardSettings, stop: threading.Event) -> None:
    """Run the server in a separate thread, so that it handles no signals; this thread writes the status file."""
    server = uvicorn.Server(_server_options(app, settings))
    loop = asyncio.new_event_loop()
    errors: list[BaseException] = []

    def serve() -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_until_complete(server.serve([listener]))
        except BaseException as error:
            errors.append(error)
        finally:
            loop.close()

    host, port = listener.getsockname()[:2]
    url = f"{settings.scheme}://{f'[{host}]' if ':' in host else host}:{port}/"
    thread = threading.Thread(target=serve, name="dashboard")
    thread.start()
    parts: DashboardParts = app.state.parts
    log.info("dashboard_listening", url=url, can_order=parts.access.can_order)
    status = StatusFile(settings.status_file) if settings.status_file is not None else None
    try:
        while thread.is_alive() and not stop.is_set():
            if status is not None and server.started:
                status.write(_status(url, parts))
            stop.wait(STATUS_S if server.started else 0.05)
    finally:
        if thread.is_alive():
            asyncio.run_coroutine_threadsafe(parts.board.close(), loop)  # Otherwise shutdown would wait for open pages.
            server.should_exit = True
        thread.join(STOP_S_MAX + 5)
    if errors:
        raise errors[0]


def _status(url: str, parts: DashboardParts) -> dict[str, Any]:
    return {
        "time_ms": time.time_ns() // 1_000_000,
        "url": url,
        "can_order": parts.access.can_order,
        "version": parts.board.version,
        "view": parts.poller.server_part(),
    }
