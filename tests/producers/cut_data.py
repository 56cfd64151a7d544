"""Extract the shipped data from the original files; SOURCES.md lists where those come from.

Run as ``python tests/producers/cut_data.py ORIGINALS``. ORIGINALS holds ``planetlab_rtt.npz`` (``rtt_ms``, slices x
hosts x hosts), ``padres_stockquotes.csv.gz`` (symbol, date, open, high, low, close, volume; newest first),
``padres_subscriptions.csv.gz`` (subscription, attribute, operator, value), ``gowalla_nyc.npz`` (``user``, ``time`` in
seconds since 1970, ``lat``, ``lon`` in degrees; oldest first), ``aws_2020_06_05_rtt.npz`` (``regions``, ``avg_ms``) and
``aws_transfer_costs.csv`` (src, dst, cost in USD per GB). The same originals give the same bytes.
"""

import csv
import gzip
import io
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

RTT_SLICE = 17  # The last slice, and the one whose slowest pair (782 ms) is least of an outlier.
RTT_STEPS_PER_MS = 10  # Tenths of a millisecond fit 16 bits and halve the file.
QUOTES_PER_SYMBOL_MAX = 400  # About 100 s of publishing at 4 per second before a symbol starts over.

SHIPPED = Path(__file__).parents[2] / "producers" / "data"
INTERNET = "internet"
SAME_REGION_USD_PER_GB = "0.01"  # Not in the price list.
REGIONS_HEAD = (
    "What a GB sent from an Amazon region costs in USD, and mean round-trip times of pings in ms: SOURCES.md.",
    "Prices: skyplane-project/skyplane@4602d9cec208, skyplane/data/aws_transfer_costs.csv, Apache License 2.0; list",
    "prices as of April 2023, lowest volume. Within a region: 0.01, as mongodb/docs states for Atlas on Amazon.",
    "Round trips: vitorenesduarte/fantoch@aea6e324fdce, latency_aws/2020_06_05, MIT or Apache License 2.0.",
)

CHECKINS_FROM = datetime(2010, 8, 23, 4, tzinfo=UTC)  # A Monday, 0:00 in New York: the eight fullest whole weeks.
CHECKIN_DAYS = 56
CHECKIN_GAP_S_MIN = 15 * 60  # Many users record a whole day at once, seconds apart; no user moves that fast.
CHECKINS_PER_USER_MIN = 3
CHECKIN_STEPS_PER_DEGREE = 1_000  # 111 m north, 84 m east: a street corner, not a connector.


def cut_rtt(original: Path, cut: Path) -> None:
    """Keep the upper triangle of one slice, in tenths of a millisecond, at least one tenth."""
    rtt_ms = np.load(original)["rtt_ms"][RTT_SLICE]
    pairs = np.triu_indices(rtt_ms.shape[0], 1)
    tenths = np.maximum(np.round(rtt_ms[pairs] * RTT_STEPS_PER_MS), 1)
    np.savez_compressed(cut, rtt_tenth_ms=tenths.astype(np.uint16), hosts=np.int64(rtt_ms.shape[0]))


def cut_subscriptions(original: Path, cut: Path) -> set[str]:
    """Write each subscription as one row and return the symbols they name."""
    by_user: dict[str, dict[str, str]] = defaultdict(dict)
    for row in read_rows(original):
        by_user[row["subscription"]][row["attribute"]] = row["value"]
    rows = [
        (each["symbol"], each["open"], each["high"]) for _, each in sorted(by_user.items(), key=lambda kv: int(kv[0]))
    ]
    write_rows(cut, ("symbol", "open_below", "high_below"), rows)
    return {symbol for symbol, _, _ in rows}


def cut_quotes(original: Path, cut: Path, symbols: set[str]) -> None:
    """Keep the newest quotes of these symbols, oldest first."""
    names = ("symbol", "date", "open", "high", "low", "close", "volume")
    by_day: dict[str, list[tuple[str, ...]]] = defaultdict(list)
    for row in read_rows(original):
        if row["symbol"] in symbols:
            by_day[row["symbol"]].append(tuple(row[name] for name in names))
    kept = [row for symbol in sorted(by_day) for row in sorted(by_day[symbol])[-QUOTES_PER_SYMBOL_MAX:]]
    write_rows(cut, names, kept)


