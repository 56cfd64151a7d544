"""Which losses deaths, or brokers that have left, excuse: the overlay of each notification's stamp, and its path there.

In: the commands that brokers get, deaths, homes of subscriptions. Out: the excuse for a missing delivery. Paths follow
from configurations alone: no broker's tables are used, so that their errors excuse nothing.

A notification may be lost if its path, from its publisher's home to the subscription's, crosses a dead broker: one that
was dead when it was published, that it was in or on its way to at the death, or that a neighbour could no longer send
it to. A broker that is considered dead while it is alive excuses all losses on paths across it. Where clients stay,
a subscription whose home has left the overlay is owed nothing that is stamped with an epoch without it. Nothing else
may be lost.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from regraft.overlay.overlay_configuration import OverlayConfiguration
from regraft.producers.brokers.broker_messages import UNSTAMPED_EPOCH, Notification
from regraft.producers.emulator.overlay_paths import Hop, path_in, target_of
from regraft.schemas.command import Command, CommandPhase

LOST_WITH_BROKER = "lost_with_broker"  # It was in a broker that died, or on its way there.
BROKER_WAS_DEAD = "broker_was_dead"  # It was published when a broker on its only path was already dead.
HOME_HAS_LEFT = "home_has_left"  # It was published in an overlay without the subscription's home, where clients stay.
EPOCHS_KEPT_MAX = 1_000
LIVES_KEPT_MAX = 1_000

CopyKey = tuple[str, int, bool]  # Publisher, sequence number, whether the copy came from its topic's rendezvous.


def copy_key(notification: Notification) -> CopyKey:
    """Return what identifies a notification and, on a ring, which of its copies (up or down) this is."""
    return notification.publisher, notification.sequence, notification.from_rendezvous


@dataclass(frozen=True)
class IncarnationEnd:
    """When a broker's incarnation ended, and what was lost in it, on its way to it or next to it; ``lost`` grows later.

    ``is_alive``: it was only considered dead.
    """

    ended_ms: float
    lost: set[CopyKey]
    is_alive: bool = False


@dataclass
class _Epoch:
    """An overlay that notifications may be stamped with, and which incarnation of each broker takes part in it."""

    configuration: OverlayConfiguration
    incarnation_of: dict[str, int] = field(default_factory=dict)


class LossJudge:
    """The deaths of brokers, and the overlays they took part in; keeps the last epochs and ends of incarnations."""

    def __init__(self, start: OverlayConfiguration, *, clients_stay: bool = False) -> None:
        self._clients_stay = clients_stay
        self._epochs = {start.epoch: _Epoch(start, dict.fromkeys(start.brokers, 0))}
        self._prepared: dict[tuple[int, str], _Epoch] = {}
        self._incarnation_now: dict[str, int] = {}
        self._ends: dict[tuple[str, int], IncarnationEnd] = {}
        self._homes: dict[str, deque[tuple[int, str]]] = {}  # By subscription, newest epoch first.

    # --- what happens ------------------------------------------------------------------------------------------------

    def place(self, subscription: str, home: str, epoch: int = 0) -> None:
        """Note that ``home`` serves a subscription for everything stamped ``epoch`` or later."""
        self._homes.setdefault(subscription, deque()).appendleft((epoch, home))

    def forget(self, subscription: str) -> None:
        """Forget a subscription of which nothing can be missing any more."""
        self._homes.pop(subscription, None)

    def note_command(self, command: Command) -> list[str]:
        """Note the overlay that a plan leads to; it counts from its activation.

        Returns the brokers that the command names as lost although they are alive in that life.
        """
        key, lost = (command.epoch_to, command.digest), self._lost_alive(command)
        if command.phase is CommandPhase.PREPARE and key not in self._prepared:
            before = self._epochs.get(command.epoch_from)
            target = None if before is None else target_of(before.configuration, command)
            if before is not None and target is not None:
                incarnations = {name: before.incarnation_of.get(name, 0) for name in target.brokers}
                for name in command.brokers_joined:  # One that the plan also loses joins in its next incarnation.
                    incarnations[name] = self._incarnation_now.get(name, 0) + (name in lost)
                self._prepared[key] = _Epoch(target, incarnations)
        elif command.phase is CommandPhase.ACTIVATE and key in self._prepared:
            self._epochs[command.epoch_to] = self._prepared.pop(key)
            for number in sorted(self._epochs)[:-EPOCHS_KEPT_MAX]:
                del self._epochs[number]
        elif command.phase is CommandPhase.ABORT:
            self._prepared.pop(key, None)
        return lost

    def _lost_alive(self, command: Command) -> list[str]:
        """Return the brokers that a command names as lost although they are alive in that incarnation."""
        before, after = (self._epochs.get(epoch) for epoch in (command.epoch_from, command.epoch_to))
        incarnation, joined = self._incarnation_now, command.brokers_joined
        return [
            name
            for name in command.lost_brokers
            if (before is not None and before.incarnation_of.get(name) == incarnation.get(name, 0))
            or (after is not None and name not in joined and after.incarnation_of.get(name) == incarnation.get(name, 0))
        ]

    def end_incarnation(self, broker: str, end: IncarnationEnd) -> None:
        """Note that an incarnation of a broker has ended; the next one begins."""
        incarnation = self._incarnation_now.get(broker, 0)
        self._ends[broker, incarnation] = end
        self._incarnation_now[broker] = incarnation + 1
        while len(self._ends) > LIVES_KEPT_MAX:
            del self._ends[next(iter(self._ends))]

    def participates(self, broker: str, epoch: int) -> bool:
        """Return True if a broker, in its present incarnation, is in the overlay of an epoch."""
        configuration = self._epochs.get(epoch)
        return configuration is not None and configuration.incarnation_of.get(broker) == self._incarnation_now.get(
            broker, 0
        )

    # --- what is missing ---------------------------------------------------------------------------------------------

    def reason_of(self, notification: Notification, subscription: str) -> str | None:
        """Return why a notification may be missing at a subscription, or None if nothing excuses that."""
        if not self._ends and not self._clients_stay:
            return None
        if notification.epoch == UNSTAMPED_EPOCH:
            return self._lost_at_home(notification)
        epoch = self._epochs.get(notification.epoch)
        home = self._home_of(subscription, notification.epoch)
        if epoch is None or home is None:
            return None
        if self._clients_stay and home not in epoch.configuration.brokers:
            return HOME_HAS_LEFT
        path = path_in(epoch.configuration, notification, home)
        excuses = [self._excuse_at(hop, epoch, notification) for hop in path]
        return next((reason for reason in excuses if reason), None)

    def _excuse_at(self, hop: Hop, epoch: _Epoch, notification: Notification) -> str | None:
        broker, from_rendezvous = hop
        end = self._ends.get((broker, epoch.incarnation_of.get(broker, -1)))
        if end is None:
            return None
        if end.ended_ms <= notification.publish_ms:
            return BROKER_WAS_DEAD
        is_lost = (notification.publisher, notification.sequence, from_rendezvous) in end.lost
        return LOST_WITH_BROKER if is_lost or end.is_alive else None

    def _lost_at_home(self, notification: Notification) -> str | None:
        """Return the excuse for a notification that its home never stamped: the home died with it in its queue."""
        ends = [end for (name, _), end in self._ends.items() if name == notification.home]
        is_lost = any(end.is_alive or copy_key(notification) in end.lost for end in ends)
        return LOST_WITH_BROKER if is_lost else None

    def _home_of(self, subscription: str, epoch: int) -> str | None:
        homes = self._homes.get(subscription, ())
        return next((home for since, home in homes if since <= epoch), None)
