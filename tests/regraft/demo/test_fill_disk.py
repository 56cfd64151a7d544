"""A disk is filled to its last byte, and only if it belongs to the run."""

from pathlib import Path

import pytest

from regraft.demo import fill_disk
from regraft.demo.fill_disk import NotOwnDiskError, OwnDisk
from tests.full_disk import small_disk


def test_a_full_disk_takes_no_byte_until_there_is_room(tmp_path: Path) -> None:
    """The filler of a run that was killed is removed when it is found."""
    with small_disk(tmp_path / "disk") as small:
        disk = OwnDisk(small.directory)
        assert not disk.is_full
        disk.fill()
        assert disk.is_full
        with pytest.raises(OSError, match="No space left"):
            (small.directory / "file").write_bytes(b"one byte")
        OwnDisk(small.directory)
        assert not disk.is_full
        (small.directory / "file").write_bytes(bytes(1_000_000))


def test_a_shared_disk_is_not_filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory within a larger file system is refused, and so is a file system too large to be a run's own."""
    with pytest.raises(NotOwnDiskError, match=r"is not a separate file system, .* mount one there, .* or leave demo\."):
        OwnDisk(tmp_path)
    monkeypatch.setattr(fill_disk, "SIZE_MB_MAX", 1)
    with small_disk(tmp_path / "disk") as small, pytest.raises(NotOwnDiskError, match="has 4 MB, but at most 1 MB"):
        OwnDisk(small.directory)
