"""Changes of a plan grouped by reason: a sentence that many share is shown once."""

from regraft.commands.plans_command import plan_lines
from regraft.run_records.group_changes import group_changes
from regraft.schemas.plan import ClientMove, Plan, PlanPhase, Proposal, Verdict


def swap(removed: tuple[str, str], added: tuple[str, str], reason: str, **more: object) -> Proposal:
    return Proposal("swap", (removed,), (added,), 100.0, 90.0, 1.0, reason, **more)  # type: ignore[arg-type]


def move(client: str, reason: str) -> Proposal:
    return Proposal("move", (), (), 90.0, 85.5, 1.0, reason, moves=(ClientMove(client, "b0", "b1"),))


CHANGES = (
    swap(("b1", "b2"), ("b1", "b3"), "of all swaps, b1-b3 for b1-b2 saves most"),
    swap(
        ("b10", "b1"), ("b4", "b5"), "of all swaps, b5-b4 for b1-b10 saves most", verdict_reason="one death cuts off 5%"
    ),
    move("IBM", "b1 is the best home for IBM; messages 9 -> 5/s"),
    move("SUN", "b1 is the best home for SUN; messages 8 -> 1/s"),
    move("SUN2", "SUN is gone"),
)


def test_changes_for_one_reason_are_one_group() -> None:
    """Names of what changes do not distinguish reasons; names that only begin alike stay as they are."""
    found = [(group.planner, group.reason, [detail for _, detail in group.changes]) for group in group_changes(CHANGES)]
    assert found == [
        ("swap", "of all swaps, the new link for the old one saves most", ["", ""]),
        ("move", "the new one is the best home for the client", ["messages 9 -> 5/s", "messages 8 -> 1/s"]),
        ("move", "SUN is gone", [""]),
    ]


def test_a_plan_is_shown_with_each_reason_and_each_cause_once() -> None:
    """Twelve links for one reason are twelve lines under one sentence; so are refusals for one cause."""
    refused = tuple(
        swap(("b6", "b7"), ("b6", other), "why", verdict=Verdict.CHANGES_PER_PLAN, verdict_reason="2 at most")
        for other in ("b8", "b9")
    )
    plan = Plan("plan-1", 0, 1, 0, CHANGES, (), (), (), 100.0, 50.0, PlanPhase.PROPOSED, (), refused=refused)
    lines = plan_lines(plan)
    assert lines[
        lines.index("changes (no net change in 5 steps, each with its saving):") + 1 : lines.index("history:")
    ] == [
        "  of all swaps, the new link for the old one saves most (swap)",
        "    link b1-b2 out, link b1-b3 in   saves 10.0/s",
        "    link b10-b1 out, link b4-b5 in  saves 10.0/s",
        "  the new one is the best home for the client (move)",
        "    IBM b0 -> b1  saves 4.5/s; messages 9 -> 5/s",
        "    SUN b0 -> b1  saves 4.5/s; messages 8 -> 1/s",
        "  SUN is gone (move)",
        "    SUN2 b0 -> b1  saves 4.5/s",
        "  one death cuts off 5%",
        "refused (2):",
        "  changes per plan: 2 at most",
        "    link b6-b7 out, link b6-b8 in (swap)",
        "    link b6-b7 out, link b6-b9 in (swap)",
    ]


def test_a_plan_is_counted_by_what_it_changes_in_the_end() -> None:
    """A link that one step adds and a later one removes is not among its links, in the list and in its own page."""
    steps = (swap(("b1", "b2"), ("b1", "b3"), "first"), swap(("b1", "b3"), ("b1", "b4"), "then"))
    plan = Plan(
        "plan-1", 0, 1, 0, steps, (("b1", "b2"),), (("b1", "b4"),), (), 100.0, 50.0, PlanPhase.PROPOSED, ()
    )  # fmt: skip
    assert "changes (1 link in 2 steps, each with its saving):" in plan_lines(plan)


def test_a_refusal_after_the_earlier_changes_names_its_reason_only() -> None:
    """The plan does not contradict it: on the overlay after the plan it saves too little."""
    why = "after the earlier changes: saves 0.70% of the cost, chance alone accounts for up to 1.08%"
    refused = (swap(("b6", "b7"), ("b6", "b8"), "why", verdict=Verdict.CONFLICT, verdict_reason=why),)
    plan = Plan("plan-1", 0, 1, 0, CHANGES, (), (), (), 100.0, 50.0, PlanPhase.PROPOSED, (), refused=refused)
    assert f"  {why}" in plan_lines(plan)
