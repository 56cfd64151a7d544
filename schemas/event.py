"""AdaptationEvent: one thing worth reporting to an operator."""

from enum import StrEnum

from msgspec import Struct

from regraft.schemas.bounds import Entity, NameOrNone, TimeMs

FORGED = "forged"  # In the details of order_refused: the order is not authentic.
SENDER = "sender"  # In an event's details: whose records caused it, if that sender also chooses the subject.
ENDED = "over"  # In an event's details: it clears the alert about the subject, for example for share_changed.


class Severity(StrEnum):
    """How urgent an event is."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


class EventKind(StrEnum):
    """What happened."""

    PLAN_PROPOSED = "plan_proposed"
    PLAN_REFUSED = "plan_refused"
    PLAN_STARTED = "plan_started"
    PLAN_PHASE = "plan_phase"
    PLAN_COMPLETED = "plan_completed"
    PLAN_ABORTED = "plan_aborted"
    PLAN_STALLED = "plan_stalled"
    GAIN_MISSED = "gain_missed"
    CHANGE_DETECTED = "change_detected"
    MODEL_DRIFT = "model_drift"
    SHARE_CHANGED = "share_changed"
    PROPOSAL_REFUSED = "proposal_refused"
    WINDOW_INCOMPLETE = "window_incomplete"
    WINDOW_STALE = "window_stale"
    EPOCH_MISMATCH = "epoch_mismatch"
    MEMBER_CHANGED = "member_changed"
    JOIN_REQUESTED = "join_asked"
    DEATHS_IMPLAUSIBLE = "deaths_doubted"
    REPAIR_WAITS = "repair_waits"
    CAPS_EXCEEDED = "caps_exceeded"
    CONTROLLER_STARTED = "controller_started"
    SERVICE_RESTARTED = "service_restarted"
    PLANNER_FAILED = "planner_failed"
    TELEMETRY_LOST = "telemetry_lost"
    ORDER_TAKEN = "order_taken"
    ORDER_REFUSED = "order_refused"
    BROKERS_CLOSABLE = "brokers_closable"
    BROKER_OVERLOADED = "broker_overloaded"
    ALERT_RAISED = "alert_raised"
    ALERT_CLEARED = "alert_cleared"


class AdaptationEvent(Struct, frozen=True):
    """One event; ``subject`` is what it is about (a plan, a broker, a window)."""

    subject: Entity
    kind: EventKind
    severity: Severity
    time_ms: TimeMs
    text: str
    plan: NameOrNone = ""
    details: dict[str, str] = {}
