"""Time a failover: from killing the leader to the successor's term and to its first command.

A real Kafka, emulated brokers and controllers run in separate processes on this machine. The leader is killed in the
middle of a plan, in each phase in turn; the successor's first command is about that plan. Asserts that nothing was
lost, repeated or out of order, that no command of a lower term follows one of a higher term, and that 95 % of the
successors sent their first command within twice the session time-out plus START_MS.

    python -m benchmarks.bench_failover [--kills 20] [--session-ms 6000] [--json FILE]
"""

import argparse
import signal
import tempfile
import time
from pathlib import Path
from statistics import quantiles

from regraft.infra.local.kafka_server import start_kafka
from regraft.infra.process.measured_figures import Figure, run_facts, write_figures
from regraft.schemas.codec import decode
from regraft.schemas.command import Command
from regraft.schemas.plan import PlanPhase
from regraft.schemas.plan_life import LIFE
from regraft.schemas.topics import COMMANDS
from tests.controller.failover_site import FailoverSite
from tests.wait_until import wait_until

# All phases in which brokers work on a plan that has not been aborted.
PHASES = tuple(phase for phase, facts in LIFE.items() if facts.is_moving and PlanPhase.ABORTED not in facts.next[:1])
START_MS = 4_000  # Joining, fencing the old leader, reading the plans and the first step, on busy cores.


def main() -> None:
    arguments = _arguments()
    to_term_ms: list[float] = []
    to_command_ms: list[float] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        start_kafka(Path(folder)) as kafka,
        FailoverSite(kafka.access, Path(folder), arguments.session_ms) as site,
    ):
        site.start()
        site.wait_for_term_above(0)
        for number in range(arguments.kills):
            phase = PHASES[number % len(PHASES)]
            term_ms, command_ms = _kill_leader(site, phase)
            print(f"kill {number + 1:>2}, {phase:<10}: term after {term_ms:>6,.0f} ms, command {command_ms:>6,.0f} ms")
            to_term_ms.append(term_ms)
            to_command_ms.append(command_ms)
        account, terms = site.account(), [command.term for command in site.commands]
    assert (account.lost, account.repeated, account.out_of_order) == (0, 0, 0), account
    assert terms == sorted(terms), "a command of a lower term follows one of a higher"
    where: dict[str, str | int | float] = {"session_ms": arguments.session_ms, "kills": arguments.kills}
    figures = []
    for name, times_ms in (("kill_to_term", to_term_ms), ("kill_to_first_command", to_command_ms)):
        cuts = quantiles(times_ms, n=20, method="inclusive")
        for share, value in (("p50", cuts[9]), ("p95", cuts[18]), ("max", max(times_ms))):
            figures.append(Figure(f"{name}_{share}", where, value, "ms"))
            print(f"{name}_{share}: {value:,.0f} ms")
    bound_ms = 2 * arguments.session_ms + START_MS
    p95_ms = quantiles(to_command_ms, n=20, method="inclusive")[18]
    assert p95_ms <= bound_ms, f"p95 is {p95_ms:,.0f} ms, at most {bound_ms:,} ms are allowed"
    if arguments.json:
        write_figures(arguments.json, run_facts(dict(where), seed=1), figures)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20, help="how often the leader is killed, at least 2")
    parser.add_argument("--session-ms", type=int, default=6_000, help="controller.session_ms of all controllers")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    return parser.parse_args()


def _kill_leader(site: FailoverSite, phase: PlanPhase) -> tuple[float, float]:
    """Kill the leader in a phase of a new plan; return the time to the next term and to its first command."""
    standby = site.start()
    wait_until(lambda: standby.is_standby is True)
    before, epoch = site.term, site.bring_to(phase)
    killed_ms = time.time() * 1_000
    site.instances[before.leader].send(signal.SIGKILL)
    after = site.wait_for_term_above(before.term)
    wait_until(lambda: _first_command_ms(site, after.term) is not None)
    command_ms = _first_command_ms(site, after.term)
    assert command_ms is not None
    site.release()
    wait_until(lambda: site.is_completed(epoch))
    return after.time_ms - killed_ms, command_ms - killed_ms


def _first_command_ms(site: FailoverSite, term: int) -> int | None:
    for message in site.read(COMMANDS):
        if decode(message.value() or b"", Command).term == term:
            return int(message.timestamp()[1])
    return None


if __name__ == "__main__":
    main()
