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
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 (the name every Spark text uses)
from pyspark.sql.streaming.query import StreamingQuery
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
    start_kafka,
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
PASSED_ON = "value binary, time_ms bigint"


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
    """Start a session, run micro-batches of a query like the job's, and wait until its Java has ended."""
    key = "spark.driver.extraJavaOptions"
    java_options = f"{base_configuration(directory)[key]} {shlex.join(options)}"
    spark = build_spark_session(NAME, run_dir=directory, extra={key: java_options})
    with start_kafka(directory) as kafka:
        _write_and_read(kafka.access)
        query = _start_query(spark, kafka.access, directory / "checkpoint")
        query.processAllAvailable()
        _write_and_read(kafka.access)
        query.processAllAvailable()  # Reads the state that the first ones wrote.
        query.stop()
    gateway: Any = spark.sparkContext._gateway
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()  # Spark's Java ends when the program that started it does.
    gateway.proc.wait(END_S_MAX)


def _start_query(spark: SparkSession, kafka: KafkaAccess, checkpoint: Path) -> StreamingQuery:
    """Start a query that takes the way of the job's (:mod:`streaming.window_job`): Kafka, Python, state in Python."""
    source = {**kafka.spark_options(), "subscribe": topic_name(TELEMETRY), "startingOffsets": "earliest"}
    records = spark.readStream.format("kafka").options(**source).load().coalesce(2)
    values = records.select("value", F.unix_millis("timestamp").alias("time_ms")).mapInArrow(_pass_on, PASSED_ON)
    values = values.observe("records", F.coalesce(F.sum("time_ms"), F.lit(0)).alias("sum"))
    counts = (
        values.where("value is not null")
        .groupBy("value")
        .applyInPandasWithState(_count, "lines long", "lines long", "append", GroupStateTimeout.NoTimeout)
    )
    writer = counts.writeStream.foreachBatch(lambda batch, _: batch.toArrow())
    return writer.option("checkpointLocation", str(checkpoint)).start()


def _pass_on(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


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
