"""A broker's core with POP or GRAPE: it adds trace headers to notifications and answers trace messages.

In: the inputs of a broker's core, and trace messages. Out: its effects, and trace messages for neighbours. These travel
like all messages: over the emulated links, in order, and through the brokers' queues, because "both use purely
publish/subscribe messaging for internal communications" (Cheung09, section 1).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import cast

from regraft.api.brokers import (
    BrokerState,
    ClientRequest,
    Deliver,
    Effect,
    Message,
    Notification,
    RoutingTables,
    Send,
    TreePlanUnderWay,
    TreeRouting,
    TreeState,
    TwoEpochBroker,
)
from regraft.api.transitions import Command
from regraft.api.trees import TreeConfiguration
from regraft_lab.pop_grape.distributed_traces import (
    TRACE_HEADER,
    Chosen,
    Gathered,
    RelocationAnswer,
    RelocationRequest,
    SendTrace,
    TraceAnswer,
    TraceEffect,
    TraceMessage,
    TraceRequest,
    TraceResult,
    TracingBroker,
)


class TracingCore(TwoEpochBroker[RoutingTables, TreePlanUnderWay]):
    """The core of one broker and its tracing part.

    ``on_sent(broker, peer, message)`` is called for every trace message sent, ``on_decided`` for each result found at a
    publisher's home.
    """

    def __init__(
        self,
        broker: str,
        configuration: TreeConfiguration,
        boot_ms: int,
        tracer: TracingBroker,
        on_sent: Callable[[str, str, TraceMessage], None],
        on_decided: Callable[[Chosen | Gathered], None],
    ) -> None:
        state: TreeState = BrokerState(broker, RoutingTables(broker, configuration))
        super().__init__(state, boot_ms, partial(TreeRouting, state))
        self.tracer = tracer
        self._on_sent = on_sent
        self._on_decided = on_decided

    def handle(
        self, source: str | None, message: Message | ClientRequest | Command | TraceMessage, now_ms: float
    ) -> list[Effect]:
        """Process one message and return what to do, in order."""
        if isinstance(message, Notification):
            return self._trace(source, message, now_ms)
        if isinstance(message, TraceResult | RelocationRequest | RelocationAnswer | TraceRequest | TraceAnswer):
            return self._executed(self.tracer.on_message(cast(str, source), message))
        return super().handle(source, message, now_ms)

    def _trace(self, source: str | None, notification: Notification, now_ms: float) -> list[Effect]:
        if source is None:
            notification = self.tracer.mark(notification, now_ms)
        if TRACE_HEADER not in notification.content:
            return super().handle(source, notification, now_ms)
        held_count = len(self.state.held)
        effects = super().handle(source, notification, now_ms)
        peers = tuple(effect.peer for effect in effects if isinstance(effect, Send))
        deliveries = [effect for effect in effects if isinstance(effect, Deliver)]
        if len(self.state.held) > held_count:  # In a transition it is delivered later, but counts now.
            deliveries.append(self.state.held[-1])
        local_count = sum(len(delivery.subscriptions) for delivery in deliveries)
        return effects + self._executed(self.tracer.on_notification(source, notification, peers, local_count))

    def _executed(self, found: list[TraceEffect]) -> list[Effect]:
        effects: list[Effect] = []
        for effect in found:
            if isinstance(effect, SendTrace):
                self._on_sent(self.broker, effect.peer, effect.message)
                # The driver of cores forwards messages without inspecting them.
                effects.append(Send(effect.peer, cast(Message, effect.message)))
            else:
                self._on_decided(effect)
        return effects
