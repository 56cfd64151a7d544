"""The emulator's metrics match its status; its health depends on its clock."""

import threading
import time
from dataclasses import replace
from pathlib import Path

from regraft.infra.process.find_port import LOOPBACK
from regraft.infra.process.run_clock import RunClock
from regraft.infra.process.serve_metrics import RunningHealth, serve_metrics
from regraft.producers.emulator.emulator_metrics import EmulatorMetrics
from regraft.producers.run_emulator import WallClockEmulator
from regraft.schemas.command import Command, CommandPhase
from tests.infra.test_serve_metrics import ask
from tests.producers.test_run_emulator import INVENTORY, MemoryEmulatorPorts, StopAfter, settings
from tests.wait_until import PATIENCE_S, wait_until


def test_a_run_can_be_scraped_while_it_lasts(tmp_path: Path) -> None:
    """It is ready once traffic runs, with the ledger's counts; afterwards it is not ready but healthy."""
    metrics, health, stop = EmulatorMetrics(), RunningHealth("the emulator", PATIENCE_S), threading.Event()
    ports = MemoryEmulatorPorts()
    ports.waiting.append(Command("plan", CommandPhase.ABORT, INVENTORY.brokers[0], 0, 1))
    emulator = WallClockEmulator(settings(tmp_path), INVENTORY, ports, metrics, health)
    value = metrics.registry.get_sample_value
    with serve_metrics(metrics.registry, LOOPBACK, 0, health) as server:
        assert ask(server, "/ready")[0] == 503
        running = threading.Thread(target=emulator.run, args=(stop,), daemon=True)
        running.start()
        wait_until(lambda: (value("regraft_emulator_ledger", {"what": "published"}) or 0) > 0)
        assert ask(server, "/ready")[0] == 200
        assert 'regraft_emulator_brokers{epoch="0"} 8.0' in ask(server, "/metrics")[2]
        stop.set()
        running.join(PATIENCE_S)
        assert ask(server, "/ready")[0] == 503
        assert ask(server, "/health")[0] == 200
    account = emulator.finish({})
    assert value("regraft_emulator_ledger", {"what": "delivered"}) == account.delivered
    assert value("regraft_emulator_ledger", {"what": "lost"}) == 0
    assert value("regraft_emulator_results_total", {"outcome": "aborted"}) == 1
    assert value("regraft_emulator_commands_total", {"phase": "abort"}) == 1


def test_past_epochs_leave_no_series_behind() -> None:
    """Otherwise every plan would add a series."""
    metrics = EmulatorMetrics()
    counts = dict.fromkeys(("published", "expected", "delivered", "lost", "excused", "repeated"), 0)
    counts |= dict.fromkeys(("out_of_order", "out_of_order_on_detours", "unexpected", "outstanding", "concurrent"), 0)
    document = {"ledger": {**counts, "lost_by_reason": {}}}
    numbers = ("behind_ms", "held_deliveries", "held_deliveries_max", "queue_overflows")
    numbers += ("brokers_dead", "brokers_suspended", "clients_waiting", "clients_reconnected")
    numbers += ("publisher_wait_ms_max", "notifications_kept", "notification_hops", "control_hops", "sample_share")
    for epochs in ({"3": 8}, {"3": 2, "4": 6}, {"4": 8}):
        metrics.show({**document, **dict.fromkeys(numbers, 1), "brokers_by_epoch": epochs})
    value = metrics.registry.get_sample_value
    assert value("regraft_emulator_brokers", {"epoch": "4"}) == 8
    assert value("regraft_emulator_brokers", {"epoch": "3"}) is None


def test_a_hung_model_is_unhealthy_only_during_the_run() -> None:
    """Before and after it the emulator waits for Kafka, and the model does not advance."""
    health = RunningHealth("the emulator", -1.0)
    assert health().errors == ()
    health.is_running = True
    (error,) = health().errors
    assert error.startswith("the emulator has not run for")


def test_a_fast_clock_runs_more_time_and_stays_clean(tmp_path: Path) -> None:
    """At 20 times the speed a second is up to 20 of the run's, and everything is still delivered once."""
    origin_ms = time.time_ns() // 1_000_000
    clock = RunClock(origin_ms, 20.0)
    chosen = replace(settings(tmp_path), clock=clock, flush_ms=1_000.0, drain_s_max=600.0)
    ports = MemoryEmulatorPorts()
    emulator = WallClockEmulator(chosen, INVENTORY, ports)
    emulator.run(StopAfter(15))
    account = emulator.finish({})
    assert account.final
    assert account.is_clean
    times_ms = [batch.time_ms for batch in ports.batches]
    assert max(times_ms) - min(times_ms) > 3_000
    assert origin_ms <= min(times_ms)
    assert max(times_ms) <= clock.now_ms()
