"""Measure one transition: messages, bytes, time, deliveries held back, pauses of clients; asserts that none is lost.

``python -m lab.benchmarks.bench_transition [--quick] [--brokers 40,100,400,1000] [--overlays tree,heavy,ring] [--users
N] [--command-ms 2,10] [--seed N] [--json FILE] [--compare FILE]``. Each scenario is one plan, executed on the virtual
clock by the controller's own state machine: commands and answers take 2 to 10 ms, links 1 to 19 ms, serving a
notification 0.2 ms and any other message 0.05 ms, under a load of 500 notifications and ten changes of subscriptions a
second.

``tree``: 49 publishers, 9 subscriptions to each. ``heavy``: 8 subscriptions at each broker. ``ring``: 150 topics with a
publisher each, 8 users at each broker with 5 to 10 topics each. Messages are all messages between brokers except
notifications, from the first command to the last answer, including those of subscription changes; "of plan" is the
brokers' own count. Messages are sized as msgpack of class name and field values, commands and answers as the Avro on
Kafka. A delivery counts as held unless it follows as soon as its broker has served the notification. ``--compare``
prints the figures of an earlier ``--json`` next to these. Each overlay runs in a separate process, for its peak memory;
all of them take some minutes.
"""

import argparse
import json
import multiprocessing
import resource
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lab.benchmarks.transition_meter import TransitionCost
from lab.benchmarks.transition_runs import COMMAND_MS, PUBLISHERS, RingRun, TransitionRun, TreeRun
from regraft.api.programs import Figure, run_facts, write_figures

BROKERS = "40,100,400,1000"
BROKERS_QUICK = "40,100"
SUBSCRIPTIONS_OF_PUBLISHER = 9
SUBSCRIPTIONS_OF_BROKER = 8
USERS_OF_BROKER = 8
OVERLAYS = ("tree", "heavy", "ring")
TABLES: dict[str, dict[str, str]] = {
    "Messages": {
        "sent": "sent over links",
        "messages": "messages in them",
        "messages_of_plan": "of plan",
        "message_bytes": "bytes",
        "commands": "commands",
        "command_bytes": "bytes",
        "answers": "answers",
        "answer_bytes": "bytes",
    },
    "Times, ms of the clock": {
        "prepared_ms": "prepared",
        "activated_ms": "activated",
        "drained_ms": "drained",
        "retired_ms": "retired",
        "publisher_wait_ms_mean": "publisher waits, mean",
        "publisher_wait_ms_max": "max",
        "user_wait_ms_mean": "user waits, mean",
        "user_wait_ms_max": "max",
    },
    "Deliveries": {
        "deliveries": "deliveries",
        "held": "held",
        "held_ms_p50": "held ms p50",
        "held_ms_p95": "p95",
        "held_ms_max": "max",
        "wall_s": "wall s",
        "cpu_s": "CPU s",
    },
}
COUNTED_BYTES = {"messages": "message_bytes", "commands": "command_bytes", "answers": "answer_bytes"}


@dataclass(frozen=True)
class Chosen:
    """Options common to all runs. ``users``: per broker. ``command_ms``: minimum and maximum, one way."""

    seed: int = 1
    users: int = USERS_OF_BROKER
    command_ms: tuple[float, float] = COMMAND_MS


def make_run(overlay: str, brokers: int, chosen: Chosen) -> TransitionRun:
    """Return an overlay with all its clients connected."""
    if overlay == "ring":
        return RingRun(brokers, chosen.users, chosen.seed, chosen.command_ms)
    count = {"tree": PUBLISHERS * SUBSCRIPTIONS_OF_PUBLISHER, "heavy": brokers * SUBSCRIPTIONS_OF_BROKER}[overlay]
    return TreeRun(brokers, count, chosen.seed, chosen.command_ms)


