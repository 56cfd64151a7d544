"""What the controller asks a kind of overlay, as one abstract class. Weights and caps live inside the kind.

A further kind answers this, and :class:`overlay.overlay_configuration.OverlayConfiguration`; nothing else in the
controller asks which kind an overlay is. Which kinds there are stands in :mod:`controller.kinds.find_kind`. Pure.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from regraft.controller.decision_settings import DecisionSettings
from regraft.controller.kinds.repair import Repair, RepairTask
from regraft.controller.state.closed_window import ClosedWindow
from regraft.controller.state.overlay_state import OverlayState, Span
from regraft.controller.state.planner_interface import PlannerContext
from regraft.overlay.cost import CostBreakdown
from regraft.overlay.inventory import Inventory
from regraft.overlay.overlay_configuration import OverlayConfiguration
from regraft.overlay.user_interests import UserInterests
from regraft.schemas.live_view import ShownBill
from regraft.schemas.plan import Proposal, Verdict

Floats = NDArray[np.float64]
Against = tuple[Verdict, str]  # A verdict against a proposal, and why.
HomesBefore = Callable[[int], Mapping[str, str]]  # Where clients were before the plans to epochs later than this one.

EVACUATION = "evacuate_brokers"  # The planner's name of moves away from brokers in maintenance.
RELIEF = "relieve_links_scot"  # That of moves away from links that have been congested for long.
OVERLOAD = "relieve_brokers"  # That of moves away from brokers of a tree that pass more than their cap.
# A person asked for it, or the cost knows nothing of its purpose.
NEEDS_NO_GAIN = frozenset({EVACUATION, RELIEF, OVERLOAD})


def needs_no_gain(proposals: Iterable[Proposal]) -> bool:
    """Return True if something among proposals was not made to save anything, so that the whole need not."""
    return any(proposal.planner in NEEDS_NO_GAIN for proposal in proposals)


class HomeError(ValueError):
    """A proposal moves a client that is not where it says."""


class RingIdError(ValueError):
    """A proposal reassigns ring IDs that are not as it says, or not to be had."""


class Reached(Protocol):
    """The overlay that a sequence of proposals leads to, on the windows of a state."""

    @property
    def spans(self) -> tuple[Span, ...]:
        """From when to when each span lasts, oldest first, in seconds: windows, or parts of these."""
        ...

    @property
    def costs_per_s(self) -> Floats:
        """What the overlay costs in each span, shape (spans,)."""
        ...

    @property
    def cost_per_s(self) -> float:
        """What the overlay costs over all windows."""
        ...

    @property
    def configuration(self) -> OverlayConfiguration:
        """The overlay reached; its epoch is still the present one."""
        ...

    @property
    def state(self) -> OverlayState:
        """The state that the next planner sees."""
        ...

    def after(self, proposal: Proposal) -> Self:
        """Return the overlay after the proposal; this one stays as it is.

        Raises NotATreeError, KeyError, HomeError or RingIdError when the proposal does not fit the overlay.
        """
        ...


class FollowedHomes(ABC):
    """Where the clients are on an overlay that exists only in the controller, a shadow planner's."""

    @abstractmethod
    def learn(self, known: Mapping[str, str], window: ClosedWindow, homes_before: HomesBefore) -> dict[str, str] | None:
        """Return the homes after a window, None when they are as ``known``.

        ``homes_before`` returns where the acting planner's plans found the clients that they moved.
        """

    @abstractmethod
    def note_moves(self, clients: Iterable[str], newest: ClosedWindow) -> None:
        """Remember that the shadow planner has moved these clients."""

    @abstractmethod
    def forget_all_but(self, kept: Mapping[str, str]) -> None:
        """Forget all clients that are not named."""

    @abstractmethod
    def shown(self, homes: Mapping[str, str]) -> dict[str, str]:
        """Return which of these homes differ between the shadow's overlay and the real one."""


ConfigurationT = TypeVar("ConfigurationT", bound=OverlayConfiguration)
StateT = TypeVar("StateT", bound=OverlayState)
ReachedT = TypeVar("ReachedT", bound=Reached)


