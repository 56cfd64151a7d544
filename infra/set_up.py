"""Finish the set-up after the Python packages: a Java, and the jars of Spark and Kafka.

The Makefile calls ``python -m regraft.infra.set_up``, which is fast if everything exists.
"""

import sys

from rich.console import Console

from regraft.infra.fetch_jars import kafka_class_path, read_lock, spark_jars
from regraft.infra.find_cache import find_cache
from regraft.infra.find_java import ensure_java
from regraft.infra.stack_error import StackError


def main() -> None:
    """Install Java and the jars, and print one line about them; exit with 1 and one sentence if that fails."""
    console = Console(stderr=True, soft_wrap=True, highlight=False, markup=False)
    try:
        java = ensure_java()
        spark_jars()
        kafka_class_path()
    except StackError as error:
        console.print(str(error))
        sys.exit(1)
    jars = sum(len(jar_set.jars) for jar_set in read_lock().values())
    console.print(f"Set-up complete: Java {java.version} ({java.source}), {jars} jars checked in {find_cache()}.")


if __name__ == "__main__":
    main()