def measure(overlay: str, brokers: int, chosen: Chosen) -> list[Figure]:
    """Execute all scenarios on one overlay; raise AssertionError if something is lost, repeated or not executed.

    Peak memory is that of this process.
    """
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    run = make_run(overlay, brokers, chosen)
    figures: list[Figure] = []
    for scenario in run.scenarios:
        cost = run.measure(scenario)
        times_ms = list(cost.reached_ms.values())
        assert len(times_ms) == 4, f"{scenario}: only {list(cost.reached_ms)} were reached"
        assert times_ms == sorted(times_ms), f"{scenario}: {cost.reached_ms}"
        figures += figures_of(cost, {"overlay": overlay, "brokers": brokers, "scenario": scenario})
    account = run.finish()
    where: dict[str, str | int | float] = {"overlay": overlay, "brokers": brokers}
    return [
        *figures,
        Figure("run_wall_s", where, round(time.perf_counter() - wall_s, 2), "s"),
        Figure("run_cpu_s", where, round(time.process_time() - cpu_s, 2), "s"),
        Figure("run_memory_mb_max", where, round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024), "MB"),
        Figure("run_deliveries", where, account.delivered, "1"),
        Figure("run_lost", where, account.lost, "1"),
    ]


def figures_of(cost: TransitionCost, where: dict[str, str | int | float]) -> list[Figure]:
    """Return the cost of one transition as figures, in total and by kind."""
    reached: dict[str, float] = {name: round(value, 1) for name, value in cost.reached_ms.items()}
    for name, of_bytes in COUNTED_BYTES.items():
        counts: Counter[str] = getattr(cost, name)
        reached |= {name: counts.total(), of_bytes: getattr(cost, of_bytes).total()}
    reached |= {
        "sent": cost.sent,
        "messages_of_plan": cost.messages_of_plan,
        "deliveries": cost.deliveries,
        "held": len(cost.held_ms),
    }
    for name, share in (("p50", 0.5), ("p95", 0.95), ("max", 1.0)):
        reached[f"held_ms_{name}"] = round(_quantile(cost.held_ms, share), 1)
    for name, waits in (("publisher", cost.publisher_wait_ms), ("user", cost.user_wait_ms)):
        reached |= {f"{name}_wait_ms_mean": round(waits[1], 1), f"{name}_wait_ms_max": round(waits[2], 1)}
    reached |= {"wall_s": round(cost.wall_s, 3), "cpu_s": round(cost.cpu_s, 3)}
    figures = [Figure(name, where, value, _unit(name)) for name, value in reached.items()]
    for name, of_bytes in COUNTED_BYTES.items():
        for kind, count in sorted(getattr(cost, name).items()):
            figures.append(Figure(name, where | {"kind": kind}, count, "1"))
            figures.append(Figure(of_bytes, where | {"kind": kind}, getattr(cost, of_bytes)[kind], "B"))
    return figures


