"""An operator and a controller on a real Kafka: plans shown and approved, pauses and maintenance in force."""

import json
import platform
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec import structs
from typer.testing import CliRunner, Result

from regraft.cli import app
from regraft.controller.ports.order_topic import KafkaOrders
from regraft.controller.ports.plan_store import KafkaPlanStore
from regraft.controller.run_controller import run_controller
from regraft.controller.settings.controller_settings import ControllerSettings
from regraft.controller.settings.decision_settings import DecisionSettings
from regraft.infra.kafka.create_topics import create_topics
from regraft.infra.kafka.kafka_clients import open_producer
from regraft.infra.local.kafka_server import RunningKafka
from regraft.infra.orders.order_keys import OrderSettings, create_signing_key
from regraft.infra.process.stack_error import StackError
from regraft.overlay.inventory.inventory import Inventory
from regraft.run_records.read_topics import read_audit, read_whole
from regraft.schemas.audit import GivenOrder
from regraft.schemas.codec import encode
from regraft.schemas.order import Order, OrderKind
from regraft.schemas.plan import PlanPhase
from regraft.schemas.topics import ORDERS, topic_name
from regraft.stages.run_loop import prepare_orders
from tests.controller.kafka_overlay import KafkaOverlay
from tests.overlay.small_overlays import inventory_of, line_of
from tests.wait_until import wait_until

pytestmark = pytest.mark.stack
PATIENCE_S = 60.0
RUNNER = CliRunner()


def invoke(kafka: RunningKafka, namespace: str, *arguments: str, directory: Path | None = None) -> Result:
    where = ["--bootstrap", kafka.bootstrap, "--set", f"kafka.namespace={namespace}"]
    where += ["--set", f"run.directory={directory}"] if directory else []
    return RUNNER.invoke(app, [*arguments, *where])


@contextmanager
def controller(kafka: RunningKafka, namespace: str, directory: Path, inventory: Inventory) -> Iterator[KafkaPlanStore]:
    """Run a controller that obeys orders of the user who runs it; yield the plans."""
    create_topics(kafka.access, namespace=namespace)
    inventory.save(directory / "inventory.json")
    orders = OrderSettings(directory=directory / "order-keys")
    prepare_orders(orders)
    settings = ControllerSettings(
        bootstrap=kafka.bootstrap,
        namespace=namespace,
        inventory_path=directory / "inventory.json",
        decision=DecisionSettings(cool_down_windows=0, window_age_ms_max=600_000),
        orders=orders,
        tick_ms=20,
    )
    stop = threading.Event()
    thread = threading.Thread(target=run_controller, args=(settings, stop))
    thread.start()
    store = KafkaPlanStore(kafka.access, namespace)  # It only reads.
    try:
        yield store
    finally:
        stop.set()
        thread.join(PATIENCE_S)
        store.close()


def forge(kafka: RunningKafka, namespace: str, order: Order, key: str) -> None:
    """Write an order as any client that may write to Kafka can."""
    producer = open_producer(kafka.access)
    producer.produce(topic_name(ORDERS, namespace), key=key.encode(), value=encode(order))
    assert producer.flush(PATIENCE_S) == 0


def test_a_plan_is_shown_approved_and_executed(kafka: RunningKafka, tmp_path: Path) -> None:
    """Nothing happens until an operator has seen before, after and reasons and approved; then exactly that happens."""
    inventory = inventory_of(line_of(5), {("b00", "b04"): 2.0})
    with controller(kafka, "review", tmp_path, inventory) as store:
        with KafkaOverlay(kafka.bootstrap, "review", inventory) as overlay:
            wait_until(lambda: [plan.phase for plan in store.load() or []] == [PlanPhase.PROPOSED])
            listed = invoke(kafka, "review", "plans", "list")
            assert "plan-1 waits" in listed.stdout
            shown = invoke(kafka, "review", "plans", "list", "plan-1").stdout
            assert "link b00-b04 in" in shown
            assert "predicted (saves" in shown
            assert overlay.epoch == 0
            by = ("--by", "ada", "--reason", "looks right")
            approved = invoke(kafka, "review", "plans", "approve", "plan-1", *by, directory=tmp_path)
            assert approved.exit_code == 0, approved.output
            assert "\nplan-1 is " in f"\n{approved.stdout}"  # The controller of this process logs there, too.
            wait_until(lambda: [plan.phase for plan in store.load() or []] == [PlanPhase.COMPLETED])
        (plan,) = json.loads(invoke(kafka, "review", "plans", "list", "--json").stdout)
        assert plan["history"][1]["reason"] == "approved by ada: looks right"
        late = invoke(kafka, "review", "plans", "cancel", "plan-1", "--reason", "too late", directory=tmp_path)
        assert isinstance(late.exception, StackError)
        assert "plan-1 is completed" in str(late.exception)
        kept = json.loads(invoke(kafka, "review", "audit", "--json").stdout)
        assert [(entry["kind"], entry["by"], entry["outcome"]) for entry in kept] == [
            ("approve", "ada", "accepted"),
            ("approve", "ada", "carried_out"),
        ]
        assert kept[0]["source"].endswith(f"@{platform.node()}")


