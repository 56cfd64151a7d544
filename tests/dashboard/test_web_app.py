"""The dashboard's endpoints without a network: who may give which orders, what browsers get, health."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from fastapi.testclient import TestClient

from regraft.dashboard.dashboard_settings import DashboardSettings
from regraft.dashboard.operator_tokens import id_of, make_token
from regraft.dashboard.revoked_tokens import revoke_token
from regraft.dashboard.web_app import DashboardParts, build_app
from regraft.infra.process.stack_error import StackError
from regraft.schemas.order import WHOLE_OVERLAY, Order, OrderKind
from regraft.schemas.plan import PlanPhase
from regraft.schemas.plan_life import LIFE, phases_for
from tests.dashboard.test_poll_view import MemorySource
from tests.dashboard.view_documents import proposed_document, view_texts, written_document
from tests.wait_until import wait_until

SECRET = "k" * 40


class Desk:
    """A dashboard over a live view in memory, with the orders that it sent to Kafka."""

    def __init__(self, client: TestClient, source: MemorySource, sent: list[Order]) -> None:
        self.client, self.source, self.sent = client, source, sent
        self.errors: list[str] = []
        self.token = make_token(SECRET, "Ana Silva", "regraft", 1, 24, time.time())

    def order(self, token: str | None = "", **request: Any) -> tuple[int, dict[str, Any]]:
        """Give an order and return status and answer."""
        used = self.token if token == "" else token
        headers = {} if used is None else {"Authorization": f"Bearer {used}"}
        answer = self.client.post("/api/orders", json={"reason": "we said so", **request}, headers=headers)
        return answer.status_code, answer.json()

    def state(self) -> dict[str, Any]:
        """Return everything that pages get."""
        parts: dict[str, Any] = self.client.get("/api/state").json()["parts"]
        return parts


@pytest.fixture
def open_desk(tmp_path: Path) -> Iterator[Callable[..., Desk]]:
    """Return a factory of dashboards, all of which are closed at the end."""
    opened: list[TestClient] = []

    def make(**given: Any) -> Desk:
        source, sent = MemorySource(), []  # type: ignore[var-annotated]
        source.texts = view_texts({**proposed_document(), "time_ms": time.time_ns() // 1_000_000})
        options = {"secret": SECRET, "host_names": ("testserver",), "poll_ms": 50, "stale_ms": 60_000} | given
        settings = DashboardSettings(bootstrap="none", inventory_path=tmp_path / "none.json", **options)
        errors: list[str] = []

        def send(order: Order) -> Order:
            if errors:
                raise StackError(errors[0])
            sent.append(order)
            return order

        app = build_app(settings, source, send)
        client = TestClient(app)
        client.__enter__()
        opened.append(client)
        desk = Desk(client, source, sent)
        desk.errors = errors
        parts: DashboardParts = app.state.parts
        wait_until(lambda: bool(parts.board.value("plans")))
        return desk

    yield make
    for client in opened:
        client.__exit__(None, None, None)


def test_an_order_goes_to_kafka_with_the_holders_name(open_desk: Callable[..., Desk]) -> None:
    """Approving the waiting plan: the name comes from the token, the reason from the request."""
    desk = open_desk()
    plan = proposed_document()["plans"][0]["plan"]
    status, answer = desk.order(kind="approve", subject=plan, reason="  looks good  ")
    assert status == 202
    [order] = desk.sent
    assert (order.kind, order.subject, order.by, order.reason) == (OrderKind.APPROVE, plan, "Ana Silva", "looks good")
    assert answer["order"]["by"] == "Ana Silva"
    assert order.source.endswith("requested from testclient")


def test_an_order_about_a_plan_names_the_one_that_was_shown(open_desk: Callable[..., Desk]) -> None:
    """A page that still shows an earlier plan of that name cannot order anything about the current one."""
    desk = open_desk()
    document = proposed_document()
    [plan] = document["plans"]
    desk.source.texts = view_texts({**document, "plans": [{**plan, "digest": "now"}]})
    wait_until(lambda: desk.state()["plans"][0]["digest"] == "now")
    status, answer = desk.order(kind="approve", subject=plan["plan"], plan_digest="before")
    assert (status, desk.sent) == (409, [])
    assert "no longer the plan that you were shown" in answer["text"]
    assert desk.order(kind="approve", subject=plan["plan"], plan_digest="now")[0] == 202
    assert [order.plan_digest for order in desk.sent] == ["now"]


def test_orders_about_members_fit_the_states_that_are_shown(open_desk: Callable[..., Desk]) -> None:
    """A broker that the fleet's part does not list is in service; a dead one cannot drain."""
    desk = open_desk()
    dead = {"broker": "b03", "state": "dead", "since_ms": 1, "reason": "silent"}
    desk.source.texts = view_texts({**written_document(), "members": {"counts": {"dead": 1}, "members": [dead]}})
    wait_until(lambda: bool(desk.state()["members"].get("members")))
    assert desk.order(kind="readmit", subject="b03")[0] == 202
    assert desk.order(kind="drain", subject="b04")[0] == 202
    for kind, subject, why in (
        ("drain", "b03", "b03 is dead and cannot be drained"),
        ("remove", "b04", "cannot be removed: drain it"),
        ("dead", "b99", "b99 is not a member"),
    ):
        status, answer = desk.order(kind=kind, subject=subject)
        assert (status, why in answer["text"]) == (409, True), answer
    assert desk.order(kind="add", subject="x1")[0] == 422
    assert [(order.kind, order.subject) for order in desk.sent] == [("readmit", "b03"), ("drain", "b04")]


