"""Feed spoiled records of every topic to every part: ``python -m tests.fuzz.run --records 100000 --seed 1``.

Then it feeds as many inputs to each boundary: streams with hostile times, keys, counts and names, files, frames between
nodes, and what connectors read. ``--boundary NAME`` feeds only these; "connector nats" is one next to a real broker.
Stops with an assertion at the first violated invariant; what is fed depends on the seed alone. Out: counts by topic,
part and boundary, also of a run that fails, and meanwhile those of all topics.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import structlog

from regraft.alerts.read_alert_inputs import INPUTS
from regraft.infra.process.show_progress import show_progress
from regraft.producers.recordings.record_topics import RECORD_TYPES
from regraft.schemas.codec import UndecodableRecordError, decode
from regraft.schemas.live_view import decode_view, encode_keys
from regraft.schemas.topics import MEMBERS, TELEMETRY, TOPICS, Topic
from tests.dashboard.view_documents import written_document
from tests.fuzz.agents_under_fuzz import feed_agents
from tests.fuzz.connectors_under_fuzz import KINDS, feed_connectors
from tests.fuzz.hostile_files import feed_inventories, feed_rules, feed_settings
from tests.fuzz.hostile_sources import feed_sources
from tests.fuzz.hostile_streams import (
    feed_alert_times,
    feed_batches,
    feed_letters,
    feed_order_keys,
    feed_recordings,
    feed_shards,
)
from tests.fuzz.mqtt_agents_under_fuzz import feed_mqtt_agents
from tests.fuzz.mutate_values import spoiled
from tests.fuzz.nodes_under_fuzz import feed_amqp, feed_links, feed_mqtt, feed_nats
from tests.fuzz.parts_under_fuzz import (
    CONTROLLER_READS,
    START_READS,
    TYPES,
    feed_alerts,
    feed_controller,
    feed_dashboard,
    feed_job,
    feed_members,
    feed_recorder,
    feed_start,
    good_values,
)

ROUND = 1_000  # records of all topics together that a part gets at once
GOOD_SHARE = 0.1
BOUNDARY_ROUND = 5_000
Report = dict[str, Counter[str]]
BOUNDARIES: dict[str, Callable[[random.Random, int, Path], Counter[str]]] = {
    "alerts": lambda rng, count, _: feed_alert_times(rng, count),
    "state": lambda rng, count, _: feed_shards(rng, count),
    "letters": lambda rng, count, _: feed_letters(rng, count),
    "telemetry": lambda rng, count, _: feed_batches(rng, count),
    "orders": lambda rng, count, _: feed_order_keys(rng, count),
    "recordings": feed_recordings,
    "inventories": lambda rng, count, _: feed_inventories(rng, count),
    "sources": feed_sources,
    "rules": lambda rng, count, _: feed_rules(rng, count),
    "settings": feed_settings,
    "links": lambda rng, count, _: feed_links(rng, count),
    "agents": lambda rng, count, _: feed_agents(rng, count),
    "mqtt agents": lambda rng, count, _: feed_mqtt_agents(rng, count),
    "nats lines": lambda rng, count, _: feed_nats(rng, count),
    "mqtt packets": lambda rng, count, _: feed_mqtt(rng, count),
    "amqp properties": lambda rng, count, _: feed_amqp(rng, count),
}
# Next to real brokers, where they are installed: only by name.
CONNECTORS = {f"connector {kind}": partial(feed_connectors, kind=kind) for kind in KINDS}


def run_fuzz(records: int, seed: int, report: Report, advance: Callable[[str, int], None] = lambda *_: None) -> None:
    """Feed this many spoiled records, and a tenth as many good ones; add the counts by topic and part to the report."""
    with tempfile.TemporaryDirectory() as folder:
        for place, start in enumerate(range(0, records, ROUND)):
            rng = random.Random(f"{seed}/{place}")
            _feed_round(rng, min(ROUND, records - start), Path(folder), report)
            counts = (count for name, count in report.items() if name.startswith("topic "))
            advance(_summary(sum(counts, Counter())), min(start + ROUND, records))


def run_boundaries(
    names: Iterable[str], inputs: int, seed: int, report: Report, advance: Callable[[str, int], None] = lambda *_: None
) -> None:
    """Feed each boundary this many inputs; add the counts to the report. Each input is used or counted as refused."""
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            for place, start in enumerate(range(0, inputs, BOUNDARY_ROUND)):
                rng, count = random.Random(f"{seed}/{name}/{place}"), min(BOUNDARY_ROUND, inputs - start)
                found = (BOUNDARIES | CONNECTORS)[name](rng, count, Path(folder))
                report.setdefault(f"boundary {name}", Counter()).update(found)
                advance(f"{name}: {_summary(report[f'boundary {name}'])}", min(start + count, inputs))


def _feed_round(rng: random.Random, count: int, folder: Path, report: Report) -> None:
    mixed: list[tuple[Topic, bytes]] = []
    for number, topic in enumerate(TOPICS):
        share = count // len(TOPICS) + (number < count % len(TOPICS))
        for how, value in spoiled(topic, rng, share):
            mixed.append((topic, value))
            _note(report, f"topic {topic.suffix}", _outcome(topic, value))
            _note(report, f"mutation {how}", _outcome(topic, value))
        mixed += [(topic, rng.choice(good_values(topic))) for _ in range(int(share * GOOD_SHARE))]
    rng.shuffle(mixed)

    def of(topics: object) -> list[tuple[Topic, bytes]]:
        return [(topic, value) for topic, value in mixed if topic in topics]  # type: ignore[operator]

    parts = {
        "job": lambda: feed_job([value for _, value in of((TELEMETRY,))]),
        "controller": lambda: feed_controller(of(CONTROLLER_READS)),
        "members": lambda: feed_members([value for _, value in of((MEMBERS,))]),
        "start": lambda: feed_start(of(START_READS)),
        "alerts": lambda: feed_alerts(of(INPUTS)),
        "recorder": lambda: feed_recorder(of(set(RECORD_TYPES)), folder / "fuzz.avro", rng),
        "dashboard": lambda: feed_dashboard(_spoiled_views(rng, count // len(TOPICS))),
    }
    for name, feed in parts.items():
        report.setdefault(f"part {name}", Counter()).update(feed())


def _spoiled_views(rng: random.Random, count: int) -> list[dict[str, bytes | None]]:
    import json

    whole = encode_keys(decode_view(json.dumps(written_document()).encode()))
    found: list[dict[str, bytes | None]] = []
    for _ in range(count):
        texts: dict[str, bytes | None] = dict(whole)
        part = rng.choice(sorted(texts))
        text = bytearray(texts[part] or b"")
        for _ in range(rng.choice((1, 3))):
            text[rng.randrange(len(text))] = rng.randrange(256)
        texts[part] = bytes(text[: rng.choice((len(text), len(text), rng.randrange(len(text))))])
        found.append(texts)
    return found


def _outcome(topic: Topic, value: bytes) -> str:
    try:
        decode(value, TYPES[topic])
    except UndecodableRecordError as error:
        return "implausible" if "is invalid" in str(error) else "undecodable"
    return "taken"


def _note(report: Report, name: str, outcome: str) -> None:
    report.setdefault(name, Counter())[outcome] += 1


def _summary(counts: Counter[str]) -> str:
    return ", ".join(f"{outcome} {count}" for outcome, count in sorted(counts.items()))


def main() -> int:
    """Run and print the counts."""
    parser = argparse.ArgumentParser(description="Feed spoiled records to every part.")
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--boundary", action="append", choices=sorted(BOUNDARIES | CONNECTORS), help="only these")
    given = parser.parse_args()
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    report: Report = {}
    try:
        if not given.boundary:
            with show_progress("Fuzz", given.records) as advance:
                run_fuzz(given.records, given.seed, report, advance)
        for name in given.boundary or BOUNDARIES:
            with show_progress(name, given.records) as advance:
                run_boundaries([name], given.records, given.seed, report, advance)
    finally:
        for name in sorted(report):
            sys.stdout.write(f"{name}: {_summary(report[name])}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
