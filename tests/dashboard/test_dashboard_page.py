"""The page in a real browser: it draws the live view, follows it, and gives orders. Skipped if there is no browser."""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from regraft.dashboard.operator_tokens import READ_SCOPE
from regraft.schemas.order import OrderKind
from tests.dashboard.served_dashboard import ServedDashboard, served_dashboard
from tests.dashboard.view_documents import (
    BROKERS,
    moved_in_time,
    proposed_document,
    publish,
    store_document,
    written_document,
)

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FOUND = next((path for name in BROWSERS if (path := shutil.which(name))), None)
PATIENCE_MS = 20_000
MARKUP = "<img src=x onerror=alert(1)>"

pytestmark = [
    pytest.mark.stack,
    pytest.mark.skipif(FOUND is None, reason=f"no browser is installed: looked for {', '.join(BROWSERS)} on PATH"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=FOUND)
        yield running
        running.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedDashboard]:
    with served_dashboard(tmp_path_factory.mktemp("page")) as dashboard:
        yield dashboard


@pytest.fixture
def page(browser: Browser, served: ServedDashboard) -> Iterator[Page]:
    """Return an empty tab; at the end its console must hold no errors."""
    tab = browser.new_page(viewport={"width": 1400, "height": 1000})
    tab.set_default_timeout(PATIENCE_MS)
    expect.set_options(timeout=PATIENCE_MS)
    complaints: list[str] = []
    tab.on("console", lambda message: complaints.append(message.text) if message.type in ("error", "warning") else None)
    tab.on("pageerror", lambda error: complaints.append(str(error)))
    yield tab
    tab.close()
    # The browser itself reports a broken connection.
    assert [text for text in complaints if "ERR_" not in text and "status of 4" not in text] == []


def drawn(page: Page, what: str) -> Any:
    return page.evaluate(f"() => window.regraft.map.cy.{what}")


def wait_drawn(page: Page, what: str) -> None:
    page.wait_for_function(f"() => {{ const cy = window.regraft?.map.cy; return cy && ({what}); }}")


def sign_in(page: Page, served: ServedDashboard, name: str = "Ana Silva") -> None:
    page.get_by_role("button", name="Sign in").click()
    page.get_by_label("Token").fill(served.token(name))
    page.locator("#token-dialog button.good").click()
    expect(page.locator("#session")).to_contain_text(name)


def test_the_page_draws_the_overlay_and_its_health(page: Page, served: ServedDashboard) -> None:
    """Every broker and link of the document, the three answers and the charts are drawn; a click shows the details."""
    document = written_document()
    publish(served.redis_url, document, {"time_ms": 1, "active": [], "recent": []})
    page.goto(served.url)
    links = len(document["configuration"]["links"])
    wait_drawn(page, f"cy.nodes('[name]').length === {BROKERS} && cy.edges('[pair]').length === {links}")
    assert drawn(page, "nodes('[name]').map((node) => node.position('x'))") != [0] * BROKERS
    expect(page.locator("#headline .card")).to_have_count(3)
    expect(page.locator("#headline")).to_contain_text("Healthy")
    expect(page.locator("#charts canvas")).to_have_count(3)
    expect(page.locator(".plan")).to_have_count(len(document["plans"]))
    page.evaluate("() => window.regraft.map.pickBroker('b03')")
    expect(page.locator(".details")).to_contain_text("b03")
    expect(page.locator(".details")).to_contain_text("notifications a second")
    page.locator(".plan summary").first.click()
    expect(page.locator(".plan-body").first).to_contain_text("Changes and reasons")


def test_the_picture_follows_a_plan(page: Page, served: ServedDashboard) -> None:
    """While a plan runs its links are marked; once it is in force the new links are drawn."""
    before = proposed_document()
    publish(served.redis_url, {**before, "plans": []})
    page.goto(served.url)
    wait_drawn(page, f"cy.edges('[pair]').length === {len(before['configuration']['links'])}")
    none_yet = page.get_by_text("No plan yet. A plan is proposed")
    expect(none_yet).to_be_visible()
    plan = before["plans"][0]
    removed, added = len(plan["links_removed"]), len(plan["links_added"])
    assert removed
    publish(served.redis_url, {**before, "plans": [{**plan, "phase": "preparing"}]})
    wait_drawn(page, f"cy.edges('.leaving').length === {removed} && cy.edges('.coming').length === {added}")
    expect(page.locator("#headline")).to_contain_text(f"Executing {plan['plan']}")
    expect(none_yet).to_be_hidden()
    publish(served.redis_url, written_document())
    wait_drawn(page, f"cy.edges('.leaving, .coming').empty() && cy.edges('.fresh, .arrived').length === {added}")


