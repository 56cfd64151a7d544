"""An emulated overlay with random delays, clients that connect, leave and return, and a real controller, from a seed.

In: a seed, the kind of overlay, bounds for delays of commands and answers, and for queues. Out: the ledger's account
and what is stuck. Unlike the any-order overlay this one has the emulator's clock, bounded queues and ledger.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np

from regraft.controller.settings.controller_settings import TransitionLimits
from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.tree.build_tree import random_tree
from regraft.producers.brokers.match_content import Filter, Operator, Predicate
from regraft.producers.emulator.emulate_overlay import OverlayTiming
from regraft.producers.emulator.emulator_ports import OverlayListener
from regraft.producers.emulator.ledger import LedgerSnapshot
from regraft.producers.emulator.user_clients import topic_filter
from regraft.producers.virtual_overlay import VirtualOverlay, VirtualSettings
from regraft.schemas.client import Role
from regraft.schemas.command import Command, CommandResult
from regraft.schemas.plan import ClientMove
from tests.producers.ring_overlays import ring_inventory
from tests.scenarios.any_order import SEQUENCES_CONTINUE
from tests.scenarios.any_order_account import BrokenPromiseError
from tests.scenarios.any_order_controller import AnyOrderController
from tests.scenarios.any_order_ring import ring_plan
from tests.scenarios.any_order_run import RING, TREE
from tests.scenarios.any_order_tree import random_exchanges, tree_plan
from tests.scenarios.core_parts import parts_of

STEP_MS = 5.0
LIVE_MS = 5_000.0
SETTLE_MS_MAX = 60_000.0
PLANS_MAX = 6
KINDS = tuple(f"t{number}" for number in range(8))
RETURNS_AT_ONCE_SHARE = 0.3  # The share of clients that leave.


def random_tree_inventory(broker_count: int, rng: random.Random) -> Inventory:
    """Return brokers on a random tree, with random delays of 1 to 19 ms and 0.2 ms of service."""
    brokers = tuple(f"b{number:02d}" for number in range(broker_count))
    half = np.triu(np.array([[rng.uniform(1, 19) for _ in brokers] for _ in brokers]), 1)
    tree = random_tree(brokers, broker_count, rng)
    return Inventory(brokers, np.full(broker_count, 0.2), half + half.T, broker_count, tree)


class RandomOverlay(OverlayListener):
    """A virtual overlay, its clients and its controller; ``delay_ms_max`` is for commands and for answers.

    ``service_ms_max``: the longest service of a notification; a larger value makes queues long.
    """

    def __init__(
        self,
        seed: int,
        kind: str,
        delay_ms_max: float,
        *,
        queue_length_max: int = 100_000,
        service_ms_max: float = 0.4,
        ends: bool = True,
    ) -> None:
        self.rng = rng = random.Random(f"{seed} {kind}")
        self.kind = kind
        self.ends = ends
        self.delay_ms_max = delay_ms_max
        broker_count = rng.choice((3, 6, 10, 14))
        make = random_tree_inventory if kind == TREE else ring_inventory
        self.inventory = make(broker_count, rng)
        self.virtual = self._new_virtual(queue_length_max, service_ms_max)
        self.overlay = self.virtual.overlay
        self.overlay.listeners.append(self)
        prepare_ms = int(delay_ms_max) if rng.random() < 0.25 else 10_000
        resend_ms = rng.choice((100, 2_000, 2_000))
        limits = TransitionLimits(prepare_ms, 10**9, 10**9, 10**9, resend_ms)
        self.controller = AnyOrderController(self.inventory, limits, self._send)
        self.sent: list[Command] = []
        self.publisher_homes: dict[str, str] = {}
        self.allowed: set[str] = set()
        self.ending: set[str] = set()
        self.subscribed: list[str] = []
        self.changes_share = rng.choice((0.05, 0.1, 0.2, 0.4))
        self.clients_max = 2 * broker_count  # So few that brokers often get the first user of a topic or lose its last.
        self.names = 0
        self.returns = 0

    def _new_virtual(self, queue_length_max: int, service_ms_max: float) -> VirtualOverlay:
        rng, cost_of_link, delay_ms_max = self.rng, self.inventory.cost_of_link, self.delay_ms_max
        timing = OverlayTiming(
            lambda *_: rng.uniform(0.0, service_ms_max), lambda a, b: cost_of_link(a, b) * rng.uniform(0.5, 3.0)
        )
        return VirtualOverlay(
            self.inventory,
            settings=VirtualSettings(
                flush_ms=None,
                timing=timing,
                queue_length_max=queue_length_max,
                command_delay_ms=lambda _: rng.uniform(1.0, delay_ms_max),
            ),
        )

    # --- what happens --------------------------------------------------------------------------------------------

    def run(self) -> LedgerSnapshot:
        """Let clients live and plans be executed, then come to rest; return the account."""
        for number in range(8):
            self._connect_publisher(f"p{number}", self._a_broker())
            self._come()
        end_ms = self.virtual.now_ms + LIVE_MS
        while self.virtual.now_ms < end_ms:
            self._live()
            self._plan()
            self.controller.advance(int(self.virtual.now_ms))
            self.virtual.run_for(STEP_MS)
        deadline_ms = self.virtual.now_ms + SETTLE_MS_MAX
        while not self.controller.is_idle and self.virtual.now_ms < deadline_ms:
            self.controller.advance(int(self.virtual.now_ms))
            self.virtual.run_for(STEP_MS)
        self.virtual.run_for(4 * self.delay_ms_max)
        return self.virtual.finish()

    def check_alive(self) -> None:
        """Raise AssertionError if a plan is stuck or a client waits forever."""
        if not self.controller.is_idle:
            raise BrokenPromiseError("stuck", self.controller.describe())
        for name in sorted(self.publisher_homes):
            if self.overlay.publishers.home_of(name) is not None and name not in self.allowed:
                raise BrokenPromiseError("never allowed to publish", name)
        for name, core in self.virtual.cores.items():
            known = [local for part in parts_of(core) for local in getattr(part, "locals", {}).values()]
            waiting = [local.subscription for local in known if not local.is_confirmed]
            if waiting or core.state.held:
                raise BrokenPromiseError("never confirmed", f"{name}: {waiting}, held {len(core.state.held)}")

    def _live(self) -> None:
        """Let the clients take one step: some publish, some connect, leave and return."""
        for _ in range(self.rng.randint(0, 3)):
            ready = sorted(self.allowed - self.ending)
            if ready:
                name = self.rng.choice(ready)
                kind = KINDS[int(name[1:]) % len(KINDS)]
                self.overlay.publish(name, {"topic": kind, "price": float(self.rng.randint(0, 9))}, 100)
        for _ in range(2):
            chance = self.rng.random()
            if chance < self.changes_share:
                self._come()
            elif chance < 1.2 * self.changes_share or len(self.subscribed) > self.clients_max:
                self._go()
        if self.ends and self.rng.random() < 0.04:
            self._end_or_return()

    def _plan(self) -> None:
        log = self.controller.log
        if not self.controller.is_idle or len(log.plans) >= PLANS_MAX or self.rng.random() < 0.9:
            return
        count = self.rng.choice((0, 0, 1, 3))
        moves = [ClientMove(name, home, self._another(home)) for name, home in self._movable()]
        if self.kind == TREE:
            plan = tree_plan(log, random_exchanges(log, count, self.rng), moves)
        else:
            plan = ring_plan(log, [self.rng.sample(self.inventory.brokers, 2) for _ in range(count)], moves)
        if plan is not None:
            self.controller.begin(plan, int(self.virtual.now_ms))

    def _movable(self) -> list[tuple[str, str]]:
        names = (
            [f"u{number}" for number in range(self.clients_max + 1)]
            if self.kind == RING
            else sorted(self.publisher_homes)
        )
        of = self.overlay.users.home_of if self.kind == RING else self.overlay.publishers.home_of
        here = [(name, home) for name in names if (home := of(name)) is not None]
        return sorted(self.rng.sample(here, min(self.rng.randint(0, 3), len(here))))

    # --- clients -------------------------------------------------------------------------------------------------

    def _connect_publisher(self, name: str, home: str) -> None:
        self.ending.discard(name)
        self.overlay.advertise(name, home, topic_filter(KINDS[int(name[1:]) % len(KINDS)]))
        if not SEQUENCES_CONTINUE:
            published = self.virtual.ledger._sequence_published_max.get(name, -1)
            self.overlay.publishers._publishers[name].sequence_next = published + 1

    def _end_or_return(self) -> None:
        """End a publisher, wherever it is, or let an ended one return, eventually under its name."""
        name = self.rng.choice(sorted(self.publisher_homes))
        here = self.overlay.publishers.home_of(name) is not None
        if here and name not in self.ending:
            self.ending.add(name)
            self.overlay.publishers.disconnect(name)
        if self.overlay.publishers.home_of(name) is None and (not here or self.rng.random() < RETURNS_AT_ONCE_SHARE):
            home = self.publisher_homes[name] if self.rng.random() < 0.5 else self._a_broker()
            self._connect_publisher(name, home)
            self.returns += 1

    def _come(self) -> None:
        """Connect a subscriber, or on a ring a user, possibly again, or change a user's topics."""
        if self.kind == TREE:
            name = f"s{self.names}"
            filter_ = topic_filter(self.rng.choice(KINDS))
            if self.rng.random() < 0.3:
                filter_ += (Predicate("price", Operator.LT, float(self.rng.randint(1, 9))),)
            self.overlay.subscribe(name, self._a_broker(), filter_)
            self.subscribed.append(name)
            self.names += 1
        else:
            name = f"u{self.rng.randint(0, self.clients_max)}"
            if self.overlay.users.home_of(name) is None:
                self.overlay.users.connect(name, self._a_broker(), self._some_topics())
            else:
                self.overlay.users.change_topics(name, self._some_topics())

    def _go(self) -> None:
        """Disconnect a subscriber or user; the user may reconnect at once."""
        if self.kind == TREE:
            if self.subscribed:
                self.overlay.cancel(self.subscribed.pop(self.rng.randrange(len(self.subscribed))))
            return
        name = f"u{self.rng.randint(0, self.clients_max)}"
        home = self.overlay.users.home_of(name)
        if home is not None:
            self.overlay.users.disconnect(name)
            if self.rng.random() < RETURNS_AT_ONCE_SHARE:
                self.overlay.users.connect(name, self.rng.choice((home, self._a_broker())), self._some_topics())

    def _some_topics(self) -> list[str]:
        return self.rng.sample(KINDS, self.rng.randint(1, 3))

    def _a_broker(self) -> str:
        return self.rng.choice(self.inventory.brokers)

    def _another(self, home: str) -> str:
        return self.rng.choice([broker for broker in self.inventory.brokers if broker != home])

    # --- commands and answers: late, repeated, reordered -----------------------------------------------------------

    def _send(self, command: Command, instance: str) -> None:
        self.sent.append(command)
        self.virtual.send_command(command)
        if self.rng.random() < 0.2:
            self.virtual.send_command(self.rng.choice((command, self.rng.choice(self.sent))))

    def on_result(self, result: CommandResult) -> None:
        """Delay an answer on its way to the controller, and possibly repeat it."""
        for _ in range(1 if self.rng.random() < 0.8 else 2):
            self._later(lambda: self.controller.take_result(result))

    def _later(self, do: Callable[[], None]) -> None:
        event = self.virtual.env.timeout(self.rng.uniform(1.0, self.delay_ms_max))
        event.callbacks.append(lambda _: do())

    def on_client_change(self, client: str, role: Role, home: str, filter_: Filter | None) -> None:
        """Remember the homes of publishers."""
        if role is Role.PUBLISHER:
            self.publisher_homes[client] = home
            if filter_ is None:
                self.allowed.discard(client)

    def on_may_publish(self, publisher: str) -> None:
        """Remember which publishers may publish."""
        self.allowed.add(publisher)
