"""Finish the set-up after the Python packages: a Java, jars of Spark and Kafka, archives of their classes, the search.

The Makefile calls ``python -m regraft.infra.local.set_up``, which is fast if everything exists.
"""

import subprocess
import sys

from rich.console import Console

from regraft.infra.local.compile_search import compile_meanwhile
from regraft.infra.local.fetch_jars import kafka_class_path, read_lock, spark_jars
from regraft.infra.local.find_cache import find_cache
from regraft.infra.local.find_java import JavaRuntime, ensure_java
from regraft.infra.local.make_archives import archived_programs, make_archives
from regraft.infra.process.stack_error import StackError


def main() -> None:
    """Install Java and the jars, and print one line about them; exit with 1 and one sentence if that fails."""
    console = Console(stderr=True, soft_wrap=True, highlight=False, markup=False)
    with compile_meanwhile(console.print):
        java = _fetch(console)
        _make_archives(java, console)
    jars = sum(len(jar_set.jars) for jar_set in read_lock().values())
    console.print(f"Set-up complete: Java {java.version} ({java.source}), {jars} jars checked in {find_cache()}.")


def _fetch(console: Console) -> JavaRuntime:
    """Install Java, if there is none, and the jars; exit with 1 and one sentence if that fails."""
    try:
        java = ensure_java()
        spark_jars()
        kafka_class_path()
    except StackError as error:
        console.print(str(error))
        sys.exit(1)
    return java


def _make_archives(java: JavaRuntime, console: Console) -> None:
    """Make what lets Kafka and Spark start sooner; without it they start as well, so no error here ends the set-up."""
    try:
        make_archives(java, archived_programs(java), console.print)
    except (StackError, OSError, subprocess.SubprocessError) as error:
        console.print(f"Kafka and Spark will take longer to start, without archives of their classes ({error}).")


if __name__ == "__main__":
    main()
