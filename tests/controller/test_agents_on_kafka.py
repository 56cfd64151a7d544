"""Brokers of several agents on a Kafka with logins and rights: none reads or writes what is another's."""

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from controller.controller_settings import ControllerSettings
from controller.decision_settings import DecisionSettings
from controller.ports.kafka_links import TopicReader
from controller.ports.plan_store import KafkaPlanStore
from controller.run_controller import run_controller
from infra.access_rules import access_rules, agent_principals, create_access_rules, default_principals
from infra.create_topics import create_topics
from infra.kafka_access import KafkaAccess
from infra.kafka_server import RunningKafka, start_kafka
from infra.record_writer import RecordWriter
from infra.secure_kafka import LOCAL_USER, SecuredKafka, secure_kafka
from overlay.inventory import Inventory
from producers.emulator.kafka_ports import CommandReader, KafkaPorts, KafkaUnreachableError
from schemas.broker_topics import BrokerTopics
from schemas.command import Command, CommandPhase, CommandResult, Outcome
from schemas.dead_letter import DeadLetter
from schemas.plan import PlanPhase
from schemas.plan_life import answers_to
from schemas.topics import COMMANDS, DEAD_LETTERS, RESULTS, STATE, WINDOWS, topic_name
from tests.controller.scripted_windows import WINDOW_MS, marker_of, rows_of
from tests.overlay.small_overlays import inventory_of, line_of
from tests.wait_until import wait_until

pytestmark = pytest.mark.stack

NAMESPACE = "live"
INVENTORY: Inventory = replace(
    inventory_of(line_of(5), {("b00", "b04"): 2.0}),
    agent_of={"b00": "west", "b01": "west", "b02": "east", "b03": "east", "b04": "east"},
)
TOPICS_OF = INVENTORY.broker_topics(NAMESPACE)
AGENTS = TOPICS_OF.agents
STRANGER = "b04"  # For which west has no right to speak.
PACE_S = 0.1
PATIENCE_S = 30.0
REFUSED_S_MAX = 3.0


@dataclass(frozen=True)
class SharedKafka:
    """A Kafka with TLS, logins and an authorizer; its users are the roles, and agents in the place of brokers."""

    running: RunningKafka
    secured: SecuredKafka

    def login(self, user: str, client_id: str) -> KafkaAccess:
        return KafkaAccess(self.running.bootstrap, client_id, self.secured.login(f"{NAMESPACE}-{user}"))

    def as_agent(self, agent: str) -> KafkaAccess:
        return self.login(f"brokers-{agent}", "regraft-emulator")


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedKafka]:
    directory = tmp_path_factory.mktemp("kafka")
    users = ("controller", "streaming", *(f"brokers-{agent}" for agent in AGENTS))
    secured = secure_kafka(directory / "secrets", (LOCAL_USER, *(f"{NAMESPACE}-{user}" for user in users)))
    with start_kafka(directory, secured=secured) as running:
        create_topics(running.access, namespace=NAMESPACE, agents=AGENTS)
        speakers = {agent: agent_principals(NAMESPACE, agent) for agent in AGENTS}
        rules = access_rules(default_principals(NAMESPACE), NAMESPACE, agents=speakers)
        create_access_rules(running.access, rules)
        yield SharedKafka(running, secured)


def topics_of(agent: str) -> BrokerTopics:
    """What an agent knows: its own brokers."""
    return BrokerTopics(NAMESPACE, {broker: own for broker, own in TOPICS_OF.agent_of.items() if own == agent})


def writer_of(access: KafkaAccess) -> RecordWriter:
    return RecordWriter(access, outage_s_max=20, buffer_records_max=100, linger_ms=0)


def test_an_agent_writes_no_results_but_its_own(kafka: SharedKafka) -> None:
    """Of another's topics it may write none, nor may it command anybody."""
    writer = writer_of(kafka.as_agent("west"))
    result = CommandResult("plan-0", CommandPhase.PREPARE, "b00", 1, Outcome.PREPARED, "", 3, 0)
    own, others = TOPICS_OF.name(RESULTS, "b00"), [TOPICS_OF.name(RESULTS, "b02"), *TOPICS_OF.names(COMMANDS)]
    for name in (own, *others):
        writer.write(name, "b00", result)
    assert writer.flush(PATIENCE_S) == 0
    assert (writer.written, writer.lost) == ({own: 1}, dict.fromkeys(others, 1))
    writer.close()


def test_an_agent_reads_no_commands_but_its_own(kafka: SharedKafka) -> None:
    """With its own login the product's reader finds its commands, and gives up on another's."""
    letters = writer_of(kafka.as_agent("west"))
    for agent in AGENTS:
        reader = CommandReader(kafka.as_agent("west"), topics_of(agent), letters)
        if agent == "west":
            reader.connect(PATIENCE_S)
        else:
            with pytest.raises(KafkaUnreachableError, match=r"live\.commands\.east"):
                reader.connect(REFUSED_S_MAX)
        reader.close()
    letters.close()


