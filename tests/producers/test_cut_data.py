"""The cuts that are shipped can be made again from originals of the same form."""

import gzip
from pathlib import Path

import numpy as np

from producers.data.cut_data import QUOTES_PER_SYMBOL_MAX, RTT_SLICE, main


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


def test_cuts_keep_what_they_say(tmp_path: Path) -> None:
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
    first_bytes = [path.read_bytes() for path in sorted(cuts.iterdir())]
    main(originals, cuts)
    assert [path.read_bytes() for path in sorted(cuts.iterdir())] == first_bytes
