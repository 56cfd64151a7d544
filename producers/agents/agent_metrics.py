"""Prometheus metrics of an agent; names start with ``regraft_agent_``."""

from __future__ import annotations

from collections import Counter

from regraft.infra.process.stage_metrics import StageMetrics
from regraft.producers.agents.agent import Agent
from regraft.schemas.stay_reasons import StayReason


class AgentMetrics:
    """The Prometheus metrics of an agent."""

    def __init__(self) -> None:
        self.stage = StageMetrics("agent")
        self.registry = self.stage.registry
        gauge = self.stage.gauge
        self._clients = gauge("clients", "Clients that publish at a broker now.", ["broker"])
        self._staying = gauge(
            "clients_staying", "Clients that no plan can move, or nothing that they subscribe, by why.", ["reason"]
        )
        self._moving = gauge("subscriptions_moving", "Subscriptions that a plan is moving.")
        self._events = gauge(
            "events", "Since the start: clients, moves, brokers lost, and what was refused or given up.", ["what"]
        )

    def show(self, agent: Agent) -> None:
        """Set the gauges."""
        sessions = agent.sessions
        self._clients.clear()
        for broker, count in Counter(session.homes.home for session in sessions).items():
            self._clients.labels(broker).set(count)
        reasons = Counter(session.client.stays_partly for session in sessions)
        for reason in StayReason:
            self._staying.labels(reason.label).set(reasons[reason])
        self._moving.set(sum(len(session.moves.moving) for session in sessions))
        for what, count in agent.counts.items():
            self._events.labels(what).set(count)
