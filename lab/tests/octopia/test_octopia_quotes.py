"""Recorded input of Shafique's evaluation: what is read, what is refused, and who wants what."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from regraft.api.cyclic import ScotBroker, scot_overlay
from regraft.api.emulation import load_stock_data
from regraft_lab.lab_command import app
from regraft_lab.octopia.octopia_quotes import (
    QuotePublisher,
    RealDataError,
    check_files,
    draw_quote_publishers,
    place_brokers,
    read_delays,
    read_quotes,
)
from regraft_lab.octopia.octopia_workload import paper_overlay

OVERLAY = paper_overlay()
SYMBOL = min(load_stock_data().thresholds)


def test_the_shipped_cuts_have_a_host_for_each_broker_and_stocks_with_subscriptions() -> None:
    """A file of all quotes is read in the order of its days, whatever its own order."""
    check_files("", "", len(OVERLAY.brokers()))
    assert len(read_quotes("")) == len(load_stock_data().symbols) == 49


def test_files_of_quotes_and_delays_are_read(tmp_path: Path) -> None:
    """Oldest first; stocks without subscriptions are left out, of several time slices the first is used."""
    quotes = tmp_path / "quotes.csv"
    quotes.write_text(f"symbol,date,open,high\n{SYMBOL},2004-02-01,3,4\n{SYMBOL},2004-01-01,1,2\n??,2004-01-01,1,2\n")
    assert read_quotes(str(quotes)) == {SYMBOL: [(1.0, 2.0), (3.0, 4.0)]}
    rtt_ms = np.arange(8.0).reshape(2, 2, 2)
    np.savez(tmp_path / "rtt.npz", rtt_ms=rtt_ms)
    assert read_delays(str(tmp_path / "rtt.npz")).tolist() == [[0.0, 0.5], [1.0, 1.5]]
    with pytest.raises(RealDataError, match="has 2 hosts, 70 brokers need one each"):
        check_files("", str(tmp_path / "rtt.npz"), 70)


@pytest.mark.parametrize(
    ("option", "text", "reason"),
    [
        ("--quotes", None, "is not a CSV of quotes"),
        ("--quotes", "symbol,date,open\n", "has no stock with real subscriptions"),
        ("--quotes", f"symbol,date,open,high\n{SYMBOL},2004-01-01,dear,2\n", "could not convert string to float"),
        ("--delays", None, "is not an .npz file with rtt_ms"),
        ("--delays", "rtt_ms", "is not an .npz file with rtt_ms"),
    ],
)
def test_an_unusable_file_ends_the_command_before_it_begins(
    option: str, text: str | None, reason: str, tmp_path: Path
) -> None:
    """Code 2, with the file and its error."""
    path = tmp_path / "given"
    if text is not None:
        path.write_text(text)
    answer = CliRunner().invoke(app, ["octopia", "--quick", "--out", str(tmp_path / "out"), option, str(path)])
    assert answer.exit_code == 2
    assert reason in answer.output
    assert str(path) in answer.output


def test_a_quote_is_wanted_where_a_subscription_allows_its_prices() -> None:
    """Open and high below the limits; quotes repeat cyclically."""
    a, b = ScotBroker("a", 0), ScotBroker("b", 1)
    publisher = QuotePublisher("p", a, [(1.0, 2.0), (5.0, 6.0)], [(a, 2.0, 3.0), (b, 9.0, 6.5), (b, 0.5, 9.0)])
    assert [publisher.targets_of(number) for number in range(3)] == [{a, b}, {b}, {a, b}]
    assert publisher.subscribed == {a, b}


@pytest.mark.parametrize("seed", range(3))
def test_the_bursting_publisher_is_as_in_the_paper(seed: int) -> None:
    """It is at no broker of its subscribers, which are in all clusters."""
    publishers, fast = draw_quote_publishers(OVERLAY, read_quotes(""), random.Random(seed))
    assert len(publishers) == 100
    assert fast.host not in fast.subscribed
    assert {broker.cluster for broker in fast.subscribed} == set(range(5))


def test_regions_are_near_hosts_and_floods_arrive_by_shortest_paths() -> None:
    """Hosts on a line, as far apart as their numbers: a region of two is a host and its nearest neighbour."""
    overlay = scot_overlay([("a", "b"), ("b", "c")], 2)
    line_ms = np.abs(np.subtract.outer(np.arange(6.0), np.arange(6.0)))
    delays = place_brokers(overlay, line_ms, random.Random(1))
    assert sorted(delays.host_of.values()) == list(range(6))
    first = [delays.host_of[ScotBroker("a", cluster)] for cluster in range(2)]
    assert abs(first[0] - first[1]) == 1
    tree = delays.tree_from(ScotBroker("a", 0))
    assert set(tree) == set(overlay.brokers()) - {ScotBroker("a", 0)}
