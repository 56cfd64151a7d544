"""Wait in tests for a condition, with a bound."""

import os
import time
from collections.abc import Callable

PATIENCE_S = float(os.environ.get("PATIENCE_S", "120"))  # Only a guard against hanging.


def wait_until(condition: Callable[[], bool], patience_s: float = PATIENCE_S) -> None:
    """Return as soon as the condition holds; fail if it does not hold in time."""
    deadline_s = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline_s, f"it did not happen in {patience_s:g} s"
        time.sleep(0.01)
