"""The Kafka clients: how each is configured, how they report errors, what is lost when one is closed."""

import re
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import structlog
from confluent_kafka import KafkaError, KafkaException

from regraft.infra.kafka import kafka_clients
from regraft.infra.kafka.kafka_access import KafkaAccess, KafkaSecurity
from regraft.infra.kafka.kafka_clients import (
    close_producer,
    leave_to_caller,
    open_admin,
    open_consumer,
    open_producer,
    open_transactional_producer,
    report_error,
)
from regraft.infra.process.find_port import LOOPBACK

NOBODY = "127.0.0.1:1"


class SecuredKafka(KafkaSecurity):
    """Security with recognisable options."""

    def client_options(self) -> dict[str, str]:
        return {"security.protocol": "sasl_ssl"}

    def spark_options(self) -> dict[str, str]:
        return {"kafka.security.protocol": "SASL_SSL"}


ACCESS = KafkaAccess("kafka:9092", "regraft-test", SecuredKafka())
CONNECTION = {"bootstrap.servers": "kafka:9092", "client.id": "regraft-test", "security.protocol": "sasl_ssl"}
OPENED: Mapping[str, Callable[..., Any]] = {
    "Producer": lambda options: open_producer(ACCESS, options),
    "Consumer": lambda options: open_consumer(ACCESS, options),
    "AdminClient": lambda options: open_admin(ACCESS, 0.5),
}


ROOT = Path(__file__).parents[2]
PRODUCT = ("benchmarks", "controller", "infra", "lab", "producers", "regraft", "streaming")


def options_of(monkeypatch: pytest.MonkeyPatch, kind: str, build: Callable[[], Any]) -> dict[str, Any]:
    """Return the options that librdkafka would get."""
    monkeypatch.setattr(kafka_clients, kind, dict)
    return dict(build())


