"""Prometheus metrics of the dashboard, in a registry of their own."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram


class DashboardMetrics:
    """Counters and gauges of one dashboard; names start with ``regraft_dashboard_``."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.clients = Gauge("regraft_dashboard_clients", "Pages open now.", registry=self.registry)
        self.clients_refused = self._counter("clients_refused", "Pages refused because too many were open.")
        self.sent = Counter(
            "regraft_dashboard_events_sent", "Events sent to pages, by kind.", ["kind"], registry=self.registry
        )
        self.sent_bytes = self._counter("sent_bytes", "Bytes of the events sent to pages.")
        self.skipped = self._counter("states_skipped", "States that a slow page never got, as a newer one was there.")
        self.failures = self._counter("view_failures", "Looks at the live view that failed.")
        self.undecodable = Gauge(
            "regraft_dashboard_undecodable", "Parts of the live view that cannot be read now.", registry=self.registry
        )
        self.poll_s = Histogram(
            "regraft_dashboard_poll_s",
            "How long one look at the live view took, failures included.",
            buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1),
            registry=self.registry,
        )
        self.orders = Counter(
            "regraft_dashboard_orders",
            "Orders by kind and what came of them here: stored, refused or failed.",
            ["kind", "outcome"],
            registry=self.registry,
        )
        self.strangers = Counter(
            "regraft_dashboard_tokens_refused",
            "Calls refused for their token.",
            ["why"],
            registry=self.registry,
        )

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(f"regraft_dashboard_{name}", text, registry=self.registry)
