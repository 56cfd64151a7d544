"""Prometheus metrics of the control loop, in a registry of their own so that several loops fit one process."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server


class LoopMetrics:
    """Counters and gauges that the loop keeps; names start with ``regraft_controller_``."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.windows = self._counter("windows", "Closed windows by completeness.", "complete")
        self.refusals = self._counter("refusals", "Refused proposals and states by verdict.", "verdict")
        self.commands = self._counter("commands", "Commands sent by phase.", "phase")
        self.events = self._counter("events", "Events emitted by kind.", "kind")
        self.cost_per_s = Gauge(
            "regraft_controller_cost_per_s",
            "Overlay cost of the last window; tree is present, bootstrap or shadow:<planner>.",
            ["tree"],
            registry=self.registry,
        )
        self.epoch = Gauge("regraft_controller_epoch", "Epoch of the present configuration.", registry=self.registry)
        self.window_age_ms = Gauge(
            "regraft_controller_window_age_ms", "Time since the end of the newest window.", registry=self.registry
        )
        self.plans = Gauge("regraft_controller_plans", "Plans by phase.", ["phase"], registry=self.registry)
        self.changes = Gauge(
            "regraft_controller_changes",
            "Links exchanged, ring IDs reassigned, publishers or users moved by the plans kept that were carried out.",
            ["what"],
            registry=self.registry,
        )
        self.faults = Gauge(
            "regraft_controller_faults",
            "What went wrong on the borders since the start.",
            ["what"],
            registry=self.registry,
        )
        self.command_latency_ms = Histogram(
            "regraft_controller_window_close_to_command_ms",
            "From the end of a window to the first command of the plan made from it.",
            buckets=(100, 250, 500, 1000, 2000, 4000, 8000, 16_000, 32_000, 64_000),
            registry=self.registry,
        )
        self.decision_ms = Histogram(
            "regraft_controller_decision_ms",
            "How long one decision of a planner takes, judge and choice included; role is acting or shadow.",
            ["planner", "role"],
            buckets=(1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000),
            registry=self.registry,
        )
        self.step_s = Histogram(
            "regraft_controller_step_s", "How long one step of the loop takes.", registry=self.registry
        )

    def serve(self, port: int, host: str) -> None:
        """Open the scrape endpoint; raises OSError when the port is in use."""
        start_http_server(port, addr=host, registry=self.registry)

    def _counter(self, name: str, text: str, label: str) -> Counter:
        return Counter(f"regraft_controller_{name}", text, [label], registry=self.registry)