@pytest.mark.parametrize("kind", OPENED)
def test_every_client_is_built_from_the_same_connection(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Servers, client id and security reach each kind of client, and no option of a call can redirect it."""
    elsewhere = {"bootstrap.servers": "elsewhere:1", "security.protocol": "plaintext"}
    options = options_of(monkeypatch, kind, lambda: OPENED[kind](elsewhere))
    assert options.items() >= CONNECTION.items()
    assert options["log_level"] == 0
    assert callable(options["error_cb"])


def test_no_other_module_builds_clients() -> None:
    """A client built elsewhere would miss the connection's security."""
    built = re.compile(r"\b(Producer|Consumer|AdminClient)\(|bootstrap\.servers")
    files = [file for package in PRODUCT for file in (ROOT / package).rglob("*.py")]
    found = {str(file.relative_to(ROOT)) for file in files if built.search(file.read_text(encoding="utf-8"))}
    assert found == {"infra/kafka/kafka_access.py", "infra/kafka/kafka_clients.py"}


def test_spark_gets_the_same_connection() -> None:
    """Spark's source has its own names for servers and security."""
    assert ACCESS.spark_options() == {"kafka.bootstrap.servers": "kafka:9092", "kafka.security.protocol": "SASL_SSL"}


def test_without_security_connections_are_plain_text() -> None:
    """Without settings Kafka's own defaults apply."""
    assert KafkaAccess(NOBODY).client_options()["security.protocol"] == "plaintext"


def test_a_producer_is_idempotent_unless_configured_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Idempotence is the default; a call's own options are added and take precedence."""
    given = options_of(monkeypatch, "Producer", lambda: open_producer(ACCESS, {"linger.ms": 7}))
    assert (given["enable.idempotence"], given["linger.ms"]) == (True, 7)
    other = options_of(monkeypatch, "Producer", lambda: open_producer(ACCESS, {"enable.idempotence": False}))
    assert other["enable.idempotence"] is False


def test_a_transactional_producer_has_its_id_and_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """The id by which Kafka fences off earlier producers, and the time-out of a transaction."""
    given = options_of(
        monkeypatch, "Producer", lambda: open_transactional_producer(ACCESS, "writer", 15_000, {"linger.ms": 0})
    )
    assert (given["transactional.id"], given["transaction.timeout.ms"], given["linger.ms"]) == ("writer", 15_000, 0)


def test_a_consumer_commits_nothing_and_prefers_repeats_to_gaps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its group is its client id unless it stores positions under another."""
    given = options_of(monkeypatch, "Consumer", lambda: open_consumer(ACCESS, {"enable.partition.eof": True}))
    assert (given["enable.auto.commit"], given["auto.offset.reset"]) == (False, "earliest")
    assert (given["group.id"], given["enable.partition.eof"]) == ("regraft-test", True)
    named = options_of(monkeypatch, "Consumer", lambda: open_consumer(ACCESS, group="alerts"))
    assert named["group.id"] == "alerts"


def test_librdkafka_itself_logs_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    """An unreachable Kafka is reported by a callback, not by lines on standard error."""
    errors: list[KafkaError] = []
    producer = open_producer(KafkaAccess(NOBODY), on_error=errors.append)
    producer.poll(0.5)
    assert KafkaError._TRANSPORT in [error.code() for error in errors]
    assert "FAIL" not in capfd.readouterr().err


def test_an_outage_is_logged_once_for_all_clients_of_a_stage() -> None:
    """The first error is reported with its reason; errors of any client right after it are not."""
    away = KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down")
    with structlog.testing.capture_logs() as logged:
        for name in ("stage-a", "stage-a", "stage-b"):
            report_error(name, away)
        leave_to_caller(away)
    assert [(entry["event"], entry["client"]) for entry in logged] == [
        ("kafka_client_error", "stage-a"),
        ("kafka_client_error", "stage-b"),
    ]
    assert (logged[0]["code"], logged[0]["reason"]) == ("_ALL_BROKERS_DOWN", "1/1 brokers are down")


def test_closing_reports_what_was_not_delivered() -> None:
    """Records that are unsent at the time-out are counted, logged, and reported to each record's on_delivery."""
    given_up: list[str] = []
    with socket.create_server((LOOPBACK, 0)) as silent, structlog.testing.capture_logs() as logged:
        access = KafkaAccess(f"{LOOPBACK}:{silent.getsockname()[1]}")
        producer = open_producer(access, on_error=leave_to_caller)
        for number in range(3):
            producer.produce("topic", str(number), on_delivery=lambda error, _: given_up.append(error.name()))
        assert close_producer(producer, 0.1) == 3
        assert close_producer(producer, 0.1) == 0
    assert logged == [{"event": "records_not_delivered", "count": 3, "waited_s": 0.1, "log_level": "warning"}]
    assert given_up == ["_PURGE_QUEUE"] * 3


class ReportingProducer:
    """A producer with records and an error in its queue; it could send nothing in time."""

    def __init__(self) -> None:
        self.records, self.errors = 2, 1

    def __len__(self) -> int:
        return self.records + self.errors

    def flush(self, _: float) -> int:
        return len(self)

    def purge(self) -> None:
        self.records = 0

    def poll(self, _: float) -> int:
        served, self.errors = self.errors, 0
        return served


def test_an_error_that_waits_to_be_reported_is_no_record() -> None:
    """A process that did not run while it waited finds errors that it has yet to report."""
    producer: Any = ReportingProducer()
    assert close_producer(producer, 0.0) == 2
    assert close_producer(producer, 0.0) == 0


class BrokenProducer:
    """A producer after a fatal error: flush raises, and its queue can only be purged."""

    def __init__(self) -> None:
        self.waiting = 2

    def __len__(self) -> int:
        return self.waiting

    def flush(self, _: float) -> int:
        raise KafkaException(KafkaError(KafkaError._FENCED, "fenced by a newer instance", True))

    def purge(self) -> None:
        self.waiting = 0

    def poll(self, _: float) -> int:
        return 2


def test_a_broken_producer_is_closed_like_any_other() -> None:
    """Closing must not hide the fatal error that precedes it."""
    producer: Any = BrokenProducer()
    assert close_producer(producer, 1.0) == 2
    assert producer.waiting == 0
