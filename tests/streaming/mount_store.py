"""A directory mounted as a Hadoop store that Hadoop does not recognise as a disk."""

import uuid
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession


def mounted(spark: SparkSession, directory: Path) -> str:
    """Return the URI of a directory in a store that Hadoop does not recognise as a disk; each call mounts another."""
    name = f"m{uuid.uuid4().hex[:8]}"  # Hadoop caches open file systems.
    context: Any = spark.sparkContext._jsc
    directory.mkdir()
    context.hadoopConfiguration().set(f"fs.viewfs.mounttable.{name}.link./store", directory.as_uri())
    return f"viewfs://{name}/store/checkpoint"
