"""Watch a run from outside: the status files that its stages replace every second, put together over restarts.

In: the run directory. Out: what is known so far. A stage that was killed starts its counts anew; here they go on.
What is final is read from Kafka at the end (``collect_run``).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from regraft.run_records.run_record import (
    DecisionTime,
    DeliveryLedger,
    HorizonUse,
    ServiceUse,
    ShadowRun,
    UserFigures,
    WindowCost,
)
from regraft.stages.show_run import Frame
from schemas.event import AdaptationEvent

Document = Mapping[str, Any]

EVENTS_MAX = 500
USERS_CONNECT_MS = 10_000  # By then the users of the start are there; their coming is no change of interests.
WINDOWS_MAX = 10_000


class RunObserver:
    """What the status files have said so far; ``refresh`` reads them again."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.emulator: Document = {}
        self.streaming: Document = {}
        self.controller: Document = {}
        self.windows: dict[int, WindowCost] = {}
        self.behind_ms_max = 0.0
        self.latencies_ms: dict[str, float] = {}
        self.events: dict[tuple[int, str, str, str], AdaptationEvent] = {}
        self._changes_before: tuple[int, int] | None = None  # When the users of the start had connected.
        self._shadow_documents: dict[tuple[int, str], Document] = {}
        self._refusals_before: Counter[str] = Counter()
        self._refusals: Counter[str] = Counter()

    def refresh(self) -> list[AdaptationEvent]:
        """Read the files again and return the events that are new; a file that is missing changes nothing."""
        self.emulator = read_status(self._directory / "emulator.json") or self.emulator
        self.behind_ms_max = max(self.behind_ms_max, float(self.emulator.get("behind_ms", 0.0)))
        if self._changes_before is None and self._emulated_ms >= USERS_CONNECT_MS:
            self._changes_before = self._changes
        self.streaming = read_status(self._directory / "streaming.json") or self.streaming
        controller = read_status(self._directory / "controller.json")
        return self._take_controller(controller) if controller else []

    @property
    def ledger(self) -> DeliveryLedger:
        """The emulator's account so far."""
        return parse_ledger(self.emulator)

    @property
    def written_until_ms(self) -> int:
        """The end of the newest window that the streaming job has written; 0 before the first."""
        return int(self.streaming.get("window_end_ms_last", 0))

    @property
    def traffic_start_ms(self) -> int:
        """When the emulator began; 0 when it has not."""
        return int(self.emulator.get("started_ms", 0))

    @property
    def regime_change_ms(self) -> int | None:
        """When the interests shifted; None as long as they have not."""
        time_ms = self.emulator.get("regime_changed_ms")
        return None if time_ms is None else int(time_ms)

    @property
    def users(self) -> UserFigures | None:
        """What there is to say of users; None on a tree, and until they have connected."""
        document, before, now = self.emulator, self._changes_before, self._changes
        if before is None or now is None:
            return None
        return UserFigures(
            users=int(document["users"]),
            subscriptions=int(document["subscriptions"]),
            users_moved=int(document["users_moved"]),
            wait_ms_max=float(document["user_wait_ms_max"]),
            subscription_changes=now[0] - before[0],
            subscription_changes_at_first_homes=now[1] - before[1],
        )

    @property
    def _changes(self) -> tuple[int, int] | None:
        """Brokers' subscription changes so far: as they were, and as if nobody had moved; None on a tree."""
        names = ("broker_subscription_changes", "broker_subscription_changes_at_first_homes")
        found = [self.emulator.get(name) for name in names]
        return None if None in found else (int(found[0] or 0), int(found[1] or 0))

    @property
    def _emulated_ms(self) -> int:
        return int(self.emulator.get("time_ms", 0)) - self.traffic_start_ms

    @property
    def refusals(self) -> Counter[str]:
        """Refused proposals by verdict, those of a killed controller included."""
        return self._refusals_before + self._refusals

    @property
    def shadows(self) -> tuple[ShadowRun, ...]:
        """What the shadow planners have made so far, counts of a killed controller included."""
        documents: dict[str, list[Document]] = {}
        for (_started_ms, planner), document in sorted(self._shadow_documents.items()):
            documents.setdefault(planner, []).append(document)
        return tuple(_shadow_run(planner, found) for planner, found in documents.items())

    @property
    def decision_times(self) -> dict[str, DecisionTime]:
        """How long decisions of the present controller took, by role and planner."""
        return {
            who: DecisionTime(int(times["count"]), float(times["mean_ms"]), float(times["max_ms"]))
            for who, times in self.controller.get("decision_ms", {}).items()
        }

    @property
    def horizon(self) -> HorizonUse | None:
        """How far the last decision looked back; None before the first on a complete window."""
        horizon = self.controller.get("horizon")
        return None if horizon is None else HorizonUse(int(horizon["windows"]), horizon["lifetime_s"])

    def frame(self, stage: str, elapsed_s: float, running_s: float | None, services: tuple[ServiceUse, ...]) -> Frame:
        """Return the present picture; ``running_s`` is None when the run has no planned end."""
        document = self.controller
        windows = tuple(self.windows[end_ms] for end_ms in sorted(self.windows))
        return Frame(
            stage=stage,
            elapsed_s=elapsed_s,
            running_s=running_s,
            epoch=document.get("configuration", {}).get("epoch", 0),
            windows=windows,
            windows_incomplete=sum(not window.complete for window in windows),
            plans=tuple(
                (plan["plan"], plan["epoch_to"], plan["phase"], _reason(plan)) for plan in document.get("plans", ())
            ),
            plans_completed=document.get("plans_completed", 0),
            plans_aborted=document.get("plans_aborted", 0),
            refusals=self.refusals,
            shadow_plans={shadow.planner: shadow.plans for shadow in self.shadows},
            horizon=self.horizon,
            ledger=self.ledger,
            services=services,
            note=_note(document),
        )

    def _take_controller(self, document: Document) -> list[AdaptationEvent]:
        refusals = Counter({str(verdict): int(count) for verdict, count in document.get("refusals", {}).items()})
        if refusals.total() < self._refusals.total():  # a restarted controller counts from 0
            self._refusals_before += self._refusals
        self._refusals = refusals
        self.controller = document
        self.latencies_ms.update(document.get("window_close_to_command_ms", {}))
        for planner, shadow in document.get("shadows", {}).items():
            self._shadow_documents[int(document.get("started_ms", 0)), planner] = shadow
        for point in document.get("cost", ()):
            self._take_window(point)
        _forget_oldest(self.windows, WINDOWS_MAX)
        return self._take_events(document)

    def _take_window(self, point: Document) -> None:
        end_ms = point["window_end_ms"]
        known = self.windows.get(end_ms)
        # A restarted controller reads old windows again, but not what a shadow would have made of them.
        shadows_per_s = point.get("cost_shadows_per_s") or (known.shadows_per_s if known else {})
        self.windows[end_ms] = WindowCost(
            end_ms,
            point["epoch"],
            point["cost_per_s"],
            point["cost_bootstrap_per_s"],
            point["is_complete"],
            shadows_per_s,
        )

    def _take_events(self, document: Document) -> list[AdaptationEvent]:
        fresh = []
        for fields in document.get("events", ()):
            event = msgspec.convert(fields, AdaptationEvent)
            key = (event.time_ms, event.subject, event.kind, event.text)
            if key not in self.events:
                self.events[key] = event
                fresh.append(event)
        _forget_oldest(self.events, EVENTS_MAX)
        return fresh


