"""Brokers of several agents on a Kafka with logins and rights: no agent reads or writes another's topics."""

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from regraft.controller.ports.plan_store import KafkaPlanStore
from regraft.controller.ports.topic_readers import TopicReader
from regraft.controller.run_controller import run_controller
from regraft.controller.settings.controller_settings import ControllerSettings
from regraft.controller.settings.decision_settings import DecisionSettings
from regraft.controller.settings.member_settings import MemberSettings
from regraft.infra.kafka.access_rules import access_rules, agent_principals, create_access_rules, default_principals
from regraft.infra.kafka.create_topics import create_topics
from regraft.infra.kafka.kafka_access import KafkaAccess
from regraft.infra.kafka.record_writer import RecordWriter
from regraft.infra.local.kafka_server import RunningKafka, start_kafka
from regraft.infra.local.secure_kafka import LOCAL_USER, SecuredKafka, secure_kafka
from regraft.overlay.inventory.inventory import Inventory
from regraft.producers.emulator.kafka_ports import KafkaPorts
from regraft.producers.emulator.read_commands import CommandReader, KafkaUnreachableError
from regraft.schemas.announcement import Announcement
from regraft.schemas.broker_topics import BrokerTopics
from regraft.schemas.command import Command, CommandPhase, CommandResult, Outcome
from regraft.schemas.dead_letter import DeadLetter
from regraft.schemas.member import BrokerFacts, Member, MemberState, PeerCost
from regraft.schemas.plan import PlanPhase
from regraft.schemas.plan_life import answers_to
from regraft.schemas.topics import ANNOUNCEMENTS, COMMANDS, DEAD_LETTERS, RESULTS, STATE, WINDOWS, topic_name
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
NEW_AGENT = "north"  # The inventory does not list it.
STRANGER = "b04"  # west has no right to speak for it
PACE_S = 0.1
PATIENCE_S = 30.0
REFUSED_S_MAX = 3.0


@dataclass(frozen=True)
class SharedKafka:
    """A Kafka with TLS, logins and an authorizer; its users are the roles, and agents instead of brokers."""

    running: RunningKafka
    secured: SecuredKafka

    def login(self, user: str, client_id: str) -> KafkaAccess:
        return KafkaAccess(self.running.bootstrap, client_id, self.secured.login(f"{NAMESPACE}-{user}"))

    def as_agent(self, agent: str) -> KafkaAccess:
        return self.login(f"brokers-{agent}", "regraft-emulator")


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedKafka]:
    directory = tmp_path_factory.mktemp("kafka")
    users = ("controller", "streaming", *(f"brokers-{agent}" for agent in (*AGENTS, NEW_AGENT)))
    secured = secure_kafka(directory / "secrets", (LOCAL_USER, *(f"{NAMESPACE}-{user}" for user in users)))
    with start_kafka(directory, secured=secured) as running:
        create_topics(running.access, namespace=NAMESPACE, agents=AGENTS)
        speakers = {agent: agent_principals(NAMESPACE, agent) for agent in AGENTS}
        rules = access_rules(default_principals(NAMESPACE), NAMESPACE, agents=speakers)
        create_access_rules(running.access, rules)
        yield SharedKafka(running, secured)


def topics_of(agent: str) -> BrokerTopics:
    """Return an agent's topics: it knows only its own brokers."""
    return BrokerTopics(NAMESPACE, {broker: own for broker, own in TOPICS_OF.agent_of.items() if own == agent})


def writer_of(access: KafkaAccess) -> RecordWriter:
    return RecordWriter(access, outage_s_max=20, buffer_records_max=100, linger_ms=0)


def test_an_agent_writes_only_its_own_results(kafka: SharedKafka) -> None:
    """It may write to no other agent's topics, nor may it send commands."""
    writer = writer_of(kafka.as_agent("west"))
    result = CommandResult("plan-0", CommandPhase.PREPARE, "b00", 1, Outcome.PREPARED, "", 3, 0)
    own, others = TOPICS_OF.name(RESULTS, "b00"), [TOPICS_OF.name(RESULTS, "b02"), *TOPICS_OF.names(COMMANDS)]
    for name in (own, *others):
        writer.write(name, "b00", result)
    assert writer.flush(PATIENCE_S) == 0
    assert (writer.written, writer.lost) == ({own: 1}, dict.fromkeys(others, 1))
    writer.close()


