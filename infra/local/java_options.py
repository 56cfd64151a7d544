"""Options with which the Java of Kafka and Spark starts sooner: archives of the classes that a start loads.

Java maps such an archive into memory instead of reading, checking and linking thousands of classes. It ignores an
archive that another build of Java made, or that is of other jars. Making archives belongs to
:mod:`infra.local.make_archives`.
"""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from regraft.infra.local.fetch_jars import LOCK_FILE
from regraft.infra.local.find_cache import find_cache
from regraft.infra.local.find_java import JavaRuntime

DIRECTORY = "classes"  # In the cache.
BASE_SUFFIX = ".base"
TRAINING = Path(__file__).with_name("train_start.py")  # What an archive has depends on it.
DIGEST_DIGITS = 12
# Without an archive that fits, a start takes longer, and that is all: no word about it on standard error.
QUIET = ("-Xshare:auto", "-Xlog:cds=off", "-Xlog:cds+dynamic=off")


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """The archive of one program's classes, and that of Java's own, ``base``, for a Java that comes without one."""

    file: Path
    base: Path

    @property
    def option(self) -> str:
        """The option that names the files."""
        files = [self.base, self.file] if self.base.is_file() else [self.file]
        return f"-XX:SharedArchiveFile={os.pathsep.join(map(str, files))}"


def archive_of(program: str, java: JavaRuntime, jars: str) -> ClassArchive:
    """Return the place of a program's archive; ``jars`` says where its jars are, and which ones are not in the lock."""
    parts = [str(java.executable), jars, *(file.read_text(encoding="utf-8") for file in (LOCK_FILE, TRAINING))]
    digest = hashlib.sha256("\n".join(parts).encode("utf-8", "surrogateescape")).hexdigest()[:DIGEST_DIGITS]
    file = find_cache() / DIRECTORY / f"{program}-java{java.version}-{digest}.jsa"
    return ClassArchive(file, file.with_suffix(BASE_SUFFIX))


def start_options(archive: ClassArchive) -> tuple[str, ...]:
    """Return the options for one start: the archive if it exists."""
    return (archive.option, *QUIET) if archive.file.is_file() else ()
