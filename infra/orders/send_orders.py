"""Store an operator's order in Kafka, from where the controller reads it."""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException, Message

from regraft.infra.kafka.kafka_access import KafkaAccess
from regraft.infra.kafka.kafka_clients import close_producer, leave_to_caller, open_producer
from regraft.infra.process.stack_error import CallError, StackError
from regraft.schemas.codec import UnencodableRecordError, encode
from regraft.schemas.order import Order
from regraft.schemas.topics import DEFAULT_NAMESPACE, ORDERS, topic_name

WAIT_S_MAX = 10.0


class OrderNotStoredError(StackError):
    """Reports which order did not reach Kafka, and why."""


class OrderInvalidError(CallError):
    """Reports that no controller could read the order, and why: nothing was stored."""


def send_order(kafka: KafkaAccess, order: Order, namespace: str = DEFAULT_NAMESPACE) -> None:
    """Store the order; return when Kafka has acknowledged it. Raises OrderNotStoredError, OrderInvalidError."""
    errors: list[str] = []
    try:
        value = encode(order)
    except UnencodableRecordError as error:
        raise OrderInvalidError(f"The order to {order.kind} cannot be given, nothing was stored: {error}.") from error

    def on_delivery(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            errors.append(error.str())

    topic = topic_name(ORDERS, namespace)
    producer = open_producer(kafka, {"message.timeout.ms": int(WAIT_S_MAX * 1000)}, on_error=leave_to_caller)
    try:
        producer.produce(topic, key=order.key.encode(), value=value, on_delivery=on_delivery)
        waiting = close_producer(producer, WAIT_S_MAX + 1)
    except KafkaException as error:
        errors.append(str(error))
        waiting = 0
    if waiting or errors:
        reason = errors[0] if errors else f"no answer within {WAIT_S_MAX:g} s"
        raise OrderNotStoredError(
            f"The order to {order.kind} {order.subject} was not stored in {topic} at {kafka.bootstrap} ({reason}): "
            "check that Kafka runs and that the topics exist (regraft topics --create)."
        )
