"""A file or directory where Hadoop's file systems keep it: hdfs://, s3a://, file:///, anything Spark's Java knows.

In: a URI, and the Spark session of this process. Out: the part of ``pathlib.Path`` by which small files are read,
replaced and listed, with OSError for what goes wrong. What is kept there belongs to who keeps it.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

CHECKSUM_SUFFIX = ".crc"  # Hadoop keeps one next to each file of a local disk.
NOT_FOUND = ("FileNotFoundException", "NoSuchFileException")
# What Hadoop says of a scheme that nothing on its class path serves.
NO_FILE_SYSTEM = ("No FileSystem for scheme", "No AbstractFileSystem configured for scheme", "ClassNotFoundException")


class NoFileSystemError(OSError):
    """Spark's Java has no file system for the scheme of a URI."""


@dataclass(frozen=True, slots=True)
class HadoopPath:
    """One place by its URI; two with the same URI are the same."""

    uri: str

    def __truediv__(self, name: str) -> HadoopPath:
        return HadoopPath(f"{self.uri.rstrip('/')}/{name}")

    def __str__(self) -> str:
        return self.uri

    @property
    def name(self) -> str:
        """The last part."""
        return self.uri.rstrip("/").rpartition("/")[2]

    @property
    def parent(self) -> HadoopPath:
        """All but the last part."""
        return HadoopPath(self.uri.rstrip("/").rpartition("/")[0])

    def with_name(self, name: str) -> HadoopPath:
        """Return the sibling of this place with another name."""
        return self.parent / name

    def exists(self) -> bool:
        """Return True if there is a file or directory."""
        with self._opened() as (system, place):
            return bool(system.exists(place))

    def is_dir(self) -> bool:
        """Return True if there is a directory; an object store has one where it has something in it."""
        with self._opened() as (system, place):
            return bool(system.exists(place) and system.getFileStatus(place).isDirectory())

    def iterdir(self) -> Iterator[HadoopPath]:
        """Yield what a directory holds, without checksums. Raises FileNotFoundError."""
        with self._opened() as (system, place):
            names = [status.getPath().getName() for status in system.listStatus(place)]
        yield from (self / name for name in sorted(names) if not name.endswith(CHECKSUM_SUFFIX))

    def mkdir(self, *, parents: bool = True, exist_ok: bool = True) -> None:
        """Make the directory and those above it, unless it is there."""
        if not (parents and exist_ok):
            raise NotImplementedError("Hadoop makes directories so alone")
        with self._opened() as (system, place):
            if not system.mkdirs(place):
                raise OSError(errno.EEXIST, "a file with that name exists", self.uri)

    def read_bytes(self) -> bytes:
        """Return what a file holds. Raises FileNotFoundError."""
        with self._opened() as (system, place):
            stream = system.open(place)
            try:
                return bytes(stream.readAllBytes())
            finally:
                stream.close()

    def read_text(self, encoding: str = "utf-8") -> str:
        """Return what a file holds as text. Raises FileNotFoundError."""
        return self.read_bytes().decode(encoding)

    def write_text(self, text: str, encoding: str = "utf-8") -> int:
        """Rewrite a file and return its length; a reader may see a part of it."""
        content = text.encode(encoding)
        with self._opened() as (system, place):
            stream = system.create(place, True)
            try:
                stream.write(content)
            finally:
                stream.close()
        return len(text)

    def replace(self, target: HadoopPath) -> HadoopPath:
        """Give a file another name, in place of what has it: at once where the store can (HDFS, a disk)."""
        if self._is_on_disk:  # Hadoop's own way forks processes for it.
            return self.rename(target)
        with self._opened() as (_, place):
            options = _java().org.apache.hadoop.fs.Options.Rename
            overwrite = _array(options, options.OVERWRITE)
            files = _java().org.apache.hadoop.fs.FileContext.getFileContext(place.toUri(), _configuration())
            files.rename(place, _place(target.uri), overwrite)
        return target

    def rename(self, target: HadoopPath) -> HadoopPath:
        """Give a file or directory another name, which nothing has; on a disk a file may."""
        with self._opened() as (system, place):
            if not system.rename(place, _place(target.uri)):
                raise OSError(errno.EIO, f"it could not be renamed to {target}", self.uri)
        return target

    def unlink(self, *, missing_ok: bool = False) -> None:
        """Delete a file."""
        with self._opened() as (system, place):
            deleted = system.delete(place, False)
        if not deleted and not missing_ok:
            raise FileNotFoundError(errno.ENOENT, "there is no such file", self.uri)

    def delete_tree(self) -> None:
        """Delete it with all that is in it, if it is there."""
        with self._opened() as (system, place):
            system.delete(place, True)

    @property
    def _is_on_disk(self) -> bool:
        return self.uri.startswith("file:")

    @contextmanager
    def _opened(self) -> Iterator[tuple[Any, Any]]:
        """Give the file system and the place in it; what Java raises in the block becomes an OSError."""
        from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

        try:
            place = _place(self.uri)
            system = place.getFileSystem(_configuration())
            # A file and its checksum are not renamed as one: what dies in between would leave a file nobody can read.
            yield system.getRawFileSystem() if self._is_on_disk else system, place
        except Py4JJavaError as error:
            raise _os_error(str(error.java_exception.toString()), self.uri) from error


def _os_error(text: str, uri: str) -> OSError:
    """Return the error for what Java said, which begins with the name of its exception."""
    if any(sign in text for sign in NO_FILE_SYSTEM):
        return NoFileSystemError(errno.EPROTONOSUPPORT, text, uri)
    if any(sign in text.split(":")[0] for sign in NOT_FOUND):
        return FileNotFoundError(errno.ENOENT, text, uri)
    return OSError(errno.EIO, text, uri)


def _context() -> Any:
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    if context is None:
        raise RuntimeError("a path of Hadoop needs a Spark session in this process")
    return context


def _java() -> Any:
    return _context()._jvm


def _configuration() -> Any:
    return _context()._jsc.hadoopConfiguration()


def _place(uri: str) -> Any:
    return _java().org.apache.hadoop.fs.Path(uri)


def _array(kind: Any, value: Any) -> Any:
    array = _context()._gateway.new_array(kind, 1)
    array[0] = value
    return array
