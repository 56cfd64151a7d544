"""Process announcements of brokers that ask to be members: admit some at once, and let others wait for an operator.

In: announcements, the fleet. Out: those to admit, the list of those that wait, events. Making them members belongs to
:mod:`controller.loop.follow_members`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import prometheus_client

from regraft.controller.control_ports import EventSink, RecordSource
from regraft.controller.decide.loop_state import LoopState
from regraft.controller.settings.member_settings import MemberSettings
from regraft.infra.process.handle_each import handle_each
from regraft.overlay.inventory.members import FleetView
from regraft.schemas.announcement import EXPIRY_MS, Announcement, how_to_admit, may_announce, why_not_admitted
from regraft.schemas.event import ENDED, SENDER, AdaptationEvent, EventKind, Severity
from regraft.schemas.member import Member, MemberState
from regraft.schemas.shown_state import ShownAnnounced

ADMITTED = "it has announced itself (members.admit_announced)"
NEVER_REPORTED = "it was admitted after announcing itself, but sent nothing for come_ms_max"
# Members that have left this way, each a permanent record; beyond this, none joins without an order.
NEVER_REPORTED_MAX = 1_000


@dataclass
class _Candidate:
    """A broker that asks to join, first at ``since_ms``, last at ``announced_ms``; whether an event has reported it."""

    announcement: Announcement
    since_ms: int
    announced_ms: int
    is_reported: bool = False
    is_contested: bool = False

    @property
    def agent(self) -> str:
        return self.announcement.facts.agent


class AnnouncementTaker:
    """Keeps the brokers that ask, a bounded number for each agent, so that none displaces another's.

    A broker that stops asking is forgotten. A member does not count as asking, whatever its state, unless it has left.
    """

    def __init__(
        self,
        settings: MemberSettings,
        source: RecordSource[Announcement],
        events: EventSink,
        outcomes: prometheus_client.Counter,
    ) -> None:
        self._settings = settings
        self._source = source
        self._events = events
        self._outcomes = outcomes
        self._waiting: dict[str, _Candidate] = {}
        self._crowded: set[str] = set()  # Agents that announce too many brokers, already reported.

    def read(self, state: LoopState, now_ms: int) -> list[Announcement]:
        """Process new announcements, and return the brokers to admit without an order."""

        def take(announcement: Announcement) -> None:
            self._outcomes.labels(self._take(announcement, state.fleet, now_ms)).inc()

        handle_each(self._source.poll(), take, state.errors, "announcement that failed")
        for broker, one in list(self._waiting.items()):
            if now_ms - one.announced_ms > EXPIRY_MS or not may_announce(state.fleet.members.get(broker)):
                del self._waiting[broker]
                self._report_over(one, state.fleet, now_ms)
        admitted = self._admit(state.fleet)
        for one in self._waiting.values():
            if not one.is_reported:
                one.is_reported = True
                self._report(one.announcement, _request_text(one, self._to_do(one, state.fleet)), now_ms)
        shown = tuple(self._shown(one, state.fleet) for _, one in sorted(self._waiting.items()))
        state.is_changed |= shown != state.announced
        state.announced = shown
        return admitted

    def _take(self, announcement: Announcement, fleet: FleetView, now_ms: int) -> str:
        """Note a broker that asks; return the outcome, for the metric."""
        broker, agent = announcement.broker, announcement.facts.agent
        if not may_announce(fleet.members.get(broker)):
            return "member"
        waiting = self._waiting.get(broker)
        if waiting is not None and waiting.agent != agent:
            if not waiting.is_contested:
                waiting.is_contested = True
                text = f"{broker} is announced by agents {waiting.agent!r} and {agent!r}: only the first is accepted"
                self._report(announcement, text, now_ms, Severity.WARNING)
            return "contested"
        if waiting is not None:
            waiting.announcement, waiting.announced_ms = announcement, now_ms
            return "repeated"
        if Counter(one.agent for one in self._waiting.values())[agent] >= self._settings.announced_max:
            self._report_crowded(announcement, now_ms)
            return "too_many"
        self._crowded.discard(agent)
        self._waiting[broker] = _Candidate(announcement, now_ms, now_ms)
        return "noted"

    def _report_crowded(self, announcement: Announcement, now_ms: int) -> None:
        agent = announcement.facts.agent
        if agent in self._crowded:
            return
        self._crowded.add(agent)
        text = (
            f"{announcement.broker} is not recorded: {self._settings.announced_max} brokers of agent "
            f"{agent!r} wait for admission, the maximum; add some, or stop the "
            "process that announces them"
        )
        self._report(announcement, text, now_ms, Severity.WARNING)

    def _admit(self, fleet: FleetView) -> list[Announcement]:
        """Remove and return the waiting brokers that the settings admit, oldest first."""
        room = self._settings.announced_max - len(fleet.in_state(MemberState.JOINING))
        room = min(room, NEVER_REPORTED_MAX - _never_reported_count(fleet))
        if not self._settings.admit_announced or room <= 0:
            return []
        fit = [
            one.announcement
            for broker, one in self._waiting.items()
            if broker not in fleet.members and not why_not_admitted(one.announcement, fleet.members)
        ][:room]
        for announcement in fit:
            del self._waiting[announcement.broker]
            self._outcomes.labels("admitted").inc()
        return fit

    def _to_do(self, one: _Candidate, fleet: FleetView) -> str:
        """Describe what it takes to admit a broker."""
        has_left = one.announcement.broker in fleet.members
        is_fit = not has_left and not why_not_admitted(one.announcement, fleet.members)
        if self._settings.admit_announced and is_fit:
            if _never_reported_count(fleet) >= NEVER_REPORTED_MAX:
                by_order = how_to_admit(one.announcement, fleet.members, has_left=False)
                return f"{NEVER_REPORTED_MAX} that were admitted this way never reported: {by_order}"
            return f"it waits until fewer than {self._settings.announced_max} others are joining"
        return how_to_admit(one.announcement, fleet.members, has_left=has_left)

    def _shown(self, one: _Candidate, fleet: FleetView) -> ShownAnnounced:
        facts = one.announcement.facts
        return ShownAnnounced(
            broker=one.announcement.broker,
            since_ms=one.since_ms,
            to_do=self._to_do(one, fleet),
            agent=facts.agent,
            address=facts.address,
        )

    def _report_over(self, one: _Candidate, fleet: FleetView, now_ms: int) -> None:
        """Report that a broker that was reported as asking is gone; for a member its record suffices."""
        broker = one.announcement.broker
        if one.is_reported and may_announce(fleet.members.get(broker)):
            text = f"{broker} no longer asks to join: it has not been announced for {EXPIRY_MS / 60_000:g} minutes"
            self._report(one.announcement, text, now_ms, details={ENDED: "1"})

    def _report(
        self,
        by: Announcement,
        text: str,
        now_ms: int,
        severity: Severity = Severity.INFO,
        details: dict[str, str] | None = None,
    ) -> None:
        """Report an announcement; an agent chooses the names, so it is the sender of all that it announces."""
        told = {SENDER: f"agent {by.facts.agent}".rstrip(), **(details or {})}
        self._events.emit(AdaptationEvent(by.broker, EventKind.JOIN_REQUESTED, severity, now_ms, text, details=told))


def is_awaited_unasked(member: Member) -> bool:
    """Return True if a member is to join because it has announced itself, and not by an operator's order."""
    return member.state is MemberState.JOINING and member.reason == ADMITTED


def _never_reported_count(fleet: FleetView) -> int:
    return sum(one.state is MemberState.LEFT and one.reason == NEVER_REPORTED for one in fleet.members.values())


def _request_text(one: _Candidate, to_do: str) -> str:
    facts = one.announcement.facts
    who = f"{one.announcement.broker} asks to join"
    by = f", announced by agent {facts.agent}" if facts.agent else ""
    at = f", at {facts.address}" if facts.address else ""
    return f"{who}{by}{at}: {to_do}"