def test_an_agent_reads_only_its_own_commands(kafka: SharedKafka) -> None:
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
    """Answers for its brokers as the protocol requires."""

    def __init__(self, access: KafkaAccess, topics: BrokerTopics) -> None:
        self.ports = KafkaPorts(access, topics, outage_s_max=60, buffer_records_max=1_000)
        self.ports.connect(PATIENCE_S)
        self.held: list[Command] = []
        self.obeyed: set[str] = set()

    def take(self) -> list[Command]:
        """Return the commands that have arrived, and hold them."""
        found = self.ports.poll()
        self.held += found
        return found

    def answer(self) -> None:
        """Obey all held commands."""
        for command in self.held:
            self.obeyed.add(command.broker)
            is_install = command.phase is CommandPhase.INSTALL
            for outcome in (Outcome.INSTALLED,) if is_install else answers_to(command.phase):
                self.ports.send_result(answer_to(command, command.broker, outcome))
        self.held.clear()


def answer_to(command: Command, broker: str, outcome: Outcome) -> CommandResult:
    return CommandResult(
        command.plan, command.phase, broker, command.epoch_to, outcome, "", 3, 0, term=command.term,
        digest=command.digest,
    )  # fmt: skip


class Site:
    """Windows that make a plan worthwhile, and two agents, of which west forges an answer of east's."""

    def __init__(self, kafka: SharedKafka) -> None:
        self.west, self.east = (Agent(kafka.as_agent(agent), topics_of(agent)) for agent in ("west", "east"))
        self._streaming = writer_of(kafka.login("streaming", "regraft-streaming"))
        self._letters = TopicReader(
            kafka.running.access, {topic_name(DEAD_LETTERS, NAMESPACE): DeadLetter}, 0, pytest.fail
        )
        self._first_ms = time.time_ns() // 1_000_000 // WINDOW_MS * WINDOW_MS
        self._window_ms, self._shown_s, self._epoch = self._first_ms, 0.0, 0
        self.letters: list[DeadLetter] = []

    def turn(self) -> None:
        """Do what is due; east does not answer until west's forgery has been detected."""
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
        """Close the connections to Kafka."""
        for each in (self.west.ports, self.east.ports, self._streaming, self._letters):
            each.close()


def test_a_forged_answer_is_refused_and_the_plan_continues(kafka: SharedKafka, tmp_path: Path) -> None:
    """West refuses a plan in the name of east's broker: that is a dead letter, and all brokers execute the plan."""
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
    store, site = KafkaPlanStore(kafka.running.access, NAMESPACE), Site(kafka)  # read-only

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


