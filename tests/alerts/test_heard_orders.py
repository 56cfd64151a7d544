"""Which orders for maintenance the alert stage accepts, on a real Kafka."""

import time
from pathlib import Path

import pytest
from msgspec import structs

from regraft.alerts.read_alert_inputs import InputReader, InputRecord, Lookback, TrustedKeysChangedError
from regraft.infra.create_topics import create_topics
from regraft.infra.kafka_server import start_kafka
from regraft.infra.order_keys import OrderSettings, make_local_keys
from regraft.infra.send_orders import send_order
from regraft.schemas.order import Order, OrderKind
from tests.wait_until import wait_until

pytestmark = pytest.mark.stack
LOOKBACK = Lookback(windows_ms=0, state_ms=0, events_ms=0, resume_ms_max=0)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def test_only_signed_orders_are_accepted_and_read_again_when_trusted_keys_change(tmp_path: Path) -> None:
    """A forged maintenance order would silence alerts; when a key is revoked the stage reads all orders again."""
    orders = OrderSettings(directory=tmp_path / "order-keys")
    assert make_local_keys(tmp_path / "order-keys", "ana", 1)
    key = orders.operator_key()
    assert key is not None
    with start_kafka(tmp_path) as kafka:
        create_topics(kafka.access, namespace="live")
        order = Order("b01", OrderKind.MAINTAIN, "ana", "new disks", now_ms())
        send_order(kafka.access, structs.replace(order, subject="b02"), "live")
        send_order(kafka.access, key.sign(order, "live"), "live")
        reader = InputReader(kafka.access, "live", LOOKBACK, orders)
        wait_until(lambda: reader.begin(now_ms()))
        found: list[InputRecord] = []
        wait_until(lambda: bool(found.extend(reader.poll())) or reader.has_caught_up)
        assert [one.record.subject for one in found if isinstance(one.record, Order)] == ["b01"]
        assert reader.orders_refused == 1
        trusted = tmp_path / "order-keys" / "trusted.toml"
        trusted.write_text(trusted.read_text().replace(" }", ", revoked = true }"))
        with pytest.raises(TrustedKeysChangedError):
            wait_until(lambda: bool(reader.poll()))
        reader.close()