def test_a_drain_that_leaves_clients_behind_needs_to_say_so(open_desk: Callable[..., Desk]) -> None:
    """The answer counts them and says what to send; where no window is shown, how many is unknown."""
    desk, document = open_desk(), written_document()
    for broker in document["network"]["brokers"]:
        broker |= {"subscribers": 12, "movable": 3, "staying": {"qos_2": 5}}
    desk.source.texts = view_texts(document)
    wait_until(lambda: 12 in desk.state()["network"]["brokers"]["rows"][0])
    status, answer = desk.order(kind="drain", subject="b04")
    assert (status, desk.sent) == (409, [])
    assert answer["text"].startswith("9 of 12 subscribers at b04 cannot move (5 qos 2, 4 other): after the drain")
    assert answer["text"].endswith('Send "leaves_clients": true to accept that.')
    assert desk.order(kind="drain", subject="b04", leaves_clients=True)[0] == 202
    desk.source.texts = view_texts({**document, "network": None})
    wait_until(lambda: desk.state()["network"] is None)
    status, answer = desk.order(kind="drain", subject="b04")
    assert (status, answer["text"][:34]) == (409, "How many subscribers at b04 cannot")
    assert desk.order(kind="remove", subject="b04", leaves_clients=True)[0] == 422
    assert [order.kind for order in desk.sent] == [OrderKind.DRAIN]


def test_a_pause_and_a_maintenance_may_expire(open_desk: Callable[..., Desk]) -> None:
    """Minutes become a time; clients move away only if that is requested."""
    desk = open_desk()
    before_ms = time.time_ns() // 1_000_000
    assert desk.order(kind="pause", minutes=30)[0] == 202
    assert desk.order(kind="maintain", subject="b03", evacuate=True)[0] == 202
    assert desk.order(kind="return", subject="b03")[0] == 202
    assert desk.order(kind="resume")[0] == 202
    after_ms = time.time_ns() // 1_000_000
    pause, maintain, back, resume = desk.sent
    assert pause.subject == resume.subject == WHOLE_OVERLAY
    assert before_ms <= pause.until_ms - 30 * 60_000 <= after_ms
    assert (maintain.evacuate, maintain.until_ms, back.evacuate) == (True, 0, False)


@pytest.mark.parametrize(
    ("request_", "status", "says"),
    [
        ({"kind": "approve", "subject": "plan-99"}, 409, "no plan 'plan-99'"),
        ({"kind": "cancel"}, 409, "no plan 'overlay'"),
        ({"kind": "maintain", "subject": "b99"}, 409, "no broker 'b99'"),
        ({"kind": "pause", "subject": "b01"}, 422, "concerns the whole overlay"),
        ({"kind": "resume", "minutes": 5}, 422, "does not expire"),
        ({"kind": "return", "subject": "b01", "evacuate": True}, 422, "Only maintain evacuates"),
        ({"kind": "pause", "minutes": -1}, 422, "minutes"),
        ({"kind": "explode"}, 422, "kind"),
        ({"kind": "pause", "reason": "  "}, 422, "reason"),
        ({"kind": "pause", "reason": "x" * 501}, 422, "reason"),
        ({"kind": "pause", "by": "somebody else"}, 422, "by"),
    ],
)
def test_an_invalid_order_is_refused_with_a_sentence(
    open_desk: Callable[..., Desk], request_: dict[str, Any], status: int, says: str
) -> None:
    """Nothing is sent, and the answer says what is wrong."""
    desk = open_desk()
    answered, answer = desk.order(**request_)
    assert (answered, desk.sent) == (status, [])
    assert says in answer["text"]


