"""The judge's limits for proposals on a structured cyclic overlay: caps of links and load, and frailty."""

from dataclasses import replace

import numpy as np
import pytest

from regraft.controller.decide.judge_proposals import judge_maintenance
from regraft.controller.kinds.scot.scot_kind import ScotKind
from regraft.controller.kinds.scot.scot_state import ScotState
from regraft.overlay.scot.scot_configuration import ScotConfiguration
from regraft.overlay.scot.scot_slots import id_moves_between, slots_of
from regraft.schemas.plan import ClientMove, Proposal, Verdict
from tests.controller.decide.test_judge_proposals import CALM
from tests.controller.published_windows import window_of
from tests.overlay.small_overlays import brokers_named, inventory_of, line_of, publishers_of

NAMES = brokers_named(6)
# Three regions in a line, of two clusters: b02 and b03 have three links, the others two.
SCOT = ScotConfiguration(0, (NAMES[0:2], NAMES[2:4], NAMES[4:6]), ((0, 1), (1, 2)), (("p", "b00"),))
SETS = publishers_of(NAMES, {"p": ("b00", [{"b04"}] * 8)})
INVENTORY = replace(inventory_of(line_of(6), {}), bootstrap=SCOT, load_max_per_s=np.full(6, 20.0))
STATE = ScotState(SCOT, INVENTORY, (window_of(0, SETS, {"p": "b00"}, {("p", "b04"): 8}),))


def exchange(one: str, other: str) -> Proposal:
    """Return a proposal in which two brokers exchange their slots."""
    names = {one: other, other: one}
    regions = tuple(tuple(names.get(broker, broker) for broker in region) for region in SCOT.regions)
    id_moves = id_moves_between(slots_of(SCOT.regions), slots_of(regions))
    return Proposal("by hand", (), (), 2.0, 1.0, 0.0, "test", id_moves=id_moves)


def test_no_exchange_gives_a_broker_more_links_than_its_cap() -> None:
    """A broker that takes an inner broker's slot gets one more link; one above the cap may keep its links."""
    reached = ScotKind(INVENTORY, 2).reached(STATE)
    verdict, reason = ScotKind(INVENTORY, 2).judge_caps(reached, reached.after(exchange("b00", "b02"))) or ("", "")
    assert (verdict, reason) == (Verdict.DEGREE, "b00 would have 3 links, but the limit is 2")
    assert ScotKind(INVENTORY, 2).judge_caps(reached, reached.after(exchange("b02", "b03"))) is None
    assert ScotKind(INVENTORY, 3).judge_caps(reached, reached.after(exchange("b00", "b02"))) is None


def test_no_change_makes_a_broker_pass_more_than_its_cap() -> None:
    """p's 8/s go from b00 over b02 to b04; published at b03 they pass b03, which may pass 7/s."""
    caps = np.array([20.0, 20.0, 20.0, 7.0, 20.0, 20.0])
    inventory = replace(INVENTORY, load_max_per_s=caps)
    kind = ScotKind(inventory, 5)
    reached = kind.reached(replace(STATE, inventory=inventory))
    moved = Proposal("by hand", (), (), 2.0, 1.0, 0.0, "test", moves=(ClientMove("p", "b00", "b03"),))
    verdict, reason = kind.judge_caps(reached, reached.after(moved)) or ("", "")
    assert (verdict, reason) == (Verdict.CAPACITY, "b03 would pass 8 notifications/s, but the limit is 7")
    assert kind.judge_caps(reached, reached.after(exchange("b01", "b05"))) is None


def test_nothing_moves_to_a_broker_in_maintenance() -> None:
    """Neither a slot nor a link, by exchanged slots or by a link between regions; other changes are accepted."""
    calm = replace(CALM, kind=ScotKind(INVENTORY, 5), state=STATE, maintained={"b03": "new disks"})
    found = [judge_maintenance(one, SCOT, calm) for one in (exchange("b03", "b05"), exchange("b00", "b01"))]
    assert found[0] == (Verdict.MAINTENANCE, "cluster 1 in region 2 would be added to b03: new disks")
    assert found[1] == (Verdict.MAINTENANCE, "link b00-b03 would be added to b03: new disks")
    near = replace(calm, maintained={"b05": "new disks"})
    otherwise = Proposal("by hand", (("region 1", "region 2"),), (("region 0", "region 2"),), 2.0, 1.0, 0.0, "test")
    assert judge_maintenance(exchange("b00", "b01"), SCOT, near) is None
    assert judge_maintenance(otherwise, SCOT, near) == (
        Verdict.MAINTENANCE, "link b01-b05 would be added to b05: new disks"
    )  # fmt: skip
    assert judge_maintenance(exchange("b00", "b01"), SCOT, replace(calm, maintained={})) is None


def test_frailty_is_known_before_and_after_a_change() -> None:
    """Everything passes b02; once b00 and b04 are adjacent no broker is between them."""
    before = STATE.cut_off
    assert before is not None
    assert (before.worst_broker, before.worst_share) == ("b02", 1.0)
    after = ScotKind(INVENTORY, 5).reached(STATE).after(exchange("b02", "b04")).state.cut_off
    assert after is not None
    assert after.worst_share == pytest.approx(0.0)
    assert replace(STATE, windows=(window_of(0, SETS, {"p": "b00"}),)).cut_off is None
