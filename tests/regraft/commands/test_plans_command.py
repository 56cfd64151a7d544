"""A person and a controller on a real Kafka: plans looked at and approved, pauses and maintenance that stand."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from controller.controller_settings import ControllerSettings
from controller.decision_settings import DecisionSettings
from controller.ports.order_topic import KafkaOrders
from controller.ports.plan_store import KafkaPlanStore
from controller.run_controller import run_controller
from infra.create_topics import create_topics
from infra.kafka_server import RunningKafka, start_kafka
from infra.stack_error import StackError
from regraft.cli import app
from schemas.order import OrderKind
from schemas.plan import PlanPhase
from tests.controller.kafka_overlay import KafkaOverlay
from tests.overlay.small_overlays import inventory_of, line_of
from tests.wait_until import wait_until

pytestmark = pytest.mark.stack
PATIENCE_S = 60.0
RUNNER = CliRunner()


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningKafka]:
    with start_kafka(tmp_path_factory.mktemp("kafka")) as running:
        yield running


def told(kafka: RunningKafka, namespace: str, *arguments: str) -> Result:
    where = ["--bootstrap", kafka.bootstrap, "--set", f"kafka.namespace={namespace}"]
    return RUNNER.invoke(app, [*arguments, *where])


def test_a_plan_is_shown_approved_and_carried_out(kafka: RunningKafka, tmp_path: Path) -> None:
    """Nothing happens until a person has seen before, after and reasons, and said yes; then exactly that happens."""
    create_topics(kafka.access, namespace="review")
    inventory = inventory_of(line_of(5), {("b00", "b04"): 2.0})
    inventory.save(tmp_path / "inventory.json")
    settings = ControllerSettings(
        bootstrap=kafka.bootstrap,
        namespace="review",
        inventory_path=tmp_path / "inventory.json",
        decision=DecisionSettings(cool_down_windows=0, window_age_ms_max=600_000),
        tick_ms=20,
    )
    stop = threading.Event()
    thread = threading.Thread(target=run_controller, args=(settings, stop))
    thread.start()
    store = KafkaPlanStore(kafka.access, "review")  # It only reads.
    try:
        with KafkaOverlay(kafka.bootstrap, "review", inventory) as overlay:
            wait_until(lambda: [plan.phase for plan in store.load() or []] == [PlanPhase.PROPOSED])
            listed = told(kafka, "review", "plans", "list")
            assert "plan-1 waits" in listed.stdout
            shown = told(kafka, "review", "plans", "show", "plan-1").stdout
            assert "link b00-b04 in" in shown
            assert "predicted (saves" in shown
            assert overlay.epoch == 0
            approved = told(kafka, "review", "plans", "approve", "plan-1", "--by", "ada", "--reason", "looks right")
            assert approved.exit_code == 0
            assert "\nplan-1 is " in f"\n{approved.stdout}"  # The controller of this process logs there, too.
            wait_until(lambda: [plan.phase for plan in store.load() or []] == [PlanPhase.COMPLETED])
        (plan,) = json.loads(told(kafka, "review", "plans", "list", "--json").stdout)
        assert plan["history"][1]["reason"] == "approved by ada: looks right"
        late = told(kafka, "review", "plans", "cancel", "plan-1", "--reason", "too late")
        assert isinstance(late.exception, StackError)
        assert "plan-1 is completed" in str(late.exception)
    finally:
        stop.set()
        thread.join(PATIENCE_S)
        store.close()


def test_orders_stand_for_whoever_reads_them_later(kafka: RunningKafka) -> None:
    """Pause and maintenance are read by a controller that starts later, the newest word about each subject."""
    create_topics(kafka.access, namespace="orders")
    assert told(kafka, "orders", "pause", "--reason", "patching", "--for", "5").exit_code == 0
    assert told(kafka, "orders", "maintain", "b01", "--reason", "new disks").exit_code == 0
    assert told(kafka, "orders", "return", "b01").exit_code == 0
    assert told(kafka, "orders", "maintain", "b02", "--reason", "new disks", "--evacuate").exit_code == 0
    source = KafkaOrders(kafka.access, "orders", pytest.fail)
    found = []
    wait_until(lambda: bool(found.extend(source.poll())) or source.is_known)
    source.close()
    assert [(order.kind, order.subject) for order in found] == [
        (OrderKind.PAUSE, "overlay"),
        (OrderKind.RETURN, "b01"),
        (OrderKind.MAINTAIN, "b02"),
    ]
    assert found[0].until_ms == found[0].time_ms + 300_000
    assert found[2].evacuate


def test_an_order_without_a_reason_or_about_no_plan_is_refused(kafka: RunningKafka) -> None:
    """Before anything is stored: a wrong call ends with 2, a plan that is not there is named with those that are."""
    create_topics(kafka.access, namespace="wrong")
    assert told(kafka, "wrong", "pause", "--reason", " ").exit_code == 2
    assert told(kafka, "wrong", "pause", "--reason", "x", "--for", "0").exit_code == 2
    unknown = told(kafka, "wrong", "plans", "approve", "plan-9")
    assert "There is no plan plan-9" in str(unknown.exception)


def test_an_order_to_a_kafka_that_is_away_says_so() -> None:
    """One sentence, and nothing is claimed to stand."""
    answer = RUNNER.invoke(app, ["resume", "--bootstrap", "127.0.0.1:1"])
    assert isinstance(answer.exception, StackError)
    assert "was not stored" in str(answer.exception)
