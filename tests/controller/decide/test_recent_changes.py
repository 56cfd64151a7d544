"""What plans changed recently follows from the plans alone, so a restarted controller knows it, too."""

from msgspec import structs

from regraft.controller.decide.recent_changes import RecentChanges
from regraft.schemas.plan import ClientMove, HomeMove, Plan, PlanPhase, Proposal

AB, BC, CD = ("a", "b"), ("b", "c"), ("c", "d")


def plan_of(epoch: int, removed: tuple[str, str], added: tuple[str, str], *clients: str) -> Plan:
    moves = tuple(ClientMove(client, "a", "b") for client in clients)
    return Plan(
        f"plan-{epoch}",
        epoch - 1,
        epoch,
        1000 * epoch,
        (),
        (removed,),
        (added,),
        (),
        0.0,
        0.0,
        PlanPhase.COMPLETED,
        (),
        moves=moves,
    )


def proposal_of(removed: tuple[str, str], added: tuple[str, str], *clients: str) -> Proposal:
    moves = tuple(ClientMove(client, "b", "c") for client in clients)
    return Proposal("p", (removed,), (added,), 0.0, 0.0, 0.0, "because", moves=moves)


def test_the_latest_change_of_any_part_counts() -> None:
    """For added and removed links and moved clients, the last window on which a change was decided is known."""
    recent = RecentChanges.of([plan_of(1, AB, BC, "p"), plan_of(2, CD, AB)])
    assert recent.latest_ms(proposal_of(BC, ("b", "d"))) == 1000
    assert recent.latest_ms(proposal_of(BC, AB)) == 2000
    assert recent.latest_ms(proposal_of(("x", "y"), ("x", "z"), "p")) == 1000
    assert recent.latest_ms(proposal_of(("x", "y"), ("x", "z"), "q")) == -1
    assert RecentChanges().latest_ms(proposal_of(AB, BC, "p")) == -1


def test_recently_moved_subscribers_count_as_recent_changes() -> None:
    """Those of b came with the last plan; those of a broker without arrivals are free to move."""
    plan = structs.replace(plan_of(3, AB, BC), subscribers_moved=(HomeMove("a", "b"),))
    recent = RecentChanges.of([plan])
    on, other = (Proposal("p", (), (), 0.0, 0.0, 0.0, "", subscribers_moved=(HomeMove(one, "c"),)) for one in "bd")
    assert (recent.latest_ms(on), recent.latest_ms(other)) == (3000, -1)
