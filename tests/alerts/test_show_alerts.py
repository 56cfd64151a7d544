"""How alerts are shown: bounded, newest first, and without depending on the view server."""

import json
from typing import Any

from regraft.alerts.alert_metrics import AlertHealth, AlertMetrics
from regraft.alerts.alert_settings import AlertSettings
from regraft.alerts.read_rules import load_rules
from regraft.alerts.run_alerts import clock_ms_of, lookback_of
from regraft.alerts.show_alerts import ACTIVE_SHOWN_MAX, RECENT_SHOWN_MAX, LiveAlerts, alerts_document
from regraft.infra.live.live_keys import PAUSE_MS_MIN
from regraft.infra.process.run_clock import RunClock
from regraft.schemas.alert import Alert, AlertStatus
from regraft.schemas.event import Severity
from regraft.schemas.order import Order, OrderKind
from regraft.schemas.order_book import OrderBook


def alert(number: int, status: AlertStatus = AlertStatus.RAISED, silenced_by: str = "") -> Alert:
    """Return an alert that changed at this time."""
    return Alert("r", f"b{number}", Severity.INFO, status, 1, number, "text", 1.0, silenced_by=silenced_by)


def test_the_document_holds_active_and_recent_alerts_newest_first() -> None:
    """Active alerts, cleared ones, and why one is silenced; of very many only the newest are listed, with the total."""
    alerts = [alert(1), alert(3, silenced_by="maintenance of b3"), alert(2, AlertStatus.CLEARED)]
    document = alerts_document(alerts, 9)
    assert document["time_ms"] == 9
    assert [(each["subject"], each["is_silenced"]) for each in document["active"]] == [("b3", True), ("b1", False)]
    assert [each["subject"] for each in document["recent"]] == ["b2"]
    many = [alert(number) for number in range(2_000)] + [alert(number, AlertStatus.CLEARED) for number in range(2_000)]
    document = alerts_document(many, 9)
    assert (document["active_count"], len(document["active"])) == (2_000, ACTIVE_SHOWN_MAX)
    assert len(document["recent"]) == RECENT_SHOWN_MAX
    assert document["active"][0]["subject"] == "b1999"


class Server:
    """A key-value store that may be down."""

    def __init__(self) -> None:
        self.keys: dict[str, str] = {}
        self.calls = 0
        self.is_unavailable = False

    def mset(self, mapping: dict[str, str]) -> Any:
        """Set all keys at once."""
        self.calls += 1
        if self.is_unavailable:
            raise ConnectionError("refused")
        self.keys.update(mapping)


def test_a_view_server_that_is_away_is_retried_after_pauses() -> None:
    """One attempt, then a growing pause; when the server is back the complete document is written."""
    server = Server()
    view = LiveAlerts(server, "lab")
    server.is_unavailable = True
    for now_ms in range(0, PAUSE_MS_MIN, 100):
        view.publish({"active": []}, now_ms)
    assert (server.calls, view.failures) == (1, 1)
    view.publish({"active": []}, PAUSE_MS_MIN)
    assert server.calls == 2
    server.is_unavailable = False
    view.publish({"active": [1]}, PAUSE_MS_MIN + 500)
    assert server.keys == {}, "the pause has doubled"
    view.publish({"active": [1]}, PAUSE_MS_MIN + 1_000)
    assert json.loads(server.keys["lab:live:alerts"]) == {"active": [1]}


def test_maintenance_expires_or_ends_by_an_order() -> None:
    """The newest order about a broker counts, until it expires."""
    orders = OrderBook()
    orders.take(Order("b1", OrderKind.MAINTAIN, "ana", "", 0, until_ms=100))
    orders.take(Order("b2", OrderKind.MAINTAIN, "ana", "", 0))
    orders.take(Order("overlay", OrderKind.PAUSE, "ana", "", 0))
    assert list(orders.maintained(99)) == ["b1", "b2"]
    assert list(orders.maintained(100)) == ["b2"]
    orders.take(Order("b2", OrderKind.RETURN, "ana", "", 0))
    assert list(orders.maintained(99)) == ["b1"]


def test_health_follows_the_loop() -> None:
    """The stage is not ready before everything is read; every metric is described."""
    health = AlertHealth()
    assert not health().is_ready
    health.is_ready = True
    assert health().is_ready
    assert all(each.help.endswith(".") for each in AlertMetrics().stage.described)


def test_the_look_back_covers_what_the_rules_remember() -> None:
    """Windows as the longest rule counts them and events as the longest span, in wall time at any clock."""
    rules = load_rules()
    settings = AlertSettings(bootstrap="x", window_ms=5_000)
    back = lookback_of(settings, rules)
    assert back.windows_ms >= rules.windows_memory * 5_000
    assert back.events_ms >= rules.span_s_memory * 1_000
    assert back.state_ms > back.windows_ms
    fast = lookback_of(AlertSettings(bootstrap="x", clock=RunClock(1, 10.0)), rules)
    assert fast.events_ms == back.events_ms // 10
    assert clock_ms_of(1_100, 1_000, 10.0) == 2_000
    assert clock_ms_of(1_100, 1_000, 1.0) == 1_100
