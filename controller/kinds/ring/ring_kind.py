"""RingKind: what the controller asks of a Chord ring, whose IDs are reassigned and whose users move."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from regraft.controller.kinds.overlay_kind import FollowedHomes, HomesBefore, Objection, OverlayKind
from regraft.controller.kinds.repair import Repair, RepairTask
from regraft.controller.kinds.ring.attach_clients import topic_traffic, with_clients
from regraft.controller.kinds.ring.evacuate_users import users_leaving
from regraft.controller.kinds.ring.reached_ring import ReachedRing
from regraft.controller.kinds.ring.repair_ring import repaired_ring
from regraft.controller.kinds.ring.ring_state import RingContext, RingState, ring_breakdown_of, ring_cost_of
from regraft.controller.settings.decision_settings import DecisionSettings
from regraft.controller.state.closed_window import ClosedWindow
from regraft.controller.state.find_homes import homes_in
from regraft.overlay.cost_breakdown import CostBreakdown, mean_breakdown
from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.ring.ring_configuration import RingConfiguration
from regraft.overlay.ring.user_interests import UserInterests
from regraft.overlay.tree.publisher_placement import ROUNDING_SHARE
from regraft.schemas.plan import Proposal, Verdict


class FollowedUsers(FollowedHomes):
    """A user is where the shadow has moved it, else where it would be without the acting planner's moves.

    A user that moves by itself has moved on this ring, too.
    """

    def __init__(self, start_epoch: int) -> None:
        self._start_epoch = start_epoch
        self._moved_from: dict[str, str] = {}  # Where users really were when they were moved here.

    def learn(self, known: Mapping[str, str], window: ClosedWindow, homes_before: HomesBefore) -> dict[str, str] | None:
        """Undo the acting planner's moves here, and drop the homes of users that have moved by themselves."""
        before_acting = homes_before(self._start_epoch)
        new = {user: home for user, home in before_acting.items() if user not in known}
        own = [user for user in self._moved_from if user not in before_acting]
        homes = {} if window.interests is None else homes_in(window.interests, own)
        gone = {user for user, home in homes.items() if home != self._moved_from[user]}
        if not new and not gone:
            return None
        self._moved_from = {user: home for user, home in self._moved_from.items() if user not in gone}
        return {user: home for user, home in known.items() if user not in gone} | new

    def note_moves(self, clients: Iterable[str], newest: ClosedWindow) -> None:
        """Remember where the moved users really are."""
        if newest.interests is not None:
            self._moved_from |= homes_in(newest.interests, clients)

    def forget_all_but(self, kept: Mapping[str, str]) -> None:
        """Forget all users except these."""
        self._moved_from = {user: home for user, home in self._moved_from.items() if user in kept}

    def shown(self, homes: Mapping[str, str]) -> dict[str, str]:
        """Return all homes: those that the acting planner has moved are elsewhere here, too."""
        return dict(homes)


