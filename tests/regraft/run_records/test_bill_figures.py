"""The bill before and after, if traffic is charged: in the summary, the report and the status."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from regraft.commands.status_command import money_lines
from regraft.overlay.inventory.prices import Prices
from regraft.report_page.report import build_report
from regraft.run_records.run_record import RunRecord
from regraft.run_records.summary import failures, summarise
from regraft.schemas.live_view import ShownBill
from tests.regraft.canned_run import small_run


def bill(links: float, access: float, per_million: float | None) -> ShownBill:
    return ShownBill(
        currency="USD", window_end_ms=1, links_per_month=links, access_per_month=access, per_million=per_million
    )


def charged_run(before: float | None = 0.2, after: float | None = 0.125, *, has_bills: bool = True) -> RunRecord:
    run = small_run()
    count = len(run.inventory.brokers)
    prices = Prices("USD", np.full((count, count), 0.02) - 0.02 * np.eye(count), np.full(count, 0.09), 1000.0)
    bills = (bill(580.5, 666.0, before), bill(117.0, 632.5, after)) if has_bills else None
    return replace(run, inventory=replace(run.inventory, prices=prices), bills=bills)


def test_the_summary_has_both_bills_and_the_report_a_table() -> None:
    """They are for 30 days and for a million deliveries; a run that is not charged has none."""
    summary = summarise(charged_run())
    assert (summary["bill_before_per_month"], summary["bill_after_per_month"]) == (1246.5, 749.5)
    assert (summary["bill_before_per_million"], summary["bill_after_per_million"]) == (0.2, 0.125)
    assert summary["bill_currency"] == "USD"
    assert failures(summary) == failures(summarise(small_run()))
    assert "is_charged" not in summarise(small_run())
    page = build_report(charged_run())
    assert "1,246.50" in page
    assert "749.50" in page
    assert "749.50" not in build_report(small_run())


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        (charged_run(after=0.3), "a million deliveries cost 0.3 at the end, 0.2 initially"),
        (charged_run(has_bills=False), "no complete window lies before the first plan"),
        (charged_run(before=None), "no complete window lies before the first plan"),
    ],
)
def test_a_bill_that_does_not_fall_or_is_unknown_fails_the_run(run: RunRecord, reason: str) -> None:
    """The exit code depends on it."""
    assert any(reason in sentence for sentence in failures(summarise(run)))


def test_the_status_shows_the_bill_and_the_brokers_without_clients() -> None:
    """Of many brokers it names only the first ones."""
    bill: dict[str, Any] = {
        "currency": "USD",
        "now_per_month": 749.5,
        "first_per_month": 1246.5,
        "now_per_million": 0.125,
        "first_per_million": None,
        "links_per_month": 117.0,
        "access_per_month": 632.5,
    }
    many = [f"b{number:02d}" for number in range(12)]
    assert money_lines({"bill": bill, "closable": many}) == [
        "bill: USD 750 in 30 days (117 between brokers, 632 to subscribers), 1,246 initially; 0.125 for a "
        "million deliveries",
        "idle (no clients), can be removed: b00, b01, b02, b03, b04, b05, b06, b07, b08, b09 and 2 more "
        "(`regraft members drain`)",
    ]
    assert money_lines({"bill": None, "closable": []}) == []