def test_all_charts_show_the_same_span_after_a_failover(page: Page, served: ServedDashboard) -> None:
    """The controller that took over has no costs of earlier windows; the chart keeps those of its predecessor."""
    written = written_document()
    document = moved_in_time(written, time.time_ns() // 1_000_000 - written["time_ms"])
    store_document(served.redis_url, document)
    page.goto(served.url)
    page.wait_for_function("() => window.regraft?.charts.every((chart) => chart.shown?.marks.length)")
    before, last = document["cost"][-2:]
    store_document(served.redis_url, {**document, "cost": [before, {**last, "cost_per_s": 12_345.0}]})
    page.wait_for_function("() => window.regraft.store.parts.cost.at(-1).cost_per_s === 12345")
    ends_ms = page.evaluate("() => window.regraft.store.parts.cost.map((point) => point.window_end_ms)")
    assert set(ends_ms) >= {point["window_end_ms"] for point in document["cost"]}
    page.evaluate("() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)))")
    spans = page.evaluate("() => window.regraft.charts.map((chart) => chart.shown)")
    assert spans[0] == spans[1] == spans[2]
    assert spans[0]["marks"]


def test_the_cost_is_in_the_first_screen_of_a_laptop(page: Page, served: ServedDashboard) -> None:
    """At 1280 by 800 pixels the cost chart needs no scrolling; while all is well the map below it is smaller."""
    page.set_viewport_size({"width": 1280, "height": 800})
    document = written_document()
    publish(served.redis_url, document, {"time_ms": 1, "active": [], "recent": []})
    page.goto(served.url)
    expect(page.locator("#headline")).to_contain_text("Healthy")
    chart = page.locator("[data-chart=cost]").bounding_box()
    assert chart is not None
    assert chart["y"] + chart["height"] <= 800
    least = "() => parseInt(getComputedStyle(document.querySelector('.map-frame')).minHeight)"
    calm_px = page.evaluate(least)
    alert = {"rule": "broker_silent", "subject": "b07", "severity": "critical", "status": "raised", "text": "b07"}
    publish(served.redis_url, document, {"time_ms": 2, "active": [alert], "recent": []})
    expect(page.locator("#headline")).to_contain_text("Degraded")
    assert page.evaluate(least) > calm_px


def test_the_table_of_alerts_breaks_no_words(page: Page, served: ServedDashboard) -> None:
    """At 1280 pixels times and states stay in one line, targets break at blanks only; the text takes the rest."""
    page.set_viewport_size({"width": 1280, "height": 800})
    alert = {
        "rule": "streaming_late", "subject": "windows", "severity": "warning", "status": "cleared", "raised_ms": 1,
        "changed_ms": 60_000, "text": "The streaming job does not keep up. " * 9, "value": 1.0, "is_silenced": False,
        "deliveries": [{"target": "webhook:127.0.0.1#69a113", "state": "delivered"}],
    }  # fmt: skip
    publish(served.redis_url, written_document(), {"time_ms": 1, "active": [], "recent": [alert]})
    page.goto(served.url)
    page.get_by_role("tab", name="Alerts").click()
    table = page.locator("#pane-alerts table")
    expect(table.locator("th")).to_have_text(["Since", "Severity", "Rule", "Subject", "What", "State", "Notified"])
    lines = """(cell) => { const range = document.createRange(); range.selectNodeContents(cell);
        return new Set([...range.getClientRects()].map((box) => box.bottom)).size; }"""
    counts = table.locator("tbody td").evaluate_all(f"(cells) => cells.map({lines})")
    since, _, rule, subject, what, state, notified = counts
    assert (since, rule, subject, state) == (1, 1, 1, 1)
    assert what > 1
    assert notified <= 2


def test_a_plan_is_approved_with_a_name_and_a_reason(page: Page, served: ServedDashboard) -> None:
    """The plan is shown on top with its preview; the order carries the token's name and the reason that was typed."""
    document = proposed_document()
    publish(served.redis_url, document)
    page.goto(served.url)
    plan = document["plans"][0]["plan"]
    review = page.locator("article.review")
    expect(review).to_contain_text(plan)
    expect(page.locator("#headline")).to_contain_text("Your decision")
    wait_drawn(page, "cy.edges('.coming').nonempty() && cy.edges('.dimmed').nonempty()")
    expect(page.locator("#side")).to_contain_text(f"{plan} waits")
    expect(page.locator("#side")).not_to_contain_text("No plan yet")
    approve = review.get_by_role("button", name="Approve")
    expect(approve).to_have_class("good locked")  # Nobody is signed in; a click asks for a token.
    sign_in(page, served)
    expect(approve).to_have_class("good")
    approve.click()
    dialog = page.locator("#order-dialog")
    dialog.locator("button.good").click()
    assert served.orders == []  # Without a reason nothing is sent.
    dialog.get_by_label("Reason").fill("checked with the night shift")
    dialog.locator("button.good").click()
    expect(page.locator("#notes")).to_contain_text("Stored; the controller")
    [order] = served.orders
    assert (order.kind, order.subject, order.by) == (OrderKind.APPROVE, plan, "Ana Silva")
    assert order.reason == "checked with the night shift"
    served.orders.clear()


def test_a_broker_is_put_into_maintenance(page: Page, served: ServedDashboard) -> None:
    """By keyboard only, from the table: the tab, the broker's button, the reason, the box for moving its clients."""
    publish(served.redis_url, written_document())
    page.goto(served.url)
    sign_in(page, served)
    page.get_by_role("tab", name="Plans").focus()
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    page.get_by_label("Find a broker").fill("b07")
    page.locator("#pane-brokers").get_by_role("button", name="Maintain").press("Enter")
    dialog = page.locator("#order-dialog")
    dialog.get_by_label("Reason").fill("kernel update")
    dialog.get_by_label("Move its clients").check()
    dialog.get_by_label("Expires after").fill("45")
    dialog.get_by_role("button", name="Begin maintenance").click()
    expect(dialog).not_to_be_visible()
    [order] = served.orders
    assert (order.kind, order.subject, order.evacuate) == (OrderKind.MAINTAIN, "b07", True)
    assert order.until_ms > order.time_ms
    served.orders.clear()


def test_members_that_are_not_in_service_are_shown(page: Page, served: ServedDashboard) -> None:
    """Dead brokers, the traffic over them and brokers that ask to join are at the top; the table lists all members."""
    members = [
        {"broker": "b03", "state": "dead", "since_ms": 1, "reason": "silent for 10 s", "in_overlay": True},
        {"broker": "b99", "state": "joining", "since_ms": 1, "reason": "more room"},
    ]
    announced = [{"broker": "x1", "since_ms": 1, "to_do": "`regraft members add x1` admits it"}]
    fleet = {
        "counts": {"dead": 1, "joining": 1},
        "members": members,
        "announced": announced,
        "traffic_at_risk_per_s": 120.0,
    }
    publish(served.redis_url, {**written_document(), "members": fleet})
    page.goto(served.url)
    expect(page.locator("#chips")).to_contain_text("dead b03")
    expect(page.locator("#chips")).to_contain_text("at risk 120 /s")
    expect(page.locator("#chips")).to_contain_text("joining b99")
    expect(page.locator("#chips")).to_contain_text("asks to join x1")
    page.get_by_role("tab", name="Brokers").click()
    page.get_by_label("Find a broker").fill("b99")
    expect(page.locator("#pane-brokers tbody tr")).to_have_count(1)
    expect(page.locator("#pane-brokers tbody")).to_contain_text("joining")


def test_an_invalid_token_is_reported_in_the_dialog(page: Page, served: ServedDashboard) -> None:
    """The dialog shows the server's reason, and nobody is signed in."""
    publish(served.redis_url, written_document())
    page.goto(served.url)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_label("Token").fill("not.a.token")
    page.locator("#token-dialog button.good").click()
    expect(page.locator("#token-dialog .error")).to_contain_text("The token cannot be used")


def test_names_and_reasons_are_shown_as_text(page: Page, served: ServedDashboard) -> None:
    """A broker, an event and an alert whose texts contain markup: it is displayed, not executed."""
    document = written_document()
    text = (
        document["events"][-1]
        | {"text": MARKUP, "kind": "gain_missed"}
    )  # fmt: skip
    renamed: dict[str, Any] = {
        **document,
        "events": [text],
        "orders": {"paused": {"by": MARKUP, "reason": MARKUP, "since_ms": 1, "until_ms": 0}, "maintenance": []},
        "configuration": {"epoch": 1, "brokers": ["b01", MARKUP], "links": [["b01", MARKUP]], "degree_max": 3},
        "plans": [],
    }
    alert = {
        "rule": MARKUP, "subject": MARKUP, "severity": "critical", "status": "raised", "raised_ms": 1, "changed_ms": 1,
        "text": MARKUP, "value": 1.0, "is_silenced": False,
    }  # fmt: skip
    publish(served.redis_url, renamed, {"time_ms": 1, "active": [alert], "recent": []})
    dialogs: list[str] = []
    page.on("dialog", lambda dialog: dialogs.append(dialog.message))
    page.goto(served.url)
    expect(page.locator("#headline")).to_contain_text(MARKUP)
    page.get_by_role("tab", name="Alerts").click()
    expect(page.locator("#pane-alerts")).to_contain_text(MARKUP)
    page.get_by_role("tab", name="Events").click()
    expect(page.locator("#pane-events")).to_contain_text(MARKUP)
    page.get_by_role("tab", name="Brokers").click()
    expect(page.locator("#pane-brokers")).to_contain_text(MARKUP)
    page.evaluate("(name) => window.regraft.map.pickBroker(name)", MARKUP)
    expect(page.locator(".details h2")).to_have_text(MARKUP)
    assert dialogs == []
    assert page.locator("img[src='x']").count() == 0


def test_valkey_restarts_while_the_page_is_open(page: Page, served: ServedDashboard) -> None:
    """The picture stays, a banner says since when Valkey has been away, and the page recovers by itself."""
    document = written_document()
    publish(served.redis_url, document)
    page.goto(served.url)
    wait_drawn(page, f"cy.nodes('[name]').length === {BROKERS}")
    served.kill_valkey()
    expect(page.locator("#banners")).to_contain_text("The live view's server has been unreachable since")
    expect(page.locator("#banners")).to_contain_text("This page shows the state of")
    expect(page.locator("#headline")).to_contain_text("Unknown")
    assert drawn(page, "nodes('[name]').length") == BROKERS
    served.wait_valkey()
    publish(served.redis_url, {**document, "windows_closed": 4711})
    expect(page.locator("#side")).to_contain_text("4711 closed")
    expect(page.locator("#banners .banner")).to_have_count(0)


def test_a_silent_controller_is_reported(page: Page, served: ServedDashboard) -> None:
    """If the view is no longer updated the page says for how long."""
    publish(served.redis_url, written_document())
    page.goto(served.url)
    expect(page.locator("#banners")).to_contain_text("No update from the controller for")


def test_if_reading_needs_a_token_nothing_is_shown_without_one(page: Page, tmp_path: Path) -> None:
    """Without a token there is only the dialog; a reader sees everything but gives no orders; signing out hides it
    again.
    """
    with served_dashboard(tmp_path, login_to_read=True) as dashboard:
        publish(dashboard.redis_url, proposed_document())
        page.goto(dashboard.url)
        expect(page.locator("#banners")).to_contain_text("Sign in to see the overlay")
        assert page.evaluate("() => Object.keys(window.regraft.store.parts).length") == 0
        page.get_by_label("Token").fill("not.a.token")
        page.locator("#token-dialog button.good").click()
        expect(page.locator("#token-dialog .error")).to_contain_text("The token cannot be used")
        page.get_by_label("Token").fill(dashboard.token("Wall screen", READ_SCOPE))
        page.locator("#token-dialog button.good").click()
        wait_drawn(page, f"cy.nodes('[name]').length === {BROKERS}")
        expect(page.locator("#banners")).not_to_contain_text("Sign in")
        expect(page.locator("#session")).to_contain_text("Wall screen")
        page.get_by_role("button", name="Approve").click()
        expect(page.locator("#token-dialog")).to_be_visible()
        page.locator("#token-dialog").get_by_role("button", name="Close").click()
        page.reload()  # The browser may continue to read, without another prompt.
        wait_drawn(page, f"cy.nodes('[name]').length === {BROKERS}")
        page.get_by_role("button", name="Sign out").click()
        expect(page.locator("#banners")).to_contain_text("Sign in to see the overlay")
        assert page.evaluate("() => Object.keys(window.regraft.store.parts).length") == 0
        assert dashboard.orders == []
        page.goto("about:blank")


def test_without_a_secret_the_page_is_read_only(page: Page, tmp_path: Path) -> None:
    """The page says so, and its buttons do nothing."""
    with served_dashboard(tmp_path, secret=None) as dashboard:
        publish(dashboard.redis_url, proposed_document())
        page.goto(dashboard.url)
        expect(page.locator("#session")).to_contain_text("Read-only")
        expect(page.get_by_role("button", name="Approve")).to_be_disabled()
        page.goto("about:blank")