def show(desk: Desk, phase: str) -> str:
    """Make the live view show its plan in this phase; return the plan's name."""
    document = proposed_document()
    [plan] = document["plans"]
    desk.source.texts = view_texts({**document, "plans": [{**plan, "phase": phase}]})
    wait_until(lambda: desk.state()["plans"][0]["phase"] == phase)
    return str(plan["plan"])


def test_an_order_about_a_plan_is_given_only_in_phases_that_permit_it(open_desk: Callable[..., Desk]) -> None:
    """A waiting plan can be approved, refused or cancelled, a preparing one cancelled; other phases take no orders."""
    desk = open_desk()
    for phase in (*PlanPhase, "unheard of"):
        plan = show(desk, phase)
        for kind in [kind for kind in OrderKind if kind.scope == "plan"]:
            desk.sent.clear()
            status, answer = desk.order(kind=kind, subject=plan)
            if phase in phases_for(kind):
                assert (status, [order.kind for order in desk.sent]) == (202, [kind]), phase
            else:
                assert (status, desk.sent) == (409, []), phase
                assert (
                    answer["text"] == f"{plan} is {phase}: {kind} needs a plan that is {' or '.join(phases_for(kind))}."
                )


def test_pages_get_the_facts_of_each_phase(open_desk: Callable[..., Desk]) -> None:
    """The orders that are possible, whether a plan is under way, and the steps of one being executed."""
    phases = open_desk().state()["phases"]
    assert phases["facts"].keys() == set(PlanPhase)
    for phase, facts in LIFE.items():
        for name, value in phases["facts"][phase].items():
            assert value == (list(facts.orders) if name == "orders" else getattr(facts, name)), (phase, name)
    assert phases["steps"] == ["preparing", "activating", "draining", "retiring", "verifying"]


def test_kafka_being_away_is_reported(open_desk: Callable[..., Desk]) -> None:
    """The order was not stored: the answer holds the sender's error message."""
    desk = open_desk()
    desk.errors.append("The order was not stored: check that Kafka runs")
    status, answer = desk.order(kind="pause")
    assert (status, answer["text"]) == (503, "The order was not stored: check that Kafka runs")


@pytest.mark.parametrize(
    ("make", "status", "why"),
    [
        (lambda _: None, 401, "missing"),
        (lambda _: "abc", 401, "malformed"),
        (lambda good: jwt.encode(jwt.decode(good, options={"verify_signature": False}), "x" * 40), 401, "forged"),
        (lambda good: jwt.encode(jwt.decode(good, options={"verify_signature": False}), None, "none"), 401, "forged"),
        (lambda _: make_token(SECRET, "Ana", "regraft", 1, 24, time.time() - 7200), 401, "expired"),
        (lambda _: make_token(SECRET, "Ana", "production", 1, 24, time.time()), 403, "namespace"),
    ],
)
def test_orders_need_a_valid_token(
    open_desk: Callable[..., Desk], make: Callable[[str], str | None], status: int, why: str
) -> None:
    """Forged, expired, unsigned, foreign or missing: a status, a code, a sentence, and no order."""
    desk = open_desk()
    answered, answer = desk.order(make(desk.token), kind="pause")
    assert (answered, answer["error"], desk.sent) == (status, why, [])
    assert answer["text"].endswith(".") or why == "missing"
    assert desk.client.get("/api/state").status_code == 200  # Reading is free.


def test_a_token_can_be_revoked_while_the_dashboard_runs(open_desk: Callable[..., Desk], tmp_path: Path) -> None:
    """The next order with it is refused, those with other tokens are not; an unreadable list lets no token in."""
    file = tmp_path / "revoked.txt"
    desk = open_desk(revoked_file=file)
    assert desk.order(kind="pause")[0] == 202
    revoke_token(file, id_of(desk.token))
    status, answer = desk.order(kind="pause")
    assert (status, answer["error"]) == (401, "revoked")
    other = make_token(SECRET, "Ana Silva", "regraft", 1, 24, time.time())
    assert desk.order(other, kind="pause")[0] == 202
    file.write_bytes(b"\xff\xfe")
    status, answer = desk.order(other, kind="pause")
    assert (status, answer["error"]) == (503, "revoked_file")


