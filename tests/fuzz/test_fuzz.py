"""Spoiled records of every topic: no part stops, no good record is lost, and all bad ones are counted."""

import random

import pytest
from hypothesis import given, settings

from regraft.schemas.codec import decode, encode
from regraft.schemas.topics import TOPICS, Topic
from tests.fuzz.mutate_values import MUTATIONS, spoiled
from tests.fuzz.parts_under_fuzz import TYPES
from tests.fuzz.run import BOUNDARIES, Report, run_boundaries, run_fuzz
from tests.schemas.plausible_records import records_of

RECORDS = 2_000
STREAMS = ("agents", "mqtt agents", "nats lines", "mqtt packets")
INPUTS = 300  # Of each boundary; `python -m tests.fuzz.run` feeds more.
SEED = 1


def test_spoiled_records_stop_nothing_and_lose_no_good_record() -> None:
    """Every part uses or refuses each of this many spoiled records over all topics, mixed with good ones."""
    report: Report = {}
    run_fuzz(RECORDS, SEED, report)
    assert sum(count.total() for name, count in report.items() if name.startswith("topic ")) == RECORDS
    for name in ("job", "controller", "start", "members", "alerts", "recorder", "dashboard"):
        assert report[f"part {name}"]["refused"] > 0, name
        assert report[f"part {name}"]["used"] > 0, name
    assert {name for name in report if name.startswith("mutation ")} == {f"mutation {name}" for name in MUTATIONS}


@pytest.mark.parametrize("name", [name for name in BOUNDARIES if name not in STREAMS])
def test_hostile_inputs_stop_no_boundary(name: str) -> None:
    """Times, keys, counts, names and files of an enemy: each input is used or counted as refused."""
    report: Report = {}
    run_boundaries([name], INPUTS, SEED, report)
    found = report[f"boundary {name}"]
    assert found["used"] > 0
    assert found["used"] + found["refused"] == INPUTS


@pytest.mark.parametrize("name", STREAMS)
def test_hostile_bytes_are_read_and_what_follows_is_passed_on(name: str) -> None:
    """Bytes are no inputs to count one by one: what each feeder asserts holds, and good messages arrive."""
    report: Report = {}
    run_boundaries([name], INPUTS, SEED, report)
    assert report[f"boundary {name}"]["passed_on"] > 0


@pytest.mark.parametrize("topic", TOPICS, ids=lambda topic: topic.suffix)
def test_the_same_seed_spoils_the_same(topic: Topic) -> None:
    """A record that broke something can be reproduced."""
    assert list(spoiled(topic, random.Random(SEED), 40)) == list(spoiled(topic, random.Random(SEED), 40))


@pytest.mark.parametrize("topic", TOPICS, ids=lambda topic: topic.suffix)
def test_every_plausible_record_is_read(topic: Topic) -> None:
    """A record whose fields are within their bounds survives its way through Kafka."""

    @settings(max_examples=20, deadline=None)
    @given(records_of(TYPES[topic]))
    def check(record: object) -> None:
        assert decode(encode(record), TYPES[topic]) == record  # type: ignore[arg-type]

    check()