class OpenSite:
    """An overlay of three agents in its own namespace: two have members, the third's broker asks to join."""

    NAMESPACE = "open"
    BROKERS = INVENTORY.brokers

    def __init__(self, kafka: SharedKafka) -> None:
        self.give_rights(kafka)
        topics = INVENTORY.broker_topics(self.NAMESPACE)
        self.agents = {one: Agent(kafka.as_agent(one), topics.of_agents((one,))) for one in AGENTS}
        own = BrokerTopics(self.NAMESPACE, {"x01": NEW_AGENT})
        self.agents[NEW_AGENT] = Agent(kafka.as_agent(NEW_AGENT), own)
        self._streaming = writer_of(kafka.login("streaming", "regraft-streaming"))
        letters = topic_name(DEAD_LETTERS, self.NAMESPACE)
        self._letters = TopicReader(kafka.running.access, {letters: DeadLetter}, 0, pytest.fail)
        self._first_ms = time.time_ns() // 1_000_000 // WINDOW_MS * WINDOW_MS
        self._window_ms, self._shown_s = self._first_ms, 0.0
        self._epochs: dict[str, int] = {}
        self.letters: list[DeadLetter] = []

    def give_rights(self, kafka: SharedKafka) -> None:
        """Create the topics and let each agent use its own; users are those of the other namespace."""
        agents = (*AGENTS, NEW_AGENT)
        create_topics(kafka.running.access, namespace=self.NAMESPACE, agents=agents)
        speakers = {agent: agent_principals(NAMESPACE, agent) for agent in agents}
        rules = access_rules(default_principals(NAMESPACE), self.NAMESPACE, agents=speakers)
        create_access_rules(kafka.running.access, rules)

    def turn(self) -> None:
        """Make agents answer, and the newcomer send telemetry once it is a member."""
        for agent in self.agents.values():
            for command in agent.take():
                if command.phase in (CommandPhase.ACTIVATE, CommandPhase.INSTALL):
                    self._epochs[command.broker] = command.epoch_to
            agent.answer()
        self.letters += self._letters.poll()
        if time.monotonic() - self._shown_s > PACE_S:
            self._shown_s = time.monotonic()
            is_in = self.agents[NEW_AGENT].ports.is_member("x01")
            self._write_window((*self.BROKERS, "x01") if is_in else self.BROKERS)

    def _write_window(self, brokers: tuple[str, ...]) -> None:
        rows = rows_of(brokers, self._window_ms, [{"b00", "b01"}] * 40)
        epochs = dict.fromkeys(brokers, 0) | self._epochs
        marker = marker_of(brokers, self._window_ms, rows, first_window_ms=self._first_ms, epochs=epochs)
        for name, record in (*((STATE, row) for row in rows), (WINDOWS, marker)):
            self._streaming.write(topic_name(name, self.NAMESPACE), "window", record)
        assert self._streaming.flush(PATIENCE_S) == 0
        self._window_ms += WINDOW_MS

    def close(self) -> None:
        """Close the connections to Kafka."""
        for each in (*(agent.ports for agent in self.agents.values()), self._streaming, self._letters):
            each.close()


def test_a_broker_announces_itself_and_joins_only_through_its_own_agent(
    kafka: SharedKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No other agent can write to its topic or announce its broker; no inventory listed the broker before."""
    monkeypatch.setattr("regraft.controller.ports.topic_readers.SEARCH_S", 0.2)
    INVENTORY.save(tmp_path / "inventory.json")
    settings = ControllerSettings(
        bootstrap=kafka.running.bootstrap,
        security=kafka.secured.login(f"{NAMESPACE}-controller"),
        namespace=OpenSite.NAMESPACE,
        inventory_path=tmp_path / "inventory.json",
        dry_run=False,
        decision=DecisionSettings(window_age_ms_max=600_000),
        members=MemberSettings(admit_announced=True, silence_ms=60_000, batch_ms=100),
        tick_ms=20,
    )
    site = OpenSite(kafka)
    facts = BrokerFacts(1.0, (PeerCost("b02", 1.0), PeerCost("b00", 5.0)), agent=NEW_AGENT)
    west = writer_of(kafka.as_agent("west"))
    for agent, broker in ((NEW_AGENT, "x02"), ("west", "x03")):
        west.write(topic_name(ANNOUNCEMENTS, OpenSite.NAMESPACE, agent), broker, Announcement(broker, facts, 5))
    assert west.flush(PATIENCE_S) == 0
    assert (west.written.total(), west.lost) == (1, {"open.announcements.north": 1})
    west.close()
    site.agents[NEW_AGENT].ports.announce(Announcement("x01", facts, 5))
    stop = threading.Event()
    thread = threading.Thread(target=run_controller, args=(settings, stop))
    thread.start()
    store = KafkaPlanStore(kafka.running.access, OpenSite.NAMESPACE)  # read-only
    looked_s, members = 0.0, dict[str, Member]()

    def is_in_service() -> bool:
        nonlocal looked_s, members
        site.turn()
        if time.monotonic() - looked_s > 5 * PACE_S:
            looked_s = time.monotonic()
            members = {member.broker: member for member in store.load_members() or []}
        return "x01" in members and members["x01"].state is MemberState.IN_SERVICE and bool(site.letters)

    try:
        wait_until(is_in_service)
    finally:
        stop.set()
        thread.join(PATIENCE_S)
        site.close()
    assert members.keys() == {"x01"}
    (plan,) = [plan for plan in store.load() or [] if "x01" in plan.brokers_target]
    assert plan.links_added == (("b02", "x01"),)
    assert {letter.topic for letter in site.letters} == {"open.announcements.west"}
    assert "it announces x03 for agent 'north', but not in that agent's topic" in site.letters[0].reason
