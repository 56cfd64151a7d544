"""Delivery to a real HTTP server on the loopback that is down, slow, failing or odd; by webhook and by apprise."""

import base64
import json
import logging
import threading
from collections.abc import Iterator

import pytest

from regraft.alerts.alert_message import AlertMessage, message_of
from regraft.alerts.alert_settings import AlertSettings
from regraft.alerts.deliver_messages import DeliveryLimits, DeliveryReport, MessageDelivery
from regraft.alerts.message_senders import MessageSender, SendError
from regraft.alerts.name_targets import name_target, name_webhook
from regraft.alerts.post_webhook import WebhookSender
from regraft.alerts.send_apprise import AppriseSender
from regraft.infra.process.find_port import choose_ports
from regraft.schemas.alert import Alert, AlertStatus, DeliveryState
from regraft.schemas.event import Severity
from tests.alerts.webhook_server import WebhookServer, webhook_server
from tests.wait_until import PATIENCE_S, wait_until

SHORT_S = 0.2  # For a server that does not answer.
QUICK = DeliveryLimits(attempts_max=3, backoff_s=0.01, backoff_s_max=0.02, queue_max=2)


@pytest.fixture
def server() -> Iterator[WebhookServer]:
    with webhook_server() as running:
        yield running


def message(number: int = 1, status: AlertStatus = AlertStatus.RAISED) -> AlertMessage:
    """Return a message about one alert; each number has its own id."""
    text = "Queue b01 is congested: 12 > 10, größer"
    alert = Alert("congestion", "b01", Severity.WARNING, status, number, number, text, 12.0, ("b01",))
    return message_of([alert], 1_760_000_000_000)


def webhook(server: WebhookServer, timeout_s: float = PATIENCE_S) -> WebhookSender:
    return WebhookSender(server.url, timeout_s, "lab")


def error_of(sender: MessageSender) -> SendError:
    with pytest.raises(SendError) as caught:
        sender.send(message())
    assert "secret-token" not in str(caught.value)
    return caught.value


class Desk:
    """Grants every delivery at once and records how each ended."""

    def __init__(self, senders: dict[str, MessageSender], limits: DeliveryLimits = QUICK) -> None:
        self.delivery = MessageDelivery(senders, limits)
        self.ends: list[tuple[str, str, str]] = []
        self.began: list[DeliveryReport] = []
        self.is_granting = True

    def turn(self) -> None:
        """Take the reports that have arrived."""
        for report in self.delivery.reports():
            if report.state is not DeliveryState.SENDING:
                self.ends.append((report.target, str(report.state), report.reason))
                continue
            self.began.append(report)
            if self.is_granting:
                self.delivery.grant(report.message, report.target)

    def until(self, count: int) -> list[tuple[str, str, str]]:
        """Wait for this many results and return them."""

        def has_ended() -> bool:
            self.turn()
            return len(self.ends) >= count

        wait_until(has_ended)
        return self.ends

    def close(self) -> None:
        """Stop delivery and wait."""
        self.delivery.stop()
        assert self.delivery.wait(PATIENCE_S)


def test_a_webhook_gets_json_with_a_key_that_is_the_messages_id(server: WebhookServer) -> None:
    """Programs read the fields, and recognise a repeated message by its key."""
    webhook(server).send(message())
    (received,) = server.received
    document = json.loads(received.body)
    assert received.headers["Content-Type"] == "application/json"
    assert received.headers["Idempotency-Key"] == document["id"] == message().message
    assert document["source"] == "lab"
    assert (document["rule"], document["status"], document["severity"]) == ("congestion", "raised", "warning")
    assert document["alerts"][0]["text"].endswith("größer")


def test_a_password_in_the_address_becomes_a_header(server: WebhookServer) -> None:
    """It is sent as basic authentication and appears nowhere else."""
    WebhookSender(f"http://ana:pass%20word@127.0.0.1:{server.port}/x", PATIENCE_S, "lab").send(message())
    (received,) = server.received
    headers = {name.lower(): value for name, value in received.headers.items()}
    assert base64.b64decode(headers["authorization"].removeprefix("Basic ")) == b"ana:pass word"
    assert "ana" not in headers["host"]


def test_answers_need_not_be_json(server: WebhookServer) -> None:
    """Only the status counts; the body may hold anything, of any length."""
    server.answer_body = b"<html>{not json" * 100_000
    webhook(server).send(message())
    assert len(server.received) == 1