def _quantile(values: Sequence[float], share: float) -> float:
    """Return the smallest of the sorted values that this share of them does not exceed; 0 if there are none."""
    return values[max(-(-int(share * 100) * len(values) // 100) - 1, 0)] if values else 0.0


def _unit(name: str) -> str:
    parts = name.split("_")
    return "B" if "bytes" in parts else "ms" if "ms" in parts else "s" if parts[-1] == "s" else "1"


# --- tables ----------------------------------------------------------------------------------------------------------


class Values:
    """Figures by name and conditions, with those of an earlier run, if given, for comparison."""

    def __init__(self, figures: Sequence[Figure], earlier: Sequence[Figure]) -> None:
        self._now = {_key(figure): figure.value for figure in figures}
        self._before = {_key(figure): figure.value for figure in earlier}
        self.is_compared = bool(earlier)

    def text(self, name: str, where: dict[str, Any]) -> str:
        """Return the value as text; when comparing, the earlier value, this one and the change in per cent."""
        key = _key(Figure(name, where, 0.0, ""))
        now, before = self._now.get(key), self._before.get(key)
        if not self.is_compared:
            return _number(now)
        change = f" ({100 * (now / before - 1):+.0f} %)" if now is not None and before else ""
        return f"{_number(before)} → {_number(now)}{change}"

    def kinds(self, where: dict[str, Any]) -> list[str]:
        """Return the kinds of messages seen in a scenario in either run."""
        keys = [dict(place) for name, place in [*self._now, *self._before] if name == "messages"]
        return sorted({key["kind"] for key in keys if "kind" in key and key | where == key})


def _key(figure: Figure) -> tuple[str, frozenset[tuple[str, Any]]]:
    return figure.name, frozenset(figure.where.items())


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) or value == int(value) else f"{value:,.1f}"


def print_tables(figures: Sequence[Figure], earlier: Sequence[Figure]) -> None:
    """Print all figures as Markdown tables."""
    values = Values(figures, earlier)
    runs = [figure.where for figure in figures if figure.name == "run_lost"]
    places = [figure.where for figure in figures if figure.name == "prepared_ms"]
    for title, columns in TABLES.items():
        rows = [[*map(str, place.values()), *(values.text(name, place) for name in columns)] for place in places]
        _print_table(title, ["overlay", "brokers", "scenario", *columns.values()], rows)
    rows = []
    for place in places:
        kinds = [f"{kind} {values.text('messages', place | {'kind': kind})}" for kind in values.kinds(place)]
        rows.append([*map(str, place.values()), ", ".join(kinds)])
    _print_table("Messages by kind", ["overlay", "brokers", "scenario", "messages"], rows)
    columns = {"run_wall_s": "wall s", "run_cpu_s": "CPU s", "run_memory_mb_max": "memory MB"}
    columns |= {"run_deliveries": "deliveries", "run_lost": "lost"}
    rows = [[*map(str, place.values()), *(values.text(name, place) for name in columns)] for place in runs]
    _print_table("Whole runs, set-up included", ["overlay", "brokers", *columns.values()], rows)


def _print_table(title: str, heads: list[str], rows: list[list[str]]) -> None:
    widths = [max(len(row[place]) for row in [heads, *rows]) for place in range(len(heads))]
    print(f"\n### {title}\n")
    for row in [heads, ["-" * width for width in widths], *rows]:
        print("| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |")


# --- the program -----------------------------------------------------------------------------------------------------


def main() -> None:
    """Measure, print tables, write the figures; exit with 1 if a run breaks a guarantee of transitions."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--brokers", help=f"numbers of brokers, with commas; default {BROKERS}")
    parser.add_argument("--quick", action="store_true", help=f"the same as --brokers {BROKERS_QUICK}")
    parser.add_argument("--overlays", default=",".join(OVERLAYS), help="which overlays, with commas")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--users", type=int, default=USERS_OF_BROKER, help="users at each broker of a ring")
    parser.add_argument("--command-ms", default="2,10", help="least and most of a command's delay, with a comma")
    parser.add_argument("--json", type=Path, help="file for the figures")
    parser.add_argument("--compare", type=Path, help="file of an earlier run, whose figures are printed beside")
    given = parser.parse_args()
    sizes = [int(size) for size in (given.brokers or (BROKERS_QUICK if given.quick else BROKERS)).split(",")]
    least_ms, most_ms = map(float, given.command_ms.split(","))
    chosen = Chosen(given.seed, given.users, (least_ms, most_ms))
    earlier = _read_figures(given.compare) if given.compare else []
    settings = {"brokers": sizes, "overlays": given.overlays, **asdict(chosen)}
    figures: list[Figure] = []
    errors = []
    for overlay in given.overlays.split(","):
        for brokers in sizes:
            print(f"{overlay}, {brokers} brokers", file=sys.stderr, flush=True)
            try:
                figures += _measure_in_fresh_process(overlay, brokers, chosen)
            except AssertionError as error:
                errors.append(f"{overlay}, {brokers} brokers: {error}")
            if given.json:  # After each run, so that its figures survive a failure of a later one.
                write_figures(given.json, run_facts(settings, chosen.seed), figures)
    print_tables(figures, earlier)
    for text in errors:
        print(text, file=sys.stderr)
    sys.exit(1 if errors else 0)


def _measure_in_fresh_process(overlay: str, brokers: int, chosen: Chosen) -> list[Figure]:
    """Measure in a separate process, so that its peak memory is that of this run alone."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as executor:
        return executor.submit(measure, overlay, brokers, chosen).result()


def _read_figures(path: Path) -> list[Figure]:
    return [Figure(**one) for one in json.loads(path.read_text(encoding="utf-8"))["figures"]]


if __name__ == "__main__":
    main()
