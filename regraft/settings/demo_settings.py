"""Settings of the demo: its overlay and its course."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from regraft.settings.scenarios import MINCOST, SCENARIOS, SCOT, STOCKS

SCOT_CLUSTERS = 4  # As placed by producers.emulated_kinds.


@dataclass(frozen=True, slots=True)
class DemoSettings:
    """The demo's overlay and its course."""

    scenario: Annotated[
        str,
        "stocks (quotes over a tree, interests that shift), outage (the same quotes, and a site that fails), chord "
        "(mobile users of a city on a Chord ring), nats, mqtt and amqp (the quotes over real NATS, Mosquitto "
        "or RabbitMQ servers, one of whose nodes dies), scot (the quotes in bursts on a structured cyclic overlay "
        "of four clusters, also over real servers with emulator.brokers) or mincost (the quotes between cloud "
        "regions, at a provider's prices)",
    ] = STOCKS
    brokers: Annotated[
        int,
        "number of brokers, each on its own PlanetLab host if there are enough; by default 20 with nats, mqtt and "
        "amqp, 12 with scot over real servers, and 38 with mincost, two in each region",
    ] = 40
    degree_max: Annotated[int, "maximum number of links per broker on a tree"] = 8
    running_s: Annotated[float, "how long traffic runs after startup, in s"] = 180.0
    # The share of running_s after which interests shift.
    regime_change_share: float = 0.5
    # How long to wait at the end for the last windows, in s: several times the window and its grace.
    drain_s_max: float = 60.0
    kill_every_s: Annotated[
        float,
        "with --chaos, the shortest pause between disturbances of services, in s, in which a window must also close; "
        "also that of random outages, and their length, unless emulator.random_outages is set",
    ] = 20.0
    # Unless the scenario has others or controller.shadow_planners is set: the paper's planner, and ours without moves
    # of publishers, to show what the moves add.
    shadow_planners: tuple[str, ...] = ("swap_links_ci", "swap_links_cost")

    def errors(self) -> list[str]:
        """Return what is wrong, one sentence each."""
        errors = []
        if self.scenario not in SCENARIOS:
            errors.append(f"scenario is {self.scenario!r}: must be one of {', '.join(SCENARIOS)}")
        if self.scenario == SCOT and (self.brokers % SCOT_CLUSTERS or self.brokers < 2 * SCOT_CLUSTERS):
            errors.append(
                f"brokers is {self.brokers}: with scenario scot a multiple of {SCOT_CLUSTERS}, the clusters, and at "
                f"least {2 * SCOT_CLUSTERS}"
            )
        if self.scenario == MINCOST and self.brokers > (most := _brokers_in_regions_max()):
            errors.append(f"brokers is {self.brokers}: must be at most {most} with scenario mincost (26 per region)")
        if self.brokers < 3:
            errors.append(f"brokers is {self.brokers}: must be at least 3, because with fewer there is no link to swap")
        if self.degree_max < 2:
            errors.append(f"degree_max is {self.degree_max}: a tree over more than two brokers needs at least 2")
        if self.running_s < 20:
            errors.append(
                f"running_s is {self.running_s:g}: must be at least 20, or no window closes in time to act on"
            )
        if self.kill_every_s < 5:
            errors.append(
                f"kill_every_s is {self.kill_every_s:g}: must be at least 5, because a service needs time to recover"
            )
        return errors


def _brokers_in_regions_max() -> int:
    from regraft.producers.emulator.place_regions import broker_count_max  # Loads prices, which few settings need.

    return broker_count_max()
