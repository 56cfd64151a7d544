"""A small site for fail-over: emulated brokers on a real Kafka, scripted windows, controllers as processes.

Brokers' answers can be held back, which keeps a plan in a phase until its leader has been killed there.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from confluent_kafka import KafkaException, Message, Producer

from regraft.controller.ports.plan_store import KafkaPlanStore
from regraft.infra.kafka.create_topics import create_topics
from regraft.infra.kafka.kafka_access import KafkaAccess
from regraft.infra.kafka.read_messages import read_to_end
from regraft.overlay.inventory.inventory import Inventory
from regraft.producers.emulator.kafka_ports import KafkaPorts
from regraft.producers.emulator.ledger import LedgerSnapshot
from regraft.producers.emulator_settings import EmulatorSettings
from regraft.producers.run_emulator import WallClockEmulator
from regraft.producers.workloads.stock_settings import WorkloadSettings
from regraft.schemas.broker_topics import BrokerTopics
from regraft.schemas.codec import decode, encode
from regraft.schemas.command import Command, CommandResult, Outcome
from regraft.schemas.leader import LeaderTerm
from regraft.schemas.live_view import LiveViewError, decode_view
from regraft.schemas.plan import Plan, PlanPhase
from regraft.schemas.topics import COMMANDS, LEADER, STATE, WINDOWS, Topic, topic_name
from tests.controller.scripted_windows import WINDOW_MS, marker_of, rows_of
from tests.overlay.small_overlays import inventory_of, line_of
from tests.wait_until import wait_until

ROOT = Path(__file__).parents[2]
NAMESPACE = "site"
INVENTORY: Inventory = inventory_of(line_of(5), {})
ANSWERS = (Outcome.PREPARED, Outcome.ACTIVATED, Outcome.DRAINED, Outcome.RETIRED)
# The answers that are held back to keep a plan in the phase; for VERIFYING it is the windows.
HELD = {
    PlanPhase.PREPARING: ANSWERS,
    PlanPhase.ACTIVATING: ANSWERS[1:],
    PlanPhase.DRAINING: ANSWERS[2:],
    PlanPhase.RETIRING: ANSWERS[3:],
    PlanPhase.VERIFYING: (),
}
PACE_S = 0.3  # Wall time between two windows of a second each: tests do not wait in real time.
PATIENCE_S = 60.0
LOG_SHOWN_MAX = 3_000
SESSION_MS = 2_000


class GatedPorts(KafkaPorts):
    """The emulator's ports; answers among ``held`` wait until they are released."""

    held: frozenset[Outcome] = frozenset()

    def send_result(self, result: CommandResult) -> None:
        """Send a result unless it is held."""
        waiting = self.__dict__.setdefault("waiting", [])
        if self.held:
            waiting.append(result)
        else:
            super().send_result(result)

    def poll(self) -> list[Command]:
        """Send the results that are no longer held; return the commands that have arrived."""
        waiting: list[CommandResult] = self.__dict__.setdefault("waiting", [])
        for result in [one for one in waiting if one.outcome not in self.held]:
            super().send_result(result)
            waiting.remove(result)
        return super().poll()


CONSTANTS = {
    "controller.decision.pay_back_lifetimes": 1_000,  # Plans are made, however short-lived interests are.
    "controller.decision.window_age_ms_max": 600_000,
    "controller.assembly.future_ms_max": 6_000_000,
}


