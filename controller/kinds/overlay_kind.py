"""What the controller asks a kind of overlay, as one abstract class. Weights and caps live inside the kind.

A further kind implements this, and :class:`overlay.overlay_configuration.OverlayConfiguration`; nothing else in the
controller asks which kind an overlay is. :mod:`controller.kinds.find_kind` lists the kinds. Pure.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

from regraft.controller.kinds.repair import Repair, RepairTask
from regraft.controller.settings.decision_settings import DecisionSettings
from regraft.controller.state.closed_window import ClosedWindow
from regraft.controller.state.overlay_state import OverlayState, Span
from regraft.controller.state.planner_interface import PlannerContext
from regraft.overlay.cost_breakdown import CostBreakdown
from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.overlay_configuration import OverlayConfiguration
from regraft.overlay.ring.user_interests import UserInterests
from regraft.schemas.arrays import Floats
from regraft.schemas.live_view import ShownBill
from regraft.schemas.plan import Proposal, Verdict

Objection = tuple[Verdict, str]  # A verdict against a proposal, and why.
HomesBefore = Callable[[int], Mapping[str, str]]  # Homes before the plans to epochs later than this one.

EVACUATION = "evacuate_brokers"  # The planner's name of moves away from brokers in maintenance.
RELIEF = "relieve_links_scot"  # The same of moves away from links that have been congested for long.
OVERLOAD = "relieve_brokers"  # The same of moves away from brokers of a tree that pass more than their cap.
# An operator has ordered it, or the cost ignores its purpose.
NEEDS_NO_GAIN = frozenset({EVACUATION, RELIEF, OVERLOAD})


def needs_no_gain(proposals: Iterable[Proposal]) -> bool:
    """Return True if any of the proposals was not made to save cost, so that the plan need not save."""
    return any(proposal.planner in NEEDS_NO_GAIN for proposal in proposals)


class HomeError(ValueError):
    """A proposal moves a client that is not where it says."""


class RingIdError(ValueError):
    """A proposal reassigns ring IDs that differ from what it says, or are not available."""


class Reached(Protocol):
    """The overlay that a sequence of proposals leads to, on the windows of a state."""

    @property
    def spans(self) -> tuple[Span, ...]:
        """The start and end of each span, oldest first, in seconds: windows, or parts of them."""
        ...

    @property
    def costs_per_s(self) -> Floats:
        """The cost of the overlay in each span, shape (spans,)."""
        ...

    @property
    def cost_per_s(self) -> float:
        """The cost of the overlay over all windows."""
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
        """Return the overlay after the proposal; this one stays unchanged.

        Raises LinkError, KeyError, HomeError or RingIdError if the proposal does not fit the overlay.
        """
        ...


class FollowedHomes(ABC):
    """The homes of clients on an overlay that exists only in the controller, a shadow planner's."""

    @abstractmethod
    def learn(self, known: Mapping[str, str], window: ClosedWindow, homes_before: HomesBefore) -> dict[str, str] | None:
        """Return the homes after a window, or None if they are as ``known``.

        ``homes_before`` returns where the acting planner's plans found the clients that they moved.
        """

    @abstractmethod
    def note_moves(self, clients: Iterable[str], newest: ClosedWindow) -> None:
        """Remember that the shadow planner has moved these clients."""

    @abstractmethod
    def forget_all_but(self, kept: Mapping[str, str]) -> None:
        """Forget all clients except these."""

    @abstractmethod
    def shown(self, homes: Mapping[str, str]) -> dict[str, str]:
        """Return which of these homes differ between the shadow's overlay and the real one."""


ConfigurationT = TypeVar("ConfigurationT", bound=OverlayConfiguration)
StateT = TypeVar("StateT", bound=OverlayState)
ReachedT = TypeVar("ReachedT", bound=Reached)


