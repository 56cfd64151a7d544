"""Closed windows with publishers, fixed or random, and states built from them."""

import random

from regraft.controller.kinds.tree.tree_state import TreeState
from regraft.controller.state.closed_window import ClosedWindow
from regraft.overlay.sets.delivery_sets import DeliverySets
from regraft.overlay.tree.configuration import TreeConfiguration
from regraft.overlay.tree.overlay_cost import overlay_cost
from regraft.schemas.plan import Proposal
from regraft.schemas.state import LinkRtt, QueueState
from tests.overlay.published_overlays import PublishedOverlay


def queue_of(
    broker: str, peer: str, *, wait_ms: float = 0.0, service_ms: float = 0.0, per_s: float = 1.0
) -> QueueState:
    """Return a queue that passed ``per_s`` notifications/s, with this wait and service time for each."""
    busy_share = per_s * service_ms / 1000
    return QueueState(broker, peer, per_s, per_s, per_s, 0.0, 0.0, busy_share, 0, 0, 0.0, 1000, wait_ms_mean=wait_ms)


def drawn_queues(configuration: TreeConfiguration, rng: random.Random) -> tuple[QueueState, ...]:
    """Return queues of all brokers and link ends, with waits in eighths of a millisecond."""
    found = []
    for broker in configuration.brokers:
        found.append(queue_of(broker, "", wait_ms=rng.randrange(80) / 8, service_ms=rng.randrange(1, 80) / 8))
        found += [queue_of(broker, peer, wait_ms=rng.randrange(80) / 8) for peer in configuration.neighbours[broker]]
    return tuple(found)


def window_of(
    number: int,
    sets: DeliverySets,
    homes: dict[str, str],
    local_deliveries: dict[tuple[str, str], int] | None = None,
    queues: tuple[QueueState, ...] = (),
    rtts: tuple[LinkRtt, ...] = (),
) -> ClosedWindow:
    """Return window ``number`` of windows of equal length."""
    length_ms = round(sets.span_s * 1000)
    return ClosedWindow(
        start_ms=number * length_ms,
        end_ms=(number + 1) * length_ms,
        sets=sets,
        queues=queues,
        rtts=rtts,
        epoch_min=0,
        epoch_max=0,
        homes=homes,
        local_deliveries=local_deliveries or {},
    )


def state_of(drawn: PublishedOverlay, rng: random.Random) -> TreeState:
    """Return the state of a random overlay, with random numbers of subscribers and random queues."""
    windows = []
    for number, sets in enumerate(drawn.spans):
        subscribers: dict[tuple[str, str], int] = {}
        for one in drawn.notifications:
            if one.span == number:
                for broker in one.delivered:
                    key = (one.publisher, broker)
                    subscribers[key] = subscribers.get(key, 0) + rng.randrange(1, 4)
        windows.append(window_of(number, sets, drawn.homes, subscribers, drawn_queues(drawn.configuration, rng)))
    return TreeState(drawn.configuration, drawn.inventory, tuple(windows))


def homes_along(state: TreeState, proposals: list[Proposal]) -> list[dict[str, str]]:
    """Return the homes of all publishers that published, at first and after each of the proposals."""
    homes = {name: home for name, home in state.configuration.homes if name in state.publisher_costs.publishers}
    found = [homes]
    for proposal in proposals:
        assert all(found[-1][move.client] == move.home_from for move in proposal.moves)
        found.append(found[-1] | {move.client: move.home_to for move in proposal.moves})
    return found


def costs_along(state: TreeState, proposals: list[Proposal]) -> list[float]:
    """Return the one cost of the tree, at first and after each of the proposals."""
    return [
        overlay_cost(state.configuration, state.inventory, state.sets.at_homes(homes)).total_per_s
        for homes in homes_along(state, proposals)
    ]