class Instance:
    """A controller in its own process."""

    def __init__(self, kafka: KafkaAccess, name: str, folder: Path, session_ms: int) -> None:
        self.name = name
        self.status_file = folder / "controller.json"
        folder.mkdir()
        INVENTORY.save(folder / "inventory.json")
        settings = {
            "run.directory": folder,
            "kafka.bootstrap": kafka.bootstrap,
            "kafka.namespace": NAMESPACE,
            "controller.instance": name,
            "controller.session_ms": session_ms,
            "controller.planner": "swap_links_cost",
            "controller.subscription_lifetime_s": 0.5,
        }
        command = [sys.executable, "-m", "tests.controller.control_with_constants", json.dumps(CONSTANTS)]
        command += ["stage", "control", "--act"]
        for setting, value in settings.items():
            command += ["--set", f"{setting}={value}"]
        self.log_file = folder / "controller.log"
        with self.log_file.open("w") as log:
            self.process = subprocess.Popen(
                command, cwd=ROOT, stderr=log, stdout=log, env={**os.environ, "PYTHONPATH": str(ROOT)}
            )

    def send(self, number: signal.Signals) -> None:
        """Send the process a signal."""
        self.process.send_signal(number)

    @property
    def is_standby(self) -> bool | None:
        """Return whether it reports being on standby, or None before its first report."""
        try:
            return decode_view(self.status_file.read_bytes()).is_standby
        except (OSError, LiveViewError):
            return None

    def end(self) -> None:
        """Kill the process and wait for it."""
        self.process.kill()
        self.process.wait()


