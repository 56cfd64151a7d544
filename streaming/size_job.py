"""Size the job by the number of brokers: shards, reading tasks, Kafka's partitions, memory.

Pure except for the log. Measurements are in docs/sizing.md. The number of brokers belongs to
:mod:`streaming.source_topics`.
"""

from dataclasses import replace
from math import ceil

import structlog
from pyspark.sql import SparkSession

from regraft.schemas.topics import TELEMETRY
from regraft.streaming.streaming_settings import StreamingSettings


def heap_of(spark: SparkSession) -> str:
    """Return the configured heap of Spark's driver, like 1024m."""
    return spark.sparkContext.getConf().get("spark.driver.memory", "1g") or "1g"


def heaps_of(spark: SparkSession) -> dict[str, str]:
    """Return the configured heap of the driver and, on a cluster, of each executor."""
    executor = spark.sparkContext.getConf().get("spark.executor.memory")
    return {"driver_memory": heap_of(spark)} | ({"executor_memory": executor} if executor else {})


# With 1,000 quiet brokers the job takes 0.35 cores per shard of this size, with 4,000 it takes 0.2; 50 deliveries in
# each batch would add 0.4. The rest of a core is for catching up.
BROKERS_PER_SHARD = 500
SHARDS_MIN = 2  # By default, the job has two cores.

# Measured in one process with 50 cells per record, while catching up: 120,000 records fit into 1 GB, 240,000 into 2.4.
HEAP_MB_MIN = 1_024
RECORDS_OF_LEAST_HEAP = 100_000
HEAP_MB_PER_1000_RECORDS = 10

log = structlog.get_logger(__name__)


def shards_of(brokers: int) -> int:
    """Return the number of shards for this many brokers."""
    return max(SHARDS_MIN, ceil(brokers / BROKERS_PER_SHARD))


def telemetry_partitions_of(brokers: int) -> int:
    """Return the number of partitions for a topic with this many reporting brokers: the usual one, or one per shard."""
    return max(TELEMETRY.partitions, shards_of(brokers))


def heap_mb(records: int) -> int:
    """Return the heap, in MB, for this many records in one micro-batch."""
    return HEAP_MB_MIN + max(records - RECORDS_OF_LEAST_HEAP, 0) * HEAP_MB_PER_1000_RECORDS // 1_000


def executor_heap_mb(records: int, shards: int, cores: int) -> int:
    """Return the heap, in MB, of an executor that runs ``cores`` tasks at once, each with one shard of a micro-batch.

    With 0 cores, it may run the tasks of all shards.
    """
    return heap_mb(ceil(records * min(cores or shards, shards) / shards))


def sized(settings: StreamingSettings, brokers: int, shards_kept: int | None = None) -> StreamingSettings:
    """Return the settings with rules applied to values of 0; a checkpoint keeps the shards that it began with."""
    shards = settings.shards or shards_kept or shards_of(brokers)
    return replace(settings, shards=shards, read_partitions_min=settings.read_partitions_min or shards)


def log_size(settings: StreamingSettings, brokers: int, records_max: int, heaps: dict[str, str]) -> None:
    """Log the size of a job that starts, and the number of shards by the rule, which may differ."""
    log.info(
        "job_sized",
        brokers=brokers,
        shards=settings.shards,
        shards_by_rule=shards_of(brokers),
        read_partitions_min=settings.read_partitions_min,
        batch_records_max=records_max,
        **heaps,
    )
