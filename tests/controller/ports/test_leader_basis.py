"""What a controller must share with the leader before it."""

from pathlib import Path

import pytest

from regraft.controller.ports.leader_basis import LeaderBasis
from regraft.infra.orders.order_keys import TrustedKeys
from tests.controller.test_control_loop import INVENTORY
from tests.overlay.small_overlays import inventory_of, line_of

OWN = LeaderBasis("one", has_keys=True)


@pytest.mark.parametrize(
    ("own", "earlier", "why"),
    [
        (OWN, OWN, ""),
        (OWN, LeaderBasis(), ""),
        (OWN, LeaderBasis("one"), ""),
        (OWN, LeaderBasis("other", has_keys=True), "its inventory (one"),
        (LeaderBasis("one"), OWN, "it has no trusted keys, but east, which led last, had"),
        (LeaderBasis("one", keys_error="not TOML"), LeaderBasis(), "orders cannot be verified: not TOML"),
    ],
)
def test_a_controller_leads_only_with_what_the_leader_before_had(
    own: LeaderBasis, earlier: LeaderBasis, why: str
) -> None:
    """Leaders of earlier versions say nothing; more than they had is no objection."""
    assert own.objection(earlier, "east").startswith(why)
    assert bool(own.objection(earlier, "east")) is bool(why)


def test_another_fleet_is_another_inventory_but_corrected_costs_are_not() -> None:
    """The digest is of the brokers and the initial overlay, not of what operators correct."""
    same = inventory_of(line_of(5), {})
    assert same.digest == inventory_of(line_of(5), {("b01", "b02"): 7.0}).digest
    assert inventory_of(line_of(6), {}).digest != same.digest


def test_keys_count_only_if_some_are_usable(tmp_path: Path) -> None:
    """A default file may be missing; a named one that cannot be read is an error."""
    keys = TrustedKeys(tmp_path / "none.toml")
    assert LeaderBasis.of(INVENTORY, keys, is_named=False) == LeaderBasis(INVENTORY.digest)
    assert "none.toml cannot be read" in LeaderBasis.of(INVENTORY, keys, is_named=True).keys_error
