"""Simulate brokers of an overlay that never existed: they execute each command at once, and windows reflect it.

In: commands, and recorded windows. Out: answers, and the windows that the simulated brokers would have led to. What a
broker delivers depends neither on links nor on publishers' homes, so only epochs, places of publication and users'
homes differ. Queues and delays remain as recorded.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from regraft.schemas.client import Client
from regraft.schemas.command import Command, CommandPhase, CommandResult, Outcome
from regraft.schemas.plan_life import answers_to
from regraft.schemas.state import PublisherDelivery, StateRow, WindowClosed

MARKERS_PER_BROKER = 2  # The least that a drain sends: a marker over each link in both directions.
WORD = 1 << 64
SIGN = 1 << 63


class SimulatedBrokers:
    """Simulated brokers, whose overlay is the one that the plans lead to; ``epoch`` is the first one."""

    def __init__(self, epoch: int) -> None:
        self._epochs: list[tuple[int, int]] = [(-(1 << 62), epoch)]  # Time, and the epoch stamped from then on.
        self._homes: dict[str, str] = {}
        self._moves: dict[str, dict[str, tuple[str, str]]] = {}  # Plan -> client -> home before, home after.
        self._users: dict[str, tuple[str, str]] = {}  # User -> recorded home when it was moved, home here.

    def obey(self, command: Command, now_ms: int) -> list[CommandResult]:
        """Execute a command and return the answers, stamped ``now_ms``."""
        if command.phase is CommandPhase.PREPARE:
            moves = self._moves.setdefault(command.plan, {})
            moves.update({move.client: (move.home_from, move.home_to) for move in command.moves})
        elif command.phase is CommandPhase.ACTIVATE and command.epoch_to != self._epochs[-1][1]:
            self._epochs.append((now_ms, command.epoch_to))
            for client, (home_from, home_to) in self._moves.pop(command.plan, {}).items():
                self._homes[client] = home_to
                self._users[client] = (self._users.get(client, (home_from, ""))[0], home_to)
        is_install = command.phase is CommandPhase.INSTALL  # It belongs to no plan.
        outcomes = (Outcome.INSTALLED,) if is_install else answers_to(command.phase)
        return [
            CommandResult(
                command.plan,
                command.phase,
                command.broker,
                command.epoch_to,
                outcome,
                "",
                MARKERS_PER_BROKER,
                now_ms,
                term=command.term,
                digest=command.digest,
            )
            for outcome in outcomes
        ]

    def placed(self, client: Client) -> Client:
        """Return a registered client with its home here: where a plan moved it, unless it has moved by itself since."""
        moved = self._users.get(client.client)
        if moved is None:
            return client
        if client.home not in moved:
            del self._users[client.client]
            return client
        return msgspec.structs.replace(client, home=moved[1])

    def seen(self, rows: Sequence[StateRow], marker: WindowClosed) -> tuple[tuple[StateRow, ...], WindowClosed]:
        """Return a window's rows and marker as they would be with these brokers."""
        before, after = self._epoch_at(marker.window_start_ms), self._epoch_at(marker.window_end_ms)
        brokers = tuple(msgspec.structs.replace(one, epoch_min=before, epoch_max=after) for one in marker.brokers)
        others = [row for row in rows if row.delivery is None]
        deliveries = self._published_here([row for row in rows if row.delivery is not None])
        counts = {**marker.row_counts}
        if "delivery" in counts:
            counts["delivery"] += len(deliveries) - (len(rows) - len(others))
        marked = msgspec.structs.replace(marker, brokers=brokers, row_counts=counts)
        return (*others, *deliveries), marked

    def _epoch_at(self, time_ms: int) -> int:
        return next(epoch for since_ms, epoch in reversed(self._epochs) if since_ms <= time_ms)

    def _published_here(self, rows: Sequence[StateRow]) -> list[StateRow]:
        """Return delivery rows in which publishers publish at their homes here, at first the recorded ones."""
        published_rows: list[StateRow] = []
        groups: dict[str, list[StateRow]] = {}
        for row in rows:
            assert row.delivery is not None
            groups.setdefault(row.delivery.publisher, []).append(row)
        for publisher, own in groups.items():
            if any(row.delivery is not None and not row.delivery.published for row in own):
                published_rows += own  # Version 1 of the schema does not hold the place of publication.
                continue
            homes = [row.delivery.broker for row in own if row.delivery is not None and any(row.delivery.published)]
            home = self._homes.setdefault(publisher, homes[-1]) if homes else ""
            published_rows += own if set(homes) <= {home} else _moved(own, home)
        return published_rows


def _moved(rows: Sequence[StateRow], home: str) -> list[StateRow]:
    """Return one publisher's rows with all its publications moved to ``home``."""
    published: dict[int, int] = {}
    delivered: dict[str, dict[int, int]] = {}
    bodies: dict[str, StateRow] = {}
    for row in rows:
        body = row.delivery
        assert body is not None
        bodies[body.broker] = row
        masks = delivered.setdefault(body.broker, {})
        for block, mask, own in zip(body.blocks, body.masks, body.published, strict=True):
            masks[block] = mask
            published[block] = published.get(block, 0) | own
    moved_rows = []
    for broker in sorted({*bodies, home}):
        own_bits = published if broker == home else {}
        blocks = sorted({block for block, mask in delivered.get(broker, {}).items() if mask} | set(own_bits))
        if blocks:
            moved_rows.append(_row(bodies, rows[0], broker, blocks, delivered.get(broker, {}), own_bits))
    return moved_rows


def _row(
    bodies: dict[str, StateRow],
    pattern: StateRow,
    broker: str,
    blocks: list[int],
    delivered: dict[int, int],
    published: dict[int, int],
) -> StateRow:
    row = bodies.get(broker, pattern)
    body = row.delivery
    assert body is not None
    is_new = broker not in bodies
    masks = tuple(delivered.get(block, 0) for block in blocks)
    words = tuple(_signed(published.get(block, 0)) for block in blocks)
    both = sum(((mask | word) % WORD).bit_count() for mask, word in zip(masks, words, strict=True))
    fresh = PublisherDelivery(
        publisher=body.publisher,
        broker=broker,
        notifications=both,
        local_deliveries=0 if is_new else body.local_deliveries,
        bytes=0 if is_new else body.bytes,
        blocks=tuple(blocks),
        masks=masks,
        published=words,
    )
    entity = f"{body.publisher}|{broker}"
    return msgspec.structs.replace(row, entity=entity, delivery=fresh)


def _signed(word: int) -> int:
    word %= WORD
    return word - WORD if word >= SIGN else word
