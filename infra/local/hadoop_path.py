"""Files and directories on Hadoop's file systems: hdfs://, s3a://, file:///, and others that Spark's Java supports.

In: a URI, and the Spark session of this process. Out: the methods of ``pathlib.Path`` that read, replace and list small
files; errors raise OSError. The contents of files belong to other modules.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

CHECKSUM_SUFFIX = ".crc"  # On a local disk Hadoop keeps one next to each file.
NOT_FOUND = ("FileNotFoundException", "NoSuchFileException")
# Hadoop's errors for a scheme that its class path does not support.
NO_FILE_SYSTEM = ("No FileSystem for scheme", "No AbstractFileSystem configured for scheme", "ClassNotFoundException")


class NoFileSystemError(OSError):
    """Spark's Java has no file system for the scheme of the URI."""


@dataclass(frozen=True, slots=True)
class HadoopPath:
    """A file or directory by its URI; paths with equal URIs are equal."""

    uri: str

    def __truediv__(self, name: str) -> HadoopPath:
        return HadoopPath(f"{self.uri.rstrip('/')}/{name}")

    def __str__(self) -> str:
        return self.uri

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.uri.rstrip("/").rpartition("/")[2]

    @property
    def parent(self) -> HadoopPath:
        """The path without its last part."""
        return HadoopPath(self.uri.rstrip("/").rpartition("/")[0])

    def with_name(self, name: str) -> HadoopPath:
        """Return the path with another last part."""
        return self.parent / name

    def exists(self) -> bool:
        """Return True if there is a file or directory."""
        with self._opened() as (system, place):
            return bool(system.exists(place))

    def is_dir(self) -> bool:
        """Return True if there is a directory; on an object store, if there is something in it."""
        with self._opened() as (system, place):
            return bool(system.exists(place) and system.getFileStatus(place).isDirectory())

    def iterdir(self) -> Iterator[HadoopPath]:
        """Yield the entries of a directory, without checksum files. Raises FileNotFoundError."""
        with self._opened() as (system, place):
            names = [status.getPath().getName() for status in system.listStatus(place)]
        yield from (self / name for name in sorted(names) if not name.endswith(CHECKSUM_SUFFIX))

    def mkdir(self, *, parents: bool = True, exist_ok: bool = True) -> None:
        """Make the directory and its parents, unless it exists."""
        if not (parents and exist_ok):
            raise NotImplementedError("Hadoop makes directories so alone")
        with self._opened() as (system, place):
            if not system.mkdirs(place):
                raise OSError(errno.EEXIST, "a file with that name exists", self.uri)

    def read_bytes(self) -> bytes:
        """Return the content of a file. Raises FileNotFoundError."""
        with self._opened() as (system, place):
            stream = system.open(place)
            try:
                return bytes(stream.readAllBytes())
            finally:
                stream.close()

    def read_text(self, encoding: str = "utf-8") -> str:
        """Return the content of a file as text. Raises FileNotFoundError."""
        return self.read_bytes().decode(encoding)

    def write_text(self, text: str, encoding: str = "utf-8") -> int:
        """Overwrite a file and return the text's length; not atomic: readers may see part of the content."""
        content = text.encode(encoding)
        with self._opened() as (system, place):
            stream = system.create(place, True)
            try:
                stream.write(content)
            finally:
                stream.close()
        return len(text)

    def replace(self, target: HadoopPath) -> HadoopPath:
        """Rename a file and replace the target; atomic if the store supports it (HDFS, a disk)."""
        if self._is_on_disk:  # Hadoop's `FileContext` would fork processes.
            return self.rename(target)
        with self._opened() as (_, place):
            options = _java().org.apache.hadoop.fs.Options.Rename
            overwrite = _array(options, options.OVERWRITE)
            files = _java().org.apache.hadoop.fs.FileContext.getFileContext(place.toUri(), _configuration())
            files.rename(place, _place(target.uri), overwrite)
        return target

    def rename(self, target: HadoopPath) -> HadoopPath:
        """Rename a file or directory to a name that is free; on a disk it may be that of a file."""
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
        """Delete the file or directory, with all its contents, if it exists."""
        with self._opened() as (system, place):
            system.delete(place, True)

    @property
    def _is_on_disk(self) -> bool:
        return self.uri.startswith("file:")

    @contextmanager
    def _opened(self) -> Iterator[tuple[Any, Any]]:
        """Yield the file system and the path in it; Java's exceptions in the block become OSError."""
        from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

        try:
            place = _place(self.uri)
            system = place.getFileSystem(_configuration())
            # Without checksums: a crash between renaming a file and its checksum would make the file unreadable.
            yield system.getRawFileSystem() if self._is_on_disk else system, place
        except Py4JJavaError as error:
            raise _os_error(str(error.java_exception.toString()), self.uri) from error


def _os_error(text: str, uri: str) -> OSError:
    """Return the error for Java's text, which begins with the name of the exception."""
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