def cut_checkins(original: Path, cut: Path) -> None:
    """Keep user, minute and rounded position of one span, thinned out, for the users with several left.

    Users are numbered from 0 in the order of their original numbers; minutes count from the start of the span.
    """
    with np.load(original) as columns:
        seconds = columns["time"] - int(CHECKINS_FROM.timestamp())
        user, lat, lon = columns["user"], columns["lat"], columns["lon"]
    by_user: dict[int, list[int]] = defaultdict(list)
    for row in np.flatnonzero((seconds >= 0) & (seconds < CHECKIN_DAYS * 86_400)).tolist():
        rows_of_user = by_user[user[row]]
        if not rows_of_user or seconds[row] - seconds[rows_of_user[-1]] >= CHECKIN_GAP_S_MIN:
            rows_of_user.append(row)
    kept = np.array(sorted(row for rows in by_user.values() if len(rows) >= CHECKINS_PER_USER_MIN for row in rows))
    np.savez_compressed(
        cut,
        user=np.unique(user[kept], return_inverse=True)[1].astype(np.uint16),
        minute=(seconds[kept] // 60).astype(np.uint32),
        lat_thousandth=np.round(lat[kept] * CHECKIN_STEPS_PER_DEGREE).astype(np.int32),
        lon_thousandth=np.round(lon[kept] * CHECKIN_STEPS_PER_DEGREE).astype(np.int32),
        days=np.int64(CHECKIN_DAYS),
    )


def cut_regions(original_rtts: Path, original_prices: Path, cut: Path) -> None:
    """Write the price per GB from each measured region to each other and to the internet, and the round-trip time."""
    with np.load(original_rtts) as columns:
        regions, rtt_ms = [str(name) for name in columns["regions"]], columns["avg_ms"]
    with original_prices.open(encoding="utf-8", newline="") as stream:
        prices = {(row["src"], row["dst"]): row["cost"] for row in csv.DictReader(stream)}
    lines = [*(f"# {line}" for line in REGIONS_HEAD), "source,target,usd_per_gb,rtt_ms"]
    for row, source in enumerate(regions):
        lines.append(f"{source},{INTERNET},{prices[source, INTERNET]},")
        for column, target in enumerate(regions):
            price = SAME_REGION_USD_PER_GB if source == target else prices[source, target]
            lines.append(f"{source},{target},{price},{round(float(rtt_ms[row, column]), 1)}")
    cut.write_text("\n".join(lines) + "\n", encoding="utf-8")


def read_rows(path: Path) -> Iterable[dict[str, str]]:
    """Read the rows of a gzipped CSV file by column name."""
    with gzip.open(path, "rt", encoding="utf-8", newline="") as stream:
        yield from csv.DictReader(stream)


def write_rows(path: Path, names: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Write a gzipped CSV file without a timestamp, so that equal rows give equal bytes."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    writer.writerows(rows)
    path.write_bytes(gzip.compress(text.getvalue().encode("utf-8"), compresslevel=9, mtime=0))


def main(originals: Path, cuts: Path) -> None:
    """Extract all files."""
    cut_rtt(originals / "planetlab_rtt.npz", cuts / "planetlab_rtt.npz")
    symbols = cut_subscriptions(originals / "padres_subscriptions.csv.gz", cuts / "stock_subscriptions.csv.gz")
    cut_quotes(originals / "padres_stockquotes.csv.gz", cuts / "stock_quotes.csv.gz", symbols)
    cut_checkins(originals / "gowalla_nyc.npz", cuts / "nyc_checkins.npz")
    cut_regions(originals / "aws_2020_06_05_rtt.npz", originals / "aws_transfer_costs.csv", cuts / "aws_regions.csv")


if __name__ == "__main__":
    main(Path(sys.argv[1]), SHIPPED)
