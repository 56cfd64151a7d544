"""Run one stage in this process until it ends or is asked to stop, and turn the outcome into an exit code.

In: settings. Out: an exit code. The work itself belongs to the stages; running several belongs to ``run_loop``.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable

import structlog

from regraft.infra.kafka.create_topics import check_topics
from regraft.infra.process.describe_os_error import describe_os_error
from regraft.infra.process.end_on_sigterm import stop_on_signals
from regraft.infra.process.exit_codes import EXIT_CALL, EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK
from regraft.infra.process.find_extras import require_extras
from regraft.infra.process.secret_files import warn_of_open
from regraft.infra.process.stack_error import CallError, StackError
from regraft.overlay.inventory.inventory import InventoryError
from regraft.overlay.overlay_configuration import LinkError
from regraft.overlay.ring.chord_ring import RingError
from regraft.schemas.remote_registry import RegistryError, use_registry
from regraft.schemas.status_file import replace_file
from regraft.settings.place_demo import agents_of, ensure_inventory
from regraft.settings.run_settings import Settings

SETTINGS_FILE = "settings.json"

log = structlog.get_logger(__name__)


def emulate(settings: Settings, stop: threading.Event) -> int:
    """Run the brokers and clients on this machine, emulated or real."""
    from regraft.producers.emulator.read_commands import KafkaUnreachableError
    from regraft.producers.emulator_settings import REAL_BROKERS
    from regraft.producers.run_emulator import run_emulator
    from regraft.producers.run_real_fleet import run_real_fleet

    run = run_real_fleet if settings.emulator.brokers in REAL_BROKERS else run_emulator
    try:
        run(settings.emulator, stop)
    except KafkaUnreachableError as error:
        return cannot_start("emulate", str(error))
    return EXIT_OK


def node(settings: Settings, stop: threading.Event) -> int:
    """Run one node next to a real broker."""
    from regraft.producers.run_node import run_node

    run_node(settings.node, stop)
    return EXIT_OK


def stream(settings: Settings, stop: threading.Event) -> int:
    """Run the Spark job that turns telemetry into windowed state."""
    from regraft.infra.local.spark_session import end_session
    from regraft.stages.start_spark import start_spark
    from regraft.streaming.explain_java import java_explained
    from regraft.streaming.job_errors import StreamingJobError
    from regraft.streaming.run_job import run_job

    spark = None
    try:
        with java_explained(settings.streaming):
            spark = start_spark(settings, stop)
        run_job(spark, settings.streaming, stop)
    except StreamingJobError as error:
        log.error("stage_cannot_continue", stage="stream", reason=str(error))
        _print_reason(str(error))
        return error.exit_code
    finally:
        if spark is not None:
            end_session(spark)
    return EXIT_OK


def control(settings: Settings, stop: threading.Event) -> int:
    """Run the controller."""
    from regraft.controller.run_controller import run_controller

    # For recorders and other readers of the run directory.
    replace_file(settings.run.directory / SETTINGS_FILE, json.dumps(settings.to_record(), indent=1) + "\n")
    run_controller(settings.controller, stop)
    return EXIT_OK


def dashboard(settings: Settings, stop: threading.Event) -> int:
    """Serve the dashboard."""
    from regraft.dashboard.run_dashboard import run_dashboard

    run_dashboard(settings.dashboard, stop)
    return EXIT_OK


def alerts(settings: Settings, stop: threading.Event) -> int:
    """Run the alert stage."""
    from regraft.alerts.run_alerts import run_alerts

    run_alerts(settings.alerts, stop)
    return EXIT_OK


STAGES: dict[str, Callable[[Settings, threading.Event], int]] = {
    "emulate": emulate,
    "node": node,
    "stream": stream,
    "control": control,
    "alerts": alerts,
    "dashboard": dashboard,
}


EXTRAS = {"stream": ["spark"], "dashboard": ["dashboard"]}  # Of the stages that need some.


def run_stage(name: str, settings: Settings, *, is_emulated: bool = False) -> int:
    """Run a stage until it ends, or until SIGTERM or Ctrl-C asks it to stop in order; return the exit code.

    If the brokers are emulated and there is no inventory, they are placed first.
    """
    with stop_on_signals() as stop:
        try:
            code = _run(name, settings, stop, is_emulated=is_emulated)
        except (StackError, RegistryError, InventoryError, LinkError, RingError) as error:
            is_call = isinstance(error, CallError | InventoryError)
            return cannot_start(name, str(error), EXIT_CALL if is_call else EXIT_FAILED)
        except OSError as error:
            return cannot_start(name, describe_os_error(error))
        except KeyboardInterrupt:
            return EXIT_INTERRUPTED
        except Exception:
            log.exception("stage_failed", stage=name)
            return EXIT_FAILED
        log.info("stage_ended", stage=name, requested=stop.is_set(), code=code)
        return code


def _run(name: str, settings: Settings, stop: threading.Event, *, is_emulated: bool) -> int:
    settings.run.directory.mkdir(parents=True, exist_ok=True)
    require_extras(f"The stage {name!r}", *EXTRAS.get(name, []))
    warn_of_open(settings.secret_files)
    if is_emulated:
        ensure_inventory(settings)
    is_replay, agents = settings.streaming.create_time, agents_of(settings)
    use_registry(namespace=settings.kafka.namespace, agents=agents)
    if reason := check_topics(settings.kafka.access, settings.kafka.namespace, agents, is_replay=is_replay):
        log.warning("topics_not_checked", reason=reason)
    return STAGES[name](settings, stop)


def cannot_start(name: str, reason: str, code: int = EXIT_FAILED) -> int:
    """Log why a stage cannot start, print the same as a sentence for the user, and return the exit code."""
    log.error("stage_cannot_start", stage=name, reason=reason)
    _print_reason(reason)
    return code


def _print_reason(reason: str) -> None:
    sys.stderr.write(f"{reason.removesuffix('.')}.\n")
