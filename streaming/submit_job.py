"""The program for ``spark-submit``: flags in, an exit code out. ``regraft`` starts the query without it.

``spark-submit --jars ... streaming/submit_job.py --bootstrap HOST:PORT --checkpoint DIRECTORY`` (with the project on
PYTHONPATH and the session settings of ``streaming_settings.SPARK_SETTINGS``), on any master.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from dataclasses import fields
from pathlib import Path
from typing import Any

import structlog
from pyspark.sql import SparkSession

from regraft.infra.kafka.compare_topics import TIMESTAMP_TYPE
from regraft.infra.kafka.create_topics import alter_hint, timestamp_type
from regraft.infra.kafka.kafka_access import KafkaSecurity
from regraft.overlay.inventory.inventory import InventoryError
from regraft.schemas.remote_registry import RegistryError, use_registry
from regraft.schemas.topics import LOG_APPEND_TIME
from regraft.streaming.job_errors import EXIT_REFUSED, StreamingJobError
from regraft.streaming.run_job import run_job
from regraft.streaming.source_topics import broker_topics, source_topics
from regraft.streaming.streaming_settings import CATCH_UP_GRACE_MS, StreamingSettings

log = structlog.get_logger(__name__)


def parse_settings(arguments: list[str]) -> StreamingSettings:
    """Return the settings of a command line; if they have errors, argparse prints these and exits with 2."""
    parser = argparse.ArgumentParser(
        prog="submit_job.py",
        description="Telemetry in Kafka to windowed state in Kafka.",
        argument_default=argparse.SUPPRESS,  # Missing options keep the defaults of StreamingSettings.
    )
    parser.add_argument("--bootstrap", required=True, help="Kafka servers, host:port[,host:port]")
    parser.add_argument("--checkpoint", required=True, help="directory or URI (hdfs://...) of the checkpoint")
    parser.add_argument(
        "--directory",
        type=Path,
        default=Path(),
        help="with a URI: local directory for the job's files; default: the current one",
    )
    parser.add_argument("--namespace", help="prefix of the topics")
    parser.add_argument("--window-ms", type=int, help="length of a window, a multiple of 1000")
    parser.add_argument("--grace-ms", type=int, help="how long a window waits for rows")
    parser.add_argument("--trigger-ms", type=int, help="time from one micro-batch to the next")
    parser.add_argument("--records-per-trigger-max", type=int, help="maximum number of records in one micro-batch")
    parser.add_argument("--any-time", action="store_true", help="accept event times far from Kafka's (replays)")
    parser.add_argument("--inventory", type=Path, dest="inventory_path", help="refuse telemetry of other brokers")
    parser.add_argument("--create-time", action="store_true", help="accept timestamps that senders set (replays)")
    parser.add_argument("--status-file", type=Path, help="JSON file with the job's progress")
    _add_security(parser)
    given: dict[str, Any] = vars(parser.parse_args(arguments))
    named = {each.name: f"kafka_{each.name}" for each in fields(KafkaSecurity)}
    security = KafkaSecurity(**{name: given.pop(flag) for name, flag in named.items() if flag in given})
    if given.pop("any_time", False):
        given |= {"future_ms_max": None, "past_ms_max": None}
    given |= _checkpoint(given.pop("checkpoint"), given.pop("directory"))
    given["catch_up_grace_ms"] = max(given.get("grace_ms", 0), CATCH_UP_GRACE_MS)
    settings = StreamingSettings(**given, security=security)
    errors = settings.errors() + [f"security: {error}" for error in security.errors()]
    if errors:
        parser.error("; ".join(errors))
    return settings


def _add_security(parser: argparse.ArgumentParser) -> None:
    for each in fields(KafkaSecurity):
        flag = f"--kafka-{each.name.replace('_', '-')}"
        if isinstance(each.default, bool):
            parser.add_argument(flag, action=argparse.BooleanOptionalAction, help="as kafka.security in the settings")
        else:
            parser.add_argument(flag, type=_paths_or_text(each.name), help="as kafka.security in the settings")


def _checkpoint(checkpoint: str, here: Path) -> dict[str, Any]:
    if ":/" in checkpoint:
        return {"checkpoint_uri": checkpoint, "checkpoint_directory": here}
    return {"checkpoint_directory": Path(checkpoint)}


def _paths_or_text(name: str) -> type:
    return Path if name.endswith("_file") else str


def main() -> int:
    """Run the job until SIGTERM or SIGINT; return the exit code of ``StreamingJobError``, 0 when stopped."""
    settings = parse_settings(sys.argv[1:])
    try:
        use_registry(namespace=settings.namespace, agents=broker_topics(settings).agents)
    except (RegistryError, InventoryError) as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_REFUSED
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    spark = SparkSession.builder.appName(f"{settings.namespace}-streaming").getOrCreate()
    try:
        check_timestamps(settings)
        run_job(spark, settings, stop)
    except StreamingJobError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    finally:
        spark.stop()
    return 0


def check_timestamps(settings: StreamingSettings) -> None:
    """Raise StreamingJobError if senders set telemetry's timestamps: clocks must be compared with Kafka's own.

    The stages of ``regraft`` check all their topics when they start.
    """
    if settings.create_time or settings.bounds.future_ms_max is None:
        return
    for topic in source_topics(settings):
        kind = timestamp_type(settings.kafka, topic)
        if kind is None:
            log.warning("timestamp_type_unknown", topic=topic, wanted=LOG_APPEND_TIME)
        elif kind != LOG_APPEND_TIME:
            hint = alter_hint(settings.kafka, topic, {TIMESTAMP_TYPE: LOG_APPEND_TIME})
            raise StreamingJobError(
                f"{TIMESTAMP_TYPE} of topic {topic} is {kind}, so its times come from the senders and a "
                f"wrong clock cannot be detected: alter it ({hint}), or set streaming.create_time for a replay",
                EXIT_REFUSED,
            )


if __name__ == "__main__":
    sys.exit(main())
