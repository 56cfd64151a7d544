"""One Spark session for all streaming tests."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from regraft.infra.local.spark_session import build_spark_session
from regraft.streaming.streaming_settings import StreamingSettings


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    run_dir = tmp_path_factory.mktemp("spark")
    extra = StreamingSettings("none:1", run_dir).session_options
    session = build_spark_session("streaming-tests", run_dir=run_dir, shuffle_partitions=1, extra=extra)
    session.conf.set("spark.sql.shuffle.partitions", 1)
    yield session
    session.stop()
