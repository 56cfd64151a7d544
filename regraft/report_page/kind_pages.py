"""The parts of the report that depend on the kind of overlay: what its cost is, who moved, which changes count.

In: a RunRecord. Out: texts and HTML. What is the same for all kinds belongs to ``report``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from regraft.overlay.ring.ring_configuration import RingConfiguration
from regraft.overlay.scot.scot_configuration import ScotConfiguration
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.report_page.html_elements import html_table, number_text
from regraft.run_records.group_changes import group_changes
from regraft.run_records.run_record import RunRecord, ShadowRun
from regraft.schemas.plan import Plan, Proposal, moves_of_clients


@dataclass(frozen=True)
class CountedChange:
    """A column of the planners' table: its head, and how to count changes of plans and of a shadow planner."""

    head: str
    of_plans: Callable[[Sequence[Plan]], int]
    of_shadow: Callable[[ShadowRun], int]


@dataclass(frozen=True)
class KindPage:
    """The texts and sections of one kind of overlay.

    ``cost_text`` defines its cost, ``exact_text`` explains why a shadow planner's is exact. ``move_lines`` returns the
    lines that a plan's moves add to the table of plans.
    """

    cost_text: str
    exact_text: str
    changes: tuple[CountedChange, ...]
    move_lines: Callable[[Plan], list[str]]
    moved_title: str
    moved_part: Callable[[RunRecord], str]


def page_of(record: RunRecord) -> KindPage:
    """Return the texts and sections for the kind of the run's overlay."""
    return KIND_PAGES[record.inventory.bootstrap.KIND]


def _ring_part(record: RunRecord) -> str:
    """Return the table of a ring's proposals: changes, predicted and observed gain."""
    if not record.plans:
        return "<p>No users were moved: the refused proposals below give the reasons.</p>"
    heads = ("plan", "planner", "users moved", "IDs reassigned", "gain/s predicted", "observed", "phase")
    rows = [
        (
            plan.plan,
            one.planner,
            number_text(len(one.moves)),
            number_text(len(one.id_moves)),
            number_text(one.gain_per_s, 1),
            "not verified" if one.gain_observed_per_s is None else number_text(one.gain_observed_per_s, 1),
            str(plan.phase),
        )
        for plan in record.plans
        for one in plan.proposals
    ]
    return (
        "<p>A user that moves is attached at both homes: the old one serves it until the end of the old epoch, the "
        "new one holds deliveries back until then. A broker that changes its ring ID is in both rings meanwhile.</p>"
        + _user_text(record)
        + html_table(heads, rows, text=2)
    )


def _user_text(record: RunRecord) -> str:
    users = record.users
    if users is None:
        return ""
    cut = users.subscription_changes_cut
    saved = "" if cut is None else f", {cut:.1%} less than without moves"
    return (
        f"<p>{number_text(users.users)} users with {number_text(users.subscriptions)} subscriptions at the end. "
        f"Brokers subscribed to or unsubscribed from topics {number_text(users.subscription_changes)} times{saved}. "
        "Subscriptions that a user issued while it moved were confirmed within at most "
        f"{number_text(users.wait_ms_max)} ms.</p>"
    )


def _bill_part(record: RunRecord) -> str:
    """Return the table of the bill for traffic before and after, empty if traffic is not charged."""
    if record.bills is None:
        return ""
    before, after = record.bills
    rows = [
        (name, number_text(getattr(before, field), 2), number_text(getattr(after, field), 2))
        for name, field in (
            ("between brokers, 30 days", "links_per_month"),
            ("to subscribers, 30 days", "access_per_month"),
            ("total, 30 days", "per_month"),
        )
    ]
    each = [number_text(bill.per_million or 0.0, 4) for bill in record.bills]
    rows.append(("a million deliveries", each[0], each[1]))
    intro = (
        f"<p>What the traffic of a few windows would cost in {before.currency} if it continued, at the inventory's "
        "prices: before the first plan and at the end. Delays are not included.</p>"
    )
    return intro + html_table(("bill", "before", "after"), rows, text=1)


def _move_part(record: RunRecord) -> str:
    """Return the tables of moved publishers, by reason: from where to where, predicted and observed gain."""
    moving = [(plan, one) for plan in record.plans for one in plan.proposals if one.moves]
    bill = _bill_part(record)
    if not moving:
        return f"{bill}<p>No publishers were moved: the refused proposals below give the reasons.</p>"
    plan_of = {id(one): plan for plan, one in moving}
    tables = [
        f"<p>{escape(group.reason[:1].upper() + group.reason[1:])}:</p>"
        + _moves_table([(plan_of[id(one)], one, detail) for one, detail in group.changes])
        for group in group_changes(one for _, one in moving)
    ]
    return bill + (
        "<p>A publisher that moves leaves its home when that broker activates the new epoch, and continues at the next "
        'one; its notifications stay in order. "Predicted" is what the move was expected to save on the traffic '
        'before it, "observed" what it saves on the windows after the plan.</p>' + "".join(tables)
    )


