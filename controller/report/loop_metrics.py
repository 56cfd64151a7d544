"""Prometheus metrics of the control loop, in their own registry so that several loops fit in one process.

The loop counts its own decisions here; what passes its ports is counted by :mod:`controller.ports.measure_ports`.
"""

from __future__ import annotations

from regraft.infra.process.serve_metrics import Health, Pulse
from regraft.infra.process.stage_metrics import StageMetrics

LATENCY_MS_BUCKETS = (100, 250, 500, 1000, 2000, 4000, 8000, 16_000, 32_000, 64_000)


class LoopMetrics:
    """Counters and gauges that the loop keeps; names start with ``regraft_controller_``. Durations are in ms."""

    def __init__(self) -> None:
        self.stage = StageMetrics("controller")
        self.registry = self.stage.registry
        counter, gauge = self.stage.counter, self.stage.gauge
        self.windows = counter("windows", "Closed windows by completeness.", ["complete"])
        self.refusals = counter("refusals", "Refused proposals and states by verdict.", ["verdict"])
        self.commands = counter("commands", "Commands sent by phase.", ["phase"])
        self.events = counter("events", "Events emitted by kind.", ["kind"])
        self.events_left_out = counter(
            "events_left_out", "Events beyond the share of the sender that caused them, by kind.", ["kind"]
        )
        self.orders = counter("orders", "Orders, by kind and outcome.", ["kind", "outcome"])
        self.cost_per_s = gauge(
            "cost_per_s",
            "Overlay cost of the last window; tree is present, bootstrap, shadow:<planner> or least (bound).",
            ["tree"],
        )
        self.epoch = gauge("epoch", "Epoch of the present configuration.")
        self.window_age_ms = gauge("window_age_ms", "Time since the end of the newest window.")
        self.clock_offset_ms = gauge("clock_offset_ms", "Offsets of clocks from Kafka's: ahead, or behind.", ["broker"])
        self.plans = gauge("plans", "Plans by phase.", ["phase"])
        self.changes = gauge(
            "changes",
            "Links exchanged, ring IDs or places changed, publishers or users moved by plans executed and kept.",
            ["what"],
        )
        self.errors = gauge("errors", "Errors at the ports of the process since it started, by kind.", ["what"])
        self.results_foreign = counter(
            "results_foreign",
            "Ignored answers of brokers, by the field that does not match: plan, digest, term.",
            ["part"],
        )
        self._add_times()
        self._add_port_metrics()
        self._add_leadership()

    def _add_times(self) -> None:
        """Create the metrics of the durations of steps and decisions, and of their consequences."""
        counter, histogram = self.stage.counter, self.stage.histogram
        self.command_latency_ms = histogram(
            "window_close_to_command_ms",
            "Time from the end of a window to the first command of the plan based on it.",
            buckets=LATENCY_MS_BUCKETS,
        )
        self.decision_ms = histogram(
            "decision_ms",
            "Duration of one decision of a planner, including judge and choice; role is acting or shadow.",
            ["planner", "role"],
        )
        self.shadow_skips = counter(
            "shadow_skips", "Decisions that shadow planners skipped because windows arrived during the last one."
        )
        self.step_ms = histogram("step_ms", "Duration of one step of the loop.")

    def _add_members(self) -> None:
        """Create the metrics of members."""
        self.members = self.stage.gauge("members", "Known brokers by state.", ["state"])
        self.announced_brokers = self.stage.gauge(
            "announced_brokers", "Brokers that ask to join and wait for approval."
        )
        self.announcements = self.stage.counter("announcements", "Announcements of brokers by outcome.", ["outcome"])
        self.peer_claims = self.stage.counter(
            "peer_claims",
            "Claims that a neighbour is dead: counted, unfounded (windows hear it), muted, or not about a neighbour.",
            ["outcome"],
        )
        self.lost_brokers = self.stage.gauge("lost_brokers", "Brokers that are dead and still in the overlay in force.")
        self.member_changes = self.stage.counter("member_changes", "Transitions of members into each state.", ["state"])
        self.repair_ms = self.stage.histogram(
            "repair_ms",
            "Time from a declared death to an overlay in force without the dead brokers.",
            buckets=LATENCY_MS_BUCKETS,
        )

    def _add_links(self) -> None:
        """Create the metrics of changes of traffic, link costs and the cost model."""
        self.changes_found = self.stage.counter(
            "changes_found", "Detected changes of traffic, by statistic.", ["statistic"]
        )
        gauge = self.stage.gauge
        self.links_corrected = gauge("links_corrected", "Links whose cost is measured, not the inventory's.")
        self.links_estimated = gauge("links_estimated", "Links of the overlay whose cost is estimated, not measured.")
        self.model_drift_share = gauge(
            "model_drift_share", "Median share by which counted messages at measured delays cost more than the model."
        )

    def _add_sampling(self) -> None:
        """Create the metrics of the share of telemetry reported in full."""
        gauge = self.stage.gauge
        self.share_asked = gauge("share_asked", "Share of the notifications that brokers are asked to report in full.")
        self.window_share = gauge("window_share", "Share of the notifications that the newest window knows in full.")
        self.share_changes = self.stage.counter(
            "share_changes", "Changes of the requested share, by direction.", ["direction"]
        )

    def _add_leadership(self) -> None:
        """Create the metrics of leadership and service."""
        counter, gauge = self.stage.counter, self.stage.gauge
        self.leads = gauge("leads", "1 while this controller leads, 0 while it stands by.")
        self.term = gauge("term", "The newest term that this controller knows, its own while it leads.")
        self.depositions = counter("depositions", "Times that this controller lost leadership.")
        self._add_members()
        self._add_links()
        self._add_sampling()

    def _add_port_metrics(self) -> None:
        """Create the metrics of the ports."""
        counter, gauge, histogram = self.stage.counter, self.stage.gauge, self.stage.histogram
        self.window_to_state_ms = gauge(
            "window_end_to_state_ms", "Time from the end of the newest window until its state was assembled."
        )
        self.plan_phase = gauge("plan_phase", "1 for the phase of the plan under way, 0 for the others.", ["phase"])
        self.phase_ms = histogram(
            "phase_ms",
            "Time that plans spent in each phase.",
            ["phase"],
            buckets=(*LATENCY_MS_BUCKETS, 128_000, 256_000),
        )
        self.commands_repeated = counter(
            "commands_repeated", "Commands resent because a broker had not answered, by phase.", ["phase"]
        )
        self.results = counter("results", "Answers of brokers by outcome.", ["outcome"])
        self.records_read = counter("records_read", "Records of state, results and orders read, by source.", ["source"])
        self.plan_store_failures = counter("plan_store_failures", "Retries of storing a plan or reading the plans.")
        self.queue_length = gauge(
            "queue_length",
            "Waiting items: effects and results of the plan under way, records on their way to Kafka (outbound).",
            ["queue"],
        )
        self.view_failures = gauge("view_failures", "Failed writes of the live view since the start.")
        self.kafka_errors = gauge("kafka_errors", "Failed reads of Kafka since the start, by source.", ["source"])
        self.records_lost = gauge(
            "records_lost", "Records that Kafka did not accept since the start, by topic.", ["topic"]
        )
        self.dead_letters = gauge(
            "dead_letters",
            "Records that could not be decoded since the start, by topic; they are kept as dead letters.",
            ["topic"],
        )
        self.is_paused = gauge("paused", "1 while the controller is paused by an order.")
        self.maintenance = gauge("maintenance_brokers", "Brokers in maintenance.")


class LoopHealth:
    """The controller's health for /health and /ready; called from other threads.

    A leader is not ready before it has read the plans, its first action. A standby is ready unless there is an
    ``objection`` to its leading. Unhealthy if no step ends for ``silence_s_max``.
    """

    def __init__(self, silence_s_max: float) -> None:
        self.pulse = Pulse("the control loop", silence_s_max)
        self.has_plans = False
        self.is_standby = False
        self.objection = ""

    def __call__(self) -> Health:
        """Return the controller's present health."""
        error, objection = self.pulse.error(), self.objection
        is_ready = (self.has_plans or self.is_standby) and not objection
        return Health(is_ready, () if error is None else (error,), (objection,) if objection else ())