class OverlayKind(ABC, Generic[ConfigurationT, StateT, ReachedT]):
    """The answers of one kind of overlay, over the brokers of one inventory.

    ``NEEDS_REGISTER``: whether windows are complete only with data from the register of clients. ``LOST_MOVES_MAX``:
    clients of lost brokers that a repair moves, limited by record size and planning time. ``EMPTIES_BROKERS``: whether
    :meth:`evacuate_subscribers` moves any.
    """

    NEEDS_REGISTER: ClassVar[bool]
    LOST_MOVES_MAX: ClassVar[int]
    EMPTIES_BROKERS: ClassVar[bool] = False

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
        error: str = "",
    ) -> tuple[ClosedWindow, tuple[str, ...]]:
        """Return the window with data from the register of clients, and the publishers missing from the register.

        ``overlays`` are the configurations of the window's first and last epoch. The window is incomplete if the kind
        needs ``interests`` and there are none (``error`` says why), or if more than ``unknown_share_max`` of its
        notifications are of publishers missing from the register. A kind that needs no register returns it unchanged.
        """
        return window, ()

    def without_register(self, window: ClosedWindow) -> ClosedWindow:
        """Return an old window without the register's large data that only newer windows need."""
        return window.without_movable()

    @abstractmethod
    def with_homes(self, present: ConfigurationT, windows: Sequence[ClosedWindow]) -> ConfigurationT:
        """Return the configuration with the homes that a decision on the windows (oldest first) is based on."""

    def prepare(self) -> str:
        """Make ready what only saves time, in seconds if need be; return why it is not available, empty if it is."""
        return ""

    @abstractmethod
    def state_of(self, configuration: ConfigurationT, windows: Sequence[ClosedWindow]) -> StateT:
        """Return the state for planners: the configuration over the windows (oldest first, at least one)."""

    @abstractmethod
    def planner_context(self, proposals_max: int, settings: DecisionSettings) -> PlannerContext:
        """Return the planners' context: the bounds of a plan, the kind's own weights and caps."""

    @abstractmethod
    def missing_in(self, state: StateT) -> str:
        """Return what the state lacks for any decision; empty if it lacks nothing."""

    @abstractmethod
    def reached(self, state: StateT) -> ReachedT:
        """Return the overlay of the state itself, before any proposal. Raises ValueError if something is missing."""

    def costs_by_publisher_per_s(self, before: ReachedT, after: ReachedT) -> tuple[Floats, Floats] | None:
        """Return the cost of each publisher's notifications on both, (publishers,); None if it does not add up."""
        return None

    @abstractmethod
    def judge_caps(self, before: ReachedT, after: ReachedT) -> Objection | None:
        """Return the refusal that names a broker that would exceed a cap, or None.

        A broker above a cap may stay there, but must not get more.
        """

    def additions_by(self, present: ConfigurationT, proposal: Proposal) -> Iterable[tuple[str, str]]:
        """Return what a proposal would bring besides clients, in words, each with the broker that would get it."""
        return ((f"link {a}-{b}", broker) for a, b in proposal.links_added for broker in (a, b))

    @abstractmethod
    def choices_in(self, proposal: Proposal) -> int:
        """Return k: of how many changes the proposal consists, each selected among all alternatives."""

    @abstractmethod
    def alternatives_to(self, proposal: Proposal) -> int:
        """Return among how many changes a planner selects one of the proposal's; 1 if it does not select by gain."""

    @abstractmethod
    def moves_max(self, settings: DecisionSettings) -> int:
        """Return how many clients one plan may move."""

    @abstractmethod
    def evacuate(
        self, state: StateT, avoided: Collection[str], left: Collection[str], moves_max: int
    ) -> list[Proposal]:
        """Return moves of at most ``moves_max`` clients from brokers ``left`` to any that are not ``avoided``."""

    def evacuate_subscribers(
        self, state: StateT, avoided: Collection[str], left: Collection[str], subscribers_max: int
    ) -> list[Proposal]:
        """Return moves of all subscribers from brokers ``left``, if these are not clients that ``evacuate`` moves.

        If clients stay, those move by name that may, at most ``subscribers_max`` in one plan.
        """
        return []

    @abstractmethod
    def repaired(self, present: ConfigurationT, task: RepairTask) -> Repair:
        """Return the overlay over other brokers than ``present``, keeping what can stay of those that stay.

        Raises ValueError if fewer than two brokers are left, or the cost of a broker's links is unknown.
        """

    @abstractmethod
    def cost_per_s(self, configuration: ConfigurationT, window: ClosedWindow) -> float:
        """Return the cost of the window's traffic with clients at the homes that the configuration names.

        Clients that it does not name are where the window has them. Raises ValueError if the window cannot be costed.
        """

    def least_cost_per_s(self, windows: Sequence[ClosedWindow]) -> float | None:
        """Return a lower bound of the cost over windows on any overlay with any homes, or None if none is known."""
        return None

    def bill(self, configuration: ConfigurationT, windows: Sequence[ClosedWindow]) -> ShownBill | None:
        """Return the cost in money of the traffic of windows, or None if it is not charged."""
        return None

    @abstractmethod
    def breakdown(self, configuration: ConfigurationT, windows: Sequence[ClosedWindow]) -> CostBreakdown:
        """Return the cost by link and broker, over all windows together."""

    @abstractmethod
    def can_be_costed(self, window: ClosedWindow) -> bool:
        """Return True if the window has all data that the cost needs."""

    @abstractmethod
    def counted_cost_per_s(self, window: ClosedWindow) -> float | None:
        """Return the window's cost by the brokers' own counters, None if they do not report it."""

    @abstractmethod
    def transition_messages_min(self, configuration: ConfigurationT) -> int:
        """Return the minimum number of messages between brokers that a transition takes."""

    @abstractmethod
    def message_cost(self, configuration: ConfigurationT) -> float:
        """Return the cost of one such message, in the unit of a notification's cost."""

    @abstractmethod
    def followed_homes(self, start_epoch: int) -> FollowedHomes:
        """Return the tracker of homes on a shadow overlay that starts as the one of this epoch."""


AnyKind = OverlayKind[Any, Any, Any]
