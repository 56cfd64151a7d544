"""How much the alert stage keeps of windows and brokers that were made up."""

import pytest

from regraft.alerts import gather_windows, watch_windows
from regraft.alerts.gather_windows import ROWS_WAIT_MS, WindowGatherer
from regraft.alerts.rule_kinds import SilentRule
from regraft.alerts.watch_windows import SilentWatcher
from regraft.schemas.state import StateRow, WindowClosed
from tests.alerts.scripted_alerts import BEGIN_MS, WINDOW_MS, queue_of, window


class NothingRaised:
    """No alert is active."""

    def subjects(self, rule: str) -> frozenset[str]:
        return frozenset()

    def changed_ms(self, rule: str, subject: str) -> int:
        return 0


def test_the_number_of_made_up_queues_and_brokers_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows beyond a window's bound are counted, and no more brokers than the bound are watched for silence."""
    monkeypatch.setattr(gather_windows, "ROWS_PER_WINDOW_MAX", 3)
    monkeypatch.setattr(watch_windows, "BROKERS_MAX", 3)
    gatherer = WindowGatherer()
    names = [f"b{number}" for number in range(5)]
    for stamped in window(0, [queue_of(name) for name in names], names):
        if isinstance(stamped.record, StateRow):
            gatherer.take_row(stamped.record)
        elif isinstance(stamped.record, WindowClosed):
            gatherer.take_marker(stamped.record, stamped.time_ms, stamped.time_ms, is_known=False)
    [seen] = gatherer.windows(BEGIN_MS + 2 * ROWS_WAIT_MS + 2 * WINDOW_MS)
    assert len(seen.queues) == 3
    assert seen.rows_missing == 2
    assert gatherer.dropped == {"too many queues in a window": 2}
    watcher = SilentWatcher(SilentRule(name="silent", on="broker.silent", for_windows=2))
    watcher.watch(seen, NothingRaised())
    assert watcher.known == {"b0", "b1", "b2"}
