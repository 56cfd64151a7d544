"""Judge whether a record in the topic of orders is authentic: signed by a key with this right, in time, and not a copy.

In: records as stored in Kafka, and trusted keys. Out: why an order must not be followed, or nothing. What an order
means, and whether it can be followed now, belongs to the stages.
"""

from __future__ import annotations

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Message
from cryptography.exceptions import InvalidSignature

from regraft.infra.orders.order_keys import OrderSettings, TrustedKey, TrustedKeys, open_trusted_keys
from regraft.schemas.audit import GivenOrder
from regraft.schemas.order import Order
from regraft.schemas.texts import time_text

ORDER_AGE_MS_MAX = 5 * 60_000  # From signing to storing in Kafka; a later copy is refused by this.
ORDER_AHEAD_MS_MAX = 60_000  # How far the signer's clock may be ahead of Kafka's.
NONCES_MAX = 10_000  # In that time; more orders are refused, because a forgotten nonce could be replayed.
NONCE_LENGTH_MAX = 64
KEY_LENGTH_MAX = 256  # The part of a record's key that is reported.


class OrderJudge:
    """Judges the records of one namespace in the order of their topic.

    The time of an order is when Kafka received it, so the verdict does not depend on when it is read: an order given
    in time stays in force after its key expires. An order signed by a revoked or unknown key is not followed, whenever
    it was signed. A copy of an order is detected by its nonce, and after ORDER_AGE_MS_MAX by its age. The topic keeps
    all records for much longer, so a restarted judge sees every nonce that could still be replayed.
    """

    def __init__(self, keys: TrustedKeys, namespace: str, *, allow_unsigned: bool = False) -> None:
        self._keys = keys
        self._namespace = namespace
        self._allow_unsigned = allow_unsigned
        self._nonces: dict[tuple[str, str], int] = {}  # (key name, nonce) -> time written, oldest first.

    def forget(self) -> None:
        """Forget all nonces, because the topic will be read from its start again."""
        self._nonces.clear()

    def given(self, message: Message, order: Order | None) -> GivenOrder:
        """Return a message's order with the verdict; ``order`` is None for a tombstone."""
        kind, written_ms = message.timestamp()
        key = (message.key() or b"").decode(errors="replace")
        if order is None:
            refusal = "it deletes an order from the topic: withdraw an order with another order instead"
        else:
            is_by_kafka = kind == TIMESTAMP_LOG_APPEND_TIME
            refusal = self.refusal(order, key, written_ms, is_by_kafka=is_by_kafka)
        printable = "".join(sign if sign.isprintable() else "?" for sign in key)[:KEY_LENGTH_MAX]
        return GivenOrder(order, written_ms, message.offset() or 0, printable or "no key", refusal)

    def refusal(self, order: Order, key: str, written_ms: int, *, is_by_kafka: bool) -> str:
        """Return why the order in a record with this ``key`` must not be followed, empty if it is authentic.

        ``is_by_kafka``: ``written_ms`` is Kafka's time, not the writer's.
        """
        if key != order.key:
            return f"its record has the key {key[:KEY_LENGTH_MAX]!r}, that of such an order is {order.key!r}"
        if not order.signature and not order.key_name:
            return "" if self._allow_unsigned else "it is unsigned, and orders.allow_unsigned is off"
        if self._keys.error:
            return f"it is unknown whether its key {order.key_name!r} is trusted: {self._keys.error}"
        trusted = self._keys.by_name.get(order.key_name)
        if trusted is None:
            return f"its key {order.key_name!r} is not trusted"
        try:
            trusted.public.verify(order.signature, order.signed_text(self._namespace))
        except InvalidSignature:
            return f"its signature is not that of {order.key_name} over this order in {self._namespace}"
        return _key_error(trusted, order, written_ms) or self._time_error(order, written_ms, is_by_kafka)

    def _time_error(self, order: Order, written_ms: int, is_by_kafka: bool) -> str:
        if not is_by_kafka:
            return (
                "its topic keeps the times of writers, so its age is unknown: set the topic's "
                "message.timestamp.type to LogAppendTime"
            )
        if not written_ms - ORDER_AGE_MS_MAX <= order.time_ms <= written_ms + ORDER_AHEAD_MS_MAX:
            return (
                f"it was signed {(written_ms - order.time_ms) / 1000:,.0f} s before Kafka received it, but allowed are "
                f"{-ORDER_AHEAD_MS_MAX // 1000} to {ORDER_AGE_MS_MAX // 1000} s: check for a copied order "
                "or a wrong clock"
            )
        if not 0 < len(order.nonce) <= NONCE_LENGTH_MAX:
            return f"its nonce has {len(order.nonce)} characters: 1 to {NONCE_LENGTH_MAX}"
        self._drop_before(written_ms - ORDER_AGE_MS_MAX - ORDER_AHEAD_MS_MAX)
        if (order.key_name, order.nonce) in self._nonces:
            return "it is a copy of an order that was given before"
        if len(self._nonces) >= NONCES_MAX:
            return f"{NONCES_MAX} orders arrived within minutes, and no more are accepted until these expire"
        self._nonces[order.key_name, order.nonce] = written_ms
        return ""

    def _drop_before(self, time_ms: int) -> None:
        while self._nonces:
            oldest = next(iter(self._nonces))
            if self._nonces[oldest] >= time_ms:
                return
            del self._nonces[oldest]


def _key_error(trusted: TrustedKey, order: Order, written_ms: int) -> str:
    if trusted.is_revoked:
        return f"the key {trusted.name} is revoked"
    if written_ms > trusted.not_after_ms:
        return f"the key {trusted.name} expired at {time_text(trusted.not_after_ms)}"
    if order.kind not in trusted.kinds:
        return f"the key {trusted.name} may {', '.join(sorted(trusted.kinds)) or 'order nothing'}, not {order.kind}"
    if order.by != trusted.name and not trusted.is_for_others:
        return f"the key {trusted.name} signs for {trusted.name} only, not for {order.by}"
    return ""


def open_judge(orders: OrderSettings, namespace: str) -> tuple[OrderJudge, TrustedKeys]:
    """Return a judge with these settings, and its trusted keys. Raises OrderKeyError."""
    keys = open_trusted_keys(orders)
    return OrderJudge(keys, namespace, allow_unsigned=orders.allow_unsigned), keys
