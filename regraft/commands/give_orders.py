"""Give an order: sign it, store it, and show the controller's answer.

Waiting for the end of a plan belongs to :mod:`regraft.commands.plans_command`.
"""

from __future__ import annotations

import platform
import time
from contextlib import closing
from typing import TYPE_CHECKING

import typer
from msgspec import structs

from regraft.infra.process.exit_codes import EXIT_FAILED
from regraft.schemas.audit import AuditEntry, AuditOutcome
from regraft.schemas.member import BrokerFacts
from regraft.schemas.order import Order, OrderKind
from regraft.schemas.texts import one_line

if TYPE_CHECKING:
    from regraft.settings.run_settings import Settings

ANSWER_S_MAX = 5.0
UNSIGNED = (
    "This order is unsigned, because there is no key for orders (orders.key_file): the controller "
    "follows it only if orders.allow_unsigned is set. `regraft keys create NAME` creates one."
)


def give_order(
    settings: Settings,
    kind: OrderKind,
    subject: str,
    by: str,
    reason: str,
    *,
    until_ms: int = 0,
    evacuate: bool = False,
    plan_digest: str = "",
    facts: BrokerFacts | None = None,
    wait_s_max: float = ANSWER_S_MAX,
) -> AuditEntry | None:
    """Store an order and return the controller's answer, or None if none arrives in time.

    An empty ``by`` stands for the holder of the key, else the login. Raises StackError if Kafka is unavailable;
    exits with 1 and the reason if the controller refuses it.
    """
    from regraft.infra.orders.send_orders import send_order
    from regraft.run_records.read_topics import AuditTail
    from regraft.schemas.remote_registry import use_registry
    from regraft.stages.run_loop import require_kafka

    require_kafka(settings.kafka.access)
    kafka, now_ms = settings.kafka, time.time_ns() // 1_000_000
    order = _signed(settings, Order(subject, kind, by, reason, now_ms, until_ms, evacuate, plan_digest, facts=facts))
    use_registry(namespace=kafka.namespace)
    with closing(AuditTail(kafka.access, kafka.namespace)) as tail:
        send_order(kafka.access, order, kafka.namespace)
        answer = tail.first_about(order.nonce, wait_s_max)
    if answer is not None and answer.outcome in (AuditOutcome.REFUSED, AuditOutcome.TOO_LATE):
        typer.echo(one_line(f"The controller does not follow it: {answer.why}."), err=True)
        raise typer.Exit(EXIT_FAILED)
    return answer


def print_answer(answer: AuditEntry | None, done: str) -> None:
    """Print what was done, or that no answer has arrived yet."""
    if answer is None:
        typer.echo(
            f"Stored, but no controller has answered in {ANSWER_S_MAX:g} s: the order will be judged when one runs."
        )
    else:
        typer.echo(done)


def _signed(settings: Settings, order: Order) -> Order:
    """Return the order with the name of who gives it and the machine, signed if there is a key."""
    from regraft.infra.orders.order_keys import new_nonce
    from regraft.infra.process.find_user import find_user

    key, user = settings.orders.operator_key(), find_user()
    giver = order.by or (user if key is None else key.name)
    placed = structs.replace(order, by=giver, source=f"{user}@{platform.node()}", nonce=new_nonce())
    if key is not None:
        return key.sign(placed, settings.kafka.namespace)
    if not settings.orders.allow_unsigned:
        typer.echo(UNSIGNED, err=True)
    return placed