@pytest.mark.parametrize(
    ("status", "can_retry"), [(500, True), (503, True), (429, True), (400, False), (404, False), (302, False)]
)
def test_the_status_decides_whether_to_retry(server: WebhookServer, status: int, can_retry: bool) -> None:
    """A server with an internal error may recover; one that refuses will refuse again; redirects are not followed."""
    server.answers.append(status)
    server.headers["Location"] = server.url
    error = error_of(webhook(server))
    assert (error.can_retry, error.is_uncertain) == (can_retry, False)
    assert str(status) in str(error)
    assert len(server.received) == 1


def test_a_target_may_request_a_pause(server: WebhookServer) -> None:
    """Retry-After is honoured in seconds, but not as a date."""
    server.answers += [429, 429]
    server.headers["Retry-After"] = "7"
    assert error_of(webhook(server)).wait_s == 7.0
    server.headers["Retry-After"] = "Wed, 21 Oct 2026 07:28:00 GMT"
    assert error_of(webhook(server)).wait_s is None


def test_a_slow_answer_is_uncertain_and_a_refused_connection_is_not(server: WebhookServer) -> None:
    """Once the request was sent the outcome is unknown; without a connection nothing arrived."""
    server.may_answer.clear()
    assert error_of(webhook(server, SHORT_S)).is_uncertain
    nobody = WebhookSender(f"http://127.0.0.1:{choose_ports(1)[0]}/secret-token", PATIENCE_S, "lab")
    assert not error_of(nobody).is_uncertain
    unknown = WebhookSender("http://no-such-host.invalid/secret-token", PATIENCE_S, "lab")
    assert not error_of(unknown).is_uncertain


def test_apprise_delivers_to_the_same_server(server: WebhookServer) -> None:
    """Its json:// service posts title, text and kind; the end of an alert has the kind success."""
    sender = AppriseSender(f"json://127.0.0.1:{server.port}/secret-token", PATIENCE_S, "lab")
    sender.send(message())
    sender.send(message(status=AlertStatus.CLEARED))
    first, second = map(json.loads, server.bodies)
    assert first["title"] == "lab: congestion raised (warning): b01"
    assert (first["type"], second["type"]) == ("warning", "success")
    assert first["message"] == message().text


