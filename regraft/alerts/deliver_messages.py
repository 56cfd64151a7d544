"""Deliver messages with retries, by one thread and one bounded queue per target, so that none waits for another.

In: messages, and a grant to send each. Out: reports of progress. Nothing is sent before it is granted: the desk first
stores that it is being sent, so that a restart does not send it again by accident. Storing does not belong here.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import stamina
import structlog

from regraft.alerts.alert_message import AlertMessage
from regraft.alerts.message_senders import MessageSender, SendError
from regraft.schemas.alert import DeliveryState

log = structlog.get_logger(__name__)

GRANT_POLL_S = 0.2  # How often a thread waiting for a grant checks whether it should stop.


@dataclass(frozen=True)
class DeliveryLimits:
    """Limits on attempts, pauses and waiting messages; see AlertSettings."""

    attempts_max: int = 4
    backoff_s: float = 1.0
    backoff_s_max: float = 10.0
    queue_max: int = 100


@dataclass(frozen=True)
class DeliveryReport:
    """The progress of a message to a target: SENDING requests a grant, SENT and FAILED are final."""

    message: AlertMessage
    target: str
    state: DeliveryState
    reason: str = ""


@dataclass
class _Job:
    message: AlertMessage
    granted: threading.Event = field(default_factory=threading.Event)


class MessageDelivery:
    """The deliveries to all targets. Its threads end with the process, even if a target hangs."""

    def __init__(self, senders: Mapping[str, MessageSender], limits: DeliveryLimits) -> None:
        self._limits = limits
        self._reports: queue.SimpleQueue[DeliveryReport] = queue.SimpleQueue()
        self._stop = threading.Event()
        self._workers = {
            name: _Worker(name, sender, limits, self._reports, self._stop) for name, sender in senders.items()
        }
        for worker in self._workers.values():
            worker.start()

    @property
    def waiting(self) -> dict[str, int]:
        """Return the number of messages waiting for each target."""
        return {name: worker.jobs.qsize() for name, worker in self._workers.items()}

    def offer(self, message: AlertMessage, target: str) -> None:
        """Queue a message for a target; reports FAILED at once if too many are waiting or the target is unknown."""
        worker = self._workers.get(target)
        if worker is None:
            self._reports.put(
                DeliveryReport(message, target, DeliveryState.FAILED, "the target is no longer configured")
            )
            return
        try:
            worker.jobs.put_nowait(_Job(message))
        except queue.Full:
            reason = f"{self._limits.queue_max} messages are already waiting for it"
            self._reports.put(DeliveryReport(message, target, DeliveryState.FAILED, reason))

    def grant(self, message: AlertMessage, target: str) -> None:
        """Let a target's thread send the message for which it requested a grant."""
        job = self._workers[target].current
        if job is not None and job.message.message == message.message:
            job.granted.set()

    def reports(self) -> list[DeliveryReport]:
        """Return the reports since the last call, without waiting."""
        reports = []
        while not self._reports.empty():
            reports.append(self._reports.get())
        return reports

    def stop(self) -> None:
        """Start no further messages; what is being sent is not retried."""
        self._stop.set()

    def wait(self, wait_s: float) -> bool:
        """Wait at most ``wait_s`` for messages being sent; return True if all threads have ended."""
        deadline_s = time.monotonic() + wait_s
        for worker in self._workers.values():
            worker.join(max(deadline_s - time.monotonic(), 0))
        return not any(worker.is_alive() for worker in self._workers.values())


class _Worker(threading.Thread):
    def __init__(
        self,
        name: str,
        sender: MessageSender,
        limits: DeliveryLimits,
        reports: queue.SimpleQueue[DeliveryReport],
        stop: threading.Event,
    ) -> None:
        super().__init__(name=f"alerts to {name}", daemon=True)
        self._target, self._sender, self._limits = name, sender, limits
        self._reports, self._stop_asked = reports, stop
        self.jobs: queue.Queue[_Job] = queue.Queue(limits.queue_max)
        self.current: _Job | None = None
        self._is_uncertain = False  # Whether a failed attempt may have reached the target.

    def run(self) -> None:
        """Deliver one message after another until asked to stop; waiting messages then stay pending."""
        while not self._stop_asked.is_set():
            try:
                job = self.jobs.get(timeout=GRANT_POLL_S)
            except queue.Empty:
                continue
            self.current = job
            self._report(job, DeliveryState.SENDING)
            while not job.granted.wait(GRANT_POLL_S):
                if self._stop_asked.is_set():
                    self._report(job, DeliveryState.PENDING)
                    return
            self._deliver(job)
            self.current = None

    def _deliver(self, job: _Job) -> None:
        began_s = time.monotonic()
        self._is_uncertain = False
        try:
            for attempt in stamina.retry_context(
                on=self._next_pause,
                attempts=self._limits.attempts_max,
                timeout=None,
                wait_initial=self._limits.backoff_s,
                wait_max=self._limits.backoff_s_max,
                wait_jitter=self._limits.backoff_s / 2,
            ):
                with attempt:
                    self._sender.send(job.message)
        except SendError as failure:
            self._report(job, self._state_after(failure), str(failure))
        except Exception as error:  # A library's own error: its text may contain the URL, its type does not.
            self._report(job, DeliveryState.FAILED, f"sending failed ({type(error).__name__})")
        else:
            self._report(job, DeliveryState.SENT, f"after {time.monotonic() - began_s:.1f} s")

    def _next_pause(self, error: Exception) -> bool | float:
        """Return True to retry after the usual pause, False to give up, or the pause in s that the target asks for."""
        if not isinstance(error, SendError):
            return False
        self._is_uncertain |= error.is_uncertain
        if not error.can_retry or self._stop_asked.is_set():
            return False
        if error.wait_s is None:
            return True
        return min(error.wait_s, self._limits.backoff_s_max)

    def _state_after(self, failure: SendError) -> DeliveryState:
        if not self._stop_asked.is_set() or not failure.can_retry:
            return DeliveryState.FAILED
        return DeliveryState.UNCERTAIN if self._is_uncertain else DeliveryState.PENDING

    def _report(self, job: _Job, state: DeliveryState, reason: str = "") -> None:
        self._reports.put(DeliveryReport(job.message, self._target, state, reason))