def _moves_table(moves: Sequence[tuple[Plan, Proposal, str]]) -> str:
    """Return the table of moves with the same reason."""
    heads = ("plan", "publisher", "from", "to", "details", "phase", "gain/s predicted", "observed")
    rows = [
        (
            plan.plan,
            ", ".join(move.client for move in one.moves),
            ", ".join(move.home_from for move in one.moves),
            ", ".join(move.home_to for move in one.moves),
            detail,
            str(plan.phase),
            number_text(one.gain_per_s, 1),
            "not verified" if one.gain_observed_per_s is None else number_text(one.gain_observed_per_s, 1),
        )
        for plan, one, detail in moves
    ]
    return html_table(heads, rows, text=6)


def _publisher_lines(plan: Plan) -> list[str]:
    lines = [f"{len(plan.moves)} publisher{'s' * (len(plan.moves) != 1)} moved: see below"] if plan.moves else []
    moved = [move.text for move in plan.subscribers_moved]
    return lines + ([f"all subscribers moved: {', '.join(moved)}"] if moved else [])


def _moves_in(plans: Sequence[Plan]) -> int:
    return sum(len(moves_of_clients(plan.moves)) for plan in plans)


def _burst_part(record: RunRecord) -> str:
    """Return delays and durations of bursts with static routing and with detours, and the publishers that moved."""
    bursts = record.bursts
    if bursts is None:
        return _move_part(record)
    rows = [
        ("delay of what was published in bursts, p95, ms", bursts.static_delay_ms_p95, bursts.dynamic_delay_ms_p95),
        ("from a burst's end to its last delivery, s", bursts.static_drain_s, bursts.dynamic_drain_s),
    ]
    cells = [
        (name, *("none" if value is None else number_text(value, 1) for value in values)) for name, *values in rows
    ]
    answered = bursts.answered_by(record.plans)
    return (
        f"<p>Of {len(bursts.bursts_begun_ms)} bursts {answered} lasted long enough for a plan to move publishers off "
        "congested links.</p>"
        f"<p>Brokers left {number_text(bursts.clusters_diverted)} clusters to a broker other than that of static "
        f"routing, because links were congested; {number_text(record.ledger.out_of_order)} deliveries arrived after a "
        "later notification of their publisher.</p>"
        + html_table(("bursts", "static routing", "with detours"), cells, text=1)
        + _move_part(record)
    )


KIND_PAGES = {
    TreeConfiguration.KIND: KindPage(
        cost_text="link costs (ms of one-way delay or, if the inventory has prices, millionths of its currency) and "
        "processing costs, per second, summed over all links and brokers that each notification crosses.",
        exact_text="What a broker delivers depends neither on the links nor on where publishers are, so its "
        "cost on the real traffic is exact.",
        changes=(CountedChange("publishers moved", _moves_in, lambda shadow: shadow.publishers_moved),),
        move_lines=_publisher_lines,
        moved_title="Publishers that moved",
        moved_part=_move_part,
    ),
    ScotConfiguration.KIND: KindPage(
        cost_text="link costs (ms of one-way delay) and processing costs, per second, summed over all links and "
        "brokers that each notification crosses by static routing.",
        exact_text="What a broker delivers does not depend on where publishers are, so its cost on the real traffic "
        "is exact, as long as nothing takes a detour around congestion.",
        changes=(CountedChange("publishers moved", _moves_in, lambda shadow: shadow.publishers_moved),),
        move_lines=_publisher_lines,
        moved_title="Bursts, and publishers that moved",
        moved_part=_burst_part,
    ),
    RingConfiguration.KIND: KindPage(
        cost_text="messages from each topic's rendezvous to the brokers that subscribe to it, those through relays "
        "included, and the hops to each of these brokers, per second (Zhao13, Eq. 5, with all messages).",
        exact_text="What users want does not depend on where they are, so its cost on the real rates of "
        "topics is exact.",
        changes=(
            CountedChange("users moved", _moves_in, lambda shadow: shadow.users_moved),
            CountedChange(
                "IDs reassigned",
                lambda plans: sum(len(plan.id_moves) for plan in plans),
                lambda shadow: shadow.id_moves,
            ),
        ),
        move_lines=lambda plan: [one.reason for one in plan.proposals],
        moved_title="Users that moved and IDs that were reassigned",
        moved_part=_ring_part,
    ),
}
