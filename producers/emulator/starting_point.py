"""Where brokers begin: at the overlay of the newest committed plan, with the clients where plans have put them. Pure.

A committed plan can only be executed: when all brokers start together, nothing is in transit, so its overlay is the one
to begin with whether or not the plan is over. A broker that starts while others run begins outside that overlay,
whether or not an earlier incarnation of it was in it. Reading the plans belongs to
:mod:`producers.emulator.kafka_ports`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.overlay_configuration import OverlayConfiguration, plan_digest
from regraft.overlay.ring.ring_configuration import RingConfiguration
from regraft.overlay.scot.scot_configuration import ScotConfiguration
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.producers.brokers.broker_protocol import BrokerProtocol
from regraft.producers.brokers.ring_routing import ring_broker
from regraft.producers.brokers.scot_routing import ScotBroker
from regraft.producers.brokers.tree_routing import tree_broker
from regraft.schemas.plan import Plan, PlanPhase
from regraft.schemas.plan_life import LIFE

CORES: dict[str, Callable[..., BrokerProtocol]] = {
    TreeConfiguration.KIND: tree_broker,
    RingConfiguration.KIND: ring_broker,
    ScotConfiguration.KIND: ScotBroker,
}


def core_of(
    broker: str, configuration: OverlayConfiguration, boot_ms: int, *, is_outside: bool = False
) -> BrokerProtocol:
    """Return the protocol core of a broker that begins with a configuration of any kind.

    The broker begins outside the overlay if the configuration does not contain it, or with ``is_outside`` (an earlier
    incarnation of it is still in the configuration).
    """
    return CORES[configuration.KIND](broker, configuration, boot_ms, is_outside=is_outside)


@dataclass(frozen=True)
class StartingPoint:
    """The overlay that brokers begin with; ``plan`` and its ``digest`` led there, empty for the bootstrap overlay.

    ``term`` is the highest that the plans name: brokers obey no leader of an earlier one. ``homes`` are those that
    plans have set, by client. If ``clients_stay``, brokers may leave the overlay without their clients.
    """

    configuration: OverlayConfiguration
    plan: str = ""
    digest: str = ""
    term: int = 0
    homes: Mapping[str, str] = field(default_factory=dict)
    clients_stay: bool = False

    def core_of(self, broker: str, boot_ms: int) -> BrokerProtocol:
        """Return the core of a broker that begins here."""
        return self._begun(core_of(broker, self.configuration, boot_ms))

    def brokers_of(self, inventory: Inventory) -> list[str]:
        """Return the brokers of an inventory that begin at once: those of its bootstrap overlay and of this one."""
        first = {*inventory.bootstrap.brokers, *self.configuration.brokers}
        return [broker for broker in inventory.brokers if broker in first]

    def outsider(self, broker: str, boot_ms: int) -> BrokerProtocol:
        """Return the core of a broker that starts while others run: a plan must let it join."""
        return self._begun(core_of(broker, self.configuration, boot_ms, is_outside=True))

    def _begun(self, core: BrokerProtocol) -> BrokerProtocol:
        if self.plan:
            core.begin_at(self.plan, self.digest, self.term)
        if self.clients_stay:
            core.leave_clients()
        return core

    def first_home(self, client: str, drawn: str) -> str:
        """Return a client's first home: where plans have put it, or else the one that was drawn for it."""
        return self.homes.get(client, drawn)


def starting_point(inventory: Inventory, plans: Iterable[Plan]) -> StartingPoint:
    """Return where the brokers of an inventory begin, given the newest version of each plan.

    Raises LinkError, RingError or ValueError if the plans are about other brokers or another kind of overlay.
    """
    by_epoch = sorted(plans, key=lambda plan: plan.epoch_to)
    committed = [plan for plan in by_epoch if LIFE[plan.phase].is_committed]
    term = max((plan.term for plan in by_epoch), default=0)
    if not committed:
        return StartingPoint(inventory.bootstrap, term=term, clients_stay=inventory.clients_stay)
    last = committed[-1]
    target = inventory.bootstrap.target_of(last)
    homes = {move.client: move.home_to for plan in committed for move in plan.moves}
    homes = {client: home for client, home in homes.items() if home in target.neighbours}
    return StartingPoint(target, last.plan, plan_digest(last, target), term, homes, inventory.clients_stay)


def is_undecided(plan: Plan) -> bool:
    """Return True if answers of earlier brokers may still commit the plan: brokers that begin now would not know."""
    return plan.phase is PlanPhase.PREPARING
