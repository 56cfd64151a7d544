"""One Spark session and one Kafka for all streaming tests."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from infra.kafka_server import RunningKafka, start_kafka
from infra.spark_session import build_spark_session
from streaming.streaming_settings import SPARK_SETTINGS
from streaming.window_job import limit_avro


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    settings = {name: value for name, value in SPARK_SETTINGS.items() if name != "spark.driver.extraJavaOptions"}
    session = build_spark_session(
        "streaming-tests", run_dir=tmp_path_factory.mktemp("spark"), shuffle_partitions=1, extra=settings
    )
    session.conf.set("spark.sql.shuffle.partitions", 1)
    limit_avro(session)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningKafka]:
    with start_kafka(tmp_path_factory.mktemp("kafka")) as running:
        yield running
