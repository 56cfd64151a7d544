"""What must hold when nothing is under way any more, and that nothing is left once all clients have gone.

In: a state without moves. Out: what is wrong with it, in words. Faults before the end are found where they happen.
"""

from __future__ import annotations

from typing import Any

from regraft.overlay.scot.scot_configuration import ScotConfiguration
from tests.scenarios.core_parts import parts_of
from tests.scenarios.model.kept_account import Violation
from tests.scenarios.model.mortal_brokers import DEAD
from tests.scenarios.model.overlay_model import ABORT, ACCOUNT, CONTROL, PARTS, OverlayModel, State
from tests.scenarios.model.scripted_clients import PublisherScript

MOVES_MAX = 5_000  # Steps of the clean-up; a scenario needs a hundred.
OF_A_CORE = (
    "locals",
    "advertisements",
    "here",
    "held",
    "unconfirmed_advertisements",
    "postponed",
    "early",
)
LINGERING = ("locals", "entries")  # A structured cyclic overlay serves ended subscriptions a while longer.
OF_TABLES = ("entries", "withdrawn", "topics", "registered", "successors", "ended", "flushes", "awaited")


class EndingChecks:
    """Checks of terminal states; the clean-up from each is run once."""

    def __init__(self, model: OverlayModel) -> None:
        self._model = model
        self._leaks: dict[tuple[int, ...], str] = {}

    def fault(self, state: State) -> str:
        """Describe what is wrong with a state in which nothing is under way, empty if nothing is."""
        return self._stuck(state) or self._leak(state)

    def _stuck(self, state: State) -> str:
        model = self._model
        faults = [model.controls.values[state[CONTROL]].fault()]
        clients = [model.clients.copy_of(number) for number in state[model.first_client : model.first_channel]]
        faults += [client.fault() for client in clients]
        living = [number for number in state[PARTS : model.first_client] if number != DEAD]
        faults += [self._core_fault(model.cores.copy_of(number)) for number in living]
        faults.append(model.accounts.values[state[ACCOUNT]].fault())
        faults += [f"{client.name} cannot continue: {client.left[0]}" for client in clients if client.left]
        return "; ".join(fault for fault in faults if fault)

    def _core_fault(self, core: Any) -> str:
        if core.state.held:
            return f"{core.broker} holds back {list(core.state.held)} forever"
        if core.state.under_way is not None or len(core.state.tables) != 1:
            return f"{core.broker} is {core.phase} with tables of {sorted(core.state.tables)}"
        return ""

    def _leak(self, state: State) -> str:
        key = state[CONTROL : CONTROL + 1] + state[PARTS : self._model.first_channel]
        found = self._leaks.get(key)
        if found is None:
            found = self._leaks[key] = self._clean_up(state)
        return found

    def _clean_up(self, state: State) -> str:
        """Disconnect subscribers, then publishers, and check what the brokers still know."""
        model = self._model
        clients = [model.clients.copy_of(number) for number in state[model.first_client : model.first_channel]]
        try:
            for is_publisher in (False, True):
                for at, client in enumerate(clients):
                    if isinstance(client, PublisherScript) is is_publisher:
                        state = model.end_client(state, at)
                state = run_quiet(model, state)
        except Violation as violation:
            return f"in the clean-up: {violation}"
        living = [number for number in state[PARTS : model.first_client] if number != DEAD]
        left = [self._left_in(model.cores.copy_of(number)) for number in living]
        fault = model.accounts.values[state[ACCOUNT]].fault()
        return "; ".join([*(one for one in left if one), *([f"after the clean-up: {fault}"] if fault else [])])

    def _left_in(self, core: Any) -> str:
        lingering = LINGERING if isinstance(self._model.configuration, ScotConfiguration) else ()
        names = [name for name in OF_A_CORE if name not in lingering]
        left = [name for part in parts_of(core) for name in names if _is_filled(getattr(part, name, None))]
        for tables in core.state.tables.values():
            for name in OF_TABLES:
                kept = getattr(tables, name, ())
                if name not in lingering and _is_filled(kept):
                    left.append(f"{name} {sorted(kept)} of epoch {tables.epoch}")
        return f"{core.broker} still keeps {', '.join(left)} when all clients have gone" if left else ""


def _is_filled(kept: Any) -> bool:
    return any(kept.values()) if isinstance(kept, dict) else bool(kept)


def run_quiet(model: OverlayModel, state: State) -> State:
    """Take the first possible move until there is none; scripts continue as well."""
    for _ in range(MOVES_MAX):
        moves = [move for move in model.moves(state) if move[0] != ABORT]
        if not moves:
            return state
        state = model.take(state, moves[0])
    raise Violation(f"not quiet after {MOVES_MAX} moves")
