"""Clients beside agents while plans move them, whatever happens in whatever order: `search_agents.py` tries more."""

from __future__ import annotations

import sys
import time
from collections import Counter
from dataclasses import replace

import pytest

from regraft.producers.brokers.broker_reports import BrokerPhase
from regraft.schemas.agent_names import client_beside
from tests.scenarios.agents.agents_ledger import ClientLedger
from tests.scenarios.agents.agents_run import FAULTS, AgentsDriver, AgentsSpec, run_agents, virtual_time
from tests.scenarios.agents.agents_site import AGENTS
from tests.scenarios.agents.site_kinds import KINDS, MQTT, NATS
from tests.scenarios.agents.wires import AnyOrderLoop
from tests.scenarios.any_order_account import BrokenPromiseError
from tests.scenarios.any_order_leaders import STRANGER, SUCCESSORS, TWIN

SEEDS, SEEDS_OF_ONE = {NATS: 20, MQTT: 8}, 2
AWAY_S = 150  # Longer than an agent waits for any word.


@pytest.mark.parametrize("protocol", KINDS)
def test_whatever_happens_clients_get_everything_once(protocol: str) -> None:
    """Faults, rivals and schedules are drawn; the runs together move clients, abort plans and lose brokers."""
    counts: Counter[str] = Counter()
    for seed in range(SEEDS[protocol]):
        result = run_agents(AgentsSpec.of(seed, protocol))
        assert result.failure is None, f"seed {seed}: {result.failure}"
        counts += result.counts
    assert counts["subscriptions_moved"] > SEEDS[protocol]
    happened = ("publishers_moved", "aborted", "reconnected", "refused_plan", "moves_refused")
    assert min(counts[name] for name in happened) > 0


@pytest.mark.parametrize("protocol", KINDS)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_single_sort_of_fault_breaks_no_promise(fault: str, protocol: str) -> None:
    """Other faults hide some faults: what one excuses is not owed any more."""
    for seed in range(SEEDS_OF_ONE):
        result = run_agents(replace(AgentsSpec.of(seed, protocol), faults=(fault,), rival=""))
        assert result.failure is None, f"seed {seed}: {result.failure}"


@pytest.mark.parametrize("rival", ["", SUCCESSORS, STRANGER, TWIN])
def test_controllers_beside_each_other_break_no_promise(rival: str) -> None:
    """Their orders interleave, and those of the wrong one are refused; without any fault, nothing is excused."""
    refused = 0
    for seed in range(SEEDS_OF_ONE):
        result = run_agents(replace(AgentsSpec.of(seed), faults=("repeat",), rival=rival))
        assert result.failure is None, f"seed {seed}: {result.failure}"
        refused += result.counts["refused_term"] + result.counts["refused_plan"]
    assert refused or not rival


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("phase", [BrokerPhase.PREPARED, BrokerPhase.DRAINED])
@pytest.mark.parametrize("protocol", KINDS)
def test_a_controller_may_be_away_for_long_in_the_middle_of_a_plan(
    protocol: str, phase: BrokerPhase, seed: int
) -> None:
    """Agents gave up waiting for it: clients got what a next home holds back again, or lost what came meanwhile."""
    loop, kind = AnyOrderLoop(), KINDS[protocol]()
    with virtual_time(loop, kind):
        driver = AgentsDriver(AgentsSpec(seed, protocol=protocol), loop, kind)
        site, nodes = driver.site, driver.site.nodes
        driver.begin()
        old, new, *_ = site.names
        driver.do(("plan", (), tuple((name, home, new) for name, home in site.movable().items() if home == old)))
        while not all(node.core.phase is phase for node in nodes.values()):
            driver.do(("publish", "c9", 1))
            while driver.move() and not all(node.core.phase is phase for node in nodes.values()):
                pass
        driver.do(("kill",))
        for _ in range(AWAY_S):
            driver.do(*(("publish", name, 1) for name in sorted(site.clients)))
            while driver.move():
                pass
            driver.do(("wait", 1_000), *(("tick", name) for name in nodes))
        driver.finish()


@pytest.mark.parametrize("protocol", KINDS)
def test_a_client_may_read_nothing_for_long_in_the_middle_of_a_plan(protocol: str) -> None:
    """Its agent, which then reads nothing either, gave up what nodes had said long ago: messages were lost."""
    loop, kind = AnyOrderLoop(), KINDS[protocol]()
    with virtual_time(loop, kind):
        driver = AgentsDriver(AgentsSpec(0, 2, protocol=protocol), loop, kind)
        site, nodes = driver.site, driver.site.nodes
        old, new = site.names
        driver.do(("come", "c0", AGENTS[0], 1), ("come", "c1", old, 1), ("come", "c2", new, 1))
        driver.rest()
        driver.serve()
        driver.do(("plan", (), tuple((name, old, new) for name in site.movable() if client_beside(name))))
        while not any(node.core.phase is BrokerPhase.DRAINING for node in nodes.values()):
            if not driver.move():
                driver.do(("wait", 20), *(("tick", name) for name in nodes))
        driver.do(("read", "c0", 0))
        for _ in range(AWAY_S):
            driver.do(("publish", "c1", 1), ("publish", "c2", 1))
            while driver.move():
                pass
            driver.do(("wait", 1_000), *(("tick", name) for name in nodes))
        driver.do(("read", "c0", 1))
        driver.rest()
        site.ledger.check()
        assert site.agents[AGENTS[0]].counts["subscriptions_moved"]
        driver.finish()


