"""Make the archives with which Kafka and Spark start sooner (:mod:`infra.local.java_options`), each from one start.

Set-up does this.
"""

import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pyspark

from regraft.infra.local.fetch_jars import OTHER_SETUP_WAIT_S, kafka_class_path
from regraft.infra.local.find_cache import find_cache
from regraft.infra.local.find_java import JavaRuntime
from regraft.infra.local.java_options import BASE_SUFFIX, ClassArchive
from regraft.infra.local.kafka_server import kafka_archive
from regraft.infra.local.spark_session import driver_class_path, spark_archive
from regraft.infra.process.hold_lock import hold_lock
from regraft.infra.process.stack_error import StackError

TRAINING_S_MAX = 600.0
KEPT = 2  # Of each program: another checkout with the same cache may have other paths.
ARCHIVE_REQUIRED = "-Xshare:on"  # Java then ends with an error if it cannot take an archive.
BEGIN = "Creating archives of Java classes so that Kafka and Spark start faster; this takes about a minute, once."
# Spark's launcher names one jar twice, and later Javas take no archive of such a class path.
SPARK_JAVA_MAX = 17


class ArchiveError(StackError):
    """Reports why an archive could not be made."""


@dataclass(frozen=True, slots=True)
class ArchivedProgram:
    """A program that starts from an archive.

    ``training`` returns a command that starts it in a new directory with these options of Java and ends it again,
    ``trial`` one that only starts its Java.
    """

    archive: ClassArchive
    training: Callable[[Path, Sequence[str]], list[str]]
    trial: Callable[[Sequence[str]], list[str]]


def make_archives(java: JavaRuntime, programs: Sequence[ArchivedProgram], report: Callable[[str], None]) -> None:
    """Make the archives that are missing or do not fit; ``report`` gets a sentence before this takes long.

    Raises StackError, OSError or subprocess.SubprocessError. What exists then can be used.
    """
    with hold_lock(find_cache() / "classes.flock", wait_s_max=OTHER_SETUP_WAIT_S):
        missing = [each for each in programs if not _fits(each, each.archive, java)]
        if missing:
            report(BEGIN)
        for each in missing:
            _make(each, java)


def archived_programs(java: JavaRuntime) -> list[ArchivedProgram]:
    """Return the programs that start from archives with this Java: Kafka and, if it can, Spark."""
    class_path, spark_submit = kafka_class_path(), str(Path(pyspark.__file__).parent / "bin" / "spark-submit")

    def training(program: str, directory: Path, options: Sequence[str]) -> list[str]:
        return [sys.executable, "-P", "-m", "regraft.infra.local.train_start", program, str(directory), *options]

    def try_kafka(options: Sequence[str]) -> list[str]:
        return [str(java.executable), *options, "-cp", class_path, "-version"]

    def try_spark(options: Sequence[str]) -> list[str]:
        given = ["--driver-class-path", driver_class_path(), "--driver-java-options", shlex.join(options)]
        return [spark_submit, *given, "--version"]

    kafka = ArchivedProgram(kafka_archive(java, class_path), partial(training, "kafka"), try_kafka)
    spark = ArchivedProgram(spark_archive(java), partial(training, "spark"), try_spark)
    return [kafka, spark] if java.version <= SPARK_JAVA_MAX else [kafka]


def _make(program: ArchivedProgram, java: JavaRuntime) -> None:
    """Write an archive beside its place, and move it there once Java has taken it: another process may read it then."""
    archive, place = program.archive, program.archive.file.parent
    place.mkdir(parents=True, exist_ok=True)
    archive.file.unlink(missing_ok=True)  # An old one must not be read during the training.
    archive.base.unlink(missing_ok=True)
    options = ["-Xlog:disable"]
    if _run([str(java.executable), ARCHIVE_REQUIRED, "-version"], java).returncode != 0:
        base = f"-XX:SharedArchiveFile={archive.base}"
        _run([str(java.executable), "-Xshare:dump", base], java)
        options.append(base)
    with tempfile.TemporaryDirectory(dir=place, prefix="training-") as name:
        fresh = replace(archive, file=Path(name) / archive.file.name)
        options.append(f"-XX:ArchiveClassesAtExit={fresh.file}")
        answer = _run(program.training(Path(name) / "run", options), java)
        lines = answer.stderr.strip().splitlines() or ["Java wrote none"]
        if answer.returncode != 0 or not fresh.file.is_file():
            raise ArchiveError(f"{archive.file.name}: {lines[-1]}")
        if not _fits(program, fresh, java):
            raise ArchiveError(f"{archive.file.name}: Java {java.version} does not take the one that it wrote")
        with fresh.file.open("rb") as stream:
            os.fsync(stream.fileno())  # Java would crash at one whose end is missing.
        fresh.file.replace(archive.file)
    _remove_old(archive.file)


def _fits(program: ArchivedProgram, archive: ClassArchive, java: JavaRuntime) -> bool:
    """Return True if there is an archive, and Java takes it for the program with its jars."""
    command = program.trial([archive.option, ARCHIVE_REQUIRED])
    return archive.file.is_file() and _run(command, java).returncode == 0


def _run(command: Sequence[str], java: JavaRuntime) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "JAVA_HOME": str(java.home)}
    return subprocess.run(command, capture_output=True, text=True, timeout=TRAINING_S_MAX, check=False, env=environment)


def _remove_old(newest: Path) -> None:
    """Remove the archives of the same program except the newest ones."""
    program = newest.name.partition("-")[0]
    files = sorted(newest.parent.glob(f"{program}-*.jsa"), key=lambda file: file.stat().st_mtime, reverse=True)
    for old in files[KEPT:]:
        old.unlink()
        old.with_suffix(BASE_SUFFIX).unlink(missing_ok=True)