class Agent:
    """Answers for its brokers as the protocol wants it; ``begin`` may do something at each command before that."""

    def __init__(self, access: KafkaAccess, agent: str) -> None:
        self.ports = KafkaPorts(access, topics_of(agent), outage_s_max=60, buffer_records_max=1_000)
        self.ports.connect(PATIENCE_S)
        self.held: list[Command] = []
        self.obeyed: set[str] = set()

    def take(self) -> list[Command]:
        """Return the commands that have come, and hold them."""
        found = self.ports.poll()
        self.held += found
        return found

    def answer(self) -> None:
        """Obey all that is held."""
        for command in self.held:
            self.obeyed.add(command.broker)
            for outcome in answers_to(command.phase):
                self.ports.send_result(answer_to(command, command.broker, outcome))
        self.held.clear()


def answer_to(command: Command, broker: str, outcome: Outcome) -> CommandResult:
    return CommandResult(
        command.plan, command.phase, broker, command.epoch_to, outcome, "", 3, 0, term=command.term,
        digest=command.digest,
    )  # fmt: skip


class Site:
    """Windows that make a plan worth while, and two agents, of which west forges an answer of east's."""

    def __init__(self, kafka: SharedKafka) -> None:
        self.west, self.east = (Agent(kafka.as_agent(agent), agent) for agent in ("west", "east"))
        self._streaming = writer_of(kafka.login("streaming", "regraft-streaming"))
        self._letters = TopicReader(
            kafka.running.access, {topic_name(DEAD_LETTERS, NAMESPACE): DeadLetter}, 0, pytest.fail
        )
        self._first_ms = time.time_ns() // 1_000_000 // WINDOW_MS * WINDOW_MS
        self._window_ms, self._shown_s, self._epoch = self._first_ms, 0.0, 0
        self.letters: list[DeadLetter] = []

    def turn(self) -> None:
        """Do what there is to do; east answers nothing before west's forgery has been found out."""
        if time.monotonic() - self._shown_s > PACE_S:
            self._shown_s = time.monotonic()
            self._write_window()
        for command in self.west.take():
            self._epoch = command.epoch_to if command.phase is CommandPhase.ACTIVATE else self._epoch
            if command.phase is CommandPhase.PREPARE:
                forged = answer_to(command, STRANGER, Outcome.REFUSED)
                self.west.ports.answers.write(TOPICS_OF.name(RESULTS, "b00"), STRANGER, forged)
        self.west.answer()
        self.letters += self._letters.poll()
        self.east.take()
        if self.letters:
            self.east.answer()

    def _write_window(self) -> None:
        rows = rows_of(INVENTORY.brokers, self._window_ms, [{"b00", "b04"}] * 40)
        for row in rows:
            self._streaming.write(topic_name(STATE, NAMESPACE), "row", row)
        assert self._streaming.flush(PATIENCE_S) == 0
        marker = marker_of(INVENTORY.brokers, self._window_ms, rows, self._epoch, first_window_ms=self._first_ms)
        self._streaming.write(topic_name(WINDOWS, NAMESPACE), "window", marker)
        assert self._streaming.flush(PATIENCE_S) == 0
        self._window_ms += WINDOW_MS

    def close(self) -> None:
        """Let go of Kafka."""
        for each in (self.west.ports, self.east.ports, self._streaming, self._letters):
            each.close()


def test_a_forged_answer_is_refused_and_the_plan_goes_on(kafka: SharedKafka, tmp_path: Path) -> None:
    """West refuses a plan in the name of east's broker: that is a dead letter, and the plan is carried out by all."""
    INVENTORY.save(tmp_path / "inventory.json")
    settings = ControllerSettings(
        bootstrap=kafka.running.bootstrap,
        security=kafka.secured.login(f"{NAMESPACE}-controller"),
        namespace=NAMESPACE,
        inventory_path=tmp_path / "inventory.json",
        dry_run=False,
        decision=DecisionSettings(cool_down_windows=0, window_age_ms_max=600_000),
        tick_ms=20,
    )
    stop = threading.Event()
    thread = threading.Thread(target=run_controller, args=(settings, stop))
    thread.start()
    store, site = KafkaPlanStore(kafka.running.access, NAMESPACE), Site(kafka)  # The store only reads.

    def is_completed() -> bool:
        site.turn()
        return [plan.phase for plan in store.load() or []] == [PlanPhase.COMPLETED]

    try:
        wait_until(is_completed)
    finally:
        stop.set()
        thread.join(PATIENCE_S)
        site.close()
    assert site.west.obeyed | site.east.obeyed == set(INVENTORY.brokers)
    assert {letter.topic for letter in site.letters} == {"live.results.west"}
    assert all("a broker of another agent: b04" in letter.reason for letter in site.letters)