@pytest.mark.parametrize("protocol", KINDS)
def test_parts_read_only_the_time_of_the_run(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part that reads the real clock compares its times with those of others: ``CLOCKED`` must name it."""
    real_s, readers = time.monotonic, set[str]()

    def note_reader() -> float:
        readers.add(sys._getframe(1).f_globals["__name__"])
        return real_s()

    monkeypatch.setattr(time, "monotonic", note_reader)
    for fault in FAULTS:
        run_agents(replace(AgentsSpec.of(0, protocol), faults=(fault,), rival=""))
    assert not {name for name in readers if name.startswith("regraft.")}


@pytest.mark.parametrize("protocol", KINDS)
def test_a_run_can_be_repeated(protocol: str) -> None:
    """Its actions, performed again, have the same effects."""
    first = run_agents(AgentsSpec.of(1, protocol), is_traced=True)
    again = run_agents(first.spec, first.actions, is_traced=True)
    assert again.counts == first.counts
    assert len(again.trace) == len(first.trace) > len(first.actions) > 0


def opened() -> ClientLedger:
    ledger = ClientLedger()
    ledger.subscribe("s")
    ledger.open_all()
    return ledger


def test_the_ledger_notices_what_is_lost_repeated_out_of_order_or_invented() -> None:
    """Each fault that a run looks for."""
    ledger = opened()
    numbers = [ledger.write("p") for _ in range(3)]
    ledger.take("s", "p", numbers[0])
    with pytest.raises(BrokenPromiseError, match="repeated"):
        ledger.take("s", "p", numbers[0])
    ledger.take("s", "p", numbers[2])
    with pytest.raises(BrokenPromiseError, match="out of order"):
        ledger.take("s", "p", numbers[1])
    with pytest.raises(BrokenPromiseError, match="invented"):
        ledger.take("s", "p", 4)
    with pytest.raises(BrokenPromiseError, match=r"lost: 1: s lost p/\[2\]"):
        ledger.check()


def test_the_ledger_excuses_those_who_are_struck_until_they_are_opened_again() -> None:
    """What a publisher wrote before its broker died may come late, but not again to those who lost nothing."""
    ledger = opened()
    ledger.write("p")
    ledger.take("s", "p", 1)
    ledger.write("p")
    ledger.strike_late("p")
    ledger.check()
    ledger.write("p")
    ledger.take("s", "p", 3)
    ledger.take("s", "p", 2)
    with pytest.raises(BrokenPromiseError, match="repeated"):
        ledger.take("s", "p", 1)
    ledger.open_all()
    ledger.write("p")
    assert ledger.missing() == ["s lost p/[4]"]


def test_the_ledger_excuses_repeats_of_what_a_dying_broker_had_not_answered() -> None:
    """Of these alone, in their order once more; each is owed all the same."""
    ledger = opened()
    numbers = [ledger.write("p") for _ in range(5)]
    for number in (1, 2, 3, 5):
        ledger.take("s", "p", number)
    ledger.note_unanswered("p", {2, 3, 4})
    for number in (2, 3):
        ledger.take("s", "p", number)
    with pytest.raises(BrokenPromiseError, match="repeated"):
        ledger.take("s", "p", 1)
    with pytest.raises(BrokenPromiseError, match="out of order"):
        ledger.take("s", "p", 4)
    assert ledger.missing() == [f"s lost p/{numbers[3:4]}"]


def test_the_ledger_excuses_one_repeat_of_what_a_node_had_not_read_of_its_dying_broker() -> None:
    """Of that alone, and for the subscriptions that have restarted."""
    ledger = opened()
    ledger.subscribe("other")
    for number in (ledger.write("p"), ledger.write("p"), ledger.write("p")):
        for name in ("s", "other"):
            ledger.take(name, "p", number)
    for number in (2, 3):
        ledger.note_unread("s", "p", number)
    for number in (2, 3):
        ledger.take("s", "p", number)
    for name, number in (("s", 3), ("s", 1), ("other", 3)):
        with pytest.raises(BrokenPromiseError, match="repeated"):
            ledger.take(name, "p", number)