def test_unsigned_and_copied_orders_change_nothing(kafka: RunningKafka, tmp_path: Path) -> None:
    """Forged approvals, one of them written before the plan, and copies of a good order are all kept as refused."""
    inventory = inventory_of(line_of(5), {("b00", "b04"): 2.0})
    create_topics(kafka.access, namespace="forged")
    approval = Order("plan-1", OrderKind.APPROVE, "chief-operator", "forged", 0, nonce="before")
    forge(kafka, "forged", approval, approval.key)
    with (
        controller(kafka, "forged", tmp_path, inventory) as store,
        KafkaOverlay(kafka.bootstrap, "forged", inventory) as overlay,
    ):
        wait_until(lambda: [plan.phase for plan in store.load() or []] == [PlanPhase.PROPOSED])
        (plan,) = store.load() or []
        now_ms = time.time_ns() // 1_000_000
        seen = structs.replace(approval, time_ms=now_ms, plan_digest=plan.approval_digest, nonce="seen")
        forge(kafka, "forged", seen, seen.key)
        stranger = create_signing_key("eve", tmp_path / "eve.key")
        forge(kafka, "forged", stranger.sign(structs.replace(seen, nonce="eve"), "forged"), seen.key)
        unsigned = invoke(kafka, "forged", "pause", "--reason", "unsigned", directory=tmp_path / "elsewhere")
        assert unsigned.exit_code == 1
        assert "it is unsigned" in unsigned.output
        paused = invoke(kafka, "forged", "pause", "--reason", "patching", directory=tmp_path)
        assert (paused.exit_code, "Adaptation is paused" in paused.output) == (0, True)
        (good,) = [order for order in stored_orders(kafka, "forged") if order.reason == "patching"]
        assert invoke(kafka, "forged", "pause", "--end", directory=tmp_path).exit_code == 0
        forge(kafka, "forged", good, good.key)
        forge(kafka, "forged", good, "broker/b01")
        wait_until(lambda: len(outcomes(kafka, "forged")) == 8)
        assert overlay.epoch == 0
        assert [plan.phase for plan in store.load() or []] == [PlanPhase.PROPOSED]
    refused = [why for outcome, why in outcomes(kafka, "forged") if outcome == "refused"]
    assert [why.split(":")[0].split(",")[0] for why in refused] == [
        "it is unsigned",
        "it is unsigned",
        "its key 'eve' is not trusted",
        "it is unsigned",
        "it is a copy of an order that was given before",
        "its record has the key 'broker/b01'",
    ]
    with controller(kafka, "forged", tmp_path, inventory):
        invoke(kafka, "forged", "pause", "--end", "--reason", "again", directory=tmp_path)
    assert len(outcomes(kafka, "forged")) == 9  # A restarted controller has reported all orders before it.


def outcomes(kafka: RunningKafka, namespace: str) -> list[tuple[str, str]]:
    return [(entry.outcome, entry.why) for entry in read_audit(kafka.access, namespace)]


def stored_orders(kafka: RunningKafka, namespace: str) -> list[Order]:
    return list(read_whole(kafka.access, namespace, {ORDERS: Order}, PATIENCE_S))


def test_orders_are_in_force_for_later_readers(kafka: RunningKafka, tmp_path: Path) -> None:
    """A controller that starts later reads pause and maintenance from the beginning, oldest first."""
    create_topics(kafka.access, namespace="orders")
    orders = OrderSettings(directory=tmp_path / "order-keys")
    prepare_orders(orders)
    given = (
        ("pause", "--reason", "patching", "--for", "5"),
        ("members", "maintain", "b01", "--reason", "new disks", "--evacuate"),
        ("members", "maintain", "b01", "--end"),
        ("members", "maintain", "b02", "--reason", "new disks"),
    )
    for arguments in given:
        answer = invoke(kafka, "orders", *arguments, directory=tmp_path)
        assert (answer.exit_code, "no controller has answered" in answer.output) == (0, True)
    source = KafkaOrders(kafka.access, "orders", pytest.fail, orders)
    found = []
    wait_until(lambda: bool(found.extend(source.poll())) or source.is_known)
    assert [(given.order.kind, given.order.subject, given.refusal) for given in found] == [
        (OrderKind.PAUSE, "overlay", ""),
        (OrderKind.MAINTAIN, "b01", ""),
        (OrderKind.RETURN, "b01", ""),
        (OrderKind.MAINTAIN, "b02", ""),
    ]
    assert 0 <= found[0].order.until_ms - found[0].order.time_ms - 300_000 + 1_000 <= 1_000
    assert found[1].order.evacuate
    version = source.version
    trusted = tmp_path / "order-keys" / "trusted.toml"
    trusted.write_text(trusted.read_text().replace(" }", ", revoked = true }"))
    again: list[GivenOrder] = []
    wait_until(lambda: bool(again.extend(source.poll())) or len(again) == 4)
    assert source.version > version
    assert all("is revoked" in given.refusal and not given.is_new for given in again)
    source.close()


def test_an_order_without_a_reason_or_for_an_unknown_plan_is_refused(kafka: RunningKafka) -> None:
    """Nothing is stored: a wrong call ends with 2, and an unknown plan is named."""
    create_topics(kafka.access, namespace="wrong")
    assert invoke(kafka, "wrong", "pause", "--reason", " ").exit_code == 2
    assert invoke(kafka, "wrong", "pause", "--reason", "x", "--for", "0").exit_code == 2
    unknown = invoke(kafka, "wrong", "plans", "approve", "plan-9")
    assert "No plan is named plan-9" in str(unknown.exception)


def test_an_order_to_an_unreachable_kafka_is_refused_at_once() -> None:
    """One sentence with the cause, before a client waits for its time-out."""
    answer = RUNNER.invoke(app, ["pause", "--end", "--bootstrap", "127.0.0.1:1"])
    assert isinstance(answer.exception, StackError)
    assert "port 1 of 127.0.0.1 is closed" in str(answer.exception)