def read_status(file: Path) -> Document | None:
    """Return a status file's document; None while there is none or it cannot be read."""
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None  # not written yet, or on a disk that is full: the next look may find it
    return document if isinstance(document, dict) else None


def parse_ledger(document: Document) -> DeliveryLedger:
    """Return the emulator's account in its status document; zeros where there is none yet."""
    ledger = document.get("ledger", document)
    return DeliveryLedger(
        published=int(ledger.get("published", 0)),
        expected=int(ledger.get("expected", 0)),
        delivered=int(ledger.get("delivered", 0)),
        lost=int(ledger.get("lost", 0)),
        repeated=int(ledger.get("repeated", 0)),
        out_of_order=int(ledger.get("out_of_order", 0)),
        unexpected=int(ledger.get("unexpected", 0)),
        final=bool(ledger.get("final", False)),
        lost_by_reason=dict(ledger.get("lost_by_reason", {})),
    )


def _shadow_run(planner: str, documents: Sequence[Document]) -> ShadowRun:
    """Return the sum of what a planner did in each controller; its tree is that of the last."""
    totals = {
        name: sum(int(document.get(name, 0)) for document in documents)
        for name in (
            "plans",
            "plans_taken_back",
            "links_exchanged",
            "publishers_moved",
            "users_moved",
            "id_moves",
            "faults",
        )
    }
    refusals: Counter[str] = Counter()
    for document in documents:
        refusals.update({str(verdict): int(count) for verdict, count in document["refusals"].items()})
    return ShadowRun(
        planner,
        **totals,
        refusals=refusals,
        fault_text=next((str(each["fault_text"]) for each in documents if each["fault_text"]), ""),
        starts=len(documents),
        overlay={name: documents[-1][name] for name in ("links", "ring") if name in documents[-1]},
        homes=dict(documents[-1]["homes"]),
    )


def _note(document: Document) -> str:
    """Say what keeps the controller from acting by itself."""
    orders = document.get("orders") or {}
    notes = []
    if paused := orders.get("paused"):
        notes.append(f"paused by {paused['by']}: {paused['reason']}")
    if waiting := document.get("plan_in_review"):
        notes.append(f"{waiting} waits: regraft plans show {waiting}")
    elif document.get("dry_run"):
        notes.append("dry run: plans wait for approval")
    notes += [f"{one['broker']} in maintenance" for one in orders.get("maintenance", ())]
    return "; ".join(notes)


def _reason(plan: Document) -> str:
    if plan.get("undoes"):
        return f"takes back {plan['undoes']}"
    reasons = [str(proposal["reason"]) for proposal in plan["proposals"]]
    if not reasons:
        return ""
    return reasons[0] if len(reasons) == 1 else f"{reasons[0]} (and {len(reasons) - 1} more)"


def _forget_oldest(entries: dict[Any, Any], count_max: int) -> None:
    while len(entries) > count_max:
        del entries[next(iter(entries))]
