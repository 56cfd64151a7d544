"""The ring of Zhao13, Fig. 2, as the judge sees it: before the reassignment, with the changes that improve it."""

from __future__ import annotations

from dataclasses import replace

from regraft.controller.decide.judge_proposals import Situation
from regraft.controller.settings.decision_settings import DecisionSettings
from regraft.controller.state.closed_window import ClosedWindow
from regraft.schemas.plan import Proposal
from tests.controller.choose_all import choose_proposals
from tests.controller.scripted_ring import (
    FIG_2_MOVES,
    FIG_2_USERS,
    RING,
    TOPIC,
    placing,
    reassigning,
    ring_inventory,
    ring_state,
    ring_window,
)
from tests.controller.small_kinds import ring_kind

Users = dict[str, tuple[str, list[str]]]
USERS: Users = dict(FIG_2_USERS)  # 15 per notification
GOOD_IDS = reassigning(*FIG_2_MOVES)  # 6 per notification
KIND = ring_kind(ring_inventory())
TO_ROOT = placing(("u0", "b00", "b01"))  # three hops, a relay and a message less: 10
TO_NEW_ROOT = placing(("u4", "b04", "b00"))  # once b00 has ID 1: one hop and one message less


def windows_of(count: int = 10, users: Users = USERS, start_ms: int = 0, epoch: int = 0) -> tuple[ClosedWindow, ...]:
    return tuple(ring_window(users, {TOPIC: count}, start_ms + 1000 * at, epoch) for at in range(3))


def situation_of(users: Users = USERS, **changes: object) -> Situation:
    state = ring_state(RING, *windows_of(users=users))
    return replace(Situation(state, now_ms=3500, kind=KIND, price_per_s=0.0), **changes)  # type: ignore[arg-type]


def only(proposal: Proposal, situation: Situation, settings: DecisionSettings | None = None) -> Proposal:
    choice = choose_proposals([proposal], situation, 7, settings or DecisionSettings())
    (judged,) = choice.chosen + choice.refused
    return judged
