"""Whether plans are missing in Kafka, by the epochs that brokers reported last. Pure.

The controller judges the same by its own state (:mod:`controller.execute.execute_plan`), and does not start then.
"""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median_low

from regraft.schemas.plan import Plan
from regraft.schemas.state import WindowClosed
from regraft.schemas.texts import time_text


def missing_plans_text(plans: Iterable[Plan], window: WindowClosed | None) -> str:
    """Return which epoch most brokers had reached that no stored plan leads to, and what to do; "" if there is none."""
    epochs = [broker.epoch_max for broker in window.brokers] if window is not None else []
    stored, reached = max((plan.epoch_to for plan in plans), default=0), median_low(epochs) if epochs else 0
    if window is None or reached <= stored:
        return ""
    return (
        f"Plans are missing: most brokers were at epoch {reached} in the window that ended at "
        f"{time_text(window.window_end_ms)}, but those stored lead to epoch {stored}. Restore a backup of the topic of "
        "plans, or stop all controllers and see what `regraft recover` would write."
    )
