"""Start Kafka or Spark once with given Java options, let it do a little of everything, and end it properly.

    python -m regraft.infra.local.train_start kafka|spark DIRECTORY [JAVA_OPTION ...]

With ``-XX:ArchiveClassesAtExit``, Java then writes an archive of all classes that this took. DIRECTORY is new and gets
the logs. Where the archive goes belongs to :mod:`infra.local.make_archives`.
"""

import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from regraft.infra.kafka.create_topics import create_topics
from regraft.infra.kafka.kafka_access import KafkaAccess
from regraft.infra.kafka.kafka_clients import close_producer, is_kafka_ready, open_consumer, open_transactional_producer
from regraft.infra.local.fetch_jars import kafka_class_path
from regraft.infra.local.find_java import find_java
from regraft.infra.local.kafka_server import (
    HEAP_MB,
    KafkaAddress,
    KafkaFiles,
    format_data,
    java_command,
    kafka_process,
    write_settings,
)
from regraft.infra.local.service import NO_RESTART
from regraft.infra.local.spark_session import base_configuration, build_spark_session
from regraft.infra.local.supervise import Supervisor
from regraft.infra.process.find_port import choose_ports
from regraft.schemas.topics import TELEMETRY, topic_name

END_S_MAX = 180.0  # Of a Java that writes an archive at its end.
CALL_S_MAX = 60.0
NAME = "train-start"


def start_kafka_once(directory: Path, options: Sequence[str]) -> None:
    """Start a broker, write a transaction and read it as a member of a group."""
    java, class_path, files = find_java(), kafka_class_path(), KafkaFiles(directory / "kafka")
    address = KafkaAddress(*choose_ports(2))
    write_settings(files, address, None, None)
    format_data(files, java, class_path, None)
    program, *rest = java_command(files, java, class_path, HEAP_MB)
    kafka = KafkaAccess(address.bootstrap)
    service = kafka_process(files, (program, *options, *rest), lambda: is_kafka_ready(kafka))
    with Supervisor() as supervisor:
        supervisor.start(replace(service, restart=NO_RESTART, grace_s=END_S_MAX))
        _write_and_read(kafka)


def _write_and_read(kafka: KafkaAccess) -> None:
    name = topic_name(TELEMETRY)
    create_topics(kafka, [TELEMETRY])
    producer = open_transactional_producer(kafka, NAME, int(CALL_S_MAX * 1_000))
    producer.init_transactions(CALL_S_MAX)
    producer.begin_transaction()
    producer.produce(name, b"record")
    producer.commit_transaction(CALL_S_MAX)
    close_producer(producer, CALL_S_MAX)
    consumer = open_consumer(kafka, group=NAME)
    consumer.subscribe([name])
    consumer.consume(1, CALL_S_MAX)
    consumer.commit(asynchronous=False)
    consumer.close()


def start_spark_once(directory: Path, options: Sequence[str]) -> None:
    """Start a session, run one micro-batch of a query with state in Python, and wait until its Java has ended."""
    key = "spark.driver.extraJavaOptions"
    java_options = f"{base_configuration(directory)[key]} {shlex.join(options)}"
    spark = build_spark_session(NAME, run_dir=directory, extra={key: java_options})
    source = directory / "source"
    source.mkdir()
    (source / "lines.txt").write_text("a\nb\na\n")
    counts = (
        spark.readStream.text(str(source))
        .groupBy("value")
        .applyInPandasWithState(_count, "lines long", "lines long", "append", GroupStateTimeout.NoTimeout)
    )
    writer = counts.writeStream.foreachBatch(lambda batch, _: batch.toArrow()).trigger(once=True)
    query = writer.option("checkpointLocation", str(directory / "checkpoint")).start()
    query.awaitTermination()
    gateway: Any = spark.sparkContext._gateway
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()  # Spark's Java ends when the program that started it does.
    gateway.proc.wait(END_S_MAX)


def _count(_: Any, frames: Iterable[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    count = sum(map(len, frames)) + (state.get[0] if state.exists else 0)
    state.update((count,))
    yield pd.DataFrame({"lines": [count]})


PROGRAMS = {"kafka": start_kafka_once, "spark": start_spark_once}


def main(arguments: Sequence[str]) -> None:
    """Start the named program in the directory with the options."""
    program, directory, *options = arguments
    PROGRAMS[program](Path(directory), options)


if __name__ == "__main__":
    main(sys.argv[1:])