def test_without_a_secret_the_dashboard_is_read_only(open_desk: Callable[..., Desk]) -> None:
    """No token is accepted, not even one that declares no signature."""
    desk = open_desk(secret=None)
    for token in (desk.token, jwt.encode({"sub": "Ana"}, None, algorithm="none"), None):
        status, answer = desk.order(token, kind="pause")
        assert (status, answer["error"]) == (403, "read_only")
    assert desk.client.get("/api/state").json()["parts"]["server"]["can_order"] is False


def test_a_session_names_the_tokens_holder(open_desk: Callable[..., Desk]) -> None:
    """The page requests it when somebody signs in."""
    desk = open_desk()
    answer = desk.client.get("/api/session", headers={"Authorization": f"Bearer {desk.token}"})
    assert answer.json()["by"] == "Ana Silva"
    assert desk.client.get("/api/session").status_code == 401


@pytest.mark.parametrize("path", ["/", "/static/main.js", "/api/state", "/metrics", "/nowhere"])
def test_responses_restrict_what_a_page_may_do(open_desk: Callable[..., Desk], path: str) -> None:
    """No inline script, no frames, no guessing of types, no cookie, whatever the response."""
    answer = open_desk().client.get(path)
    policy = answer.headers["Content-Security-Policy"]
    assert "script-src 'self';" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert "Set-Cookie" not in answer.headers
    assert "Access-Control-Allow-Origin" not in answer.headers


def test_a_foreign_host_name_is_refused(open_desk: Callable[..., Desk]) -> None:
    """A page of another site cannot read the state through a host name that it resolves to this server."""
    desk = open_desk()
    answer = desk.client.get("/api/state", headers={"Host": "evil.example:8090"})
    assert answer.status_code == 400
    assert "dashboard.host_names" in answer.json()["text"]
    assert desk.client.get("/api/state", headers={"Host": "testserver:1234"}).status_code == 200
    assert open_desk(host_names=("*",)).client.get("/", headers={"Host": "any.example"}).status_code == 200


def test_a_request_body_is_bounded(open_desk: Callable[..., Desk]) -> None:
    """A body larger than any order is not even read."""
    desk = open_desk()
    answer = desk.client.post("/api/orders", content=b"x" * 20_000, headers={"Content-Type": "application/json"})
    assert answer.status_code == 413
    chunked = desk.client.post("/api/orders", content=iter([b"x"]), headers={"Transfer-Encoding": "chunked"})
    assert chunked.status_code == 413


def test_programs_get_the_whole_state(open_desk: Callable[..., Desk]) -> None:
    """One document with every part that pages show."""
    parts = open_desk().client.get("/api/state").json()["parts"]
    assert {"configuration", "network", "plans", "cost", "windows", "orders", "server", "counts"} <= parts.keys()


def test_it_is_ready_only_while_the_view_is_live(open_desk: Callable[..., Desk]) -> None:
    """A restart does not bring Valkey back: healthy, but not ready, with the reason."""
    live = open_desk()
    assert (live.client.get("/health").status_code, live.client.get("/ready").status_code) == (200, 200)
    desk = open_desk(stale_ms=1000)
    wait_until(lambda: desk.client.get("/ready").status_code == 503)  # The controller writes nothing more.
    assert desk.client.get("/ready").json()["errors"][0].startswith("the controller last wrote the live view ")
    assert desk.client.get("/health").json() == {"is_ready": False, "errors": []}
    desk.source.error = ConnectionError("nobody listens")
    wait_until(lambda: "unreachable" in desk.client.get("/ready").text)
    wait_until(lambda: desk.client.get("/ready").status_code == 503)
    assert desk.client.get("/ready").json() == {
        "is_ready": False,
        "errors": ["the live view is unreachable: nobody listens"],
    }
    assert desk.client.get("/health").json() == {"is_ready": False, "errors": []}


def test_metrics_count_what_happens(open_desk: Callable[..., Desk]) -> None:
    """Polls, failures, orders and refused tokens are counted for Prometheus."""
    desk = open_desk()
    desk.order(kind="pause")
    desk.order("abc", kind="pause")
    text = desk.client.get("/metrics").text
    assert 'regraft_dashboard_orders_total{kind="pause",outcome="stored"} 1.0' in text
    assert 'regraft_dashboard_tokens_refused_total{why="malformed"} 1.0' in text
    for name in ("clients", "events_sent", "states_skipped", "view_failures", "poll_ms"):
        assert f"regraft_dashboard_{name}" in text
