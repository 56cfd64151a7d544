"""Move clients away from drained brokers, at any cost: publishers to their cheapest homes, subscribers to the nearest.

In: the state of a tree, the brokers in maintenance, and those of them to evacuate. Out: proposals, for which the judge
enforces shape and caps but requires no gain.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from regraft.controller.kinds.overlay_kind import EVACUATION
from regraft.controller.kinds.tree.describe_moves import effect_text, move_gain_per_s, present_cost_per_s
from regraft.controller.kinds.tree.tree_state import TreeState
from regraft.controller.state.planner_interface import emptying_proposal, moving_proposal
from regraft.overlay.tree.publisher_placement import PublisherPlacement
from regraft.schemas.agent_names import client_of
from regraft.schemas.plan import ClientMove, HomeMove, Proposal
from regraft.schemas.stay_reasons import reasons_text


def publishers_leaving(
    state: TreeState, avoided: Collection[str], left: Collection[str], moves_max: int
) -> list[Proposal]:
    """Return moves of at most ``moves_max`` publishers from the brokers ``left`` to any that are not ``avoided``.

    A publisher goes to its cheapest home within the caps of load. Cost O(brokers) for each publisher. Guarantee: none
    but the caps; deterministic. A publisher that has been silent over the whole horizon is unknown and stays.
    """
    if not left or not state.can_move_publishers:
        return []
    costs, homes, index = state.publisher_costs, state.configuration.home_of, state.inventory.index
    rows = [place for place, publisher in enumerate(costs.publishers) if publisher in homes]
    names = [costs.publishers[place] for place in rows]
    at = [index[homes[name]] for name in names]
    placement = PublisherPlacement(costs, rows, at, state.inventory.load_max_per_s)
    proposals: list[Proposal] = []
    cost_per_s = present_cost_per_s(state)
    for place, name in enumerate(names):
        if homes[name] not in left or len(proposals) == moves_max:
            continue
        by_cost = np.argsort(costs.costs_per_s[rows[place]], kind="stable").tolist()
        open_homes = [home for home in by_cost if state.inventory.brokers[home] not in avoided]
        limits = placement.limits_now()
        home = next((home for home in open_homes if placement.keeps(limits, [(place, home)])), None)
        if home is None:
            continue  # No broker has room; one may have in the next window.
        move = ClientMove(name, homes[name], state.inventory.brokers[home])
        placement.move(place, home)
        after_per_s = cost_per_s - move_gain_per_s(state, move)
        reason = f"{move.home_from} is in maintenance; {move.home_to} is the cheapest home that the caps of load allow"
        text = f"{reason}; {effect_text(state, [move])}"
        proposals.append(moving_proposal(EVACUATION, (move,), cost_per_s, after_per_s, text))
        cost_per_s = after_per_s
    return proposals


def subscribers_leaving(
    state: TreeState, avoided: Collection[str], left: Collection[str], subscribers_max: int
) -> list[Proposal]:
    """Return moves of all subscribers of each broker ``left`` to the open one with the cheapest link to it.

    If clients stay, those that may move do so by name, each to the nearest open broker that its agent reaches, at most
    ``subscribers_max`` in all proposals. Empty if the register of clients shows no subscriber there, or no broker is
    open.
    """
    inventory = state.inventory
    open_homes = [broker for broker in inventory.brokers if broker not in avoided]
    if not left or not open_homes:
        return []
    by_distance = {
        broker: sorted(open_homes, key=lambda home: (inventory.cost_of_link(broker, home), home))
        for broker in sorted(left)
        if (state.subscribers_at or {}).get(broker) and broker in inventory.index
    }
    if inventory.clients_stay:
        return _movable_leaving(state, by_distance, subscribers_max)
    return [_all_leaving(state, broker, homes[0]) for broker, homes in by_distance.items()]


def _all_leaving(state: TreeState, broker: str, near: str) -> Proposal:
    counts, cost_per_s = state.subscribers_at or {}, state.tree_costs.cost_per_s  # The judge computes the cost after.
    reason = f"{broker} is in maintenance; its {counts[broker]} subscribers go to {near}, the nearest broker"
    return emptying_proposal(EVACUATION, (HomeMove(broker, near),), cost_per_s, cost_per_s, reason)


def _movable_leaving(state: TreeState, by_distance: Mapping[str, Sequence[str]], room: int) -> list[Proposal]:
    """Return moves by name of whole clients, as many as there is room for, with one proposal for each broker.

    What the judge has to explain is also proposed: a client with more subscriptions than a plan may move, and one whose
    agent reaches no open broker.
    """
    proposals: list[Proposal] = []
    cost_per_s = state.tree_costs.cost_per_s
    for broker, homes in by_distance.items():
        by_client: dict[str, list[str]] = {}
        for name in sorted(name for name, home in state.newest.movable.items() if home == broker):
            by_client.setdefault(client_of(name), []).append(name)
        if not by_client:
            continue
        home_of = {client: home for client in by_client if (home := _nearest_reached(state, client, homes))}
        going = [by_client[client] for client in home_of]
        names = _fitting(going, room)
        room -= len(names)
        if not names and going and not proposals:
            names = min(going, key=len)
        elif not home_of:
            names = next(iter(by_client.values()))
        if names:
            moves = tuple(ClientMove(one, broker, home_of.get(client_of(one), homes[0])) for one in sorted(names))
            reason = _leaving_text(state, moves, homes[0], sum(map(len, going)), sum(map(len, by_client.values())))
            proposals.append(moving_proposal(EVACUATION, moves, cost_per_s, cost_per_s, reason))
    return proposals


def _nearest_reached(state: TreeState, client: str, by_distance: Sequence[str]) -> str:
    """Return the nearest broker to which its agent can take a client, the nearest of all if that is not known."""
    return next((home for home in by_distance if state.newest.may_reach(client, home)), "")


def _leaving_text(state: TreeState, moves: Sequence[ClientMove], nearest: str, going: int, movable: int) -> str:
    """Describe who leaves, of ``going`` subscribers whose agents reach a broker and ``movable`` that have an agent."""
    broker, count = moves[0].home_from, (state.subscribers_at or {})[moves[0].home_from]
    begin = f"clients leave {broker}: of its {count} subscribers"
    if not going:
        return f"{begin} {movable} may move, but their agents reach no broker that is open"
    targets = Counter(move.home_to for move in moves)
    where = " and ".join(f"{several} move to {home}" for home, several in targets.items())
    who = "the nearest broker" if set(targets) == {nearest} else "the nearest that their agents reach"
    later, cut_off = going - len(moves), movable - going
    why = f", {cut_off} of them because their agents reach no broker that is open" if cut_off else ""
    reasons = reasons_text(state.newest.staying.get(broker, {}), count - movable)
    return f"{begin} {where}, {who}, {later} in later plans, and {count - going} stay{reasons}{why}"


def _fitting(clients: Iterable[Sequence[str]], room: int) -> list[str]:
    """Return the subscriptions of clients, in order, without the clients for which no room is left."""
    names: list[str] = []
    for subscriptions in clients:
        if len(names) + len(subscriptions) <= room:
            names += subscriptions
    return names
