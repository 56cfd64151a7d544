"""The shipped cuts of the data can be made again from originals, or from files of the same format."""

import gzip
import os
from pathlib import Path

import numpy as np
import pytest

from tests.producers.cut_data import (
    CHECKIN_DAYS,
    CHECKIN_GAP_S_MIN,
    CHECKINS_FROM,
    QUOTES_PER_SYMBOL_MAX,
    RTT_SLICE,
    SHIPPED,
    main,
)

ORIGINALS_VARIABLE = "CUT_ORIGINALS"  # A directory that contains the originals, at any depth.
ORIGINALS = (
    "planetlab_rtt.npz",
    "padres_stockquotes.csv.gz",
    "padres_subscriptions.csv.gz",
    "gowalla_nyc.npz",
    "aws_2020_06_05_rtt.npz",
    "aws_transfer_costs.csv",
)


def write_originals(directory: Path) -> None:
    rtt_ms = np.full((RTT_SLICE + 1, 3, 3), 7.0)
    rtt_ms[RTT_SLICE] = [[0.0, 0.06, 12.34], [0.06, 0.0, 250.0], [12.34, 250.0, 0.0]]
    np.savez(directory / "planetlab_rtt.npz", rtt_ms=rtt_ms)
    subscriptions = "subscription,attribute,operator,value\n" + "".join(
        f"{number},class,eq,STOCK\n{number},symbol,eq,A\n{number},open,<,{number}.5\n{number},high,<,{number}.7\n"
        for number in (10, 9)
    )
    (directory / "padres_subscriptions.csv.gz").write_bytes(gzip.compress(subscriptions.encode()))
    days = [f"{2000 + day // 300}-{day // 25 % 12 + 1:02d}-{day % 25 + 1:02d}" for day in range(500)]
    quotes = "symbol,date,open,high,low,close,volume\n" + "".join(
        f"{symbol},{day},1.0,2.0,0.5,1.5,100\n" for symbol in ("A", "UNWANTED") for day in reversed(days)
    )
    (directory / "padres_stockquotes.csv.gz").write_bytes(gzip.compress(quotes.encode()))
    write_checkins(directory / "gowalla_nyc.npz")
    np.savez(directory / "aws_2020_06_05_rtt.npz", regions=["here", "there"], avg_ms=[[0.08, 12.34], [12.0, 0.1]])
    prices = "src,dst,cost\nhere,internet,0.09\nhere,there,0.02\nthere,internet,0.15\nthere,here,0.1\nx,here,0.3\n"
    (directory / "aws_transfer_costs.csv").write_text(prices, encoding="utf-8")


def write_checkins(path: Path) -> None:
    """User 70 has three check-ins far enough apart and two that are not, 80 has two, 90 has two in the span."""
    gap, end = CHECKIN_GAP_S_MIN, CHECKIN_DAYS * 86_400
    rows = [
        (90, -1), (70, 0), (70, gap - 1), (90, gap), (70, gap), (70, gap + 10), (80, 5_000), (80, 9_000), (60, 9_100),
        (60, 10_100), (60, 11_100), (70, end - 1), (90, end - 1), (90, end), (70, end),
    ]  # fmt: skip
    start = int(CHECKINS_FROM.timestamp())
    np.savez(
        path,
        user=np.array([user for user, _ in rows], dtype=np.int32),
        time=np.array([start + second for _, second in rows]),
        lat=np.array([40.7 + row / 10_000 for row in range(len(rows))]),
        lon=np.array([-74.0 - row / 10_000 for row in range(len(rows))]),
    )


def test_cuts_keep_what_they_declare(tmp_path: Path) -> None:
    """One slice in tenths of a ms, all subscriptions in order, the newest quotes of wanted symbols oldest first."""
    originals, cuts = tmp_path / "originals", tmp_path / "cuts"
    for directory in (originals, cuts):
        directory.mkdir()
    write_originals(originals)
    main(originals, cuts)
    with np.load(cuts / "planetlab_rtt.npz") as cut:
        assert (cut["rtt_tenth_ms"].tolist(), int(cut["hosts"])) == ([1, 123, 2500], 3)
    subscriptions = gzip.decompress((cuts / "stock_subscriptions.csv.gz").read_bytes()).decode().splitlines()
    assert subscriptions == ["symbol,open_below,high_below", "A,9.5,9.7", "A,10.5,10.7"]
    quotes = gzip.decompress((cuts / "stock_quotes.csv.gz").read_bytes()).decode().splitlines()[1:]
    assert len(quotes) == QUOTES_PER_SYMBOL_MAX
    assert quotes == sorted(quotes)
    assert all(row.startswith("A,") for row in quotes)
    with np.load(cuts / "nyc_checkins.npz") as cut:
        assert cut["user"].tolist() == [1, 1, 0, 0, 0, 1]
        assert cut["minute"].tolist() == [0, 15, 151, 168, 185, CHECKIN_DAYS * 24 * 60 - 1]
        assert cut["lat_thousandth"].tolist() == [40_700, 40_700, 40_701, 40_701, 40_701, 40_701]
        assert cut["lon_thousandth"].tolist() == [-74_000, -74_000, -74_001, -74_001, -74_001, -74_001]
    regions = (cuts / "aws_regions.csv").read_text(encoding="utf-8").splitlines()
    assert regions[5:8] == ["here,internet,0.09,", "here,here,0.01,0.1", "here,there,0.02,12.3"]
    assert len(regions) == 11
    first_bytes = [path.read_bytes() for path in sorted(cuts.iterdir())]
    main(originals, cuts)
    assert [path.read_bytes() for path in sorted(cuts.iterdir())] == first_bytes


@pytest.mark.skipif(ORIGINALS_VARIABLE not in os.environ, reason=f"{ORIGINALS_VARIABLE} names no directory")
def test_shipped_cuts_are_those_of_the_originals(tmp_path: Path) -> None:
    """The files that SOURCES.md names give the shipped numbers in every cut."""
    originals, cuts = tmp_path / "originals", tmp_path / "cuts"
    for directory in (originals, cuts):
        directory.mkdir()
    for name in ORIGINALS:
        (found,) = Path(os.environ[ORIGINALS_VARIABLE]).rglob(name)
        (originals / name).symlink_to(found.resolve())
    main(originals, cuts)
    assert {cut.name for cut in cuts.iterdir()} == {
        file.name for file in SHIPPED.iterdir() if ".gz" in file.name or file.suffix in (".npz", ".csv")
    }
    for cut in cuts.iterdir():
        shipped = SHIPPED / cut.name
        if cut.suffix == ".npz":
            with np.load(cut) as made, np.load(shipped) as kept:
                assert set(made) == set(kept)
                assert all(np.array_equal(made[name], kept[name]) for name in made)
        elif cut.suffix == ".csv":
            assert cut.read_text(encoding="utf-8") == shipped.read_text(encoding="utf-8")
        else:
            assert gzip.decompress(cut.read_bytes()) == gzip.decompress(shipped.read_bytes())
