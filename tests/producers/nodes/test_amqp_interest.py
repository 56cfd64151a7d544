"""What queues of a RabbitMQ want: each has a share, and what was refused is taken when there is room."""

from __future__ import annotations

from collections import Counter

import pytest

from regraft.producers.nodes.amqp import amqp_interest
from regraft.producers.nodes.amqp.amqp_interest import AmqpInterest, Binding


def test_a_queue_has_a_share_and_what_was_refused_is_taken_when_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """One queue's bindings do not shut out another's; its own wait until others of it are removed."""
    monkeypatch.setattr(amqp_interest, "BINDINGS_OF_QUEUE_MAX", 3)
    wanted: dict[str, bool] = {}
    counts: Counter[str] = Counter()
    interest = AmqpInterest(wanted.__setitem__, "regraft.b01", counts)
    for number in range(5):
        interest.begin(Binding("queue", "greedy", f"g{number}"))
    interest.begin(Binding("queue", "modest", "m"))
    assert [subject for subject, is_wanted in wanted.items() if is_wanted] == ["g0", "g1", "g2", "m"]
    assert counts == {"too_many_bindings": 2}
    interest.end(Binding("queue", "greedy", "g4"))  # One that was waiting.
    interest.end(Binding("queue", "greedy", "g1"))
    assert [subject for subject, is_wanted in wanted.items() if is_wanted] == ["g0", "g2", "m", "g3"]
    interest.replace([Binding("queue", "greedy", "g9"), Binding("queue", "modest", "m")])
    interest.replace([Binding("queue", "greedy", "g9"), Binding("queue", "modest", "m")])
    assert [subject for subject, is_wanted in wanted.items() if is_wanted] == ["m", "g9"]