class OverlayKind(ABC, Generic[ConfigurationT, StateT, ReachedT]):
    """The answers of one kind of overlay, over the brokers of one inventory.

    ``NEEDS_REGISTER``: whether windows are complete only with what the register of clients knows.
    ``LOST_MOVES_MAX``: clients of lost brokers that a repair moves, as many as its records and its planning bear.
    """

    NEEDS_REGISTER: ClassVar[bool]
    LOST_MOVES_MAX: ClassVar[int]

    inventory: Inventory

    def over(self, inventory: Inventory) -> Self:
        """Return the answers of the same kind over the brokers of another inventory."""
        return replace(self, inventory=inventory)  # type: ignore[type-var]

    def attach_clients(
        self,
        window: ClosedWindow,
        interests: UserInterests | None,
        topic_of: Mapping[str, str],
        overlays: Sequence[ConfigurationT],
        unknown_share_max: float,
        fault: str = "",
    ) -> tuple[ClosedWindow, tuple[str, ...]]:
        """Return the window with what the register of clients knows, and the publishers that it does not know.

        ``overlays`` are the configurations of the window's first and last epoch. The window is incomplete when the
        kind needs ``interests`` and there are none (``fault`` says why), or when more than ``unknown_share_max`` of its
        notifications are of publishers that the register does not know. A kind that needs no register leaves it as is.
        """
        return window, ()

    def without_register(self, window: ClosedWindow) -> ClosedWindow:
        """Return an old window without what of the register only verification needs, as it takes much memory."""
        return window

    @abstractmethod
    def with_homes(self, present: ConfigurationT, windows: Sequence[ClosedWindow]) -> ConfigurationT:
        """Return the configuration with the homes that a decision on the windows (oldest first) rests on."""

    @abstractmethod
    def state_of(self, configuration: ConfigurationT, windows: Sequence[ClosedWindow]) -> StateT:
        """Return what planners look at: the configuration over the windows (oldest first, at least one)."""

    @abstractmethod
    def planner_context(self, proposals_max: int, settings: DecisionSettings) -> PlannerContext:
        """Return the planners' context: the bounds of a plan, the kind's own weights and caps."""

    @abstractmethod
    def missing_in(self, state: StateT) -> str:
        """Return what no decision can do without and the state does not know; empty when it knows all."""

    @abstractmethod
    def reached(self, state: StateT) -> ReachedT:
        """Return the overlay of the state itself, before any proposal. Raises ValueError when something is missing."""

    @abstractmethod
    def judge_caps(self, before: ReachedT, after: ReachedT) -> Against | None:
        """Return which broker would get more than its cap, None when none would.

        A broker that is above a cap already may stay so, it may only not get more.
        """

    def comes_to(self, present: ConfigurationT, proposal: Proposal) -> Iterable[tuple[str, str]]:
        """Return what a proposal would bring besides clients, for people, each with the broker that would get it."""
        return ((f"link {a}-{b}", broker) for a, b in proposal.links_added for broker in (a, b))

    @abstractmethod
    def choices_in(self, proposal: Proposal) -> int:
        """Return k: how many changes the proposal consists of, each picked from as many others as there are."""

    @abstractmethod
    def alternatives_to(self, proposal: Proposal) -> int:
        """Return of how many changes a planner picks one of the proposal's; 1 where it does not pick by their gain."""

    @abstractmethod
    def moves_max(self, settings: DecisionSettings) -> int:
        """Return how many clients one plan may move."""

    @abstractmethod
    def evacuate(
        self, state: StateT, avoided: Collection[str], left: Collection[str], moves_max: int
    ) -> list[Proposal]:
        """Return moves of at most ``moves_max`` clients from brokers ``left`` to any that are not ``avoided``."""

    def evacuate_subscribers(self, state: StateT, avoided: Collection[str], left: Collection[str]) -> list[Proposal]:
        """Return moves of all subscribers from brokers ``left`` where these are not clients that ``evacuate`` moves."""
        return []

    @abstractmethod
    def repaired(self, present: ConfigurationT, task: RepairTask) -> Repair:
        """Return the overlay over other brokers than ``present``: of those that stay, what can stay stays.

        Raises ValueError when fewer than two are left, or what a broker's links would cost is not known.
        """

    @abstractmethod
    def cost_per_s(self, configuration: ConfigurationT, window: ClosedWindow) -> float:
        """Return what the window's traffic costs with clients at the homes that the configuration names.

        Clients that it does not name are where the window has them. Raises ValueError when the window cannot be costed.
        """

    def least_cost_per_s(self, windows: Sequence[ClosedWindow]) -> float | None:
        """Return what no overlay with any homes of clients costs less than over windows, None where none is known."""
        return None

    def bill(self, configuration: ConfigurationT, windows: Sequence[ClosedWindow]) -> ShownBill | None:
        """Return what the traffic of windows comes to in money, None where it is not charged."""
        return None

    @abstractmethod
    def breakdown(self, configuration: ConfigurationT, windows: Sequence[ClosedWindow]) -> CostBreakdown:
        """Return the same by link and broker, over windows together."""

    @abstractmethod
    def can_be_costed(self, window: ClosedWindow) -> bool:
        """Return True if the window knows what the cost rests on."""

    @abstractmethod
    def can_price_moves(self, windows: Sequence[ClosedWindow]) -> bool:
        """Return True if the windows show what each client's home is worth."""

    @abstractmethod
    def counted_cost_per_s(self, window: ClosedWindow) -> float | None:
        """Return the window's cost by the brokers' own counters, None if they do not report it."""

    @abstractmethod
    def transition_messages_min(self, configuration: ConfigurationT) -> int:
        """Return how many messages between brokers a transition takes at least."""

    @abstractmethod
    def message_cost(self, configuration: ConfigurationT) -> float:
        """Return what one such message costs, in the unit of a notification's cost."""

    @abstractmethod
    def followed_homes(self, start_epoch: int) -> FollowedHomes:
        """Return where clients are on a shadow overlay that begins as the one of this epoch."""


AnyKind = OverlayKind[Any, Any, Any]