@dataclass(frozen=True, eq=False)
class RingKind(OverlayKind[RingConfiguration, RingState, ReachedRing]):
    """A Chord ring over the inventory's brokers.

    ``delay_weight`` is the weight of a hop of delay against a message, ``user_load_max`` the load that a broker may
    serve, as a multiple of the mean.
    """

    NEEDS_REGISTER: ClassVar[bool] = True
    LOST_MOVES_MAX: ClassVar[int] = 5_000  # A plan with this many has 257 kB with short names; Kafka accepts 1 MB.

    inventory: Inventory
    delay_weight: float
    user_load_max: float

    def attach_clients(
        self,
        window: ClosedWindow,
        interests: UserInterests | None,
        topic_of: Mapping[str, str],
        overlays: Sequence[RingConfiguration],
        unknown_share_max: float,
        error: str = "",
    ) -> tuple[ClosedWindow, tuple[str, ...]]:
        """Return the window with what users want and how often topics are published."""
        traffic = topic_traffic(window.sets, topic_of)
        attached = with_clients(window, interests, traffic, overlays, unknown_share_max, error)
        return attached, traffic.unknown_publishers

    def without_register(self, window: ClosedWindow) -> ClosedWindow:
        """Return the window without its users' interests; its rates stay."""
        return window.without_interests()

    def with_homes(self, present: RingConfiguration, windows: Sequence[ClosedWindow]) -> RingConfiguration:
        """Return the ring with the users that plans have moved, each where the register of the newest window has it.

        Users that have left are not named. All others are where the register has them, too, and need no naming.
        """
        newest = windows[-1].interests
        homes = {} if newest is None else homes_in(newest, present.home_of)
        return present.with_homes({user: home for user, home in homes.items() if home in present.id_of})

    def state_of(self, configuration: RingConfiguration, windows: Sequence[ClosedWindow]) -> RingState:
        """Return the state for planners of a ring."""
        return RingState.of(configuration, self.inventory, windows)

    def planner_context(self, proposals_max: int, settings: DecisionSettings) -> RingContext:
        """Return the context of planners on a ring."""
        return RingContext(
            proposals_max=proposals_max,
            moves_max=self.moves_max(settings),
            delay_weight=self.delay_weight,
            user_load_max=self.user_load_max,
        )

    def missing_in(self, state: RingState) -> str:
        """Return an error if what users want is unknown."""
        return "" if state.traffic is not None else "does not know the users' subscriptions"

    def reached(self, state: RingState) -> ReachedRing:
        """Return the ring of the state. Raises ValueError if its users are unknown."""
        return ReachedRing(state, self.delay_weight)

    def judge_caps(self, before: ReachedRing, after: ReachedRing) -> Objection | None:
        """Return the refusal that names a broker that would serve more subscriptions than its cap, or None."""
        names, now, then = before.configuration.brokers, before.loads, after.loads
        limit = self.user_load_max * float(now.mean())
        for position in (then > limit * (1 + ROUNDING_SHARE)).nonzero()[0]:
            if then[position] > now[position] * (1 + ROUNDING_SHARE):
                return Verdict.CAPACITY, (
                    f"{names[position]} would serve {then[position]:.2%} of all subscriptions, "
                    f"but the limit is {limit:.2%}, {self.user_load_max:g} times the mean"
                )
        return None

    def choices_in(self, proposal: Proposal) -> int:
        """Return how many IDs change; all users together count as one.

        Users were selected by similar interests, not by what windows happened to cost.
        """
        return len(proposal.id_moves) + min(len(proposal.moves), 1)

    def alternatives_to(self, proposal: Proposal) -> int:
        """Return the pairs of brokers that may exchange IDs; 1 for users, which no window's cost has selected."""
        return len(self.inventory.brokers) ** 2 if proposal.id_moves else 1

    def moves_max(self, settings: DecisionSettings) -> int:
        """Return how many users one plan may move."""
        return settings.users_per_plan_max

    def evacuate(
        self, state: RingState, avoided: Collection[str], left: Collection[str], moves_max: int
    ) -> list[Proposal]:
        """Return moves of users to brokers that subscribe to most of their topics."""
        if state.traffic is None:
            return []
        return users_leaving(state.traffic, avoided, left, moves_max, self.user_load_max, self.delay_weight)

    def repaired(self, present: RingConfiguration, task: RepairTask) -> Repair:
        """Return the ring with the arcs of gone brokers taken over, new brokers at free IDs, and users re-placed."""
        return repaired_ring(present, task, self.user_load_max, self.delay_weight)

    def cost_per_s(self, configuration: RingConfiguration, window: ClosedWindow) -> float:
        """Return all messages plus the weighted delay in hops (Zhao13, Eq. 5, with those to subscribers)."""
        return ring_cost_of(configuration, window).total_per_s(self.delay_weight)

    def breakdown(self, configuration: RingConfiguration, windows: Sequence[ClosedWindow]) -> CostBreakdown:
        """Return the cost by link, the mean over the windows, weighted by length."""
        parts = [ring_breakdown_of(configuration, window, self.delay_weight) for window in windows]
        return mean_breakdown(parts, [window.sets.span_s for window in windows])

    def can_be_costed(self, window: ClosedWindow) -> bool:
        """Return True if the window knows what users want."""
        return window.interests is not None

    def counted_cost_per_s(self, window: ClosedWindow) -> float | None:
        """Return None: counters do not measure delay."""
        return None

    def transition_messages_min(self, configuration: RingConfiguration) -> int:
        """Return one message each way over every link, to announce an epoch and its end to neighbours."""
        return 2 * len(configuration.links)

    def message_cost(self, configuration: RingConfiguration) -> float:
        """Return 1: the cost counts messages."""
        return 1.0

    def followed_homes(self, start_epoch: int) -> FollowedHomes:
        """Return the tracker of users' homes on a shadow ring."""
        return FollowedUsers(start_epoch)
