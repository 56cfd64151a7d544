"""The live view as a record: whole or in parts, with unknown fields, and one sentence for each error."""

import json

import pytest

from regraft.schemas.event import AdaptationEvent, EventKind, Severity
from regraft.schemas.live_view import (
    COUNTS,
    PARTS,
    VIEW_KEYS,
    VIEW_VERSION,
    Horizon,
    LiveView,
    LiveViewError,
    ShownBroker,
    ShownConfiguration,
    ShownDecision,
    ShownLink,
    ShownNetwork,
    decode_keys,
    decode_view,
    encode_keys,
    encode_view,
)
from regraft.schemas.order_book import Maintenance, OrderInForce, OrdersInForce
from regraft.schemas.plan import PlanPhase, Verdict
from regraft.schemas.shown_state import DecisionTimes
from tests.schemas.shown_views import cost_point, shown_plan, shown_proposal, shown_shadow, shown_window, view_of


def full_view() -> LiveView:
    """Return a view in which every part has content."""
    pause = OrderInForce(by="ann", reason="release", since_ms=1, until_ms=0)
    proposal = shown_proposal("near")
    return view_of(
        horizon=Horizon(4, 6, None, True),
        window_close_to_command_ms={"plan-1": 2300},
        window_end_to_state_ms=(2100, 2150),
        decision_ms={"acting:swap_links_ci": DecisionTimes().with_decision(3.0)},
        configuration=ShownConfiguration(
            epoch=1, brokers=("b0", "b1"), links=(("b0", "b1"),), degree_max=1, ring=(("b0", 3), ("b1", 5)), ring_bits=3
        ),
        window=shown_window(10_000, short_brokers=("b1",), rtt_ms_max=12.5),
        network=ShownNetwork(
            10_000, (ShownLink("b0", "b1", 3.0, 90.0, None, 2, 0.5),), (ShownBroker("b0", 3.0, 0.1, 0, 2, 0.5, 1),)
        ),
        cost=(cost_point(10_000, 40.0, 90.0, notifications_per_s=8.0, cost_shadows_per_s={"other": 41.0}),),
        plans=(shown_plan("plan-1", PlanPhase.DRAINING, 9_000, proposals=(proposal,)),),
        orders=OrdersInForce(
            pause, (Maintenance(by="ann", reason="disk", since_ms=1, until_ms=9, broker="b1", evacuate=True),)
        ),
        refusals={Verdict.DEGREE: 2},
        events=(AdaptationEvent("plan-1", EventKind.PLAN_STARTED, Severity.INFO, 9_000, "go", "plan-1"),),
        last_decision=ShownDecision(
            window_end_ms=10_000, plan=None, state_verdict=Verdict.PLAN_RUNNING, state_reason="one", refused=(proposal,)
        ),
        errors={"not sent: regraft.events": 2},
        shadows={"other": shown_shadow(plans=1)},
    )


def test_the_view_is_the_same_whole_and_in_parts() -> None:
    """The status file and the keys of the live view hold the same record."""
    view = full_view()
    assert decode_view(encode_view(view)) == view
    texts = encode_keys(view)
    assert set(texts) == set(VIEW_KEYS)
    assert decode_keys(texts) == view
    whole = json.loads(encode_view(view))
    assert {**{part: json.loads(texts[part]) for part in PARTS}, **json.loads(texts[COUNTS])} == whole


def test_parts_and_counts_are_the_fields_of_the_view() -> None:
    """There is a key for each part, and one for all numbers: every field is in exactly one key."""
    counted = json.loads(encode_keys(view_of())[COUNTS])
    assert sorted((*PARTS, *counted)) == sorted(LiveView.__struct_fields__)
    assert counted["version"] == VIEW_VERSION


def test_a_tree_has_no_ring() -> None:
    """Pages check whether there is one."""
    assert set(json.loads(encode_keys(view_of())["configuration"])) == {"epoch", "brokers", "links", "degree_max"}


def test_views_without_version_and_with_more_fields_are_read() -> None:
    """Early views had no version; unknown fields are ignored."""
    document = json.loads(encode_view(full_view()))
    del document["version"], document["cost"][0]["notifications_per_s"]
    document["window"]["moon"] = "full"
    read = decode_view(json.dumps(document | {"tide": 3}).encode())
    assert read.version == VIEW_VERSION
    assert read.cost[0].notifications_per_s is None


def test_a_newer_version_is_refused_in_one_sentence() -> None:
    """Whatever else a newer view contains, the sentence names both versions and what to do."""
    newer = json.dumps({"version": VIEW_VERSION + 1, "cost": "free"}).encode()
    text = (
        f"it has version {VIEW_VERSION + 1}, but this version of Regraft reads versions up to {VIEW_VERSION}: "
        "use the same version of Regraft as the controller"
    )
    with pytest.raises(LiveViewError) as whole:
        decode_view(newer)
    with pytest.raises(LiveViewError) as parts:
        decode_keys(dict.fromkeys(PARTS, b"[]") | {COUNTS: newer})
    assert (str(whole.value), str(parts.value)) == (text, text)


@pytest.mark.parametrize("text", [b"", b"{half", b"[1]", b'"text"', b"\xff\xfe", b"{}", b'{"version": "one"}'])
def test_an_invalid_view_is_refused(text: bytes) -> None:
    """No bytes raise any other error."""
    with pytest.raises(LiveViewError):
        decode_view(text)


def test_a_missing_key_is_named() -> None:
    """A view with a missing part is invalid."""
    texts = encode_keys(full_view())
    del texts["orders"]
    with pytest.raises(LiveViewError, match="lacks orders"):
        decode_keys(texts)


def test_decision_times_add_up() -> None:
    """The mean is over all decisions; the last and the longest are kept with it."""
    times = DecisionTimes().with_decision(1.0).with_decision(5.0).with_decision(3.0)
    assert times == DecisionTimes(3, 3.0, 3.0, 5.0)
