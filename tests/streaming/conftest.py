"""One Spark session for all streaming tests."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from regraft.infra.local.spark_session import base_configuration, build_spark_session
from regraft.streaming.streaming_settings import SPARK_SETTINGS


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    run_dir, java_options = tmp_path_factory.mktemp("spark"), "spark.driver.extraJavaOptions"
    settings = {**SPARK_SETTINGS, java_options: base_configuration(run_dir)[java_options]}
    session = build_spark_session("streaming-tests", run_dir=run_dir, shuffle_partitions=1, extra=settings)
    session.conf.set("spark.sql.shuffle.partitions", 1)
    yield session
    session.stop()
