"""A directory as a store of Hadoop that is not a disk to it."""

import uuid
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession


def mounted(spark: SparkSession, directory: Path) -> str:
    """Return the URI of a directory in a store that Hadoop does not take for a disk; each call mounts another."""
    name = f"m{uuid.uuid4().hex[:8]}"  # Hadoop keeps what it has opened.
    context: Any = spark.sparkContext._jsc
    directory.mkdir()
    context.hadoopConfiguration().set(f"fs.viewfs.mounttable.{name}.link./store", directory.as_uri())
    return f"viewfs://{name}/store/checkpoint"