class FailoverSite:
    """Brokers, windows and controllers, until the end of the block."""

    def __init__(self, kafka: KafkaAccess, folder: Path, session_ms: int = SESSION_MS) -> None:
        self.kafka, self._folder, self._session_ms = kafka, folder, session_ms
        create_topics(kafka, namespace=NAMESPACE)
        INVENTORY.save(folder / "inventory.json")
        self._store = KafkaPlanStore(kafka, NAMESPACE)  # read-only
        self._producer = Producer({"bootstrap.servers": kafka.bootstrap, "linger.ms": 0, "log_level": 0})
        self._first_ms = self._start_ms = time.time_ns() // 1_000_000 // WINDOW_MS * WINDOW_MS
        self._wanted: set[str] = set()
        self._stop, self._end = threading.Event(), threading.Event()
        self.are_windows_held = False
        self.instances: dict[str, Instance] = {}
        self._threads = [threading.Thread(target=self._write_windows)]
        self._begin_brokers(folder)

    def _begin_brokers(self, folder: Path) -> None:
        self.ports = GatedPorts(self.kafka, BrokerTopics(NAMESPACE), outage_s_max=60, buffer_records_max=100_000)
        self.ports.connect(PATIENCE_S)
        workload = WorkloadSettings(publisher_count=10, interested_broker_count=3, lifetime_s_mean=5.0)
        inventory_path = folder / "inventory.json"
        settings = EmulatorSettings(self.kafka.bootstrap, inventory_path, namespace=NAMESPACE, workload=workload)
        self._emulator = WallClockEmulator(settings, INVENTORY, self.ports)
        self._threads.insert(0, threading.Thread(target=self._emulator.run, args=(self._stop,)))

    def _end_brokers(self) -> None:
        self.ports.close()

    @property
    def epoch(self) -> int | None:
        """The brokers' lowest epoch, or None before they report any."""
        return min(broker.core.epoch for broker in self._emulator.overlay.brokers.values())

    def __enter__(self) -> FailoverSite:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._end.set()
        self._stop.set()
        self._release_answers()
        for thread in self._threads:
            thread.join(PATIENCE_S)
        for instance in self.instances.values():
            instance.end()
            if error is not None:
                error.add_note(f"{instance.name}: {instance.log_file.read_text()[-LOG_SHOWN_MAX:]}")
        self._end_brokers()

    def start(self) -> Instance:
        """Start another controller."""
        name = f"c{len(self.instances) + 1}"
        self.instances[name] = Instance(self.kafka, name, self._folder / name, self._session_ms)
        return self.instances[name]

    def bring_to(self, phase: PlanPhase) -> int:
        """Wait until the newest plan is in the phase, hold it there, and return its epoch."""
        order = list(HELD)

        def is_there() -> bool:
            plans = self.plans
            newest = plans[-1].phase if plans else PlanPhase.COMPLETED
            # A plan beyond the phase is released, and the next one is held.
            is_past = newest in order and order.index(newest) > order.index(phase)
            self.ports.held = frozenset() if is_past else frozenset(HELD[phase])
            self.are_windows_held = phase is PlanPhase.VERIFYING and newest is not PlanPhase.COMPLETED
            return newest is phase

        wait_until(is_there)
        self.are_windows_held = True
        return self.plans[-1].epoch_to

    def is_completed(self, epoch: int) -> bool:
        """Return True if the plan to this epoch is completed."""
        return any(plan.epoch_to == epoch and plan.phase is PlanPhase.COMPLETED for plan in self.plans)

    def release(self) -> None:
        """Release answers and windows."""
        self.are_windows_held = False
        self._release_answers()

    def _release_answers(self) -> None:
        self.ports.held = frozenset()

    @property
    def plans(self) -> list[Plan]:
        """The newest version of each plan, by epoch."""
        return sorted(self._store.load() or [], key=lambda plan: plan.epoch_to)

    @property
    def phase(self) -> PlanPhase | None:
        """The phase of the newest plan."""
        plans = self.plans
        return plans[-1].phase if plans else None

    @property
    def term(self) -> LeaderTerm:
        """The current leader's term."""
        found = self.read(LEADER)
        return decode(found[-1].value() or b"", LeaderTerm) if found else LeaderTerm(0, "", 0)

    @property
    def commands(self) -> list[Command]:
        """All commands that brokers could read, in the topic's order."""
        found = self.read(COMMANDS)
        return [decode(message.value() or b"", Command) for message in found]

    def wait_for_term_above(self, number: int) -> LeaderTerm:
        """Wait for the next leader."""
        wait_until(lambda: self.term.term > number, PATIENCE_S)
        return self.term

    def read(self, topic: Topic) -> list[Message]:
        """Return all that a topic holds, however long a busy Kafka takes."""
        deadline_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline_s:
            with suppress(KafkaException):
                found = read_to_end(self.kafka, topic_name(topic, NAMESPACE))
                if found is not None:
                    return found
        raise AssertionError(f"{topic.suffix} was not read to its end in {PATIENCE_S:g} s")

    def account(self) -> LedgerSnapshot:
        """Let what is in transit arrive, and return the final account."""
        self._stop.set()
        self._threads[0].join(PATIENCE_S)
        self.ports.flush(PATIENCE_S)
        return self._emulator.finish({})

    def _write_windows(self) -> None:
        """Write windows in which the two brokers that are farthest apart want the same, whatever the overlay."""
        while not self._end.wait(PACE_S):
            epoch = self.epoch
            if self.are_windows_held or epoch is None:
                continue
            rows = rows_of(INVENTORY.brokers, self._start_ms, [self._farthest()] * 40)
            marker = marker_of(INVENTORY.brokers, self._start_ms, rows, epoch, first_window_ms=self._first_ms)
            for topic, records in ((STATE, rows), (WINDOWS, [marker])):
                for record in records:
                    self._producer.produce(topic_name(topic, NAMESPACE), encode(record))
            self._producer.flush(PATIENCE_S)
            self._start_ms += WINDOW_MS

    def _farthest(self) -> set[str]:
        """Return the brokers that want the same: those that an open plan was made for, else those farthest apart."""
        plans = self.plans
        if plans and plans[-1].phase is not PlanPhase.COMPLETED:
            return self._wanted
        links = plans[-1].links_target if plans else INVENTORY.bootstrap.links
        self._wanted = _ends_of(links)
        return self._wanted


def _ends_of(links: Sequence[tuple[str, str]]) -> set[str]:
    neighbours: dict[str, set[str]] = {}
    for a, b in links:
        neighbours.setdefault(a, set()).add(b)
        neighbours.setdefault(b, set()).add(a)

    def farthest(start: str) -> tuple[int, str]:
        depth, queue = {start: 0}, [start]
        for broker in queue:
            for other in sorted(neighbours[broker] - depth.keys()):
                depth[other] = depth[broker] + 1
                queue.append(other)
        return max((hops, broker) for broker, hops in depth.items())

    _, one = farthest(min(neighbours))
    _, other = farthest(one)
    return {one, other}
