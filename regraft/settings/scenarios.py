"""The scenarios of the demo: the overlay, the clients, and the default planners.

Overlays are placed in ``place_demo``; the workload follows from the kind of overlay.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from regraft.overlay.ring.ring_configuration import RingConfiguration
from regraft.overlay.scot.scot_configuration import ScotConfiguration
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.producers.workloads.field_texts import WORKLOAD_TEXTS

STOCKS, CHORD, OUTAGE, SCOT, MINCOST = "stocks", "chord", "outage", "scot", "mincost"
NATS, MQTT, AMQP = "nats", "mqtt", "amqp"


@dataclass(frozen=True)
class Scenario:
    """A scenario: its kind of overlay, its events, and settings that apply unless a flag, file or variable sets others.

    ``has_prices``: brokers are in cloud regions, and traffic is charged in money. ``has_shift``: interests shift during
    the demo. ``failing``: how many nearby brokers die together, at ``failing_from`` and for ``failing_for``, both as
    shares of the demo's running time. ``bursts``: how many bursts of publications there are, at equal intervals, at
    ``burst_factor`` times the rate.
    """

    kind: str
    has_prices: bool = False
    has_shift: bool = False
    failing: int = 0
    failing_from: float = 1 / 3
    failing_for: float = 1 / 3
    bursts: int = 0
    burst_factor: float = 1.0
    controller: Mapping[str, object] = field(default_factory=dict)
    planners: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    demo: Mapping[str, object] = field(default_factory=dict)
    emulator: Mapping[str, object] = field(default_factory=dict)
    workload: Mapping[str, object] = field(default_factory=dict)

    def workload_for(self, running_s: float) -> Mapping[str, object]:
        """Return its settings of the workload for a running time; the last burst drains before the end."""
        if not self.bursts:
            return self.workload
        every_s = running_s / (self.bursts + 0.9)
        given = {"burst_every_s": every_s, "burst_s": 0.2 * every_s, "burst_factor": self.burst_factor}
        return {**self.workload, "bursts": WORKLOAD_TEXTS["bursts"].text({**given, "burst_count": self.bursts})}


def _real_brokers(kind: str) -> Scenario:
    """Return the scenario of quotes over real brokers: interests shift, and one node dies."""
    return Scenario(
        TreeConfiguration.KIND,
        has_shift=True,
        failing=1,
        failing_from=2 / 3,
        failing_for=1 / 6,
        controller={"planner": "swap_links_cost"},
        demo={"brokers": 20, "shadow_planners": ("swap_links_ci",)},
        emulator={"brokers": kind},
        # Servers, nodes and clients share the machine with Spark and Kafka.
        workload={"publisher_count": 30, "interested_broker_count": 6, "lifetime_s_mean": 30.0},
    )


def _with_agents(scenario: Scenario) -> Scenario:
    """Return the scenario with agents beside publishers and two thirds of the subscribers: plans move these, too.

    Half of these clients are mobile.
    """
    return replace(
        scenario,
        controller={"planner": "swap_links_cost+place_clients_cost"},
        demo={**scenario.demo, "shadow_planners": ("swap_links_cost",)},
    )


SCENARIOS = {
    # Stock quotes over a tree; interests shift halfway. It uses the defaults of all settings.
    STOCKS: Scenario(TreeConfiguration.KIND, has_shift=True),
    # The same with a site that fails, and without the shift.
    OUTAGE: Scenario(TreeConfiguration.KIND, failing=4),
    # The same quotes over real brokers with nodes.
    NATS: _with_agents(_real_brokers(NATS)),
    MQTT: _with_agents(_real_brokers(MQTT)),
    AMQP: _real_brokers(AMQP),
    # Mobile users on a Chord ring. Shadows: the paper's two algorithms, and ours without moving users.
    CHORD: Scenario(
        RingConfiguration.KIND,
        controller={
            "planner": "place_users_dynatops+reassign_ids_assignment",
            "horizon_lifetimes": 1.0,  # Users move on within half a minute.
        },
        planners={
            # A reassignment must pay off within a minute, by which time many users have moved on.
            "reassign_ids_assignment": {"ring_free_s": 60.0},
            "reassign_ids_ssbr": {"ring_free_s": 60.0},
            "place_users_dynatops": {
                # One cluster: the controller knows all users, so brokers need not inform each other.
                "user_cluster_brokers": 1_000,
                # Interests last half a minute: moving a user for less than a fifth of its topics does not pay off.
                "user_utility_min": 0.2,
            },
        },
        demo={
            "shadow_planners": ("place_users_dynatops+reassign_ids_ssbr", "reassign_ids_assignment"),
        },
    ),
    # Few publishers of quotes on a structured cyclic overlay, whose links are congested by three bursts; only the
    # second takes detours.
    SCOT: Scenario(
        ScotConfiguration.KIND,
        bursts=3,
        burst_factor=5.0,
        controller={"planner": "exchange_places_scot+link_regions_scot+move_publishers_scot+relieve_links_scot"},
        demo={"shadow_planners": ()},
        emulator={"link_bytes_per_ms": 20.0, "detours": "alternate"},
        workload={"publisher_count": 4, "notifications_per_s": 20.0},
    ),
    # Quotes between cloud regions at the provider's prices, on a random tree with two brokers in each region; interests
    # do not shift. Users move to fewer, cheaper brokers nearby; links and publishers to where a GB costs less.
    MINCOST: Scenario(
        TreeConfiguration.KIND,
        has_prices=True,
        controller={"planner": "pack_drop"},
        demo={"brokers": 38, "shadow_planners": ("swap_links_cost+relocate_publishers_joint",)},
        workload={"lifetime_s_mean": 1_800.0, "interested_broker_count": 12, "broker_load_exponent": 1.0},
    ),
}


# The scenario scot with emulator.brokers = nats, mqtt or amqp: fewer brokers, and smaller bursts, because queues also
# delay what confirms subscriptions. All publish at one broker: its links between clusters carry most, so that detours
# help. Clients stay, so that planners exchange slots and links only.
SCOT_BESIDE_BROKERS = replace(
    SCENARIOS[SCOT],
    burst_factor=2.5,
    controller={"planner": "exchange_places_scot+link_regions_scot"},
    demo={"brokers": 12, "shadow_planners": ()},
    emulator={"link_bytes_per_ms": 40.0, "detours": "alternate"},
    workload={
        "publisher_count": 4,
        "publisher_broker_count": 1,
        "notifications_per_s": 20.0,
        "interested_broker_count": 6,
        "lifetime_s_mean": 30.0,
    },
)


def scenario_of(name: str, *, has_real_brokers: bool = False) -> Scenario:
    """Return a scenario, as it is beside real brokers or not. Raises KeyError for an unknown name."""
    return SCOT_BESIDE_BROKERS if name == SCOT and has_real_brokers else SCENARIOS[name]
