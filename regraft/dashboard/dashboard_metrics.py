"""Prometheus metrics of the dashboard, in their own registry."""

from __future__ import annotations

from regraft.infra.process.stage_metrics import StageMetrics


class DashboardMetrics:
    """Counters and gauges of one dashboard; names start with ``regraft_dashboard_``."""

    def __init__(self) -> None:
        self.stage = stage = StageMetrics("dashboard")
        self.registry = stage.registry
        self.clients = stage.gauge("clients", "Pages open now.")
        self.clients_refused = stage.counter("clients_refused", "Pages refused because too many were open.")
        self.sent = stage.counter("events_sent", "Events sent to pages, by kind.", ["kind"])
        self.sent_bytes = stage.counter("sent_bytes", "Bytes of the events sent to pages.")
        self.skipped = stage.counter(
            "states_skipped", "States skipped for slow pages because a newer one was available."
        )
        self.failures = stage.counter("view_failures", "Failed reads of the live view.")
        self.undecodable = stage.gauge("undecodable", "Parts of the live view that cannot be read at present.")
        self.poll_ms = stage.histogram("poll_ms", "Duration of one read of the live view, including failures.")
        self.orders = stage.counter(
            "orders", "Orders by kind and outcome here: stored, refused or failed.", ["kind", "outcome"]
        )
        self.tokens_refused = stage.counter("tokens_refused", "Requests refused because of their token.", ["why"])
