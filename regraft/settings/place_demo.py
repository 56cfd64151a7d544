"""Make sure that a run has its inventory: emulated brokers are placed on measured hosts, all others must be listed.

The same settings give the same inventory, so processes that do not share a disk agree on it.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import structlog

from regraft.infra.local.mosquitto_server import find_mosquitto
from regraft.infra.local.rabbit_server import find_rabbit
from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.read_inventory import load_inventory
from regraft.overlay.ring.ring_configuration import RingConfiguration
from regraft.overlay.scot.scot_configuration import ScotConfiguration
from regraft.producers.emulator_settings import AMQP, MQTT, REAL_BROKERS
from regraft.schemas.topics import NO_AGENT
from regraft.settings.run_settings import Settings, SettingsError
from regraft.settings.scenarios import scenario_of

log = structlog.get_logger(__name__)


def ensure_inventory(settings: Settings) -> Inventory:
    """Return the inventory in the run directory; if there is none, place the emulated brokers and save it.

    Raises InventoryError if the file is not an inventory.
    """
    file = settings.controller.inventory_path
    if file.exists():
        return load_inventory(file)
    inventory = _place_of(settings)(settings.demo.brokers, settings.demo.degree_max, random.Random(settings.run.seed))
    inventory.save(file)
    log.info("brokers_placed", brokers=len(inventory.brokers), file=str(file), seed=settings.run.seed)
    return load_inventory(file)


def _place_of(settings: Settings) -> Callable[[int, int, random.Random], Inventory]:
    from regraft.producers.emulated_kinds import CLUSTERS, EMULATED_KINDS
    from regraft.producers.emulator.place_regions import place_regions
    from regraft.producers.real_fleet.place_fleet import place_fleet, place_scot_fleet

    scenario = scenario_of(settings.demo.scenario)
    if settings.emulator.brokers not in REAL_BROKERS:
        return place_regions if scenario.has_prices else EMULATED_KINDS[scenario.kind].place
    if scenario.kind == ScotConfiguration.KIND:
        return lambda brokers, _, rng: place_scot_fleet(brokers, CLUSTERS, rng)
    return place_fleet


def require_inventory(settings: Settings, *, may_emulate: bool = False) -> None:
    """Raise SettingsError if the run directory has no inventory: brokers that nobody listed must not be managed.

    ``may_emulate``: whether the command has the flag ``--emulate``.
    """
    file = settings.controller.inventory_path
    if not file.exists():
        instead = ", or give --emulate for brokers that are emulated" if may_emulate else ""
        raise SettingsError(
            [
                f"run.directory is {str(settings.run.directory)!r}, but there is no {file}: list your brokers there "
                f"(`regraft inventory make` writes it, docs/inventory.md describes it){instead}"
            ]
        )


def check_brokers(settings: Settings) -> Settings:
    """Return the settings.

    Raises NoMosquittoError or NoRabbitError if they need one that is not installed, SettingsError if real brokers
    cannot run the scenario.
    """
    scenario = scenario_of(settings.demo.scenario)
    is_runnable = scenario.kind != RingConfiguration.KIND and not scenario.has_prices
    if settings.emulator.brokers in REAL_BROKERS and not is_runnable:
        what = f"emulator.brokers is {settings.emulator.brokers!r}, but the scenario is {settings.demo.scenario}"
        raise SettingsError(
            [
                f"{what}: nodes run trees without prices and structured cyclic overlays (scot); the scenarios nats "
                "and mqtt have mobile clients, too"
            ]
        )
    if settings.emulator.brokers == MQTT:
        find_mosquitto()
    elif settings.emulator.brokers == AMQP:
        find_rabbit()
    return settings


def agents_of(settings: Settings) -> tuple[str, ...]:
    """Return the agents in the run directory's inventory, NO_AGENT alone if there is no inventory (see BrokerTopics).

    Raises InventoryError if the file is not an inventory.
    """
    file = settings.controller.inventory_path
    return load_inventory(file).broker_topics(settings.kafka.namespace).agents if file.exists() else (NO_AGENT,)