def test_apprises_own_report_of_a_failure_is_not_shown(
    server: WebhookServer, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Its own log may hold tokens of the URL: only the status is reported."""
    server.answers.append(503)
    error = error_of(AppriseSender(f"json://127.0.0.1:{server.port}/secret-token", PATIENCE_S, "lab"))
    assert "HTTP 503" in str(error)
    error_of(AppriseSender(f"json://user:secret-token@127.0.0.1:{choose_ports(1)[0]}", PATIENCE_S, "lab"))
    out = capfd.readouterr()
    assert "secret-token" not in out.out + out.err + caplog.text
    assert not logging.getLogger("apprise").propagate


def test_apprise_also_gives_up_a_slow_service(server: WebhookServer) -> None:
    """It uses our time-outs."""
    server.may_answer.clear()
    error_of(AppriseSender(f"json://127.0.0.1:{server.port}/secret-token", SHORT_S, "lab"))
    wait_until(lambda: len(server.received) == 1)


def test_a_server_that_fails_once_gets_the_message_on_the_second_attempt(server: WebhookServer) -> None:
    """500, then 200: sent, with the same key both times."""
    server.answers.append(500)
    desk = Desk({"hook": webhook(server)})
    desk.delivery.offer(message(), "hook")
    assert [end[:2] for end in desk.until(1)] == [("hook", "sent")]
    assert len({received.headers["Idempotency-Key"] for received in server.received}) == 1
    assert len(server.received) == 2
    desk.close()


def test_a_server_that_keeps_failing_gives_up_one_message_and_gets_the_next(server: WebhookServer) -> None:
    """Three attempts are made, no more; then the next message has its own three."""
    server.answers += [500, 500, 500]
    desk = Desk({"hook": webhook(server)})
    desk.delivery.offer(message(1), "hook")
    desk.delivery.offer(message(2), "hook")
    assert desk.until(2) == [("hook", "failed", "it answered HTTP 500"), ("hook", "sent", desk.ends[1][2])]
    assert len(server.received) == 4
    desk.close()


def test_a_refusal_is_not_tried_again(server: WebhookServer) -> None:
    """A 404 will still be a 404 a second later."""
    server.answers.append(404)
    desk = Desk({"hook": webhook(server)})
    desk.delivery.offer(message(), "hook")
    assert desk.until(1) == [("hook", "failed", "it answered HTTP 404")]
    assert len(server.received) == 1
    desk.close()


class Stuck:
    """A target that answers only when released."""

    def __init__(self) -> None:
        self.free = threading.Event()
        self.sent: list[str] = []

    def send(self, message: AlertMessage) -> None:
        """Wait, then accept it."""
        self.free.wait(PATIENCE_S)
        self.sent.append(message.message)


def test_a_target_that_hangs_delays_no_other_and_its_queue_is_bounded(server: WebhookServer) -> None:
    """Two messages may wait behind the one that hangs, the rest fail at once with the reason; the other gets all."""
    stuck = Stuck()
    desk = Desk({"stuck": stuck, "hook": webhook(server)})
    desk.delivery.offer(message(0), "stuck")

    def is_hanging() -> bool:
        desk.turn()
        return desk.delivery.waiting["stuck"] == 0

    wait_until(is_hanging)
    for number in range(1, 6):
        desk.delivery.offer(message(number), "stuck")
        desk.delivery.offer(message(number), "hook")
        wait_until(lambda: desk.turn() or desk.delivery.waiting["hook"] == 0)
    ends = desk.until(8)
    assert sum(end[:2] == ("hook", "sent") for end in ends) == 5
    assert [end for end in ends if end[0] == "stuck"] == [
        ("stuck", "failed", "2 messages are already waiting for it")
    ] * 3
    stuck.free.set()
    desk.until(11)
    assert stuck.sent == [message(number).message for number in range(3)]
    desk.close()


def test_nothing_is_sent_before_it_is_granted(server: WebhookServer) -> None:
    """A message is not sent unless its sending was stored first; at a stop it stays pending."""
    desk = Desk({"hook": webhook(server)})
    desk.is_granting = False
    desk.delivery.offer(message(), "hook")
    wait_until(lambda: desk.turn() or len(desk.began) == 1)
    desk.close()
    desk.turn()
    assert server.received == []
    assert desk.ends == [("hook", "pending", "")]


def test_a_stop_ends_the_attempts_and_records_what_is_certain(server: WebhookServer) -> None:
    """A server that answered 500 did not take the message: pending. One that did not answer may have: uncertain."""
    endless = DeliveryLimits(attempts_max=10_000, backoff_s=0.2, backoff_s_max=0.2, queue_max=2)
    server.answers += [500] * 10_000
    for timeout_s, expected in ((PATIENCE_S, "pending"), (SHORT_S, "uncertain")):
        server.received.clear()
        if expected == "uncertain":
            server.may_answer.clear()
        desk = Desk({"hook": webhook(server, timeout_s)}, endless)
        desk.delivery.offer(message(), "hook")
        wait_until(lambda: desk.turn() or len(server.received) >= 1)  # noqa: B023
        desk.close()
        desk.turn()
        assert [end[:2] for end in desk.ends] == [("hook", expected)]


class Broken:
    """A sender with a bug."""

    def send(self, message: AlertMessage) -> None:
        """Raise what no sender should raise."""
        raise KeyError("https://secret-token@host")


def test_a_error_of_a_library_fails_one_message_only(server: WebhookServer) -> None:
    """Whatever a service's plug-in raises, only this message fails, without the error's text; the thread continues."""
    desk = Desk({"broken": Broken()})
    desk.delivery.offer(message(1), "broken")
    desk.delivery.offer(message(2), "broken")
    assert desk.until(2) == [("broken", "failed", "sending failed (KeyError)")] * 2
    desk.close()


def test_a_target_that_is_no_longer_configured_is_reported(server: WebhookServer) -> None:
    """A message for such a target that was pending at a restart becomes a dead letter."""
    desk = Desk({})
    desk.delivery.offer(message(), "old")
    assert desk.until(1) == [("old", "failed", "the target is no longer configured")]


def test_names_of_targets_hold_no_secret() -> None:
    """Tokens may appear anywhere in an apprise URL, including the host."""
    assert name_target("tgram://123456:token/chat").startswith("tgram#")
    assert "token" not in name_target("slack://tokenA/tokenB/tokenC")
    assert name_webhook("https://ana:pass@hooks.example.org/token?key=1").startswith("webhook:hooks.example.org#")
    assert name_webhook("https://h/1") != name_webhook("https://h/2")


def test_settings_list_all_errors_without_secrets() -> None:
    """Kinds unknown to apprise, invalid addresses, duplicates and a bad port: all errors at once."""
    settings = AlertSettings(
        bootstrap="127.0.0.1:9092",
        targets=("nonsense://token-one", "json://127.0.0.1/ok", "json://127.0.0.1/ok"),
        webhooks=("ftp://token-two", "https://", "http://fine.example.org/x"),
        quiet_hours="late",
        metrics_port=0,
    )
    errors = settings.errors()
    text = "\n".join(errors)
    assert len(errors) == 6, text
    assert "token-one" not in text
    assert "token-two" not in text
    for wanted in ("targets[0]", "webhooks[0]", "webhooks[1]", "named twice", "quiet_hours is 'late'"):
        assert wanted in text
