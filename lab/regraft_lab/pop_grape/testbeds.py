"""The two testbeds of Cheung09, section 5.1: brokers in a balanced binary tree on PlanetLab hosts and on a cluster."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from regraft.api.emulation import PROCESSING_MS_MAX, PROCESSING_MS_MIN, measured_rtt_ms
from regraft.api.overlays import Inventory
from regraft.api.trees import TreeConfiguration

FAN_OUT = 2
DEGREE_MAX = FAN_OUT + 1  # Children and parent.
PLANETLAB_BROKERS = 63  # Section 4.2: "subscribers residing on all 63 brokers in the network".
# "20 nodes", "six to seven brokers run on one machine": 120 to 140 brokers. The only complete binary tree of such a
# size has 127, and 127 / 20 is 6.35: 13 machines with six, 7 with seven. 63 brokers would mean three per machine.
CLUSTER_BROKERS = 127
CLUSTER_MACHINES = 20
CLUSTER_CORES = 2  # "dual core CPUs".
CLUSTER_SERVICE_MS = 1.0  # Of a broker with its own core; equal to that of the fastest PlanetLab host.
# 1 Gbit/s with switch and TCP, and loopback: a notification of some 200 bytes takes 2 us on the wire, the rest is
# spent in kernels.
CLUSTER_LINK_MS = 0.2
CLUSTER_SAME_MACHINE_MS = 0.05


def planetlab_testbed(rng: random.Random, broker_count: int = PLANETLAB_BROKERS) -> Inventory:
    """Return brokers on one PlanetLab host each; a link costs half of the measured RTT between its hosts.

    Service times are drawn as in :func:`producers.emulator.place_overlay.place_overlay`. Raises ValueError if there are
    more brokers than hosts.
    """
    rtt_ms = measured_rtt_ms()
    if not 2 <= broker_count <= len(rtt_ms):
        raise ValueError(
            f"broker_count is {broker_count}: must be from 2 to the {len(rtt_ms)} measured PlanetLab hosts"
        )
    hosts = rng.sample(range(len(rtt_ms)), broker_count)
    service_ms = [round(rng.uniform(PROCESSING_MS_MIN, PROCESSING_MS_MAX), 3) for _ in hosts]
    tree = balanced_tree(broker_count)
    return Inventory(tree.brokers, np.array(service_ms), rtt_ms[np.ix_(hosts, hosts)] / 2, DEGREE_MAX, tree)


def cluster_testbed(
    rng: random.Random, broker_count: int = CLUSTER_BROKERS, machine_count: int = CLUSTER_MACHINES
) -> Inventory:
    """Return brokers spread evenly and at random over the machines of a LAN.

    The brokers of a machine share its cores equally: the service time is multiplied by the number of brokers per core.
    Idle shares do not speed up other brokers, so service times are known in advance.
    """
    seats = [place % machine_count for place in range(broker_count)]
    rng.shuffle(seats)
    machine = np.array(seats)
    sharing = np.maximum(np.bincount(machine, minlength=machine_count)[machine] / CLUSTER_CORES, 1.0)
    link_ms = np.where(machine[:, None] == machine[None, :], CLUSTER_SAME_MACHINE_MS, CLUSTER_LINK_MS)
    np.fill_diagonal(link_ms, 0.0)
    tree = balanced_tree(broker_count)
    return Inventory(tree.brokers, CLUSTER_SERVICE_MS * sharing, link_ms, DEGREE_MAX, tree)


def balanced_tree(broker_count: int) -> TreeConfiguration:
    """Return the balanced tree with a fan-out of 2 (section 5.1); the first broker is its root. Names are in order."""
    width = len(str(broker_count - 1))
    brokers = [f"b{place:0{width}d}" for place in range(broker_count)]
    links = [(brokers[(place - 1) // FAN_OUT], brokers[place]) for place in range(1, broker_count)]
    return TreeConfiguration.of(0, brokers, links)


def hops_between(tree: TreeConfiguration, broker: str) -> dict[str, int]:
    """Return the number of links between a broker and each broker, including itself."""
    hops = {broker: 0}
    for other, parent in tree.parents_from(broker).items():
        hops[other] = hops[parent] + 1
    return hops


TESTBEDS: Mapping[str, Callable[[random.Random], Inventory]] = MappingProxyType(
    {"planetlab": planetlab_testbed, "cluster": cluster_testbed}
)
